"""Two jobs that share a machine: what one does there is nothing to the other, and what the machine does is both jobs' matter."""

from typing import Any

import pytest
from traces import run

from outrider.config.policy import Policy, ScopeRule

FLEET = {
    "kind": "fleet", "nodes": [{"node": f"n{number}", "gpus": 2} for number in range(1, 7)], "witnesses": ["w1", "w2", "w3"],
    "spares": ["n5", "n6"], "auto": {"heartbeat_s": 1, "step_s": {"A": 2, "B": 2}}, "until": 400,
    "jobs": [{"job": "A", "slots": [["n1", 0], ["n2", 0]]}, {"job": "B", "slots": [["n1", 1], ["n3", 0]]}],
}  # fmt: skip


def ends(t: float, job: str, value: int = -9, **data: Any) -> dict[str, Any]:
    return {
        "t": t, "kind": "process_exit", "node": "n1", "job": job, "rank": 0, "value": value, "source": "launcher",
        "data": {"attempt": 1, **data},
    }  # fmt: skip


def touched(lines: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(line["action"], line["target"]["job"]) for line in lines if line["event"] == "action" and "job" in line["target"]}


@pytest.mark.parametrize("job", ["A", "B"])
@pytest.mark.parametrize("value", [-9, -11, 1])
def test_the_end_of_a_rank_touches_its_own_job_alone(job: str, value: int) -> None:
    assert touched(run(FLEET, ends(50, job, value))) == {("snapshot", job), ("restart", job)}


@pytest.mark.parametrize("between", [0.5, 20.0, 150.0])
def test_two_jobs_that_crash_on_one_node_are_two_incidents(between: float) -> None:
    lines = run(FLEET, ends(50, "A"), ends(50 + between, "B"))
    assert touched(lines) == {(action, job) for action in ("snapshot", "restart") for job in "AB"}
    assert len({line["incident"] for line in lines if line["event"] == "confirmed"}) == 2


def test_a_job_told_of_later_is_watched_like_the_first() -> None:
    fleet = {**FLEET, "jobs": FLEET["jobs"][:1], "auto": {"heartbeat_s": 1, "step_s": {"A": 2}}}
    told = {"t": 100, "kind": "job", "node": "n1", "job": "B", "value": 1, "source": "launcher"}
    told["data"] = {"slots": FLEET["jobs"][1]["slots"], "attempt": 1}
    assert ("restart", "B") in touched(run(fleet, ends(50, "A"), told, ends(200, "B")))


def test_a_machine_that_dies_moves_both_jobs_once() -> None:
    lines = run(FLEET, {"t": 50, "kind": "kernel", "node": "n1", "source": "netconsole", "data": {"event": "panic"}})
    restarts = [line["target"]["job"] for line in lines if line["event"] == "action" and line["action"] == "restart"]
    assert sorted(restarts) == ["A", "B"]


@pytest.mark.parametrize("kept", ["A", "B"])
def test_a_job_that_opted_out_is_not_touched_and_its_neighbour_is_served(kept: str) -> None:
    policy = Policy(mode="act", jobs={kept: ScopeRule(mode="observe")})
    lines = run(FLEET, ends(50, "A"), ends(150, "B"), policy=policy)
    [served] = {"A", "B"} - {kept}
    assert touched(lines) == {("snapshot", served), ("restart", served)}
    refused = [line for line in lines if line["event"] == "refused"]
    assert {line["target"]["job"] for line in refused} == {kept}
    assert all("observe" in line["refused"] for line in refused)
