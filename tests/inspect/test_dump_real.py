"""Dumps that a real PyTorch makes are read and judged: pickles of its flight recorder, three gloo ranks, one of them late."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from detectors.inspect.context import make_context
from detectors.inspect.kinds import judge_of
from detectors.inspect.sources import Source

pytest.importorskip("torch")

SCRIPT = """
import os, socket, sys, time
from datetime import timedelta
folder = sys.argv[1]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]), WORLD_SIZE="3", GLOO_SOCKET_IFNAME="lo")
import torch
import torch.distributed as dist
torch.set_num_threads(1)
children = []
for rank in range(3):
    child = os.fork()
    if not child:
        os.environ["RANK"] = str(rank)
        dist.init_process_group("gloo", timeout=timedelta(seconds=60))
        for _ in range(3):
            dist.all_reduce(torch.ones(4))
        if rank != 2:
            waiting = dist.all_reduce(torch.ones(4), async_op=True)
        with open(f"{folder}/trace_rank_{rank}", "wb") as out:
            out.write(torch._C._distributed_c10d._dump_fr_trace())
        open(f"{folder}/done_{rank}", "w").close()
        while len([name for name in os.listdir(folder) if name.startswith("done")]) < 3:
            time.sleep(0.05)
        os._exit(0)
    children.append(child)
for child in children:
    os.waitpid(child, 0)
"""


@pytest.mark.real
def test_pickles_of_the_real_recorder_name_the_late_rank(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], check=True, timeout=120)
    sources = [Source(path, file=str(path)) for path in sorted(tmp_path.glob("trace_rank_*"))]
    found = judge_of("dump")(sources, make_context(json.loads('{"job": "j1"}')))
    assert [(one.fault, one.subject.get("rank"), one.response) for one in found] == [("job.hang", 2, "restart")]
