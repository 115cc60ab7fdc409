"""Who is waited for: nested groups of thousands of ranks, missing records, ranks that call something else."""

import random
import time

from detectors.core.waits import head_of_chain


def layout(tensor: int, pipeline: int, data: int) -> tuple[int, dict[str, list[list[int]]]]:
    """Ranks in the order tensor, data, pipeline; three kinds of groups."""
    size = tensor * pipeline * data

    def rank(t: int, p: int, d: int) -> int:
        return (p * data + d) * tensor + t

    groups = {
        "tp": [[rank(t, p, d) for t in range(tensor)] for p in range(pipeline) for d in range(data)],
        "dp": [[rank(t, p, d) for d in range(data)] for p in range(pipeline) for t in range(tensor)],
        "pp": [[rank(t, p, d) for p in range(pipeline)] for d in range(data) for t in range(tensor)],
    }
    return size, groups


def hang(size: int, groups: dict[str, list[list[int]]], culprit: int) -> dict[int, dict[str, dict[str, object]]]:
    """The culprit never joins its tensor group's next collective; its mates wait there, everybody else for its mates."""
    stuck = set(next(group for group in groups["tp"] if culprit in group))
    records: dict[int, dict[str, dict[str, object]]] = {}
    for rank in range(size):
        tp = {"enqueued": 500, "completed": 500, "op": "all_reduce"}
        dp = {"enqueued": 40, "completed": 39, "op": "reduce_scatter"}
        if rank in stuck:
            dp = {"enqueued": 39, "completed": 39, "op": "reduce_scatter"}
            if rank != culprit:
                tp = {"enqueued": 501, "completed": 500, "op": "all_reduce"}
        records[rank] = {"tp": tp, "dp": dp}
    return records


def test_the_start_of_the_chain_is_named_among_16384_ranks() -> None:
    size, groups = layout(8, 16, 128)
    assert size == 16_384
    rng = random.Random(7)
    found, begun = 0, time.process_time()
    for _ in range(3):
        culprit = rng.randrange(size)
        head = head_of_chain(hang(size, groups, culprit), groups, size)
        found += head is not None and head.ranks == (culprit,)
    assert found == 3 and (time.process_time() - begun) / 3 < 3.0


def test_a_rank_without_a_record_is_named_only_as_missing() -> None:
    size, groups = layout(4, 2, 2)
    records = hang(size, groups, 5)
    del records[5]
    head = head_of_chain(records, groups, size)
    assert head is not None and head.ranks == (5,) and head.missing


def test_a_rank_that_calls_something_else_is_a_desync() -> None:
    records = {r: {"dp": {"enqueued": 9, "completed": 8, "op": "all_gather" if r == 2 else "all_reduce"}} for r in range(8)}
    head = head_of_chain(records, {"dp": [list(range(8))]}, 8)
    assert head is not None and head.ranks == (2,) and head.desync


def test_ranks_that_all_wait_alike_name_nobody() -> None:
    records = {r: {"dp": {"enqueued": 9, "completed": 8, "op": "all_reduce"}} for r in range(8)}
    assert head_of_chain(records, {"dp": [list(range(8))]}, 8) is None
