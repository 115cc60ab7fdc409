"""A rank that broke by itself, and the watchdogs of the others: the deeper cause wins, wherever its line stands in the file."""

# ruff: noqa: E501 (raw machine text is kept as it is printed)

from pathlib import Path

import pytest
from inspect_cases import Case, check, nccl_timeout, steps

RANKS = {str(rank): [f"n{rank // 4}", rank % 4] for rank in range(8)}
CONTEXT = {"job": "j1", "ranks": RANKS}
WAITS = [nccl_timeout(rank, 100, 104, 99, second=10) for rank in range(8) if rank != 3]
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB of which 1.2 GiB is free.\n"

#: What rank 3 says -> (its text, culprits, fault).
CAUSES: dict[str, tuple[str, set[str], str]] = {
    "GPU memory": (OOM, {"app"}, "job.oom"),
    "GPU memory of older torch": (OOM.replace("torch.OutOfMemoryError", "RuntimeError"), {"app"}, "job.oom"),
    "a NaN assertion": ("[rank3]: AssertionError: found NaN in local forward loss calculation on rank 3\n", {"app", "data"}, "job.loss_nan"),
    "an exception": (
        "[rank3]: Traceback (most recent call last):\n[rank3]:   File \"/app/train.py\", line 12, in step\n[rank3]: KeyError: 'labels'\n",
        {"app"}, "job.app_error",
    ),
    "a device assertion": ("[rank3]: torch.AcceleratorError: CUDA error: device-side assert triggered\n", {"app"}, "job.app_error"),
    "a segmentation fault": ("[rank3]: Fatal Python error: Segmentation fault\n", {"app"}, "job.app_error"),
    "the launcher's word of a segmentation fault": (
        "[n0] E0626 04:03:00.000000 1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -11) local_rank: 3 (pid: 103) of binary: /usr/bin/python\n",
        {"app"}, "job.app_error",
    ),
    "a loader that was killed": ("[rank3]: RuntimeError: DataLoader worker (pid 4242) is killed by signal: Killed. \n", {"app"}, "job.oom"),
    "a loader's exception": (
        "[rank3]: RuntimeError: Caught FileNotFoundError in DataLoader worker process 2.\n[rank3]: FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-7.tar'\n",
        {"data"}, "job.app_error",
    ),
    "the kernel that kills for memory": (
        "[n0] [20113.7] Out of memory: Killed process 103 (python3) total-vm:9912220kB, anon-rss:9001220kB\n[n0] E0626 04:03:00.000000 1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 3 (pid: 103) of binary: python\n",
        {"app", "node"}, "job.oom",
    ),
}  # fmt: skip
ORDERS = {
    "before": lambda cause: [cause, *WAITS],
    "between": lambda cause: [*WAITS[:3], cause, *WAITS[3:]],
    "after": lambda cause: [*WAITS, cause],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", CAUSES)
def test_a_rank_that_broke_is_the_cause_wherever_its_line_stands(name: str, order: str, tmp_path: Path) -> None:
    text, culprits, fault = CAUSES[name]
    log = steps(1, 6) + "".join(ORDERS[order](text))
    check(Case(name, log, culprits, {"page", "restart"}, {fault}, {"rank": 3}, CONTEXT), "train_log", tmp_path)


def stamped(at: str) -> str:
    return OOM.replace("[rank3]: ", f"[rank3]:2026-06-26 {at},100 - root - ERROR - ")


HANG = ({"node", "app", "gpu", "none"}, {"restart", "page"}, {"job.hang", "gpu.driver_hang"})
CASES = [
    Case("memory stamped before the time-outs, printed after", "".join(WAITS) + stamped("04:03:05"), {"app"}, {"page"}, {"job.oom"}, {"rank": 3}, CONTEXT),
    Case("memory stamped a little after the time-outs", "".join(WAITS) + stamped("04:13:40"), {"app"}, {"page"}, {"job.oom"}, {"rank": 3}, CONTEXT),
    Case("memory long after the time-outs is another matter", "".join(WAITS) + stamped("05:40:00"), *HANG, {"rank": 3}, CONTEXT),
    Case("two ranks without memory: the first", OOM.replace("rank3", "rank6") + OOM + "".join(w for w in WAITS if "Rank 6]" not in w), {"app"}, {"page"}, {"job.oom"}, {"rank": 6}, CONTEXT),
    Case("its own watchdog too, after its memory ran out", OOM + "".join([*WAITS, nccl_timeout(3, 100, 104, 99, second=10)]), {"app"}, {"page"}, {"job.oom"}, {"rank": 3}, CONTEXT),
    Case("a rank that waited and met an exception after it", "".join(WAITS) + "[rank5]: KeyError: 'state'\n", *HANG, {"rank": 3}, CONTEXT),
    Case("a cause on another rank than the one that is missed", "".join(WAITS) + "[rank0]: Rank 3 is the only rank that did not join: desync: [3] joined but didn't finish\n[rank5]: KeyError: 'state'\n", *HANG, {"rank": 3}, CONTEXT),
    Case("a loader that the launcher ended", "".join(WAITS) + "[rank3]: RuntimeError: DataLoader worker (pid 4242) is killed by signal: Terminated. \n", {"node", "data", "app"}, {"restart", "page"}, {"job.hang", "job.dataloader_stall"}, {"rank": 3}, CONTEXT),
    Case("a killed process after the time-outs may be the launcher's doing", "".join(WAITS) + "[n0] E0626 04:14:00.000000 1 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 3 (pid: 103) of binary: python\n", *HANG, {"rank": 3}, CONTEXT),
    Case("nothing but time-outs", "".join(WAITS), *HANG, {"rank": 3}, CONTEXT),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_time_outs_and_what_stands_beside_them(case: Case, tmp_path: Path) -> None:
    check(case, "train_log", tmp_path)
