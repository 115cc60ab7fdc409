"""What a leader leaves to the next one, and what every witness keeps in case it leads next. Pure."""

from typing import Any, Final

from detectors.core.register import PAST_MAX
from detectors.witness.ledger import Control
from outrider.signals import Signal

#: Closed incidents that the next leader's council still needs to know (it tells a fault that came back from a new one).
CLOSED_KEPT = 300
#: Signals that the council hears besides votes and jobs (which come by the ledger): what tells of recovery.
COUNCIL_KINDS: Final = frozenset({"snapshot", "phase"})
#: Signals kept; a site has hundreds of jobs, and a job takes snapshots under one fence an attempt.
HEARD_MAX = 10_000
Standing = dict[tuple[str, str], Control]


def lasting(memory: Any, standing: Standing) -> Any:
    """The council's memory without its long past, of which only the names stay: it is written with every commit.

    `standing`: the orders of people that the council was told of; it must hear of their end, whoever leads then.
    """
    told = [[control.kind, control.key, control.body] for control in standing.values()]
    memory = {**memory, "standing": told}
    incidents = memory.get("incidents", ())
    doubted = set(memory.get("doubted", ()))
    closed = [
        one["id"] for one in incidents if one.get("state") in ("resolved", "refuted") and doubted.isdisjoint(one.get("keys", ()))
    ]
    forgotten = dict.fromkeys(closed[: max(0, len(closed) - CLOSED_KEPT)])
    if not forgotten:
        return memory
    recovery = memory["recovery"]
    actions = [one for one in recovery.get("actions", ()) if one[1] not in forgotten]
    return {
        **memory, "incidents": [one for one in incidents if one["id"] not in forgotten],
        "past": [*memory.get("past", ()), *forgotten][-PAST_MAX:], "recovery": {**recovery, "actions": actions},
    }  # fmt: skip


def standing_orders(memory: Any) -> Standing:
    """The standing orders that the council of `memory` was told of."""
    return {(kind, key): Control(kind=kind, key=key, body=body) for kind, key, body in memory.get("standing", ())}


class Heard:
    """The newest signals about each job that a council needs, kept by every witness: the next leader tells its council of them."""

    def __init__(self) -> None:
        #: (job, kind, fence): a set under another fence is the effect of another order.
        self._newest: dict[tuple[str, str, str], Signal] = {}

    def take(self, signal: Signal) -> None:
        if signal.job is None or (signal.kind == "snapshot" and signal.data.get("state") != "committed"):
            return
        place = (signal.job, signal.kind, str(signal.data.get("fence")))
        self._newest.pop(place, None)
        self._newest[place] = signal
        if len(self._newest) > HEARD_MAX:
            del self._newest[next(iter(self._newest))]

    def forget(self, job: str) -> None:
        for place in [place for place in self._newest if place[0] == job]:
            del self._newest[place]

    def all(self) -> list[Signal]:
        """Oldest first."""
        return list(self._newest.values())
