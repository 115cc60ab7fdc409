"""Every form in which NCCL RAS names a rank or a process, as text and as JSON.

Put together by the formats in NCCL's src/ras/client_support.cc (2.24 to 2.31; JSON from 2.28) and the example answers of its
documentation (troubleshooting, RAS).
"""

import json
from typing import Any

import pytest

from outrider.parsers.ras import RasPoll, parse_ras

HEAD = """NCCL version 2.28.7 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

"""
ERRORS, WARNINGS = "Errors\n======\n\n", "Warnings\n========\n\n"
WHERE = "GPU 1 managed by process 483072 on node 10.0.0.1"


def poll(body: str) -> RasPoll:
    (found,) = parse_ras(HEAD + body)
    return found


def lag(found: RasPoll) -> list[tuple[str, int | None, int | None]]:
    return [(group.split()[-1], one.rank, one.count) for group, ranks in found.lagging.items() for one in ranks]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"  31 ranks have launched up to operation 6650\n  Rank 9 has launched up to operation 6649 -- {WHERE}\n", [(9, 6649)]),
        (f"  31 ranks have launched up to operation 6650\n  Rank 9 has not launched any operations -- {WHERE}\n", [(9, 0)]),
        (
            "  30 ranks have launched up to operation 6650\n  2 ranks have launched up to operation 6649\n"
            f"  Rank 8 -- GPU 0 managed by process 483071 on node 10.0.0.1\n  Rank 9 -- {WHERE}\n",
            [(8, 6649), (9, 6649)],
        ),
        (
            "  30 ranks have launched up to operation 6650\n  2 ranks have not launched any operations\n"
            f"  Rank 8 -- [process information not found]\n  Rank 9 -- {WHERE}\n",
            [(8, 0), (9, 0)],
        ),
        (
            "  31 ranks have launched up to operation 6650\n"
            "  Rank 9 has launched up to operation 6649 -- GPU 1 (NVML 5) managed by process 483072 on node fe80::1\n",
            [(9, 6649)],
        ),
        (f"  31 ranks have launched up to operation 6650\n  Rank 9 has launched up to operation 6651 -- {WHERE}\n", []),
        (
            "  31 ranks have launched up to operation 6650\n"
            "  Rank 9 has launched up to operation 6649 -- [process information not found]\n",
            [(9, 6649)],
        ),
    ],
    ids=["one", "one that launched nothing", "two", "two without a process", "other NVML number", "one ahead", "no process"],
)  # fmt: skip
def test_ranks_behind_are_found_in_every_form(lines: str, expected: list[tuple[int, int]]) -> None:
    head = "#0-0 (27a079b828ff1a75) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
    found = poll(ERRORS + WARNINGS + head + lines)
    assert lag(found) == [("AllReduce", rank, count) for rank, count in expected]
    assert list(found.front.values()) == [6650] and list(found.operation.values()) == ["AllReduce"]


def test_two_operations_of_one_communicator_are_held_apart() -> None:
    body = f"""#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 6650
  Rank 9 has launched up to operation 6649 -- {WHERE}

  Communicator ranks have different Broadcast operation counts
  31 ranks have launched up to operation 12
  Rank 3 has launched up to operation 11 -- {WHERE}

#1-0 (89999999999ff1aa) MISMATCH
  Communicator ranks have different AllGather operation counts
  7 ranks have launched up to operation 5
  Rank 2 has launched up to operation 4 -- {WHERE}
"""
    found = poll(ERRORS + WARNINGS + body)
    assert lag(found) == [("AllReduce", 9, 6649), ("Broadcast", 3, 11), ("AllGather", 2, 4)]
    assert sorted(found.front.values()) == [5, 12, 6650]


def test_ranks_of_another_status_do_not_lag() -> None:
    body = f"""#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different status
  31 ranks have status RUNNING
  Rank 4 has status FINALIZE -- {WHERE}
  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 6650
  Rank 9 has launched up to operation 6649 -- {WHERE}
"""
    assert lag(poll(ERRORS + WARNINGS + body)) == [("AllReduce", 9, 6649)]


def test_the_dead_the_missing_and_the_failed_are_named() -> None:
    body = f"""{ERRORS}INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487985 on node 10.0.0.2 managing GPU 6

DEAD
  2 job processes are considered dead (unreachable via the RAS network)
  Process 3487984 on node 10.0.0.1 managing GPU 5
  Process 3487986 on node 10.0.0.1 managing GPUs 6,7 (NVML 0,1)

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 21 -- GPU 5 managed by process 3487984 on node 10.0.0.1

#0-0 (cf264af53edbe986) ERROR
  Asynchronous error on 1 rank
  Rank 7 reported Remote process error -- {WHERE}

{WARNINGS}TIMEOUT
  Encountered 1 communication timeout while gathering communicator data
"""
    found = poll(body)
    assert [(one.pid, one.node, one.gpu) for one in found.dead] == [(3487984, "10.0.0.1", 5), (3487986, "10.0.0.1", 6)]
    assert [(one.rank, one.pid) for one in found.missing] == [(None, 3487985), (21, 3487984)]
    assert [(one.rank, "Remote process error" in one.text) for one in found.failed] == [(7, True)]


def answer(ranks: list[dict[str, Any]], missing: list[dict[str, Any]] | None = None) -> str:
    communicator = {"hash": "0x27a0", "secondary_hash": "0x1:0x2", "size": 4, "ranks_count": len(ranks), "ranks": ranks}
    return json.dumps(
        {"nccl_version": "2.28.7", "cuda_runtime_version": 13000, "communicators_count": 1,
         "communicators": [communicator | {"missing_ranks_count": len(missing or []), "missing_ranks": missing or []}],
         "ras": {"collection_time_sec": 0.001, "timeouts_count": 0}}
    )  # fmt: skip


def rank(number: int, init: int = 0, error: int = 0, count: int = 42) -> dict[str, Any]:
    status = {"init_state": init, "async_error": error, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    return {"rank": number, "host": "10.0.0.1", "pid": 100 + number, "cuda_dev": number, "nvml_dev": number, "status": status,
            "collective_counts": {"Broadcast": 1, "AllReduce": count}}  # fmt: skip


def gone(number: int, *, unresponsive: bool, dead: bool) -> dict[str, Any]:
    status = {"unresponsive": unresponsive, "considered_dead": dead}
    return {"rank": number, "host": "unknown", "pid": -1, "cuda_dev": 0, "nvml_dev": 0, "status": status}


def test_an_operation_that_goes_on_is_no_error_and_an_error_is() -> None:
    """ncclInProgress (7) is what a non-blocking communicator says all the time."""
    (found,) = parse_ras(answer([rank(0, error=7), rank(1, init=7), rank(2, error=6), rank(3, init=2)]))
    assert [(one.rank, one.text) for one in found.failed] == [(2, "async error 6"), (3, "init state 2")]


def test_a_process_that_answers_but_is_no_member_is_not_missing() -> None:
    missing = [
        gone(1, unresponsive=False, dead=False),
        gone(2, unresponsive=True, dead=False),
        gone(3, unresponsive=True, dead=True),
    ]
    (found,) = parse_ras(answer([rank(0)], missing))
    assert [one.rank for one in found.missing] == [2] and [one.rank for one in found.dead] == [3]


def test_json_and_text_name_the_same_lag() -> None:
    (found,) = parse_ras(answer([rank(0), rank(1), rank(2, count=41), rank(3)]))
    assert lag(found) == [("AllReduce", 2, 41)]
    assert parse_ras(answer([rank(0)]) + "\n" + answer([rank(0)]))[1].failed == []


@pytest.mark.parametrize(
    "text", ["", "ERROR: Unknown command\n", "{", '{"communicators": [null, 7, {"ranks": 3}]}', "No communicator data"]
)
def test_what_is_no_answer_names_nobody(text: str) -> None:
    for found in parse_ras(text):
        assert not (found.dead or found.missing or found.failed or any(found.lagging.values()))
