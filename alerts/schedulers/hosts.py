"""torchrun on plain hosts: one command a node starts and stops its part of a job; slots, attempt and fence stand in a file of ours.

Each attempt has a port of its own for the job's store: a new rendezvous, never a reused one. `--node-rank` comes from the slot, so
ranks stay where they are when a spare takes a slot. The file is written before anything is started (stage `stopping`, `starting`),
so a repeat after a crash goes on from there.
"""

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from alerts.bodies import Data
from alerts.run_command import filled, run_command
from alerts.schedulers.port import Done, NodeState, SchedulerError, amends, fence_of, job_of, node_of, reason_of
from alerts.schedulers.ranks import DamagedError, UnwritableError, make_map, moved, write_map, write_whole
from outrider.config.targets import HostsTarget
from outrider.wire import UNREADABLE

#: Commands under way at once.
PARALLEL = 32


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job as the file has it. `nodes[slot]`: the node of each slot."""

    attempt: int
    fence: int
    nodes: tuple[str, ...]
    stage: Literal["running", "stopping", "starting"] = "running"
    #: Nodes of the attempt that is being stopped.
    old: tuple[str, ...] = ()


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `out`: node -> why it is out of service."""

    jobs: dict[str, Job] = {}
    out: dict[str, str] = {}


class HostsScheduler:
    """See `alerts.schedulers.port.Scheduler`."""

    def __init__(self, target: HostsTarget) -> None:
        self.name, self._target = target.name, target
        self._folder = Path(target.state_dir)
        self._room = asyncio.Semaphore(PARALLEL)
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    async def close(self) -> None:
        """Nothing is kept open."""

    async def nodes(self) -> dict[str, NodeState]:
        state = self._read()
        busy = {node for job in state.jobs.values() for node in job.nodes}
        names = {node for nodes in self._target.jobs.values() for node in nodes} | busy | state.out.keys()
        return {
            name: NodeState(
                node=name, in_service=name not in state.out, alive=True, busy=name in busy, ours=name in state.out,
                reason=state.out.get(name, ""),
            )
            for name in sorted(names)
        }  # fmt: skip

    async def quarantine(self, order: Data) -> Done:
        return await self.drain(order)

    async def drain(self, order: Data) -> Done:
        node = node_of(order)
        with self._held() as state:
            before = fence_of(state.out.get(node))
            if before is not None and before >= order.fence:
                return Done(status="already" if before == order.fence else "old_fence", note=state.out[node])
            self._write(msgspec.structs.replace(state, out=state.out | {node: reason_of(order)}))
        return Done(status="done", note=f"{node} takes no new work")

    async def release(self, order: Data) -> Done:
        node = node_of(order)
        with self._held() as state:
            if node not in state.out:
                return Done(status="already", note=f"{node} is in service")
            if (fence_of(state.out[node]) or 0) > order.fence:
                return Done(status="old_fence", note=state.out[node])
            self._write(msgspec.structs.replace(state, out={name: why for name, why in state.out.items() if name != node}))
        return Done(status="done", note=f"{node} is in service again")

    async def restart(self, order: Data) -> Done:
        name = job_of(order)
        async with self._turn:
            with self._held() as state:
                job = self._job(state, name)
                if (early := _judge(job, order)) is not None:
                    return early
                if job.fence < order.fence or job.stage == "running":
                    free = [node for node in self._target.jobs.get(name, ()) if node not in job.nodes and node not in state.out]
                    nodes = tuple(moved(job.nodes, order.replace, free))
                    bad = sorted({node for node in nodes if node in state.out and node not in job.nodes})
                    if bad:
                        raise SchedulerError(f"{', '.join(bad)} is out of service", "spare_unfit", again=False)
                    job = Job(attempt=job.attempt + 1, fence=order.fence, nodes=nodes, stage="stopping", old=(*job.nodes, *job.old))
                    self._put(state, name, job)
            lost = {item.from_ for item in order.replace}
            await self._run_all(self._target.stop, name, job, dict.fromkeys(job.old), may_fail=lost)
            job = self._step(name, job, "starting")
            path = write_map(self._folder, make_map(name, job.attempt, job.fence, job.nodes))
            await self._run_all(self._target.start, name, job, dict.fromkeys(job.nodes), may_fail=set(), rank_map=str(path))
            self._step(name, job, "running")
        note = f"{name} starts attempt {job.attempt} on {', '.join(dict.fromkeys(job.nodes))}"
        return Done(status="done", note=note, detail={"attempt": job.attempt, "nodes": list(job.nodes)})

    def _job(self, state: State, name: str) -> Job:
        if name in state.jobs:
            return state.jobs[name]
        if name not in self._target.jobs:
            raise SchedulerError(f"no job is called {name}", "no_such_job", again=False)
        return Job(attempt=1, fence=0, nodes=self._target.jobs[name])

    def _step(self, name: str, job: Job, stage: Literal["running", "starting"]) -> Job:
        job = msgspec.structs.replace(job, stage=stage, old=job.old if stage == "starting" else ())
        with self._held() as state:
            self._put(state, name, job)
        return job

    async def _run_all(
        self, command: tuple[str, ...], name: str, job: Job, nodes: dict[str, None], *, may_fail: set[str], rank_map: str = ""
    ) -> None:
        """Runs the command for each node at once. A lost node cannot be told to stop: its failure is no reason to wait."""
        order = list(dict.fromkeys(job.nodes))
        port = self._target.master_port + job.attempt % self._target.master_ports
        fill = {"job": name, "attempt": job.attempt, "fence": job.fence, "nodes": len(order), "master": job.nodes[0], "port": port,
                "rank_map": rank_map}  # fmt: skip

        async def one(node: str) -> str | None:
            mine = fill | {"node": node, "node_rank": order.index(node) if node in order else -1}
            async with self._room:
                return (await run_command(filled(command, mine), self._target.timeout_seconds)).why

        results = await asyncio.gather(*(one(node) for node in nodes))
        bad = [f"{node}: {why}" for node, why in zip(nodes, results, strict=True) if why is not None and node not in may_fail]
        if bad:
            raise SchedulerError("; ".join(bad[:5]), "unreachable", again=True)

    # -- the file --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _held(self) -> Iterator[State]:
        """The state under a lock that other processes honour as well."""
        try:
            lock = (self._folder / ".lock").open("w")
        except OSError as error:
            raise UnwritableError(f"{error.filename}: it cannot be written: {error.strerror}") from None
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield self._read()

    def _read(self) -> State:
        try:
            return msgspec.json.decode((self._folder / "state.json").read_bytes(), type=State)
        except FileNotFoundError:
            return State()
        except OSError as error:
            raise SchedulerError(f"{error.filename} cannot be read: {error.strerror}", "unreadable", again=True) from None
        except UNREADABLE as error:
            more = ": it says which node holds which slot: put a copy of it back, then `outrider outbox retry --all`"
            raise DamagedError(self._folder / "state.json", error, more) from None

    def _put(self, state: State, name: str, job: Job) -> None:
        self._write(msgspec.structs.replace(state, jobs=state.jobs | {name: job}))

    def _write(self, state: State) -> None:
        write_whole(self._folder / "state.json", msgspec.json.encode(state))


def _judge(job: Job, order: Data) -> Done | None:
    """Whether there is anything left to do (pure)."""
    if job.fence > order.fence:
        return Done(status="old_fence", note=f"fence {job.fence} was here")
    if job.fence == order.fence and job.fence > 0:
        return None if job.stage != "running" else Done(status="already", note=f"attempt {job.attempt} runs")
    if order.attempt is not None and order.attempt < job.attempt and not amends(order, job.nodes, exact=True):
        return Done(status="old_attempt", note=f"attempt {job.attempt} runs")
    return None
