"""A clock that can be real or simulated: whatever waits or stamps takes one as an argument."""

import time
from typing import Protocol


class Clock(Protocol):
    """Port of time. `monotonic` never goes back and is what all judgement uses; `wall` is for display only."""

    def monotonic(self) -> float:
        """Seconds on a clock that only grows."""
        ...

    def wall(self) -> float:
        """Seconds since 1970, for people; it may step."""
        ...


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class ManualClock:
    """A clock that stands still until it is told to move.

    Args:
        now: first value of both clocks, seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Moves both clocks forward by `seconds` (>= 0)."""
        if seconds < 0:
            raise ValueError("a clock never goes back")
        self._now += seconds
