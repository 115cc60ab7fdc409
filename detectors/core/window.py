"""Windows over time: when each node was last heard, what its rhythm is, and what a job's usual step takes."""

from array import array
from bisect import bisect_left, insort
from collections import deque

import numpy as np
import numpy.typing as npt

#: Beats from which a node's interval is learnt, and how many of them in a row must be missing before it is late.
LEARN_BEATS, MISSED_BEATS = 3, 4
#: "Never heard", on any clock.
NEVER = float("-inf")


class Arrivals:
    """When heartbeats arrived, one row a node, and the time-out that fits each node's rhythm.

    The rhythm is learnt as TCP learns its retransmission time-out: m <- m + e/8, d <- d + (|e| - d)/4 with e = gap - m.
    A gap that outlasted the time-out is not learnt, else one death would teach the next one to be found late.
    Rows are plain buffers written one by one (a store costs 40 ns) and swept as numpy arrays (12,500 rows: 0.1 ms).

    Args:
        size: number of nodes.
        floor, ceiling: seconds between which the time-out lies.
    """

    def __init__(self, size: int, floor: float, ceiling: float) -> None:
        self.floor, self.ceiling = floor, ceiling
        #: Shape (size,), float64, seconds on the witness's clock; NEVER where nothing was heard.
        self._last = array("d", [NEVER]) * size
        self.last: npt.NDArray[np.float64] = np.frombuffer(self._last, dtype=np.float64)
        #: Shape (size,), float64, seconds: silence that makes the node late.
        self._timeout = array("d", [floor]) * size
        self.timeout: npt.NDArray[np.float64] = np.frombuffer(self._timeout, dtype=np.float64)
        #: Shape (size,), bool: judged at all (enough beats heard, not away for maintenance).
        self.judged: npt.NDArray[np.bool_] = np.zeros(size, dtype=bool)
        #: Shape (size,), bool: already known to be late.
        self.late: npt.NDArray[np.bool_] = np.zeros(size, dtype=bool)
        self._mean = [1.0] * size
        self._floor = [floor] * size
        self._deviation = [0.25] * size
        self.count = [0] * size

    def heard(self, row: int, now: float) -> float:
        """Notes an arrival and returns the gap before it (0.0 for the first one)."""
        gap = now - self._last[row]
        self._last[row] = now
        self.count[row] += 1
        if self.count[row] <= LEARN_BEATS and gap != float("inf"):
            # The first gaps tell the interval: a site that beats each 5 s is not late each time.
            self._mean[row] = mean = gap if self.count[row] == 2 else min(gap, self._mean[row])
            self._floor[row] = self._timeout[row] = max(self.floor, MISSED_BEATS * mean)
            return gap
        if gap >= self._timeout[row]:
            return gap if gap != float("inf") else 0.0
        mean = self._mean[row]
        error = gap - mean
        self._mean[row] = mean = mean + error / 8
        if error < 0:
            error = -error
        deviation = self._deviation[row]
        self._deviation[row] = deviation = deviation + (error - deviation) / 4
        floor = self._floor[row]
        if (wanted := mean + 4 * deviation) > floor:
            ceiling = self.ceiling if floor == self.floor else 2 * floor
            self._timeout[row] = wanted if wanted < ceiling else ceiling
        else:
            self._timeout[row] = floor
        return gap

    def shift(self, seconds: float) -> None:
        """Moves every arrival forward: the witness itself stood still for `seconds`."""
        self.last += seconds

    def newly_late(self, now: float) -> list[int]:
        """Rows that have just become late, in order; they are marked."""
        rows = np.flatnonzero(self.judged & ~self.late & (self.last + self.timeout <= now))
        self.late[rows] = True
        return [int(row) for row in rows]

    def quiet(self, now: float, seconds: float) -> list[int]:
        """Judged rows that have not been heard for `seconds`, in order."""
        return [int(row) for row in np.flatnonzero(self.judged & (now - self.last >= seconds))]

    def next_late(self) -> float:
        """The earliest time at which a row may become late; infinity if none is judged. Later beats only put it off."""
        watched = self.judged & ~self.late
        return float((self.last + self.timeout)[watched].min()) if watched.any() else float("inf")


class Median:
    """The median of the newest `size` values, kept sorted: 2 microseconds a value for windows below some hundred."""

    def __init__(self, size: int) -> None:
        self._queue: deque[float] = deque(maxlen=size)
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, value: float) -> None:
        """Takes a value in; the oldest leaves when the window is full."""
        if len(self._queue) == self._queue.maxlen:
            del self._sorted[bisect_left(self._sorted, self._queue[0])]
        self._queue.append(value)
        insort(self._sorted, value)

    def clear(self) -> None:
        """Forgets everything."""
        self._queue.clear()
        self._sorted.clear()

    @property
    def value(self) -> float | None:
        """The median, or None while there is nothing."""
        return self._sorted[len(self._sorted) // 2] if self._sorted else None

    def quantile(self, part: float) -> float | None:
        """The value below which `part` (0..1) of the window lies."""
        return self._sorted[min(int(part * len(self._sorted)), len(self._sorted) - 1)] if self._sorted else None
