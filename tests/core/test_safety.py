"""Safe hands, and disasters: whatever is told, at most the allowed number of nodes is touched, and what was refused is listed."""

from typing import Any

import pytest
from core_cluster import WITNESSES, Cluster, small_fleet

from detectors.core.council import Council
from detectors.core.incident import State
from detectors.core.types import Action, ActionResult, Decision, Evidence, IncidentChange, OperatorEvent, Verdict, Vote
from outrider.config.policy import Policy
from outrider.fleet import Fleet, Job, Node

DRASTIC = ("quarantine", "drain", "restart")


def a_fleet(nodes: int = 40, rack_size: int = 100, spares: int = 2) -> Fleet:
    """One job of one slot a node, so that each loss is its own restart."""
    names = [f"n{number}" for number in range(nodes)]
    return Fleet(
        nodes=tuple(Node(node=name, rack=f"r{index // rack_size}", gpus=1) for index, name in enumerate(names)),
        jobs=tuple(Job(job=f"j{index}", slots=((name, 0),)) for index, name in enumerate(names[: nodes - spares])),
        witnesses=WITNESSES,
        spares=tuple(names[nodes - spares :]),
    )


class Room:
    """A council, and witnesses that all say the same."""

    def __init__(self, fleet: Fleet | None = None, **policy: Any) -> None:
        self.policy = Policy(**({"mode": "act"} | policy))
        self.council = Council(fleet or a_fleet(), self.policy, WITNESSES)
        self.now = 100.0
        self.out: list[Decision] = []

    def accuse(
        self, node: str, fault: str = "gpu.fallen_off_bus", response: str = "restart", incarnation: str = "b1", **more: Any
    ) -> None:
        piece = Evidence(t=self.now, kind="xid", subject={"node": node}, effect="confirm", text="Xid 79")
        for witness in WITNESSES:
            vote = Vote(
                key=f"{fault}|node={node}|{incarnation}", witness=witness, verdict=Verdict.FAULTY, fault=fault, culprit="gpu",
                subject={"node": node}, incarnation=incarnation, response=response, repair="reboot_node", layers=("hardware",),
                evidence=(piece,), reason="it fell off", reason_code="xid", t=self.now, decisive=True, extra={"sure": True, **more},
            )  # fmt: skip
            self.out += self.council.observe(vote, self.now)

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.council.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.out += self.council.advance(self.now)
        self.now = end

    def say(self, kind: Any, target: str = "*", reason: str = "because") -> None:
        self.out += self.council.observe(OperatorEvent(kind=kind, target=target, who="ann", reason=reason), self.now)

    def actions(self, *names: str) -> list[Action]:
        return [one for one in self.out if isinstance(one, Action) and one.action in (names or DRASTIC)]

    def done(self, *names: str) -> list[Action]:
        return [one for one in self.actions(*names) if one.refused is None]

    def refused(self, *names: str) -> list[Action]:
        return [one for one in self.actions(*names) if one.refused is not None]

    def incident(self, node: str) -> str:
        return next(one.incident for one in self.out if isinstance(one, IncidentChange) and one.subject.get("node") == node)


def test_a_bug_that_marks_everything_faulty_touches_no_more_than_the_allowed_number() -> None:
    room = Room(a_fleet(400, rack_size=1000), cluster_actions_per_hour=10, rack_actions_per_hour=0)
    for number in range(380):
        room.accuse(f"n{number}")
        room.wait(0.05)
    at_once = {action.target["node"] for action in room.done("quarantine")}
    assert len(at_once) <= max(3, 0.02 * 400), "the brake holds after a few"
    room.wait(3000.0)
    touched = {action.target["node"] for action in room.done("quarantine", "drain")}
    assert len(touched) <= 10
    listed = {action.incident for action in room.refused()}
    assert len(listed | {action.incident for action in room.done()}) == 380, "every refusal is listed"
    assert all(action.refused.startswith(("brake", "limit")) for action in room.refused() if action.refused)


def test_half_of_the_fleet_falling_silent_touches_nobody() -> None:
    cluster = Cluster(
        small_fleet(nodes=24, spares=2, rack=lambda index: f"r{index % 8}"), Policy(mode="act", hard_limit_seconds=12.0)
    )
    cluster.run(6.0)
    cluster.stepping = False
    for node in cluster.fleet.nodes[::2]:
        cluster.silence(node.node)
    cluster.run(25.0)
    assert [action for action in cluster.actions() if action.action in DRASTIC and action.refused is None] == []
    assert "monitor.blind" in cluster.confirmed()


def test_rack_that_is_in_trouble_again_and_again_is_left_to_a_person() -> None:
    room = Room(a_fleet(40, rack_size=10), rack_actions_per_hour=2, brake_nodes=100)
    for node in ("n0", "n1", "n2", "n11"):
        room.accuse(node)
        room.wait(60.0)
    assert [action.target["node"] for action in room.done("quarantine")] == ["n0", "n1", "n11"]
    assert {action.refused for action in room.refused("quarantine")} == {"limit: 2 actions in rack r0 within an hour"}
    room.wait(3600.0)
    room.accuse("n3")
    assert "n3" in [action.target["node"] for action in room.done("quarantine")]


def test_a_working_node_is_drained_only_while_a_spare_is_left() -> None:
    room = Room(a_fleet(10, spares=1))
    room.accuse("n0")
    room.accuse("n1", "gpu.thermal", "drain")
    assert [action.refused for action in room.actions("drain")] == ["limit: no spare is left, and n1 still works"]
    free = Room(a_fleet(10, spares=1))
    free.accuse("n1", "gpu.thermal", "drain")
    assert [action.refused for action in free.actions("drain")] == [None]


def test_repeat_offender_is_shown_and_takes_no_slot_again() -> None:
    room = Room(a_fleet(10, spares=1), lemon_count=2, brake_nodes=100)
    for number in range(2):
        room.accuse("n9", incarnation=f"b{number}")
        room.wait(60.0)
        room.say("release", "n9")
    assert room.council.incidents[room.incident("n9")].nodes == ["n9"]
    room.accuse("n0")
    (restart,) = room.done("restart")
    assert restart.target["replace"] == [{"slot": 0, "from": "n0", "to": None}], "n9 is free, and a lemon"
    reasons = [action.reason for action in room.done("quarantine") if action.target["node"] == "n9"]
    assert [reason.endswith("taken out 2 times of late") for reason in reasons] == [False, True]


def test_spare_that_fails_its_check_is_set_aside_and_another_one_takes_the_slot() -> None:
    room = Room(a_fleet(10, spares=2))
    room.accuse("n0")
    (first,) = room.done("restart")
    assert first.target["replace"][0]["to"] == "n8"
    failed = ActionResult(decision_id=first.decision_id, outcome="failed", detail={"reason_code": "spare_unfit"})
    room.out += room.council.observe(failed, room.now)
    second = room.done("restart")[-1]
    assert second.target["replace"] == [{"slot": 0, "from": "n0", "to": "n9"}]
    assert second.fence > first.fence
    room.out += room.council.observe(
        ActionResult(decision_id=second.decision_id, outcome="failed", detail={"reason_code": "busy"}), room.now
    )
    assert len(room.done("restart")) == 2, "another kind of failure is a person's matter"


@pytest.mark.parametrize(("default", "acts"), [("refuse", False), ("act", True)])
def test_nobody_approves_in_time_and_the_default_holds(default: str, acts: bool) -> None:
    room = Room(mode="advise", approval_seconds=600.0, approval_default=default)
    room.accuse("n0")
    assert room.done() == []
    room.wait(599.0)
    assert room.done() == []
    room.wait(2.0)
    assert bool(room.done("restart")) == acts
    room.say("approve", room.incident("n0"))
    assert bool(room.done("restart")) == acts, "a late word changes nothing"


def test_approval_in_time_acts_once() -> None:
    room = Room(mode="advise", approval_seconds=600.0, approval_default="act")
    room.accuse("n0")
    room.say("approve", room.incident("n0"))
    assert len(room.done("restart")) == 1
    room.wait(3600.0)
    assert len(room.done("restart")) == 1


def test_a_yes_in_mode_observe_does_and_records_nothing_a_second_time() -> None:
    room = Room(mode="observe")
    room.accuse("n0")
    before = len(room.refused())
    assert before and room.done() == []
    room.say("approve", room.incident("n0"))
    assert (len(room.refused()), room.done()) == (before, [])


@pytest.mark.parametrize(("reason", "said"), [("", "a false alarm, says ann"), ("a drill", "a false alarm, says ann: a drill")])
def test_a_false_alarm_says_who_and_why_and_nothing_twice(reason: str, said: str) -> None:
    room = Room(mode="observe")
    room.accuse("n0")
    room.say("false_alarm", room.incident("n0"), reason)
    closed = [one for one in room.out if isinstance(one, IncidentChange)][-1]
    assert closed.explanation.endswith(f"resolved: {said}")


def test_an_end_whose_reason_stands_already_is_not_told_twice() -> None:
    room = Room(mode="observe")
    room.accuse("n0")
    incident = room.council.register.incidents[room.incident("n0")]
    before = incident.explanation
    (change,) = room.council.register.close(incident, State.RESOLVED, before, room.now)
    assert isinstance(change, IncidentChange) and change.explanation == f"{before}; resolved"


def test_a_pause_stops_everything_and_a_resume_lets_new_incidents_act() -> None:
    room = Room()
    room.say("pause")
    room.accuse("n0")
    assert room.done() == []
    room.say("resume")
    room.accuse("n1")
    assert [action.target["node"] for action in room.done("quarantine")] == ["n1"]


def test_the_next_leader_knows_limits_offenders_and_approvals() -> None:
    room = Room(a_fleet(40, rack_size=10), rack_actions_per_hour=1)
    room.accuse("n0")
    heir = Room(a_fleet(40, rack_size=10), rack_actions_per_hour=1)
    heir.council.restore(room.council.snapshot())
    heir.now = room.now + 60.0
    heir.accuse("n1")
    assert [action.refused for action in heir.actions("quarantine")] == ["limit: 1 actions in rack r0 within an hour"]


def test_node_that_a_person_gives_back_is_told_to_the_scheduler_after_the_order_that_took_it_out() -> None:
    room = Room(a_fleet(10, spares=1))
    room.accuse("n0")
    (quarantine,) = room.done("quarantine")
    room.say("release", "n0")
    (release,) = room.actions("release")
    assert (release.target, release.refused, release.dry_run) == ({"node": "n0"}, None, False)
    assert release.fence > quarantine.fence
    assert release.after == (quarantine.decision_id,)
    assert release.incident == quarantine.incident
    assert "ann: because" in release.reason
    room.say("release", "n7")
    assert [(one.target["node"], one.incident) for one in room.actions("release")][1:] == [("n7", "")], "nothing is known of it"
    room = Room(a_fleet(10, spares=1), brake_nodes=100)
    for number in range(2):
        room.accuse("n9", incarnation=f"b{number}")
        room.wait(60.0)
        room.say("release", "n9")
    story = [(one.action, one.fence) for one in room.actions("quarantine", "release") if one.target["node"] == "n9"]
    assert [name for name, _ in story] == ["quarantine", "release"] * 2
    assert [fence for _, fence in story] == sorted({fence for _, fence in story}), "the later order wins"


def test_approval_that_nobody_gave_is_recorded_as_a_refusal() -> None:
    room = Room(a_fleet(10, spares=1), mode="advise", approval_seconds=60.0)
    room.accuse("n0")
    before = {action.refused for action in room.refused()}
    room.wait(61.0)
    after = [action for action in room.refused() if action.refused == "approval: nobody answered in time"]
    assert before == {"mode advise: a person decides"}
    assert {action.action for action in after} >= {"quarantine", "restart"}
    told = len(room.refused())
    room.wait(600.0)
    assert len(room.refused()) == told, "said once"
