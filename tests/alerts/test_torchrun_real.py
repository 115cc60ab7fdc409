"""torchrun for real on three 'hosts' (process groups of this machine): one is lost, the spare takes its slot, every rank stays."""

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alerts_doubles import until

from alerts.bodies import Data, Replace
from alerts.schedulers.hosts import HostsScheduler
from outrider.config.targets import HostsTarget

pytestmark = pytest.mark.real

#: The part of ssh and systemd: `start` begins a torchrun agent, `stop` ends all of the unit, for ranks outlive an agent that was
#: killed; a dead host does neither.
REMOTE = """
import os, pathlib, signal, subprocess, sys, time
folder, what, node, *rest = sys.argv[1:]
folder = pathlib.Path(folder)
if (folder / f"{node}.dead").exists():
    sys.exit("no route to host")
if what == "stop":
    marks = {f"NODE={node}", f"FOLDER={folder}"}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and marks <= set((entry / "environ").read_text(errors="replace").split(chr(0))):
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            pass
    sys.exit(0)
attempt, nodes, rank, master, port = rest
environment = os.environ | {"ATTEMPT": attempt, "NODE": node, "FOLDER": str(folder), "OMP_NUM_THREADS": "1"}
command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", nodes, "--node-rank", rank, "--nproc-per-node", "1",
           "--master-addr", "127.0.0.1", "--master-port", port, str(folder / "train.py")]
with (folder / f"{node}.log").open("ab") as log:
    subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
"""

TRAIN = """
import os, pathlib, time
name = f"{os.environ['ATTEMPT']}-{os.environ['RANK']}"
path = pathlib.Path(os.environ["FOLDER"]) / "out" / name
path.with_suffix(".new").write_text(f"{os.environ['NODE']} {os.environ['WORLD_SIZE']}")
path.with_suffix(".new").rename(path)
time.sleep(300)
"""


def free_ports(count: int) -> int:
    """The first of so many free ports in a row, below those that the kernel hands out: each attempt takes the next."""
    for first in range(20_000 + os.getpid() % 1_000 * 8, 32_000, count):
        with contextlib.ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise AssertionError("no ports")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Path]:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    (tmp_path / "out").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "remote.py").write_text(REMOTE)
    yield tmp_path
    for node in ("h1", "h2", "h3", "h9"):
        (tmp_path / f"{node}.dead").unlink(missing_ok=True)
        remote(tmp_path, "stop", node)


def remote(folder: Path, what: str, node: str) -> None:
    subprocess.run([sys.executable, folder / "remote.py", folder, what, node], check=True, timeout=30)


def placed(folder: Path, attempt: int) -> list[str]:
    """Node and world of each rank."""
    return [path.read_text() for path in sorted((folder / "out").glob(f"{attempt}-?"))]


async def test_lost_host_gives_its_slot_to_the_spare_and_every_rank_stays(hosts: Path) -> None:
    command = (sys.executable, str(hosts / "remote.py"), str(hosts))
    target = HostsTarget(
        name="hosts", jobs={"llm": ("h1", "h2", "h3")}, state_dir=str(hosts / "state"), master_port=free_ports(8), master_ports=8,
        start=(*command, "start", "{node}", "{attempt}", "{nodes}", "{node_rank}", "{master}", "{port}"),
        stop=(*command, "stop", "{node}"),
    )  # fmt: skip
    scheduler = HostsScheduler(target)
    await scheduler.open()
    # The first start is a restart that replaces nothing.
    await scheduler.restart(Data(fence=1, job="llm", attempt=1))
    await until(lambda: len(placed(hosts, 2)) == 3, 90)
    assert placed(hosts, 2) == ["h1 3", "h2 3", "h3 3"]
    remote(hosts, "stop", "h2")
    (hosts / "h2.dead").touch()
    await scheduler.quarantine(Data(fence=2, incident="i1", fault="node.lost", node="h2"))
    done = await scheduler.restart(Data(fence=3, job="llm", attempt=2, replace=(Replace(slot=1, from_="h2", to="h9"),)))
    assert done.detail == {"attempt": 3, "nodes": ["h1", "h9", "h3"]}
    await until(lambda: len(placed(hosts, 3)) == 3, 90)
    assert placed(hosts, 3) == ["h1 3", "h9 3", "h3 3"]
