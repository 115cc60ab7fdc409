"""A small local job scheduler that speaks the webhook contract: it commands launchers and starts a job's next attempt.

It checks signatures, drops a repeated `webhook-id` and an old `fence`, changes a job only if the attempt is the one that was meant
(compare-and-swap), and never gives a slot to a node that is quarantined, gone or already in use.
"""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from alerts.webhooks import WebhookVerificationError, verify
from drills.cluster.jobs import JobSpec, rank_orders
from outrider.snapshots.fence import raise_fence

#: Webhook ids remembered: deliveries of one id are minutes apart at most, a drill has a few dozen.
IDS_MAX = 4096
#: How long an old attempt's ranks may take to end after SIGKILL before the next attempt starts without them, seconds.
KILL_SECONDS = 3.0


@dataclass
class NodeState:
    """What the scheduler knows of one node."""

    node: str
    writer: asyncio.StreamWriter | None = None
    launcher_pid: int | None = None
    agent_pid: int | None = None
    quarantined: bool = False
    ranks: dict[int, int] = field(default_factory=dict)  # rank -> pid

    @property
    def connected(self) -> bool:
        return self.writer is not None


@dataclass
class JobState:
    """One job: its slots' nodes, its attempt, the newest fence it obeyed."""

    spec: JobSpec
    slots: list[str]
    attempt: int = 0
    fence: int = 0


class Scheduler:
    """The scheduler's state and servers. `events` is what the report is made of: (monotonic seconds, what, data)."""

    def __init__(self, token: str, secrets: tuple[str, ...], port_of: Callable[[str, int], int]) -> None:
        self.token, self.secrets, self.port_of = token, secrets, port_of
        self.nodes: dict[str, NodeState] = {}
        self.jobs: dict[str, JobState] = {}
        self.events: list[tuple[float, str, dict[str, Any]]] = []
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closers: list[Callable[[], Any]] = []

    def note(self, what: str, **data: Any) -> None:
        self.events.append((time.monotonic(), what, data))

    async def start(self, host: str, launcher_port: int, webhook_port: int) -> None:
        """Listens for launchers and for webhooks. Raises OSError where a port is busy."""
        server = await asyncio.start_server(self._serve_launcher, host, launcher_port)
        runner = web.AppRunner(self.application())
        await runner.setup()
        await web.TCPSite(runner, host, webhook_port).start()
        self._closers += [server.close, runner.cleanup]

    def application(self) -> web.Application:
        """The webhook receiver."""
        application = web.Application(client_max_size=1 << 20)
        application.router.add_post("/webhooks", self._receive)
        return application

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for node in self.nodes.values():
            if node.writer is not None:
                node.writer.close()
        for close in self._closers:
            result = close()
            if asyncio.iscoroutine(result):
                await result

    # -- launchers ---------------------------------------------------------------------------------------------------

    async def _serve_launcher(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node: NodeState | None = None
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if node is None:
                    if message.get("token") != self.token:
                        break
                    node = self.nodes.setdefault(message["hello"], NodeState(message["hello"]))
                    node.writer, node.launcher_pid = writer, message["pid"]
                    self.note("launcher", node=node.node)
                else:
                    self._hear(node, message)
        except (ConnectionError, ValueError, KeyError) as error:
            self.note("launcher_error", node=node.node if node else None, reason=repr(error))
        finally:
            if node is not None and node.writer is writer:
                node.writer = None
                node.ranks.clear()
                self.note("launcher_gone", node=node.node)
            writer.close()

    def _hear(self, node: NodeState, message: dict[str, Any]) -> None:
        match message:
            case {"agent": {"pid": pid}}:
                node.agent_pid = pid
                self.note("agent_started", node=node.node, pid=pid)
            case {"agent_exit": {"pid": pid}}:
                if node.agent_pid == pid:
                    node.agent_pid = None
                self.note("agent_exit", node=node.node, pid=pid)
            case {"started": {"rank": rank, "pid": pid, "attempt": attempt}}:
                node.ranks[rank] = pid
                self.note("rank_started", node=node.node, rank=rank, attempt=attempt, pid=pid)
            case {"exit": {"rank": rank, "pid": pid} as exit_}:
                if node.ranks.get(rank) == pid:
                    del node.ranks[rank]
                self.note("rank_exit", **exit_)

    def _order(self, node: str, message: dict[str, Any]) -> None:
        state = self.nodes[node]
        if state.writer is not None and not state.writer.is_closing():
            state.writer.write(json.dumps(message).encode() + b"\n")

    # -- jobs --------------------------------------------------------------------------------------------------------

    def submit(self, spec: JobSpec, nodes: list[str]) -> None:
        """Starts a job's first attempt: rank i on nodes[i]."""
        self.jobs[spec.job] = JobState(spec, list(nodes))
        self._start_attempt(self.jobs[spec.job])

    def _start_attempt(self, job: JobState) -> None:
        job.attempt += 1
        raise_fence(job.spec.snapshot_root, job.spec.job, job.fence)
        port = self.port_of(job.slots[0], job.attempt)
        self.note("attempt", job=job.spec.job, attempt=job.attempt, slots=list(job.slots))
        for node, order in rank_orders(job.spec, job.slots, job.attempt, job.fence, port).items():
            self._order(node, {"start": order})

    async def _end_ranks(self, job: JobState) -> None:
        """Kills what is left of the running attempt and waits for the ends that can be seen."""
        for node in self.nodes.values():
            self._order(node.node, {"kill": {"job": job.spec.job}})
        waited = [node for node in self.nodes.values() if node.connected and not node.quarantined]
        deadline = time.monotonic() + KILL_SECONDS
        while any(node.ranks for node in waited) and time.monotonic() < deadline:
            await asyncio.sleep(0.01)

    async def _restart(self, job: JobState, data: dict[str, Any]) -> None:
        await self._end_ranks(job)
        for change in data.get("replace") or []:
            spare = self.nodes.get(change.get("to") or "")
            if spare is None or not spare.connected or spare.quarantined or spare.node in job.slots:
                self.note("restart_failed", job=job.spec.job, reason=f"spare {change.get('to')} cannot be used")
                return
            job.slots[change["slot"]] = spare.node
            self.note("replaced", job=job.spec.job, **change)
        self._start_attempt(job)

    # -- webhooks ----------------------------------------------------------------------------------------------------

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        try:
            verify(self.secrets, body, request.headers)
        except WebhookVerificationError as error:
            return web.json_response({"error": f"signature: {error}"}, status=401)
        message_id = request.headers["webhook-id"]
        if message_id in self._seen:
            return web.json_response({"status": "repeated"})
        try:
            message = json.loads(body)
            status = self._carry_out(message["type"], message["data"])
        except (ValueError, KeyError, TypeError) as error:
            return web.json_response({"error": f"body: {error!r}"}, status=422)
        self._seen[message_id] = None
        if len(self._seen) > IDS_MAX:
            self._seen.popitem(last=False)
        self.note("webhook", type=message["type"], status=status, data=message["data"])
        return web.json_response({"status": status})

    def _carry_out(self, kind: str, data: dict[str, Any]) -> str:
        """Carries one order out; says what became of it: done, old, dry_run, noted."""
        if data.get("dry_run"):
            return "dry_run"
        match kind:
            case "node.quarantine.requested":
                return self._quarantine(data)
            case "node.release.requested":
                self.nodes[data["node"]].quarantined = False
                return "done"
            case "agent.restart.requested":
                self._order(data["node"], {"start_agent": {}})
                return "done"
            case "job.restart.requested":
                return self._ask_restart(data)
        return "noted"

    def _quarantine(self, data: dict[str, Any]) -> str:
        node = self.nodes[data["node"]]
        node.quarantined = True
        for job in self.jobs:
            self._order(node.node, {"kill": {"job": job}})
        return "done"

    def _ask_restart(self, data: dict[str, Any]) -> str:
        job = self.jobs[data["job"]]
        if data["fence"] <= job.fence:
            return "old fence"
        if data.get("attempt") not in (None, job.attempt):
            return "old attempt"
        job.fence = data["fence"]
        task = asyncio.create_task(self._restart(job, data))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return "done"
