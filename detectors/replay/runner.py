"""The loop: signals of the trace, signals of normal life and the passing of time, through three engines and a council."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from detectors.core.council import Council
from detectors.core.engine import Engine
from detectors.core.types import Action, Decision, Evidence, IncidentChange, ProbeRequest, Vote
from detectors.replay.life import Life
from detectors.replay.trace import TraceSignal
from outrider.catalogue.codes import CodeBook
from outrider.config.policy import Policy
from outrider.fleet import Fleet
from outrider.signals import Signal

INFINITY = float("inf")
#: Kinds that the council hears besides votes.
COUNCIL_KINDS = frozenset({"job", "phase", "snapshot", "maintenance"})


@dataclass(slots=True)
class Count:
    """What a run went through, from `start_t` to `end_t`, seconds. `skipped`: signals that nobody could use, by reason."""

    lines: int = 0
    automatic: int = 0
    start_t: float = 0.0
    end_t: float = 0.0
    skipped: dict[str, int] = field(default_factory=dict)


class Replay:
    """Runs one trace.

    Args:
        fleet: the trace's header.
        policy: what tomorrow's policy would do.
        codes: the catalogue's codes with the site's overrides.
    """

    def __init__(self, fleet: Fleet, policy: Policy, codes: CodeBook | None = None) -> None:
        self.fleet = fleet
        self.engines = {name: Engine(fleet, policy, name, fleet.witnesses, codes) for name in fleet.witnesses}
        self.council = Council(fleet, policy, fleet.witnesses)
        self.count = Count()
        self._life = Life(fleet)
        self._all = list(self.engines.values())
        self._asked: set[str] = set()
        self._out: list[IncidentChange | Action] = []

    def run(self, signals: Iterable[tuple[int, TraceSignal]]) -> Iterator[IncidentChange | Action]:
        """Yields changes of incidents and actions as they come."""
        until = self.fleet.until or 0.0
        begun = self.fleet.auto.heartbeat_s is not None or bool(self.fleet.auto.step_s)
        for _, signal in signals:
            if not begun:  # a recorded trace begins with its first line, on whatever clock it was recorded
                begun = True
                self.count.start_t = signal.t
                self._begin(signal.t)
            if signal.t >= self._next_time():
                self._until(signal.t, including=False)
            self._line(signal)
            until = max(until, signal.t)
            self.count.lines += 1
            if self._out:
                yield from self._flush()
        self._until(until, including=True)
        self.count.end_t = until
        self._tell()
        yield from self._flush()

    def _begin(self, now: float) -> None:
        for machine in self._all:
            self._take(machine.advance(now), now)

    def _flush(self) -> list[IncidentChange | Action]:
        out, self._out = self._out, []
        return out

    def _next_time(self) -> float:
        """When something happens by itself: life, or a machine's deadline."""
        due = self._life.next_time()
        for machine in self._all:
            deadline = machine.next_deadline()
            if deadline is not None and deadline < due:
                due = deadline
        deadline = self.council.next_deadline()
        return due if deadline is None or deadline >= due else deadline

    def _until(self, end: float, *, including: bool) -> None:
        """Lets time pass up to `end`. At one moment: life first, then the machines' deadlines, as a socket is drained first."""
        while True:
            life = self._life.next_time()
            due = self._next_time()
            if due > end or (due == end and not including):
                return
            if life <= due:
                for signal, receivers in self._life.take(life):
                    self.count.automatic += 1
                    self._give(signal, receivers, life)
                continue
            decisions: list[Decision] = []
            for machine in self._all:
                deadline = machine.next_deadline()
                if deadline is not None and deadline <= due:
                    decisions += machine.advance(due)
            self._take(decisions, due)
            deadline = self.council.next_deadline()
            if deadline is not None and deadline <= due:
                self._take(self.council.advance(due), due)

    def _line(self, signal: TraceSignal) -> None:
        kind = signal.kind
        if kind == "pause":
            self._life.pause(signal, signal.t)
            return
        if kind == "phase":
            self._life.phase(signal, signal.t)
        elif kind == "job":
            self._life.move(signal, signal.t)
        self._give(signal, None if signal.to is None else frozenset(signal.to), signal.t)

    def _give(self, signal: Signal, receivers: frozenset[str] | None, now: float) -> None:
        decisions: list[Decision] = []
        if receivers is None:
            for machine in self._all:
                decisions += machine.observe(signal, now)
        else:
            for name, machine in self.engines.items():
                if name in receivers:
                    decisions += machine.observe(signal, now)
        if decisions:
            self._take(decisions, now)
        if signal.kind in COUNCIL_KINDS:
            self._take(self.council.observe(signal, now), now)

    def _take(self, decisions: list[Decision], now: float) -> None:
        votes = [decision for decision in decisions if isinstance(decision, Vote)]
        if votes:
            self._take(self.council.observe_votes(votes, now), now)
        for decision in decisions:
            match decision:
                case IncidentChange() | Action():
                    self._out.append(decision)
                case ProbeRequest():
                    if decision.decision_id not in self._asked:
                        self._asked.add(decision.decision_id)
                        self._life.probe(decision.node, decision.probers, now)
                case _:
                    pass

    def _tell(self) -> None:
        worlds = [machine.world for machine in self._all] + [self.council.world]
        for world in worlds:
            for reason, count in world.counted.items():
                self.count.skipped[reason] = max(self.count.skipped.get(reason, 0), count)


class Lines:
    """Turns decisions into the lines of the public stream."""

    def __init__(self) -> None:
        self._incidents: dict[str, IncidentChange] = {}

    def line(self, decision: IncidentChange | Action) -> dict[str, Any]:
        """One line of the stream."""
        if isinstance(decision, IncidentChange):
            self._incidents[decision.incident] = decision
            return _change(decision, decision.event, decision.t)
        change = self._incidents[decision.incident]
        shown = _change(change, "refused" if decision.refused else "action", decision.t)
        shown |= {
            "action": decision.action, "target": decision.target, "fence": decision.fence,
            "deadline_s": decision.deadline_seconds, "decision": decision.decision_id, "after": list(decision.after),
        }  # fmt: skip
        if decision.refused:
            shown |= {"refused": decision.refused, "explanation": f"{decision.action} refused: {decision.refused}"}
        return shown


def _change(change: IncidentChange, event: str, t: float) -> dict[str, Any]:
    return {
        "t": round(t, 6), "event": event, "incident": change.incident, "fault": change.fault, "culprit": change.culprit,
        "subject": change.subject, "response": change.response, "repair": change.repair, "layers": list(change.layers),
        "votes": change.votes, "evidence": [_evidence(piece) for piece in change.evidence], "explanation": change.explanation,
    }  # fmt: skip


def _evidence(piece: Evidence) -> dict[str, Any]:
    return {
        "t": round(piece.t, 6), "kind": piece.kind, "subject": piece.subject, "effect": piece.effect, "text": piece.text,
    }  # fmt: skip
