"""The faults of the drill, judged in virtual time."""

import pytest
from core_cluster import Cluster

from outrider.config.policy import Policy


def test_a_killed_rank_is_confirmed_at_once_and_the_job_restarts_without_replacing_a_node() -> None:
    cluster = Cluster()
    cluster.run(10)
    cluster.stepping = False
    cluster.signal("process_exit", job="j1", rank=2, node="n3", value=-9, data={"attempt": 1})
    assert cluster.confirmed() == ["job.rank_exit"]
    snapshot, restart = cluster.actions()
    assert (snapshot.action, snapshot.target["ranks"]) == ("snapshot", [0, 1, 3])
    assert restart.action == "restart" and restart.target["replace"] == [] and restart.after == (snapshot.decision_id,)
    for rank in (1, 3):
        cluster.signal("collective_error", job="j1", rank=rank, data={"attempt": 1, "peer": "10.0.0.3:1234"})
        cluster.signal("process_exit", job="j1", rank=rank, value=-15, data={"attempt": 1})
    cluster.run(1)
    cluster.signal("job", job="j1", value=2, data={"slots": [[f"n{i}", 0] for i in (1, 2, 3, 4)]})
    cluster.attempt, cluster.stepping, cluster.next_step = 2, True, cluster.now + 0.5
    cluster.run(60)
    assert cluster.confirmed() == ["job.rank_exit"] and len(cluster.actions()) == 2
    assert [one.event for one in cluster.changes()] == ["suspected", "confirmed", "resolved"]


@pytest.mark.parametrize("answer", ["none", "refused"])
def test_a_lost_node_is_confirmed_within_six_seconds_and_the_spare_takes_its_slot(answer: str) -> None:
    cluster = Cluster()
    cluster.run(10.4)
    start = cluster.now
    cluster.silence("n3")
    cluster.answers["n3"] = answer
    cluster.stepping = False
    for rank in (1, 3):
        cluster.signal("collective_error", job="j1", rank=rank, node=f"n{rank + 1}", data={"attempt": 1, "peer": "[10.0.0.3]:4711"})
    cluster.run(30)
    assert cluster.confirmed() == ["node.lost"]
    confirmed = cluster.changes("confirmed")[0]
    assert confirmed.t - start <= 6.0 and confirmed.votes == {"w1": "faulty", "w2": "faulty", "w3": "faulty"}
    assert [one.action for one in cluster.actions()] == ["snapshot", "quarantine", "restart"]
    assert cluster.actions()[2].target["replace"] == [{"slot": 2, "from": "n3", "to": "n5"}]
    assert cluster.copies()


def test_a_frozen_node_is_hung_no_sooner_than_the_limit() -> None:
    cluster = Cluster(policy=Policy(mode="act", hung_after_seconds=12.0))
    cluster.run(10.4)
    start = cluster.now
    cluster.silence("n3")
    cluster.answers["n3"] = "mute"
    cluster.stepping = False
    cluster.run(30)
    assert cluster.changes("suspected")[0].t - start <= 4.6
    assert cluster.confirmed() == ["node.hung"]
    confirmed = cluster.changes("confirmed")[0]
    assert 12.0 <= confirmed.t - start + 1.0 <= 14.5
    assert [one.action for one in cluster.actions()] == ["snapshot", "quarantine", "restart"]


def test_a_killed_agent_pages_and_leaves_the_job_alone() -> None:
    cluster = Cluster()
    cluster.run(10.4)
    cluster.silence("n3")
    cluster.answers["n3"] = "refused"
    cluster.run(20)
    assert cluster.confirmed() == ["agent.lost"]
    assert [one.action for one in cluster.actions()] == ["page", "agent_restart"]
    cluster.beat_to["n3"] = {"w1", "w2", "w3"}
    cluster.answers.clear()
    cluster.run(60)
    assert cluster.confirmed() == ["agent.lost"]
    assert cluster.changes()[-1].event == "resolved"


@pytest.mark.parametrize("deaf", [("w1", "w2"), ("w1", "w2", "w3")])
def test_lost_heartbeats_of_a_living_node_cost_nothing(deaf: tuple[str, ...]) -> None:
    cluster = Cluster()
    cluster.run(10.4)
    cluster.silence("n3", *deaf)
    cluster.run(8)
    cluster.beat_to["n3"] = {"w1", "w2", "w3"}
    cluster.run(60)
    assert cluster.confirmed() == [] and cluster.actions() == []
    assert all(one.response == "watch" for one in cluster.changes())


def test_every_action_that_writes_has_a_larger_fence_than_the_one_before() -> None:
    """A survivor that still writes under the snapshot's fence is old once the restart's stands."""
    cluster = Cluster()
    cluster.run(10)
    cluster.stepping = False
    cluster.signal("process_exit", job="j1", rank=2, node="n3", value=-9, data={"attempt": 1})
    fences = [action.fence for action in cluster.actions()]
    assert fences == sorted(set(fences)) and len(fences) == 2


def test_a_lost_node_is_judged_the_moment_its_jobs_proof_of_life_ends() -> None:
    """The last step began after the last heartbeat: it counts as life for one time-out, and not until the next round of probes."""
    cluster = Cluster()
    cluster.run(10.05)
    start = cluster.now
    cluster.silence("n3")
    cluster.answers["n3"] = "none"
    cluster.run(0.5)
    last_step = cluster.now
    cluster.stepping = False
    cluster.run(3.0)
    for rank in (1, 3):
        cluster.signal("collective_error", job="j1", rank=rank, node=f"n{rank + 1}", data={"attempt": 1, "peer": "[10.0.0.3]:4711"})
    cluster.run(10)
    (confirmed,) = [change for change in cluster.changes() if change.event == "confirmed"]
    assert confirmed.fault == "node.lost"
    assert last_step < confirmed.t <= max(start, last_step) + 4.5  # suspect at 4 s, probes answered 0.3 s later
