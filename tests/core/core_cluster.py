"""A small cluster in virtual time: three engines and a council, driven by hand. A helper of the tests, not a test."""

from collections.abc import Callable
from typing import Any

from detectors.core.council import Council
from detectors.core.engine import Engine
from detectors.core.types import Action, CopyRequest, Decision, IncidentChange, OperatorEvent, ProbeRequest, Vote
from outrider.config.policy import Policy
from outrider.fleet import Fleet, Job, Node
from outrider.signals import Signal

WITNESSES = ("w1", "w2", "w3")


def small_fleet(nodes: int = 5, spares: int = 1, gpus: int = 1, rack: Callable[[int], str] = "r{}".format) -> Fleet:
    """`nodes` nodes n1.., the last `spares` of them spare, one job j1 over the rest."""
    names = [f"n{index}" for index in range(1, nodes + 1)]
    used = names[: nodes - spares]
    return Fleet(
        nodes=tuple(
            Node(node=name, rack=rack(index), gpus=gpus, address=f"10.0.0.{index + 1}") for index, name in enumerate(names)
        ),
        jobs=(Job(job="j1", slots=tuple((name, gpu) for name in used for gpu in range(gpus))),),
        witnesses=WITNESSES,
        spares=tuple(names[nodes - spares :]),
    )


class Cluster:
    """Drives the machines. `beat_to[node]`: witnesses that hear it; `answers[node]`: what its peers' probes answer."""

    def __init__(self, fleet: Fleet | None = None, policy: Policy | None = None, step_s: float = 0.5) -> None:
        self.fleet = fleet or small_fleet()
        self.policy = policy or Policy(mode="act")
        self.engines = {name: Engine(self.fleet, self.policy, name, WITNESSES) for name in WITNESSES}
        self.council = Council(self.fleet, self.policy, WITNESSES)
        self.now = 0.0
        self.beat_to: dict[str, set[str]] = {node.node: set(WITNESSES) for node in self.fleet.nodes}
        self.answers: dict[str, str] = {}
        self.probe_delay = 0.3
        self.stepping = True
        self.step_s, self.step, self.attempt = step_s, 0, 1
        self.next_step = step_s
        self.out: list[Decision] = []
        self._later: list[tuple[float, Signal]] = []
        self._asked: set[str] = set()
        self._seq = 0

    def signal(self, kind: str, **fields: Any) -> None:
        """Every witness, and the leader where it concerns it, hears a signal now."""
        self.deliver(Signal(t=self.now, kind=kind, **fields))

    def deliver(self, signal: Signal) -> None:
        for engine in self.engines.values():
            self._take(engine.observe(signal, self.now))
        if signal.kind in ("job", "snapshot", "maintenance", "phase"):
            self._take(self.council.observe(signal, self.now))

    def give_back(self, node: str) -> None:
        """A person releases a node."""
        self._take(self.council.observe(OperatorEvent(kind="release", target=node, who="ann"), self.now))

    def _take(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if isinstance(decision, Vote):
                self._take(self.council.observe(decision, self.now))
                continue
            if isinstance(decision, ProbeRequest):
                if decision.decision_id in self._asked or decision.node not in self.answers:
                    continue
                self._asked.add(decision.decision_id)
                for by in decision.probers:
                    data = {"by": by, "answer": self.answers[decision.node], "seconds": 0.2}
                    when = self.now + self.probe_delay
                    self._later.append((when, Signal(t=when, kind="probe", node=decision.node, data=data)))
            self.out.append(decision)

    def run(self, seconds: float) -> None:
        """Lets virtual time pass in ticks of 50 ms: heartbeats each second, steps, probes' answers, deadlines."""
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.now = round(self.now + 0.05, 6)
            self._beat()
            due = [item for item in self._later if item[0] <= self.now]
            self._later = [item for item in self._later if item[0] > self.now]
            for _, signal in due:
                self.deliver(signal)
            if self.stepping and self.now >= self.next_step - 1e-9:
                self.signal("step", job="j1", value=self.step, data={"attempt": self.attempt, "step_s": self.step_s, "age_s": 0.0})
                self.step += 1
                self.next_step = self.now + self.step_s
            for machine in (*self.engines.values(), self.council):
                if (due_t := machine.next_deadline()) is not None and due_t <= self.now:
                    self._take(machine.advance(self.now))

    def _beat(self) -> None:
        ticks = round(self.now / 0.05)
        if ticks % 20 == 0:
            self._seq += 1
        for index, node in enumerate(self.fleet.nodes):
            if (ticks - index * 3) % 20 == 0 and self.beat_to[node.node]:
                signal = Signal(t=self.now, kind="heartbeat", node=node.node, data={"seq": ticks, "boot": "b", "start": 1})
                for witness in sorted(self.beat_to[node.node]):
                    self._take(self.engines[witness].observe(signal, self.now))

    def silence(self, node: str, *witnesses: str) -> None:
        """From now on these witnesses (all, if none is named) do not hear the node."""
        self.beat_to[node] -= set(witnesses or WITNESSES)

    def changes(self, event: str | None = None) -> list[IncidentChange]:
        return [one for one in self.out if isinstance(one, IncidentChange) and event in (None, one.event)]

    def confirmed(self) -> list[str]:
        return [one.fault for one in self.changes("confirmed")]

    def actions(self) -> list[Action]:
        return [one for one in self.out if isinstance(one, Action)]

    def copies(self) -> list[CopyRequest]:
        return [one for one in self.out if isinstance(one, CopyRequest)]
