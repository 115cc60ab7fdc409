"""Other detectors on the very same arrivals: a fixed time-out, phi accrual in two well-known settings, and the training's own.

The heartbeat detectors listen with one observer and restart the job without the node as soon as they convict it. The last one
knows no heartbeats: a launcher sees a rank that ends, the collectives' time-out sees a job that stands still; it names a node
only where a rank ended there.

Source: Akka's phi accrual detector (threshold 8, acceptable pause 3 s, least deviation 0.1 s); Cassandra's (exponential law,
threshold 8, so 18.42 mean gaps); torch's default collective time-out of ten minutes.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from drills.simulate.record import Record

FIXED_SECONDS: Final = 10.0
PHI_WINDOW: Final = 1_000
NCCL_SECONDS: Final = 600.0
#: Gaps that a detector does not learn: Akka none that it convicted for, Cassandra none above two seconds.
CASSANDRA_GAP_MAX_SECONDS: Final = 2.0
#: How often a launcher looks after its ranks, and tells the others.
LAUNCHER_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Conviction:
    """A detector's verdict: `node` None where it cannot say who."""

    t: float
    node: str | None


class _Gaps:
    """Mean and deviation of the newest gaps, begun with a steady rhythm: a detector that has run for long."""

    def __init__(self, beat: float) -> None:
        self.window = deque([beat] * PHI_WINDOW, maxlen=PHI_WINDOW)
        self.total, self.squares = beat * PHI_WINDOW, beat * beat * PHI_WINDOW

    def add(self, gap: float) -> None:
        old = self.window[0]
        self.window.append(gap)
        self.total += gap - old
        self.squares += gap * gap - old * old

    @property
    def mean(self) -> float:
        return self.total / PHI_WINDOW

    @property
    def deviation(self) -> float:
        return math.sqrt(max(0.0, self.squares / PHI_WINDOW - self.mean**2))


def _fixed(_gaps: _Gaps) -> float:
    return FIXED_SECONDS


def _akka(gaps: _Gaps) -> float:
    # phi >= 8 at 5.226 deviations in the logistic approximation that it uses.
    return gaps.mean + 3.0 + 5.226 * max(gaps.deviation, 0.1)


def _cassandra(gaps: _Gaps) -> float:
    return 18.42 * gaps.mean


PATIENCE: Final[dict[str, Callable[[_Gaps], float]]] = {
    "fixed_timeout_10s": _fixed, "phi_accrual_akka": _akka, "phi_accrual_cassandra": _cassandra,
}  # fmt: skip
NAMES: Final = (*PATIENCE, "nccl_timeout_only")


def convictions(record: Record, members: tuple[str, ...], beat: float) -> dict[str, list[Conviction]]:
    """What each baseline would have said in an episode, in order of time."""
    found: dict[str, list[Conviction]] = {name: [] for name in NAMES}
    for node in members:
        arrivals = record.arrivals.get(node, [])
        gaps = [later - earlier for earlier, later in zip(arrivals, (*arrivals[1:], record.end), strict=True)]
        if not gaps or max(gaps) < 2.5 * beat:
            continue  # no detector here is that impatient
        for name, patience in PATIENCE.items():
            learnt = CASSANDRA_GAP_MAX_SECONDS if name == "phi_accrual_cassandra" else math.inf
            found[name] += [Conviction(t, node) for t in _silences(arrivals, record.end, beat, patience, learnt)]
    for name in PATIENCE:
        found[name].sort(key=lambda one: (one.t, one.node or ""))
    found["nccl_timeout_only"] = list(_nccl(record))
    return found


def _silences(arrivals: list[float], end: float, beat: float, patience: Callable[[_Gaps], float], learnt: float) -> Iterator[float]:
    gaps, last = _Gaps(beat), arrivals[0]
    for arrival in (*arrivals[1:], math.inf):
        due = last + patience(gaps)
        if due < min(arrival, end):
            yield due
        if arrival <= min(due, last + learnt):
            gaps.add(arrival - last)
        last = arrival


def _nccl(record: Record) -> Iterator[Conviction]:
    if record.first_exit is not None:
        yield Conviction(record.first_exit[0] + LAUNCHER_SECONDS, record.first_exit[1])
    elif any(truth.stops for truth in record.truths) and record.held_since is not None:
        # The episode ends with Outrider's recovery; left alone, the job would have stood still until here.
        yield Conviction(record.held_since + NCCL_SECONDS, None)
