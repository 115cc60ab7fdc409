"""A rack that loses its power takes its job with it: the job goes on elsewhere. A rack that is only unseen costs nothing."""

import pytest
from core_cluster import Cluster, small_fleet

from outrider.config.policy import Policy
from outrider.fleet import Fleet, Job, Node

DEAD = tuple(f"n{index}" for index in range(1, 5))


def racks(spares: int = 4, switch: bool = False) -> Fleet:
    """Ten racks of four nodes, the last `spares` nodes stand by; with `switch` each rack has a switch of its own."""
    fleet = small_fleet(nodes=60, spares=spares, rack=lambda index: f"r{index // 4}")
    nodes = tuple(
        Node(node=one.node, rack=one.rack, gpus=1, address=one.address, switch=f"s{one.rack}" if switch else None)
        for one in fleet.nodes
    )
    return Fleet(nodes=nodes, jobs=fleet.jobs, witnesses=fleet.witnesses, spares=fleet.spares)


def lose_power(cluster: Cluster, *, answer: str | None = "none", errors: int = 2) -> None:
    """The first rack falls silent; ranks of other racks lose their transport to `errors` of its nodes."""
    for node in DEAD:
        cluster.silence(node)
        if answer is not None:
            cluster.answers[node] = answer
    cluster.stepping = False
    cluster.run(1.0)
    for rank, node in enumerate(DEAD[:errors], start=10):
        address = f"10.0.0.{DEAD.index(node) + 1}"
        cluster.signal("collective_error", job="j1", rank=rank, node=f"n{rank + 1}", data={"attempt": 1, "peer": address})


def test_a_rack_that_takes_its_job_with_it_is_replaced_in_one_restart() -> None:
    cluster = Cluster(fleet=racks())
    cluster.run(10.4)
    start = cluster.now
    lose_power(cluster)
    cluster.run(9)
    told = cluster.changes("confirmed")
    assert {one.fault for one in told} == {"domain.lost"} and told[-1].subject == {"rack": "r0"}
    assert told[-1].response == "restart" and told[-1].t - start <= 8.0
    orders = [one for one in cluster.actions() if one.refused is None]
    assert [one.target["node"] for one in orders if one.action == "quarantine"] == list(DEAD)
    [restart] = [one for one in orders if one.action == "restart"]
    assert [item["from"] for item in restart.target["replace"]] == list(DEAD)
    assert [item["to"] for item in restart.target["replace"]] == ["n57", "n58", "n59", "n60"]
    saved = next(one for one in orders if one.action == "snapshot" and one.after == () and one.fence < restart.fence)
    assert saved.target["ranks"]
    assert len(cluster.council.recovery.guard.restarts["j1"]) == len(cluster.council.recovery.guard.drastic) == 1, "one token"


def test_the_incident_is_over_when_the_job_steps_again_and_opens_no_second_one() -> None:
    cluster = Cluster(fleet=racks())
    cluster.run(10.4)
    lose_power(cluster)
    cluster.run(9)
    slots = [[f"n{index}", 0] for index in (57, 58, 59, 60, *range(5, 57))]
    cluster.signal("job", job="j1", value=2, data={"slots": slots})
    cluster.attempt, cluster.step, cluster.stepping, cluster.next_step = 2, 0, True, cluster.now + 0.5
    cluster.run(90)
    assert len({one.incident for one in cluster.changes("confirmed")}) == 1
    assert [one.event for one in cluster.changes() if one.fault == "domain.lost"][-1] == "resolved"
    assert sum(one.action == "restart" for one in cluster.actions()) == 1


def test_without_a_second_layer_it_waits_for_the_hard_limit() -> None:
    cluster = Cluster(fleet=racks())
    cluster.run(10.4)
    start = cluster.now
    lose_power(cluster, errors=0)
    cluster.run(60)
    [restart] = [one for one in cluster.actions() if one.action == "restart"]
    assert 34.0 <= restart.t - start <= 38.0


@pytest.mark.parametrize("errors", [0, 1, 2])
def test_while_the_job_steps_a_silent_rack_moves_nobody(errors: int) -> None:
    cluster = Cluster(fleet=racks())
    cluster.run(10.4)
    lose_power(cluster, errors=errors)
    cluster.stepping, cluster.next_step = True, cluster.now + 0.5
    cluster.run(90)
    assert {one.response for one in cluster.changes("confirmed")} <= {"page"}
    assert not {"restart", "quarantine", "drain"} & {one.action for one in cluster.actions()}


@pytest.mark.parametrize("answer", ["mute", "refused"])
def test_a_rack_whose_kernels_answer_has_not_lost_its_power(answer: str) -> None:
    cluster = Cluster(fleet=racks(), policy=Policy(mode="act", hung_after_seconds=500.0))
    cluster.run(10.4)
    lose_power(cluster, answer=answer)
    cluster.run(25)
    assert "quarantine" not in {one.action for one in cluster.actions()}


def test_too_few_spares_page_and_the_refusal_is_recorded() -> None:
    cluster = Cluster(fleet=racks(spares=3))
    cluster.run(10.4)
    lose_power(cluster)
    cluster.run(60)
    told = cluster.changes("confirmed")
    assert {one.fault for one in told} == {"domain.lost"} and told[-1].response == "page"
    assert {one.action for one in cluster.actions() if one.refused is None} == {"page", "snapshot"}
    assert {one.refused for one in cluster.actions() if one.action == "restart"} == {"limit: 4 nodes to replace, 3 spares"}
    assert not cluster.council.recovery.spares.claimed and not cluster.council.recovery.quarantined


def test_of_a_rack_and_a_switch_that_hold_the_same_nodes_the_rack_is_gone_and_the_switch_is_in_the_way() -> None:
    dead = Cluster(fleet=racks(switch=True))
    dead.run(10.4)
    lose_power(dead)
    dead.run(9)
    assert [one.subject for one in dead.changes("confirmed")][-1] == {"rack": "r0"}
    unseen = Cluster(fleet=racks(switch=True))
    unseen.run(10.4)
    for node in DEAD:
        unseen.silence(node)
    unseen.run(60)
    assert [(one.fault, one.subject) for one in unseen.changes("confirmed")] == [("path.broken", {"switch": "sr0"})]


def test_two_jobs_of_one_rack_are_both_restarted_once() -> None:
    base = racks(spares=8)
    nodes = [one.node for one in base.nodes]
    jobs = tuple(
        Job(job=name, slots=tuple((node, 0) for node in members))
        for name, members in (("j1", nodes[:2] + nodes[4:20]), ("j2", nodes[2:4] + nodes[20:40]))
    )
    cluster = Cluster(fleet=Fleet(nodes=base.nodes, jobs=jobs, witnesses=base.witnesses, spares=base.spares))
    cluster.run(10.4)
    for job in ("j1", "j2"):
        for step in range(8):
            cluster.signal("step", job=job, value=step, data={"attempt": 1, "step_s": 0.5, "age_s": 0.0})
    lose_power(cluster, errors=0)
    for rank, node, job in ((5, "n1", "j1"), (6, "n2", "j1"), (5, "n3", "j2"), (6, "n4", "j2")):
        cluster.signal("collective_error", job=job, rank=rank, data={"attempt": 1, "peer": f"10.0.0.{node[1:]}"})
    cluster.run(12)
    restarts = [one for one in cluster.actions() if one.action == "restart"]
    assert sorted(one.target["job"] for one in restarts) == ["j1", "j2"]
    assert len(cluster.council.recovery.guard.drastic) == 1


def test_a_restart_that_was_refused_for_want_of_spares_follows_once_enough_are_given_back() -> None:
    """Once, in the place of a person; and not for a job that somebody has brought back meanwhile."""
    cluster = Cluster(fleet=racks(spares=5))
    cluster.run(10.4)
    cluster.council.recovery.spares.claimed |= {"n57": "before", "n58": "before"}
    lose_power(cluster)
    cluster.run(30)
    assert not [one for one in cluster.actions() if one.action == "restart" and one.refused is None]
    cluster.give_back("n57")
    cluster.run(3)
    done = [one for one in cluster.actions() if one.refused is None and one.action in ("quarantine", "restart")]
    assert [one.action for one in done] == (["quarantine"] * 4 + ["restart"])
    assert "spares are free again" in cluster.changes("confirmed")[-1].explanation
    cluster.give_back("n58")
    cluster.run(3)
    assert [one for one in cluster.actions() if one.refused is None and one.action in ("quarantine", "restart")] == done


def test_it_does_not_follow_when_the_job_runs_elsewhere_already_or_there_are_still_too_few() -> None:
    cluster = Cluster(fleet=racks(spares=5))
    cluster.run(10.4)
    cluster.council.recovery.spares.claimed |= dict.fromkeys(("n57", "n58", "n59"), "before")
    lose_power(cluster)
    cluster.run(30)
    before = len(cluster.actions())
    cluster.give_back("n57")
    cluster.run(3)
    assert [one.action for one in cluster.actions()[before:]] == ["release"], "nobody is paged again for each spare"
    cluster.signal("job", job="j1", value=2, data={"slots": [[f"n{index}", 0] for index in range(5, 56)]})
    cluster.give_back("n58")
    cluster.run(3)
    assert [one.action for one in cluster.actions()[before:]] == ["release", "release"]
