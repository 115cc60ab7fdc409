"""Doubles of the core's two halves, a leader around them, and a small fleet, for the witness's tests."""

from typing import Any

from detectors.core.types import Action, Decision, IncidentChange, Verdict, Vote
from detectors.witness.journal import Journal
from detectors.witness.judge import Judge
from detectors.witness.leader import Leader
from detectors.witness.ledger_etcd import EtcdLedger
from detectors.witness.ledger_sqlite import SqliteLedger
from outrider.clock import ManualClock
from outrider.fleet import Fleet, Job, Node
from outrider.signals import Signal

FLEET = Fleet(
    nodes=tuple(Node(node=name, gpus=1, address=f"10.0.0.{index}") for index, name in enumerate(("n1", "n2", "n3"), 1)),
    jobs=(Job(job="j1", slots=(("n1", 0), ("n2", 0))),),
    spares=("n3",),
)


class FakeEngine:
    """Answers each signal with what the test put into `answers`; remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[Signal] = []
        self.answers: list[Decision] = []
        self.stalls: list[float] = []

    def observe(self, signal: Signal, now: float) -> list[Decision]:
        self.heard.append(signal)
        if signal.kind == "kernel":
            raise ValueError("a bug of our own")
        answers, self.answers = self.answers, []
        return answers

    def advance(self, now: float) -> list[Decision]:
        answers, self.answers = self.answers, []
        return answers

    def next_deadline(self) -> float | None:
        return None

    def note_stall(self, seconds: float, now: float) -> None:
        self.stalls.append(seconds)


class FakeCouncil:
    """Answers the next event with what the test put into `answers`; its memory is a list of what it heard."""

    def __init__(self, fence: int) -> None:
        self.fence = fence
        self.heard: list[Any] = []
        self.answers: list[Decision] = []
        self.memory: Any = None

    def observe(self, event: Any, now: float) -> list[Decision]:
        self.heard.append(event)
        answers, self.answers = self.answers, []
        return answers

    def observe_votes(self, votes: list[Vote], now: float) -> list[Decision]:
        return [decision for vote in votes for decision in self.observe(vote, now)]

    def advance(self, now: float) -> list[Decision]:
        return []

    def next_deadline(self) -> float | None:
        return None

    unsaved = False

    def saved(self) -> None:
        self.unsaved = False

    def snapshot(self) -> Any:
        return {"heard": len(self.heard)}

    def restore(self, state: Any) -> None:
        self.memory = state


class Office:
    """A leader with its council in the test's hand."""

    def __init__(self, ledger: SqliteLedger, journal: Journal, clock: ManualClock) -> None:
        self.ledger, self.clock = ledger, clock
        self.judge = Judge(FakeEngine(), FLEET, ledger, journal, clock, (1, 2))
        self.councils: list[FakeCouncil] = []
        self.leader = Leader("w1-1", ledger, self.judge, journal, clock, self._make, 3.0, FLEET)

    def _make(self, fence: int) -> FakeCouncil:
        self.councils.append(FakeCouncil(fence))
        return self.councils[-1]

    @property
    def council(self) -> FakeCouncil:
        return self.councils[-1]

    async def begin(self) -> None:
        lease = await self.ledger.acquire("leader", "w1-1")
        assert lease is not None
        self.leader.term = lease.term
        await self.leader._take_over()

    async def turn(self, *decisions: Any) -> None:
        """One turn in which the council decides `decisions` on a vote."""
        if decisions:
            await self.ledger.put_votes([vote()])
            self.council.answers = list(decisions)
        await self.leader._work()


def vote() -> Vote:
    return Vote(
        key="k", witness="w1", verdict=Verdict.FAULTY, fault="node.lost", culprit="node", subject={"node": "n2"}, incarnation="b",
        response="restart", repair="none", layers=(), evidence=(), reason="silent", reason_code="r", t=1.0,
    )  # fmt: skip


def change(event: Any = "confirmed", incident: str = "i1") -> IncidentChange:
    return IncidentChange(
        t=1.0, event=event, incident=incident, fault="node.lost", culprit="node", subject={"node": "n2"}, response="restart",
        repair="investigate", layers=(), votes={}, evidence=(), explanation="silent", extra={"incarnation": "b", "state": event},
    )  # fmt: skip


def action(name: Any, decision: str, fence: int = 1, incident: str = "i1", **target: Any) -> Action:
    return Action(
        t=1.0, decision_id=decision, incident=incident, action=name, target=target, fence=fence, deadline_seconds=60.0
    )  # fmt: skip


class CaughtUp:
    """A user of the etcd ledger who asks only when its replica stands where the others' do."""

    def __init__(self, ledger: EtcdLedger, others: list[EtcdLedger]) -> None:
        self.ledger, self.others = ledger, others

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.ledger, name)

        async def later(*arguments: Any, **named: Any) -> Any:
            if name != "changed":
                await self.ledger._follower.reach(max(other._follower.replica.revision for other in self.others))
            return await call(*arguments, **named)

        return later
