"""Whether this rank stands still: pure, told the time."""

import statistics
from collections.abc import Sequence
from typing import Final

#: A median of fewer steps is an accident: the first steps compile and warm up.
STEPS_MIN: Final = 3


class StallWatch:
    """No step finished for several median steps, in phase `train`.

    Args:
        steps: so many median steps (>= 2).
        seconds: and at least so long.
    """

    def __init__(self, steps: float, seconds: float) -> None:
        self._steps, self._floor_ns = steps, int(seconds * 1e9)
        self.median_ns = 0
        self._measured_at = -1

    def stalled(self, *, now_ns: int, training: bool, step: int, since_ns: int, durations: Sequence[int]) -> bool:
        """Whether it stands still now.

        Args:
            now_ns: the time.
            training: whether the phase is `train`.
            step: the last finished one.
            since_ns: when it finished, or when the phase began if that was later.
            durations: of the last steps, nanoseconds from end to end; any order.
        """
        if step != self._measured_at and len(durations) >= STEPS_MIN:
            self._measured_at = step
            self.median_ns = int(statistics.median(durations))
        if not training or not self.median_ns:
            return False
        return now_ns - since_ns > max(self._floor_ns, int(self._steps * self.median_ns))
