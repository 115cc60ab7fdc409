"""A target's breaker: leaves a target alone that failed several times in a row, then lets one row through as a trial. Pure."""

from dataclasses import dataclass

from alerts.senders import Sender


@dataclass(slots=True)
class Breaker:
    """Closed (normal), open (left alone until `closed_at`), on trial (one row at a time), or gone (410) until a person enables it.

    Args:
        failures_max: consecutive failures that open it.
        seconds: how long it stays open.
    """

    failures_max: int
    seconds: float
    failures: int = 0
    closed_at: float = 0.0
    gone: bool = False

    def room(self, parallel: int, under_way: int, now: float) -> int:
        """How many more rows may be sent now. A target that is gone takes rows without limit: they die at once."""
        if self.gone:
            return parallel
        if now < self.closed_at:
            return 0
        return max((1 if self.failures >= self.failures_max else parallel) - under_way, 0)

    def is_open(self, now: float) -> bool:
        return self.gone or now < self.closed_at

    def note(self, outcome: str, now: float) -> None:
        """An attempt ended: `retry` is the target's failure, `refused` is the row's."""
        self.failures = self.failures + 1 if outcome == "retry" else 0
        self.gone = self.gone or outcome == "gone"  # a yes to what was under way before the no takes nothing back
        if self.failures >= self.failures_max:
            self.closed_at = now + self.seconds


@dataclass
class Route:
    """One target, its breaker, and how many rows are on their way to it."""

    sender: Sender
    breaker: Breaker
    under_way: int = 0

    def wants(self, kind: str) -> bool:
        return not self.sender.types or kind in self.sender.types
