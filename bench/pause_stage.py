"""The real processes of `pause_real.py`: witnesses, agents and, if it is wanted, a training job beside them."""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from detectors.witness.client import Client
from drills.cluster.settings import free_members, make_secrets, watch_settings
from drills.drill.processes import DrillError, end, start
from outrider.config.site import read_config
from outrider.errors import OutriderError

OUTRIDER = (sys.executable, "-m", "outrider.cli.shell")
#: Seconds until everything must be up on a slow, busy machine.
UP_SECONDS = 120.0
#: Least seconds from step to step of the job beside: twenty ranks then need a fifth of a core.
PACE_SECONDS = 2.0
JOB = "beside"


def write_site(folder: Path, run_dir: Path, members: int, witnesses: int, job: bool) -> Path:
    """The site's file and its secrets."""
    make_secrets(folder)
    nodes = "".join(
        f'[[fleet.nodes]]\nnode = "n{n}"\nrack = "r{n}"\ngpus = {int(job)}\naddress = "127.0.77.{n}"\n'
        for n in range(1, members + 1)
    )
    if job:
        slots = ", ".join(f'["n{n}", 0]' for n in range(1, members + 1))
        nodes += f'[[fleet.jobs]]\njob = "{JOB}"\nslots = [{slots}]\n'
    path = folder / "site.toml"
    path.write_text(f"""
[site]
name = "pauses"
mode = "observe"
{nodes}
{watch_settings(folder, free_members(witnesses))}
[agent]
run_dir = "{run_dir}"
metrics_port = 0
collect = false
""")
    return path


class Stage:
    """The real processes. Use `async with`; nothing outlives it."""

    def __init__(self, folder: Path, members: int, witnesses: int, job: bool) -> None:
        self.folder, self.members = folder, members
        memory = Path("/dev/shm")
        self.run_dir = Path(tempfile.mkdtemp(prefix="outrider-pauses-", dir=memory if os.access(memory, os.W_OK) else folder))
        self.site = write_site(folder, self.run_dir, members, witnesses, job)
        self.client = Client(read_config(self.site))
        self.names = [f"w{number + 1}" for number in range(witnesses)]
        self.job = job
        self.agents: dict[int, asyncio.subprocess.Process] = {}
        self.ranks: list[asyncio.subprocess.Process] = []
        self.up: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "Stage":
        try:
            self.up = await start([*OUTRIDER, "up", "--config", str(self.site)], self.folder / "up.log")
            await self._until(self._ready, "the witnesses are not up")
            for member in range(1, self.members + 1):  # one by one: twenty interpreters at once would take the machine from others
                command = [*OUTRIDER, "agent", "--config", str(self.site), "--node", f"n{member}"]
                self.agents[member] = await start(command, self.folder / f"n{member}.log")
                sock = self.run_dir / f"n{member}" / "agent.sock"
                await self._until(sock.exists, f"agent n{member} is not up")
            await self._train()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for agent in self.agents.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(agent.pid, signal.SIGCONT)
        await asyncio.gather(*(end(one) for one in [*self.ranks, *self.agents.values()]))
        if self.up is not None:
            await end(self.up)
        shutil.rmtree(self.run_dir, ignore_errors=True)

    async def _train(self) -> None:
        """Starts a rank beside each agent and waits for the first steps."""
        with socket.create_server(("127.0.0.1", 0)) as held:
            port = held.getsockname()[1]
        for rank in range(self.members if self.job else 0):
            place = {"RANK": rank, "WORLD_SIZE": self.members, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OUTRIDER_JOB": JOB}
            place |= {"OUTRIDER_AGENT": self.run_dir / f"n{rank + 1}" / "agent.sock", "OMP_NUM_THREADS": 1}
            place |= {"DRILL_STEPS": 10**6, "DRILL_SAVE_EVERY": 0, "DRILL_PACE": PACE_SECONDS, "DRILL_OUT": self.folder / "job"}
            env = os.environ | {name: str(value) for name, value in place.items()}
            self.ranks.append(await start([sys.executable, "-m", "drills.job.train"], self.folder / f"rank{rank}.log", env=env))
        await self._until(lambda: not self.job or self.steps() > 1, "the job does not step")

    def steps(self) -> int:
        """Steps that the job has done: lines that its first rank wrote."""
        return sum(path.read_text().count('"step"') for path in (self.folder / "job").glob("rank-0.*"))

    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.get("/v1/status")
        return answer

    def _ready(self) -> bool:
        with contextlib.suppress(OutriderError):
            status = self.status()
            return bool(status["leader"]) and all(seen["up"] for seen in status["witnesses"].values())
        return False

    async def _until(self, ready: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + UP_SECONDS
        while not ready():
            if time.monotonic() > deadline or (self.up is not None and self.up.returncode is not None):
                raise DrillError(f"{complaint}; see {self.folder}")
            await asyncio.sleep(0.1)

    def send(self, member: int, number: int) -> bool:
        """Sends a stop or a continuation to the whole agent. False: a continuation found it running, so the pause was none."""
        pid = self.agents[member].pid
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        os.killpg(pid, number)
        return number == signal.SIGSTOP or state == "T"
