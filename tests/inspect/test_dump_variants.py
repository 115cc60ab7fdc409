"""Variants of dumps: who holds up the collectives, who only waits, and when nothing hangs at all."""

# ruff: noqa: E501 (raw machine text is kept as it is printed)

import io
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from inspect_cases import Case, check

from detectors.inspect.context import make_context
from detectors.inspect.kinds import judge_of
from detectors.inspect.sources import Source
from outrider.errors import InputError

RANKS = {str(rank): [f"n{rank // 8}", rank % 8] for rank in range(32)}
JOB = {"job": "j1", "ranks": RANKS}

# --- stacks --------------------------------------------------------------------------------------------------------------
BARRIER = [
    "wait (torch/distributed/distributed_c10d.py:4710)",
    "barrier (torch/distributed/distributed_c10d.py:4713)",
    "wrapper (torch/distributed/c10d_logger.py:81)",
    "train (train.py:311)",
]
REDUCE = [
    "all_reduce (torch/distributed/distributed_c10d.py:2806)",
    "wrapper (torch/distributed/c10d_logger.py:81)",
    "clip_grad (megatron/core/optimizer/clip_grads.py:90)",
    "train (train.py:311)",
]
LOADER = [
    "poll (multiprocessing/popen_fork.py:27)",
    "wait (multiprocessing/connection.py:1136)",
    "_try_get_data (torch/utils/data/dataloader.py:1251)",
    "_get_data (torch/utils/data/dataloader.py:1402)",
    "_next_data (torch/utils/data/dataloader.py:1445)",
    "train (train.py:290)",
]
FSYNC = [
    "_fsync (torch/distributed/checkpoint/filesystem.py:402)",
    "write_data (torch/distributed/checkpoint/filesystem.py:655)",
    "save (trainer/checkpoint.py:91)",
    "train (train.py:311)",
]
READ = [
    "read (io.py:20)",
    "__getitem__ (trainer/dataset.py:88)",
    "fetch (torch/utils/data/_utils/fetch.py:52)",
    "_next_data (torch/utils/data/dataloader.py:789)",
    "train (train.py:290)",
]
SYNC = ["synchronize (torch/cuda/__init__.py:1040)", "step (trainer/step.py:55)", "train (train.py:300)"]
EVAL = [
    "forward (torch/nn/modules/linear.py:125)",
    "_call_impl (torch/nn/modules/module.py:1750)",
    "evaluate (trainer/evaluation.py:77)",
    "train (train.py:320)",
]
COMPILE = [
    "compile_fx (torch/_inductor/compile_fx.py:1200)",
    "_compile (torch/_dynamo/convert_frame.py:700)",
    "train (train.py:270)",
]
NFS_KERNEL = "[488120.1] INFO: task python3:{pid} blocked for more than 122 seconds.\n[488120.2] task:python3         state:D stack:    0 pid:{pid} ppid:220010 flags:0x00004002\n[488120.3]  rpc_wait_bit_killable+0x24/0xb0 [sunrpc]\n[488120.4]  nfs_file_fsync+0x20/0x30 [nfs]\n"
GPU_KERNEL = "[488120.1] INFO: task python3:{pid} blocked for more than 122 seconds.\n[488120.2] Call Trace:\n[488120.3]  os_acquire_rwlock_write+0x35/0x50 [nvidia]\n[488120.4]  _nv042330rm+0x10/0x40 [nvidia]\n[488120.5]  nvidia_ioctl+0x50/0x90 [nvidia]\n"


def stack(rank: int, frames: list[str], state: str = "S", flags: str = "idle", more: str = "") -> str:
    pid = 1000 + rank
    lines = "".join(f"    {frame}\n" for frame in [*frames, "<module> (train.py:402)"])
    return f'==> n{rank // 8} rank {rank} pid {pid} state {state} <==\nProcess {pid}: python3 train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\nThread {pid} ({flags}): "MainThread"\n{lines}{more}\n'


def stacks(common: list[str], odd: dict[int, str] | None = None, count: int = 32, state: str = "S") -> str:
    return "".join((odd or {}).get(rank) or stack(rank, common, state) for rank in range(count) if (odd or {}).get(rank) != "gone")


def kernel(node: str, text: str) -> str:
    return f"==> {node} kernel <==\n{text}"


GIL = '\nThread 77 (active+gil): "metrics"\n    dumps (json/encoder.py:200)\n    flush_metrics (trainer/metrics.py:40)\n'

STACKS = [
    Case("loader-of-one-rank", stacks(REDUCE, {13: stack(13, LOADER)}), {"data"}, {"restart", "page"}, {"job.dataloader_stall"}, {"rank": 13, "node": "n1"}, JOB),
    Case("stuck-in-the-driver", stacks(REDUCE, {22: stack(22, SYNC, "D")}) + kernel("n2", GPU_KERNEL.format(pid=1022)), {"gpu"}, {"restart"}, {"gpu.driver_hang"}, {"rank": 22, "gpu": 6, "node": "n2"}, JOB),
    Case("waits-for-its-gpu", stacks(REDUCE, {22: stack(22, SYNC)}), {"gpu", "node"}, {"restart"}, set(), {"rank": 22}, JOB),
    Case("all-nodes-in-storage", stacks(FSYNC, state="D") + kernel("n0", NFS_KERNEL.format(pid=1000) + "[488121.0] nfs: server nas-2 not responding, still trying\n") + kernel("n3", NFS_KERNEL.format(pid=1024)),
         {"storage"}, {"page", "restart"}, {"storage.hang"}, {"job": "j1"}, JOB | {"phase": {"name": "checkpoint", "elapsed_s": 900}, "limits": {"checkpoint_s": 300}}),
    Case("one-nodes-client-in-reading", stacks(REDUCE, {rank: stack(rank, READ, "D") for rank in range(8, 16)}) + kernel("n1", NFS_KERNEL.format(pid=1009)), {"node", "storage"}, {"restart", "drain"}, {"storage.hang"}, {"node": "n1"}, JOB),
    Case("checkpoint-within-its-limit", stacks(BARRIER, {0: stack(0, FSYNC, "D")}), context=JOB | {"phase": {"name": "checkpoint", "elapsed_s": 200}, "limits": {"checkpoint_s": 600}}),
    Case("evaluation-within-its-limit", stacks(EVAL), context=JOB | {"phase": {"name": "eval", "elapsed_s": 900}, "limits": {"eval_s": 3600, "train_s": 300}}),
    Case("compiling-at-the-start", stacks(COMPILE), context=JOB | {"phase": {"name": "compile", "elapsed_s": 400}}),
    Case("holder-of-the-gil", stacks(REDUCE, {5: stack(5, ["wait (threading.py:327)", "result (concurrent/futures/_base.py:451)", "train (train.py:280)"], more=GIL)}), {"app"}, {"restart", "page"}, {"job.hang"}, {"rank": 5}, JOB),
    Case("one-in-evaluation", stacks(REDUCE, {0: stack(0, EVAL, "R", "active+gil")}), {"app"}, {"restart", "page"}, {"job.hang"}, {"rank": 0}, JOB),
    Case("all-wait-nobody-odd", stacks(REDUCE), {"none", "nic", "link", "switch"}, {"restart", "page"}, {"job.hang"}, {"job": "j1"}, JOB),
    Case("one-rank-has-no-stack", stacks(REDUCE, {17: "gone"}), {"node", "app"}, {"restart"}, set(), {"rank": 17}, JOB),
    Case("one-node-has-no-stacks", stacks(REDUCE, dict.fromkeys(range(24, 32), "gone")), {"node"}, {"restart"}, {"node.lost"}, {"node": "n3"}, JOB),
    Case("stopped-process", stacks(REDUCE, {3: stack(3, ["forward (m.py:3)"], "T")}), {"app", "node"}, {"restart", "page"}, set(), {"rank": 3}, JOB),
    Case("all-wait-for-data", stacks(LOADER), {"storage", "data"}, {"page", "restart"}, {"storage.hang", "job.dataloader_stall"}, {}, JOB | {"phase": {"name": "train", "elapsed_s": 900}, "limits": {"train_s": 300}}),
    Case("xid-in-the-kernel-section", stacks(REDUCE, {22: stack(22, SYNC)}) + kernel("n2", "[20113.774120] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"), {"gpu"}, {"restart"}, {"gpu.fallen_off_bus"}, {"node": "n2"}, JOB),
]  # fmt: skip


# --- flight records --------------------------------------------------------------------------------------------------------
def entry(pg: str, seq: int, state: str, op: str = "all_reduce", size: int = 1024, p2p: str = "") -> dict[str, Any]:
    return {
        "record_id": seq, "pg_id": int(pg), "process_group": [pg, "x"], "collective_seq_id": 0 if p2p else seq, "p2p_seq_id": seq if p2p else 0, "op_id": seq,
        "profiling_name": f"nccl:{p2p or op}", "time_created_ns": 1780000000000004000, "input_sizes": [[size]], "input_dtypes": ["BFloat16"], "output_sizes": [[size]],
        "output_dtypes": ["BFloat16"], "state": state, "retired": state == "completed", "timeout_ms": 600000, "is_p2p": bool(p2p),
    }  # fmt: skip


def record(rank: int, groups: dict[str, tuple[str, list[int], int, int, int]], entries: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "rank": rank, "version": "2.10",
        "pg_config": {key: {"name": key, "desc": name, "ranks": str(members)} for key, (name, members, *_) in groups.items()},
        "pg_status": {key: {"last_enqueued_collective": e, "last_started_collective": s, "last_completed_collective": c} for key, (_, _, e, s, c) in groups.items()},
        "entries": entries,
    }  # fmt: skip


def world(odd: dict[int, dict[str, Any] | None], count: int = 8) -> str:
    """`count` ranks that wait in collective 10 of one group, but for the odd ones (None: no dump)."""
    members = list(range(count))
    usual = {
        rank: record(rank, {"0": ("default_pg", members, 10, 10, 9)}, [entry("0", 9, "completed"), entry("0", 10, "started")])
        for rank in members
    }
    shown = [odd.get(rank, usual[rank]) for rank in members]
    return "".join(json.dumps(one) + "\n" for one in shown if one is not None)


ALL = list(range(8))
LATE = record(5, {"0": ("default_pg", ALL, 9, 9, 9)}, [entry("0", 9, "completed")])
OTHER = record(5, {"0": ("default_pg", ALL, 10, 10, 9)}, [entry("0", 9, "completed"), entry("0", 10, "started", op="all_gather")])
SIZES = record(5, {"0": ("default_pg", ALL, 10, 10, 9)}, [entry("0", 9, "completed"), entry("0", 10, "started", size=1000)])
QUEUED = record(5, {"0": ("default_pg", ALL, 10, 9, 9)}, [entry("0", 9, "completed"), entry("0", 10, "scheduled")])
#: They came to 10, but their recorder does not yet know that 9 has ended, which a poller learns now and then.
BEHIND = {
    rank: record(rank, {"0": ("default_pg", ALL, 10, 9, 8)}, [entry("0", 9, "started"), entry("0", 10, "scheduled")]) for rank in ALL
}
LATE_BEHIND = record(5, {"0": ("default_pg", ALL, 9, 9, 8)}, [entry("0", 9, "started")])
FINE = "".join(
    json.dumps(record(rank, {"0": ("default_pg", ALL, 10, 10, 10)}, [entry("0", 10, "completed")])) + "\n" for rank in ALL
)


def pipeline() -> str:
    """Four stages of two; stage 2 (ranks 4, 5): rank 4 neither received nor sent, rank 5 waits in its tp group for it."""
    lines = []
    for rank in range(8):
        stage, tp = rank // 2, [rank // 2 * 2, rank // 2 * 2 + 1]
        name = str(stage + 1)
        pp = [rank % 2 + 2 * one for one in range(4)]
        groups = {name: (f"tp_{stage}", tp, 50, 50, 50), "9": (f"pp_{rank % 2}", pp, 0, 0, 0)}
        entries = [entry(name, 50, "completed")]
        if rank == 5:
            groups[name] = (f"tp_{stage}", tp, 51, 51, 50)
            entries.append(entry(name, 51, "started"))
        elif stage != 2:
            entries.append(
                entry("9", 7, "started", p2p=f"recv {stage}<-{stage - 1}" if stage == 3 else f"recv {stage}<-{stage + 1}")
            )
        lines.append(json.dumps(record(rank, groups, entries)) + "\n")
    return "".join(lines)


FLIGHTS = [
    Case("one-rank-late", world({5: LATE}), {"node", "app", "gpu", "data"}, {"restart"}, {"job.hang"}, {"rank": 5}, JOB),
    *(
        Case(f"one-rank-late-and-records-behind-{len(behind)}", world({rank: BEHIND[rank] for rank in behind} | {5: LATE}), {"node", "app", "gpu", "data"}, {"restart"}, {"job.hang"}, {"rank": 5}, JOB)
        for behind in ([0], [0, 1, 2], [0, 1, 2, 3, 4, 6], [0, 1, 2, 3, 4, 6, 7])
    ),
    Case("late-rank-and-another-both-behind", world({0: BEHIND[0], 5: LATE_BEHIND}), {"node", "app", "gpu", "data"}, {"restart"}, {"job.hang"}, {"rank": 5}, JOB),
    Case("stuck-in-what-others-finished", world({5: BEHIND[5]}), {"gpu", "node"}, {"restart"}, {"job.hang"}, {"rank": 5}, JOB),
    Case("one-rank-without-dump", world({5: None}), {"node", "app"}, {"restart"}, {"job.hang"}, {"rank": 5}, JOB),
    Case("most-ranks-without-dump", world(dict.fromkeys((2, 3, 4, 5, 6, 7))), {"none", "node"}, {"restart", "page"}, {"job.hang"}, {"job": "j1"}, {"job": "j1"}),
    Case("late-rank-beats-missing-dump", world({5: LATE, 6: None}), {"node", "app"}, {"restart"}, {"job.hang"}, {"rank": 5}, JOB),
    Case("other-operation", world({5: OTHER}), {"app"}, {"page", "restart"}, {"job.desync"}, {"rank": 5}, JOB),
    Case("other-sizes", world({5: SIZES}), {"app"}, {"page", "restart"}, {"job.desync"}, {"rank": 5}, JOB),
    Case("queued-not-started", world({5: QUEUED}), {"gpu", "node"}, {"restart"}, {"job.hang"}, {"rank": 5}, JOB),
    Case("all-joined", world({}), {"none", "nic", "link"}, {"restart", "page"}, {"job.hang"}, {"job": "j1"}, JOB),
    Case("nothing-under-way", FINE, context=JOB),
    Case("within-the-limit", world({5: LATE}), context=JOB | {"phase": {"name": "train", "elapsed_s": 20}, "limits": {"train_s": 300}}),
    Case("pipeline-waits-for-one-stage", pipeline(), {"node", "app", "gpu"}, {"restart"}, {"job.hang"}, {"rank": 4}, {"job": "j1"}),
]  # fmt: skip

RAS = """NCCL version 2.24.3 compiled with CUDA 12.8
Job summary
===========

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

Warnings
========

#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 6650
  Rank 9 has launched up to operation 6649 -- GPU 1 managed by process 483072 on node 10.0.0.1

"""
DEAD = (
    RAS.partition("Warnings")[0]
    + "Errors\n======\n\nDEAD\n  1 job process is considered dead (unreachable via the RAS network)\n  Process 3487984 on node 10.0.0.1 managing GPU 5\n"
)
HOSTS = {"addresses": {"10.0.0.1": "n1"}}
RAS_CASES = [
    Case("ras-lag-in-one-poll", RAS, context=JOB),
    Case("ras-same-lag-in-two-polls", RAS + RAS, {"node", "app"}, {"restart"}, {"job.hang"}, {"rank": 9}, JOB),
    Case(
        "ras-dead-process",
        DEAD,
        {"node", "app"},
        {"restart"},
        {"job.rank_exit", "node.lost"},
        {"node": "n1", "rank": 13},
        JOB | HOSTS,
    ),
]


@pytest.mark.parametrize("case", [*STACKS, *FLIGHTS, *RAS_CASES], ids=lambda case: case.name)
def test_a_dump_is_read_as_an_operator_would(case: Case, tmp_path: Path) -> None:
    check(case, "dump", tmp_path)


def test_a_pickled_dump_says_the_same_as_json(tmp_path: Path) -> None:
    folder = []
    for line in world({5: LATE}).splitlines():
        raw = json.loads(line)
        rank = raw.pop("rank")
        path = tmp_path / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(raw, protocol=2))
        folder.append(Source(path, file=str(path)))
    found = judge_of("dump")(folder, make_context(JOB))
    assert [(one.fault, one.subject["rank"]) for one in found] == [("job.hang", 5)]


class Bomb:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('executed')",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_with_code_in_it_is_refused_and_not_executed(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "trace_1"
    content = io.BytesIO()
    pickle.dump({"entries": [Bomb()]}, content, protocol=protocol)
    path.write_bytes(b"\x80\x02" + content.getvalue() if protocol < 2 else content.getvalue())
    with pytest.raises(InputError, match="code in it"):
        judge_of("dump")([Source(path)], make_context({}))


def test_what_is_no_dump_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("nothing of interest\n")
    with pytest.raises(InputError, match="holds no flight record"):
        judge_of("dump")([Source(path)], make_context({}))
