"""Jobs that share machines, spares and incidents: what is refused to one is neither done to it by way of the other nor paid for."""

from typing import Any

import pytest
from core_cluster import WITNESSES
from test_safety import Room

from detectors.core.council import Council
from detectors.core.types import ActionResult
from outrider.config.policy import ScopeRule
from outrider.fleet import Fleet, Job, Node
from outrider.signals import Signal


def shared(spares: int = 2, **policy: Any) -> Room:
    """Ten nodes of two cards; the jobs A and B share n0, the last nodes stand by."""
    names = [f"n{index}" for index in range(10)]
    jobs = (Job(job="A", slots=(("n0", 0), ("n1", 0))), Job(job="B", slots=(("n0", 1), ("n2", 1))))
    nodes = tuple(Node(node=name, rack=f"r{index}", gpus=2) for index, name in enumerate(names))
    return Room(Fleet(nodes=nodes, jobs=jobs, witnesses=WITNESSES, spares=tuple(names[10 - spares :])), **policy)


def tells(room: Room, job: str, attempt: int, *slots: tuple[str, int], **data: Any) -> None:
    more = {"slots": [list(slot) for slot in slots]} if slots else {}
    told = Signal(t=room.now, kind="job", job=job, value=attempt, data={**more, **data})
    room.out += room.council.observe(told, room.now) + room.council.advance(room.now)


def next_leader(room: Room) -> None:
    memory = room.council.snapshot()
    room.council = Council(room.council.world.fleet, room.policy, WITNESSES)
    room.council.restore(memory)


def restarted(room: Room) -> list[str]:
    return [action.target["job"] for action in room.done("restart")]


@pytest.mark.parametrize("mode", ["observe", "advise", "maintenance"])
@pytest.mark.parametrize("response", ["restart", "drain"])
def test_a_machine_is_not_taken_from_a_job_that_opted_out(mode: Any, response: str) -> None:
    room = shared(jobs={} if mode == "maintenance" else {"A": ScopeRule(mode=mode)})
    if mode == "maintenance":
        room.say("maintenance_on", "A")
    room.accuse("n0", response=response)
    assert not room.done("quarantine", "drain"), "it would end A's ranks there too"
    assert all(mode in str(action.refused) for action in room.refused("quarantine", "drain"))
    assert restarted(room) == (["B"] if response == "restart" else []), "its neighbour is served"


def test_who_was_refused_pays_no_restart() -> None:
    room = shared(job_restarts_max=1)
    room.accuse("n1")
    room.accuse("n0")
    assert restarted(room) == ["A", "B"], "A has had enough"
    guard = room.council.recovery.guard
    assert {job: len(times) for job, times in guard.restarts.items()} == {"A": 1, "B": 1}


def test_a_spare_of_a_refused_restart_is_free() -> None:
    """Of a node of its own: what it shared with a neighbour is the neighbour's now."""
    names = [f"n{index}" for index in range(6)]
    jobs = (Job(job="A", slots=(("n0", 0), ("n3", 0))), Job(job="B", slots=(("n1", 0),)))
    room = Room(Fleet(nodes=tuple(Node(node=name) for name in names), jobs=jobs, witnesses=WITNESSES, spares=("n4", "n5")))
    room.policy.jobs["A"] = ScopeRule(mode="observe")
    room.accuse("n0", nodes=["n0", "n1"])
    assert restarted(room) == ["B"]
    assert list(room.council.recovery.spares.claimed) == ["n5"], "n4 was for A"


def test_jobs_that_shared_a_machine_share_its_spare() -> None:
    room = shared()
    room.accuse("n0")
    assert [item["to"] for action in room.done("restart") for item in action.target["replace"]] == ["n8", "n8"]
    room.accuse("n8", incarnation="b2")
    assert [item["to"] for action in room.done("restart")[2:] for item in action.target["replace"]] == ["n9", "n9"]


@pytest.mark.parametrize("over", [False, True])
def test_a_spare_on_which_a_job_runs_is_none_until_that_is_over(over: bool) -> None:
    room = shared(spares=1)
    tells(room, "C", 1, ("n9", 0))
    if over:
        tells(room, "C", 1, over=True)
    room.accuse("n0")
    assert {item["to"] for action in room.done("restart") for item in action.target["replace"]} == {"n9" if over else None}


def test_a_spare_that_is_given_back_while_a_job_is_on_its_way_there_stays_that_jobs() -> None:
    room = shared()
    room.accuse("n0")
    room.say("release", "n8")
    room.accuse("n1")
    (*_, last) = room.done("restart")
    assert {item["from"]: item["to"] for item in last.target["replace"]} == {"n0": "n8", "n1": "n9"}


@pytest.mark.parametrize("began", [False, True])
@pytest.mark.parametrize("change_of_leader", [False, True])
def test_a_yes_to_one_job_does_not_restart_the_other_a_second_time(began: bool, change_of_leader: bool) -> None:
    room = shared(jobs={"A": ScopeRule(mode="advise")})
    room.accuse("n0")
    assert restarted(room) == ["B"]
    if began:
        tells(room, "B", 2, ("n8", 1), ("n2", 1))
    if change_of_leader:
        next_leader(room)
        room.council.advance(room.now)
        tells(room, "A", 1, ("n0", 0), ("n1", 0))
        tells(room, "B", 1 + began, ("n8" if began else "n0", 1), ("n2", 1))
    room.say("approve", room.incident("n0"))
    assert restarted(room) == ["B", "A"]
    assert room.done("quarantine"), "and the machine is taken out now"


def test_a_spare_that_fails_its_check_is_still_replaced() -> None:
    room = shared()
    room.accuse("n0")
    failed = ActionResult(decision_id=room.done("restart")[0].decision_id, outcome="failed", detail={"reason_code": "spare_unfit"})
    room.out += room.council.observe(failed, room.now)
    assert [item["to"] for action in room.done("restart")[2:] for item in action.target["replace"]] == ["n9", "n9"]


def test_a_drain_that_was_refused_for_want_of_a_spare_follows_one_for_each_that_is_free() -> None:
    room = shared(spares=1, brake_nodes=100)
    room.council.recovery.spares.claimed["n9"] = "before"
    for node in ("n1", "n2"):
        room.accuse(node, "gpu.thermal", "drain")
    assert [action.refused for action in room.actions("drain")] == [
        f"limit: no spare is left, and {node} still works" for node in ("n1", "n2")
    ]
    room.say("release", "n9")
    room.wait(3.0)
    assert [action.target["node"] for action in room.done("drain")] == ["n1"]
    tells(room, "B", 1)
    room.wait(3.0)
    assert [action.target["node"] for action in room.done("drain")] == ["n1"], "n9 is for it"
    room.say("release", "n1")  # it is over: n2 may leave for n9
    room.wait(3.0)
    assert [action.target["node"] for action in room.done("drain")] == ["n1", "n2"]


@pytest.mark.parametrize("change_of_leader", [False, True])
def test_what_waits_for_a_spare_that_comes_back_during_a_pause_follows_when_it_ends(change_of_leader: bool) -> None:
    room = shared(spares=1)
    room.council.recovery.spares.claimed["n9"] = "before"
    room.accuse("n1", "gpu.thermal", "drain")
    room.say("pause")
    room.say("release", "n9")
    room.wait(60.0)
    assert not room.done("drain")
    if change_of_leader:
        next_leader(room)
    room.say("resume")
    room.out += room.council.advance(room.now)
    assert [action.target["node"] for action in room.done("drain")] == (["n1"])
