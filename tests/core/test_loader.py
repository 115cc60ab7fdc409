"""A loader that does not deliver: told as early as a hang, with its rank; a job that loads as a whole is left its time."""

from core_cluster import Cluster, small_fleet


def training(step_s: float = 2.0, nodes: int = 9) -> Cluster:
    cluster = Cluster(fleet=small_fleet(nodes=nodes, gpus=2), step_s=step_s)
    cluster.run(30)
    cluster.stepping = False
    return cluster


def phase(cluster: Cluster, value: str, rank: int | None = None, progress: int | None = None) -> None:
    data = {"attempt": 1} | ({"progress": progress} if progress is not None else {})
    cluster.signal("phase", job="j1", value=value, rank=rank, data=data)


def told(cluster: Cluster) -> list[tuple[str, str, object, object]]:
    return [(one.fault, one.response, one.subject.get("node"), one.subject.get("rank")) for one in cluster.changes("confirmed")]


def test_one_rank_that_waits_for_data_is_paged_at_the_pace_of_training() -> None:
    cluster = training()
    phase(cluster, "data", rank=7)
    cluster.run(28)
    assert told(cluster) == []
    cluster.run(4)
    assert told(cluster) == [("job.dataloader_stall", "page", "n4", 7)]
    assert {one.action for one in cluster.actions()} == {"page"}
    assert cluster.changes("confirmed")[0].culprit == "data"


def test_its_restart_waits_for_the_limit_of_the_phase() -> None:
    cluster = training()
    phase(cluster, "data", rank=7)
    cluster.run(590)
    assert "restart" not in {one.action for one in cluster.actions()}
    cluster.run(20)
    assert [one.action for one in cluster.actions()].count("restart") == 1
    assert "quarantine" not in {one.action for one in cluster.actions()}


def test_the_ranks_of_one_node_are_named_by_their_node() -> None:
    cluster = training()
    for rank in (6, 7):
        phase(cluster, "data", rank=rank)
    cluster.run(32)
    assert told(cluster) == [("job.dataloader_stall", "page", "n4", 6)]


def test_a_job_that_loads_as_a_whole_has_the_time_of_its_phase() -> None:
    for ranks in ([None], range(16), range(0, 16, 2)):
        cluster = training()
        for rank in ranks:
            phase(cluster, "data", rank=rank)
        cluster.run(120)
        assert told(cluster) == [], ranks


def test_a_loader_that_moves_is_no_stall() -> None:
    cluster = training()
    for count in range(6):
        phase(cluster, "data", rank=7, progress=count)
        cluster.run(20)
    assert told(cluster) == []


def test_a_rank_that_loaded_for_an_earlier_step_is_not_named_for_a_later_hang() -> None:
    cluster = training()
    phase(cluster, "data", rank=7)
    cluster.stepping, cluster.next_step = True, cluster.now + 2.0
    cluster.run(10)
    cluster.stepping = False
    cluster.run(32)
    assert told(cluster) == [("job.hang", "page", None, None)]


def test_a_rank_that_has_gone_on_does_not_leave_the_job_the_time_of_loading() -> None:
    cluster = training()
    phase(cluster, "data", rank=7)
    cluster.run(1)
    phase(cluster, "train", rank=7)
    cluster.run(33)
    assert told(cluster) == [("job.hang", "page", None, None)]


def test_records_that_name_the_rank_that_waits_for_data_take_no_node_out() -> None:
    cluster = training()
    phase(cluster, "data", rank=7)
    for rank in range(16):
        data = {"attempt": 1, "dp": {"enqueued": 8 if rank == 7 else 9, "completed": 8, "op": "all_reduce"}}
        cluster.signal("flight_record", job="j1", rank=rank, data=data)
    cluster.run(60)
    assert told(cluster) == [("job.dataloader_stall", "page", "n4", 7)]
