"""The invariants of the judge in whatever order things happen: a machine that hypothesis drives, and the ones that need two runs.

Each names its invariant: life is never overruled, minorities decide nothing, one verdict an incarnation under rising fences, clocks
of others do not matter, stalled witnesses add nothing, votes may come in any order, what lives is alive again after a heal, orders
may come twice, more evidence never makes it milder.
"""

import os
from collections import Counter
from typing import Any

from core_cluster import WITNESSES, Cluster, small_fleet
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from detectors.core.council import Council
from detectors.core.engine import Engine
from detectors.core.types import Action, IncidentChange, Vote
from outrider.config.policy import Policy
from outrider.fleet import Fleet, Node
from outrider.signals import Signal

EXAMPLES = int(os.environ.get("HYPOTHESIS_EXAMPLES", "40"))
MEMBERS = [f"n{index}" for index in range(1, 6)]
DRASTIC = {"quarantine", "drain", "restart"}
SILENT = {"node.lost", "node.hung"}
KINDS = ["complaint", "panic", "probe"]


def carried_out(actions: list[Action]) -> dict[str, Any]:
    """The world after these orders, as a receiver that keeps the contract has it: known ids and old fences are dropped."""
    seen: set[str] = set()
    fences: dict[str, int] = {}
    out: set[str] = set()
    slots: dict[str, dict[int, str]] = {}
    attempts: Counter[str] = Counter()
    for action in actions:
        if action.refused is not None or action.decision_id in seen:
            continue
        seen.add(action.decision_id)
        if action.action == "quarantine":
            out.add(action.target["node"])
        elif action.action == "restart" and action.fence > fences.get(action.target["job"], 0):
            job = action.target["job"]
            fences[job] = action.fence
            slots.setdefault(job, {}).update({item["slot"]: item["to"] for item in action.target["replace"]})
            attempts[job] += 1
    return {"fences": fences, "out": sorted(out), "slots": slots, "attempts": dict(attempts)}


class Judge(RuleBasedStateMachine):
    """Five nodes with a job, two spares. `down`: hosts that are dead for good; `deaf`: node -> witnesses that do not hear it."""

    @initialize()
    def begin(self) -> None:
        self.cluster = Cluster(fleet=small_fleet(nodes=7, spares=2))
        self.cluster.run(8)
        self.down: set[str] = set()
        self.resting: set[str] = set()

    def _alone(self) -> bool:
        return sum(len(heard) < len(WITNESSES) for heard in self.cluster.beat_to.values()) < 3

    @rule(node=st.sampled_from(MEMBERS), deaf=st.lists(st.sampled_from(WITNESSES), min_size=1, max_size=3, unique=True))
    def lose_beats(self, node: str, deaf: list[str]) -> None:
        """The way from a living node to some witnesses breaks; its kernel answers its peers."""
        if node not in self.down:
            self.cluster.silence(node, *deaf)
            self.cluster.answers[node] = "reply"

    @rule(node=st.sampled_from(MEMBERS))
    def heal(self, node: str) -> None:
        if node not in self.down:
            self.cluster.beat_to[node] = set(WITNESSES)
            self.cluster.answers.pop(node, None)

    @precondition(lambda self: not self.down and self._alone())
    @rule(node=st.sampled_from(MEMBERS), complaints=st.booleans())
    def die(self, node: str, complaints: bool) -> None:
        self.down.add(node)
        self.cluster.silence(node)
        self.cluster.answers[node] = "none"
        self.cluster.stepping = False
        for rank in (rank for rank in range(3) if complaints and MEMBERS[rank] != node):
            data = {"attempt": self.cluster.attempt, "peer_node": node}
            self.cluster.signal("collective_error", job="j1", rank=rank, node=MEMBERS[rank], data=data)

    @rule(node=st.sampled_from(MEMBERS), on=st.booleans())
    def maintain(self, node: str, on: bool) -> None:
        self.cluster.signal("maintenance", node=node, value="on" if on else "off")
        (self.resting.add if on else self.resting.discard)(node)

    @rule(witness=st.sampled_from(WITNESSES), seconds=st.floats(0.6, 20.0))
    def stall(self, witness: str, seconds: float) -> None:
        """A witness is told by its edge that it stood still."""
        self.cluster.engines[witness].note_stall(seconds, self.cluster.now)

    @rule(node=st.sampled_from(MEMBERS), code=st.sampled_from([13, 31, 43, 45]))
    def noise(self, node: str, code: int) -> None:
        self.cluster.signal("xid", node=node, value=code, data={"pci": "0000:3b:00"})

    @rule(seconds=st.sampled_from([0.5, 3.0, 6.0, 20.0]))
    def wait(self, seconds: float) -> None:
        self.cluster.run(seconds)

    @invariant()
    def nobody_that_lives_is_moved(self) -> None:
        """I1, I2: while the job steps, or a peer's kernel answers, or one witness hears it, a node is not lost."""
        for action in self.cluster.actions():
            if action.refused is None and action.action == "quarantine":
                assert action.target["node"] in self.down, f"{action.target['node']} lives: {action.reason}"
        for change in self.cluster.changes("confirmed"):
            if change.fault in SILENT:
                assert sum(vote == "faulty" for vote in change.votes.values()) >= 2

    @invariant()
    def one_verdict_an_incarnation_and_fences_rise(self) -> None:
        """I3."""
        told = Counter((one.fault, one.subject["node"], one.extra["incarnation"], one.incident)
                       for one in self.cluster.changes("confirmed") if one.fault in SILENT)  # fmt: skip
        assert all(count == 1 for count in told.values())
        assert len({(fault, node) for fault, node, _, _ in told}) == len(told), "one death was told as two incidents"
        fences = [one.fence for one in self.cluster.actions() if one.action in DRASTIC | {"snapshot"}]
        assert fences == sorted(set(fences))

    @invariant()
    def orders_may_come_twice(self) -> None:
        """I10."""
        actions = self.cluster.actions()
        assert carried_out(actions) == carried_out(actions + actions)
        late = [one for pair in zip(actions, actions, strict=True) for one in pair]
        assert carried_out(actions) == carried_out(late)

    def teardown(self) -> None:
        """I8: after a heal everything that lives is alive within 30 s, and nothing waits for a person but what was committed."""
        if not hasattr(self, "cluster"):
            return
        for node in MEMBERS:
            if node not in self.down:
                self.cluster.beat_to[node] = set(WITNESSES)
                self.cluster.answers.pop(node, None)
            self.cluster.signal("maintenance", node=node, value="off")
        self.cluster.run(30)
        for engine in self.cluster.engines.values():
            assert set(engine.silence.cases) <= self.down
        silence = SILENT | {"path.broken", "agent.lost"}
        about = {one.subject.get("node") for one in self.cluster.council.open.values() if one.fault in silence}
        assert about <= self.down
        self.nobody_that_lives_is_moved()


TestJudge = Judge.TestCase
TestJudge.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=14, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)  # fmt: skip
checked = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def of_nodes(decisions: list[Any]) -> list[tuple[str, str, float]]:
    """Confirmed verdicts on nodes."""
    told = [one for one in decisions if isinstance(one, IncidentChange) and one.event == "confirmed" and "node" in one.subject]
    return [(one.fault, str(one.subject["node"]), one.t) for one in told]


@checked
@given(
    st.dictionaries(st.sampled_from(MEMBERS), st.floats(-1e6, 1e6), max_size=5),
    st.dictionaries(st.sampled_from(MEMBERS), st.floats(0.99, 1.01), max_size=5),
    st.sampled_from(MEMBERS),
)
def test_i4_clocks_of_other_machines_change_no_verdict(steps: dict[str, float], rates: dict[str, float], dead: str) -> None:
    """Wall clocks that jump and run at other rates: what senders write of their time is shown, never compared."""

    def play(jumps: dict[str, float], pace: dict[str, float]) -> list[tuple[str, str, str, float]]:
        engines = {name: Engine(fleet, Policy(), name, WITNESSES) for name in WITNESSES}
        council = Council(fleet, Policy(mode="act"), WITNESSES)
        out: list[tuple[str, str, str, float]] = []
        for tick in range(450):
            now = tick / 10
            for engine in engines.values():
                decisions = []
                for name in MEMBERS if tick % 10 == 0 else ():
                    if name != dead or now < 5:
                        sent = now * pace.get(name, 1.0) + (jumps.get(name, 0.0) if now > 3 else 0.0)
                        data = {"seq": tick + 1, "boot": "b", "start": 1, "sent_s": sent}
                        decisions += engine.observe(Signal(t=now, kind="heartbeat", node=name, data=data), now)
                if (due := engine.next_deadline()) is not None and due <= now:
                    decisions += engine.advance(now)
                for vote in (one for one in decisions if isinstance(one, Vote)):
                    out += told(council.observe(vote, now))
            if (due := council.next_deadline()) is not None and due <= now:
                out += told(council.advance(now))
        return out

    def told(decisions: list[Any]) -> list[tuple[str, str, str, float]]:
        return [(one.event, one.fault, str(one.subject), one.t) for one in decisions if isinstance(one, IncidentChange)]

    fleet = Fleet(nodes=tuple(Node(node=name, rack=name) for name in MEMBERS), witnesses=WITNESSES)
    assert play(steps, rates) == play({}, {})


@checked
@given(
    st.lists(st.sampled_from(range(5)), min_size=1, max_size=2, unique=True),
    st.floats(1.0, 40.0),
    st.floats(0.0, 8.0),
    st.booleans(),
)
def test_i5_two_stalled_witnesses_of_five_add_no_verdict_and_at_most_a_time_out(
    stalled: list[int], seconds: float, begins: float, death: bool
) -> None:
    witnesses = tuple(f"w{number}" for number in range(5))
    fleet = Fleet(nodes=tuple(Node(node=name, rack=name) for name in MEMBERS), witnesses=witnesses)
    engines = [Engine(fleet, Policy(), name, witnesses) for name in witnesses]
    council = Council(fleet, Policy(mode="act"), witnesses)
    begin, end = 6.0 + begins, 6.0 + begins + seconds
    waiting: dict[int, list[Signal]] = {index: [] for index in stalled}
    confirmed: list[tuple[str, str, float]] = []
    for tick in range(620):
        now = tick / 10
        for index, engine in enumerate(engines):
            beats = [Signal(t=now, kind="heartbeat", node=name, data={"seq": tick + 1, "boot": "b"})
                     for name in MEMBERS if tick % 10 == 0 and not (death and name == "n1" and now > 10)]  # fmt: skip
            if index in waiting and begin <= now < end:
                waiting[index] += beats
                continue
            decisions = []
            if waiting.get(index):
                for signal in waiting.pop(index):
                    decisions += engine.observe(signal, now)
                engine.note_stall(seconds, now)
            for signal in beats:
                decisions += engine.observe(signal, now)
            if (due := engine.next_deadline()) is not None and due <= now:
                decisions += engine.advance(now)
            for vote in (one for one in decisions if isinstance(one, Vote)):
                confirmed += of_nodes(council.observe(vote, now))
        if (due := council.next_deadline()) is not None and due <= now:
            confirmed += of_nodes(council.advance(now))
    assert [(fault, node) for fault, node, _ in confirmed] == ([("node.lost", "n1")] if death else [])
    if death:
        assert confirmed[0][2] <= 10 + Policy().hard_limit_seconds + 1.5 + Policy().heartbeat_timeout


@checked
@given(st.data(), st.booleans())
def test_i7_votes_that_come_late_within_their_life_change_no_verdict(data: st.DataObject, death: bool) -> None:
    """Delayed by up to a few seconds, each its own: the same incident, no other; later by no more than the delay and a renewal."""
    fleet = Fleet(nodes=tuple(Node(node=name, rack=name) for name in MEMBERS), witnesses=WITNESSES)
    engines = [Engine(fleet, Policy(), name, WITNESSES) for name in WITNESSES]
    votes: list[tuple[float, int, Vote]] = []
    for tick in range(560):
        now = tick / 10
        for engine in engines:
            for name in MEMBERS if tick % 10 == 0 else ():
                if not (death and name == "n1" and now > 6):
                    engine.observe(Signal(t=now, kind="heartbeat", node=name, data={"seq": tick + 1, "boot": "b"}), now)
            while (due := engine.next_deadline()) is not None and due <= now:
                for one in engine.advance(now):
                    if isinstance(one, Vote):
                        votes.append((now, len(votes), one))
    most = data.draw(st.floats(0.0, 4.0))
    delays = data.draw(st.lists(st.floats(0.0, most), min_size=16, max_size=16))
    late = sorted((t + delays[number % 16], number, vote) for t, number, vote in votes)
    council = Council(fleet, Policy(mode="act"), WITNESSES)
    told: list[IncidentChange] = []
    for now, _, vote in late:
        while (due := council.next_deadline()) is not None and due <= now:
            told += [one for one in council.advance(max(due, 0.0)) if isinstance(one, IncidentChange)]
            if council.next_deadline() == due:
                break
        told += [one for one in council.observe(vote, now) if isinstance(one, IncidentChange)]
    confirmed = [(one.fault, one.subject.get("node")) for one in told if one.event == "confirmed" and "node" in one.subject]
    assert confirmed == ([("node.lost", "n1")] if death else [])


@checked
@given(st.sampled_from(MEMBERS), st.lists(st.tuples(st.sampled_from(KINDS), st.floats(0, 20)), max_size=4))
def test_i12_more_evidence_of_a_death_never_makes_it_milder_or_later(node: str, more: list[tuple[str, float]]) -> None:
    ladder = ("ignore", "watch", "page", "drain", "restart")

    def play(evidence: list[tuple[str, float]]) -> list[tuple[float, int]]:
        cluster = Cluster(fleet=small_fleet(nodes=7, spares=2))
        cluster.run(8)
        start = cluster.now
        cluster.silence(node)
        cluster.stepping = False
        for kind, after in sorted(evidence, key=lambda one: one[1]):
            cluster.run(max(0.0, start + after - cluster.now))
            match kind:
                case "complaint":
                    peer = next(name for name in MEMBERS if name != node)
                    data = {"attempt": 1, "peer_node": node}
                    cluster.signal("collective_error", job="j1", rank=MEMBERS.index(peer), node=peer, data=data)
                case "panic":
                    cluster.signal("kernel", node=node, data={"event": "panic"})
                case _:
                    for by in ("n6", "n7"):
                        cluster.signal("probe", node=node, data={"by": by, "answer": "none", "seconds": 0.2})
        cluster.run(start + 40 - cluster.now)
        return [(one.t - start, ladder.index(one.response)) for one in cluster.changes("confirmed")]

    def height(told: list[tuple[float, int]], until: float) -> int:
        return max((response for t, response in told if t <= until), default=0)

    bare, fuller = play([]), play(more)
    for until in (5.0, 10.0, 20.0, 30.0, 36.5, 40.0):
        assert height(fuller, until) >= height(bare, until)
