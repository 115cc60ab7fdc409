"""One stage: witnesses, deliverer, scheduler, five nodes and a training job, all real processes, set up and taken down."""

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from alerts.webhooks import read_secrets
from drills.cluster.jobs import JobSpec
from drills.cluster.relay import Relay
from drills.cluster.scheduler import Scheduler
from drills.drill.processes import DrillError, Nursery, end, start
from drills.drill.site import JOB, NODES, WITNESSES, WORLD, Site

#: Steps of the drill's job, and the shortest time of one: light enough for two cores, long enough for every fault to play out.
STEPS = 220
PACE_SECONDS = 0.1
OUTRIDER = (sys.executable, "-m", "outrider.cli.shell")
#: Seconds until everything must be up on a slow, busy machine.
UP_SECONDS = 40.0


class Stage:
    """Everything that runs for one fault. Use `async with`; nothing outlives it."""

    def __init__(self, site: Site, nursery: Nursery, seed: int, relayed_node: str | None = None) -> None:
        self.site, self.nursery, self.seed = site, nursery, seed
        self.relayed_node = relayed_node
        self.relays: dict[str, Relay] = {}
        self.launchers: dict[str, int] = {}
        #: What a fault froze: all pids, those of launcher and agent among them, and the ranks' progress pages.
        self.frozen: list[int] = []
        self.frozen_service: list[int] = []
        self.frozen_pages: list[Path] = []
        self._up: asyncio.subprocess.Process | None = None
        self._http: aiohttp.ClientSession | None = None
        secrets = read_secrets([str(site.secret("webhook"))])
        self.scheduler = Scheduler(site.secret("agent").read_text().strip(), secrets, self._port)

    async def __aenter__(self) -> "Stage":
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()
        for relay in self.relays.values():
            relay.close()
        await self.scheduler.stop()
        if self._up is not None:
            await end(self._up)
        for node, pid in self.launchers.items():
            kill_session(pid)
            self.site.network.detach(NODES.index(node))
        shutil.rmtree(self.site.run_dir, ignore_errors=True)

    async def _start(self) -> None:
        site = self.site
        hub = site.network.hub_address()
        await self.scheduler.start(hub, site.ports["launchers"], site.ports["webhooks"])
        command = [*OUTRIDER, "up", "--config", str(site.config_path())]
        self._up = await start(command, site.folder / "logs" / "up.log")
        token = site.secret("operator").read_text().strip()
        self._http = aiohttp.ClientSession(
            headers={"authorization": f"Bearer {token}"}, timeout=aiohttp.ClientTimeout(total=2), trust_env=False
        )
        if self.relayed_node is not None:
            await self._open_relays(self.relayed_node)
        await self._until(self._witnesses_up, "the witnesses are not up")
        for node in NODES:
            await self._spawn(node)
        await self._until(lambda: all(Path(site.agent_socket(node)).exists() for node in NODES), "an agent is not up")

    async def _open_relays(self, node: str) -> None:
        hub, ports = self.site.network.hub_address(), self.site.ports
        chance = random.Random(self.seed)  # noqa: S311 - a seeded network
        for name in WITNESSES:
            self.relays[name] = await Relay.open((hub, ports[f"relay-{name}"]), (hub, ports[f"heartbeat-{name}"]), chance)
        self.site.write_relayed_config(node, {name: ports[f"relay-{name}"] for name in WITNESSES})

    async def _witnesses_up(self) -> bool:
        assert self._up is not None
        if self._up.returncode is not None:
            last = (self.site.folder / "logs" / "up.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise DrillError(f"the witnesses ended: {(last or ['no message'])[0]}")
        return all([await self.ask(name, "/healthz") is not None for name in WITNESSES])

    async def _spawn(self, node: str) -> None:
        """Forks a node's launcher and, with namespaces, ties it to the bridge once it has one of its own."""
        site, namespace = self.site, self.site.network.kind == "namespaces"
        pid = await self.nursery.spawn(
            {
                "node": node,
                "scheduler": [site.network.hub_address(), site.ports["launchers"]],
                "token": self.scheduler.token,
                "namespace": namespace,
                "agent": [*OUTRIDER, "agent", "--config", str(site.config_path(node)), "--node", node],
                "agent_socket": site.agent_socket(node),
                "log_dir": str(site.folder / "logs"),
            }
        )
        self.launchers[node] = pid
        if namespace:
            own = os.readlink("/proc/self/ns/net")
            await self._until(lambda: os.readlink(f"/proc/{pid}/ns/net") != own, f"{node} made no namespace")
            site.network.attach(NODES.index(node), pid)

    async def _until(self, ready: Callable[[], Any], complaint: str, seconds: float = UP_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while True:
            result = ready()
            if await result if asyncio.iscoroutine(result) else result:
                return
            if time.monotonic() > deadline:
                raise DrillError(f"{complaint} within {seconds:g} s; see {self.site.folder / 'logs'}")
            await asyncio.sleep(0.02)

    def _port(self, node: str, attempt: int) -> int:
        """A port for the attempt's store: in a namespace any is free, on loopback one that is free now."""
        if self.site.network.kind == "namespaces":
            return 29400 + attempt
        with socket.socket() as probe:
            probe.bind((self.site.address(node), 0))
            return int(probe.getsockname()[1])

    # -- the job -----------------------------------------------------------------------------------------------------

    def submit(self) -> None:
        """Starts the training job on the first four nodes."""
        site = self.site
        env = {
            "DRILL_STEPS": str(STEPS),
            "DRILL_SEED": str(self.seed),
            "DRILL_OUT": str(site.records()),
            "DRILL_PACE": str(PACE_SECONDS),
            "DRILL_SAVE_EVERY": "50",
            "DRILL_PG_TIMEOUT": "120",
        }
        spec = JobSpec(
            job=JOB, snapshot_root=str(site.snapshots()), address_of=site.address, agent_socket_of=site.agent_socket, env=env,
            limits={"train_s": 300.0},
        )  # fmt: skip
        self.scheduler.submit(spec, list(NODES[:WORLD]))

    def rank_pid(self, rank: int) -> int:
        """Pid of the running rank. Raises DrillError if it does not run."""
        for node in self.scheduler.nodes.values():
            if rank in node.ranks:
                return node.ranks[rank]
        raise DrillError(f"rank {rank} does not run")

    def node_pids(self, node: str) -> list[int]:
        """Launcher, agent and ranks of a node."""
        state = self.scheduler.nodes[node]
        return [pid for pid in (state.launcher_pid, state.agent_pid, *state.ranks.values()) if pid is not None]

    # -- the witnesses -----------------------------------------------------------------------------------------------

    async def ask(self, witness: str, path: str) -> Any:
        """A witness's answer to a GET as JSON; None where it gives none."""
        assert self._http is not None
        url = f"http://{self.site.network.hub_address()}:{self.site.ports[f'http-{witness}']}{path}"
        try:
            async with self._http.get(url) as answer:
                text = await answer.text()
                return json.loads(text) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None

    async def incidents(self) -> list[dict[str, Any]]:
        """All incidents with their history, from the first witness that answers."""
        for witness in WITNESSES:
            listed = await self.ask(witness, "/v1/incidents")
            if listed is not None:
                found = listed["incidents"] if isinstance(listed, dict) else listed
                whole = [await self.ask(witness, f"/v1/incidents/{one['incident']}") for one in found]
                return [one for one in whole if one is not None]
        raise DrillError("no witness answers")


def kill_session(leader: int) -> None:
    """Kills a launcher's session: the kernel ends what it forked."""
    for call in (os.killpg, os.kill):
        try:
            call(leader, signal.SIGCONT)
            call(leader, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
