"""Slurm: drain with reason, requeue under hold, spare into the slot, rank order kept by host file, undrain after repair.

A job's attempt is its restart count plus one. Slurm requeues by itself when it finds a node down; so a job is held first
(`requeuehold`), and one that is already pending is taken as it is. The job's comment carries fence and stage: the compare-and-swap.
The batch script reads the host file: `export SLURM_HOSTFILE=<rank_map_dir>/<job>.hosts; srun --distribution=arbitrary ..`, and sets
`OUTRIDER_ATTEMPT=$((SLURM_RESTART_COUNT + 1))`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from alerts.bodies import Data
from alerts.schedulers.port import Done, NodeState, SchedulerError, amends, fence_of, job_of, node_of, reason_of
from alerts.schedulers.ranks import DamagedError, RankMap, fits, make_map, moved, read_hosts, read_map, told, write_map
from alerts.schedulers.slurm_api import SlurmApi
from alerts.schedulers.slurm_reading import OVER, RUNNING, SlurmJob, SlurmNode, that_one
from outrider.config.targets import SlurmTarget

#: How long the steps on sound nodes get to end before a node of the culprit's is set down, so that the job can leave it.
SOUND_SECONDS: Final = 3.0
#: How long a list of all jobs serves: one switch's nodes are drained within it.
JOBS_SECONDS: Final = 2.0
#: How often the job is looked at meanwhile.
LOOK_SECONDS: Final = 0.2


class SlurmScheduler:
    """See `alerts.schedulers.port.Scheduler`.

    Args:
        sleep, clock: waits between looks, and the age of a list of jobs (tests pass their own).
    """

    def __init__(
        self,
        target: SlurmTarget,
        api: SlurmApi,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self._target, self._api, self._sleep = target.name, target, api, sleep
        self._folder = Path(target.rank_map_dir)
        self._clock, self._listing = clock, asyncio.Lock()
        self._jobs: tuple[float, list[SlurmJob]] | None = None

    async def open(self) -> None:
        await self._api.open()

    async def close(self) -> None:
        await self._api.close()

    async def nodes(self) -> dict[str, NodeState]:
        return {node.name: _node_state(node) for node in await self._api.nodes()}

    async def quarantine(self, order: Data) -> Done:
        return await self.drain(order)

    async def drain(self, order: Data) -> Done:
        node = await self._api.node(node_of(order))
        missed = await self._remember(node.name)
        before = fence_of(node.reason)
        if "DRAIN" in node.states and before is not None and before >= order.fence:
            return Done(status="already" if before == order.fence else "old_fence", note=node.reason)
        if "DRAIN" in node.states and before is None:
            return Done(status="already", note=f"{node.name} is drained by somebody else: {node.reason}")
        await self._api.update(f"NodeName={node.name}", "State=DRAIN", f"Reason={reason_of(order)}")
        return Done(status="done", note=f"{node.name} is drained{missed}")

    async def release(self, order: Data) -> Done:
        node = await self._api.node(node_of(order))
        before = fence_of(node.reason)
        if not node.states & {"DRAIN", "DOWN"}:
            return Done(status="already", note=f"{node.name} is in service")
        if before is None:
            return Done(status="already", note=f"{node.name} was taken out by somebody else and stays out: {node.reason}")
        if before > order.fence:
            return Done(status="old_fence", note=node.reason)
        await self._api.update(f"NodeName={node.name}", "State=RESUME")
        return Done(status="done", note=f"{node.name} is in service again")

    async def restart(self, order: Data) -> Done:
        job = await self._find(job_of(order), order)
        if (early := _judge(job, order)) is not None:
            return early
        nodes, note = await self._placed(job, order)
        if "PENDING" not in job.states or not job.held:
            job = await self._hold(job)
        job = await self._settled(job, order)
        attempt = job.restarts + 1
        if nodes:
            write_map(self._folder, make_map(job_of(order), attempt, order.fence, nodes))
        await self._start(job, order, nodes)
        where = ",".join(nodes) or "nodes of Slurm's choice"
        note = f"job {job.job_id} starts attempt {attempt} on {where}{note}"
        return Done(status="done", note=note, detail={"attempt": attempt, "nodes": nodes})

    async def _remember(self, node: str) -> str:
        """Writes down where the ranks of the jobs on a node are, before Slurm requeues such a job by itself and forgets.

        Returns:
            What could not be written, for people: a full disk keeps no sick node in service, and the order of a restart tells the
            ranks too.
        """
        names, missed = {number: name for name, number in self._target.jobs.items()}, ""
        for job in await self._all_jobs():
            if node not in job.nodes:
                continue
            for name in {names.get(job.job_id, job.name), str(job.job_id)}:
                try:
                    known = read_map(self._folder, name)
                    if known is None or (known.attempt <= job.restarts and set(known.nodes) != set(job.nodes)):
                        write_map(self._folder, make_map(name, job.restarts + 1, 0, _slots(job)))
                except SchedulerError as error:
                    missed = f"; {error}"
        return missed

    async def _all_jobs(self) -> list[SlurmJob]:
        """All jobs, asked once for many nodes that are taken out together."""
        async with self._listing:
            now = self._clock()
            if self._jobs is None or now - self._jobs[0] > JOBS_SECONDS:
                self._jobs = (now, await self._api.jobs())
            return self._jobs[1]

    async def _find(self, name: str, order: Data) -> SlurmJob:
        """By the configuration, by number, or by name: the one that the order means (`that_one`)."""
        number = self._target.jobs.get(name) or (int(name) if name.isdecimal() else None)
        if number is not None:
            return await self._api.job(number)
        named = [job for job in await self._api.jobs() if job.name == name]
        if not named:
            raise SchedulerError(f"Slurm knows no job called {name}", "no_such_job", again=False)
        nodes = {*told(order), *(node for item in order.replace for node in (item.from_, item.to) if node)}
        return that_one(named, nodes)

    async def _placed(self, job: SlurmJob, order: Data) -> tuple[list[str], str]:
        """The node of each slot for the next attempt (empty where nobody knows where the ranks were: Slurm chooses then), and what
        people should know of it."""
        note = ""
        try:
            known = read_map(self._folder, job_of(order))
        except DamagedError as error:
            known, slots, note = None, self._rebuilt(job, order, error), f"; {error}: it is made anew"
        else:
            if known is not None and known.fence >= order.fence:
                return list(known.nodes), note
            slots = self._known_slots(known, job, order)
        if not slots:
            return [], note
        all_nodes = await self._api.nodes()
        known_names = {node.name for node in all_nodes}
        strange = sorted({item.to for item in order.replace if item.to} - known_names)
        if strange:
            raise SchedulerError(f"no node is called {', '.join(strange)}", "no_such_node", again=False)
        free = sorted(node.name for node in all_nodes if job.partition in node.partitions and _node_state(node).in_service
                      and not _node_state(node).busy)  # fmt: skip
        return moved(slots, order.replace, free), note

    @staticmethod
    def _known_slots(known: RankMap | None, job: SlurmJob, order: Data) -> list[str]:
        if known is not None and (not job.nodes or set(known.nodes) == set(job.nodes)):
            return list(known.nodes)
        # Where Slurm has requeued it by itself and forgot, the council has not.
        return _slots(job) if job.nodes else told(order)

    def _rebuilt(self, job: SlurmJob, order: Data, error: DamagedError) -> list[str]:
        """The node of each slot from whoever else knows: the host file by which srun placed the ranks, the order (the council's
        own record), Slurm's placing of a job that nobody has placed before.

        Raises:
            DamagedError: none of them can be right; it says what a person does.
        """
        for slots in (read_hosts(self._folder, job_of(order)), told(order), _slots(job) if job.nodes else []):
            if fits(slots, job.nodes, order.replace):
                return slots
        more = (
            ", and neither the host file beside it, the order nor Slurm says which rank ran where: put a copy of it back, or remove"
            " it, its .hosts and its .env (the ranks are then placed anew), then `outrider outbox retry --all`"
        )
        raise DamagedError(error.path, error.why, more)

    async def _hold(self, job: SlurmJob) -> SlurmJob:
        """Held before it is killed, so that Slurm starts it nowhere meanwhile. "Already pending" is success."""
        if "PENDING" not in job.states and not job.requeue:
            words = f"job {job.job_id} was submitted with --no-requeue: Slurm starts it no second time"
            raise SchedulerError(words, "not_supported", again=False)
        try:
            await self._api.command("hold" if "PENDING" in job.states else "requeuehold", str(job.job_id))
        except SchedulerError:
            job = await self._api.job(job.job_id)
            if "PENDING" not in job.states:
                raise
            if not job.held:
                await self._api.command("hold", str(job.job_id))
        return await self._api.job(job.job_id)

    async def _settled(self, job: SlurmJob, order: Data) -> SlurmJob:
        """Waits until the old attempt's steps have ended; nodes that cannot say so any more are set down.

        Raises:
            SchedulerError: they did not end in time; the next try goes on from there.
        """
        waited, downed = 0.0, False
        while "COMPLETING" in job.states or "PENDING" not in job.states:
            if waited >= self._target.settle_seconds:
                raise SchedulerError(f"job {job.job_id} is still {'+'.join(sorted(job.states))}", "busy", again=True)
            if waited >= SOUND_SECONDS and not downed:
                downed = True
                for name in sorted({item.from_ for item in order.replace}):
                    await self._api.update(f"NodeName={name}", "State=DOWN", f"Reason={reason_of(order)}")
            await self._sleep(LOOK_SECONDS)
            waited += LOOK_SECONDS
            job = await self._api.job(job.job_id)
        return job

    async def _start(self, job: SlurmJob, order: Data, nodes: list[str]) -> None:
        """Pins the job to its nodes and lets it go at once; the mark comes first, so that a repeat knows how far we came."""
        name = f"JobId={job.job_id}"
        wanted = ",".join(dict.fromkeys(nodes))
        out = ",".join(sorted({item.from_ for item in order.replace} - set(nodes)))
        await self._api.update(name, f"ReqNodeList={wanted}", f"ExcNodeList={out}", f"Comment={_mark(order, 'placed')}")
        await self._api.command("release", str(job.job_id))
        # A requeued job waits two minutes (BeginTime) unless told otherwise.
        await self._api.update(name, "StartTime=now", f"Comment={_mark(order, 'released')}")


def _judge(job: SlurmJob, order: Data) -> Done | None:
    """Whether there is anything left to do (pure)."""
    fence, attempt = fence_of(job.comment), job.restarts + 1
    if fence is not None and fence > order.fence:
        return Done(status="old_fence", note=job.comment)
    if fence == order.fence and job.comment.endswith("released"):
        return Done(status="already", note=f"job {job.job_id} is in attempt {attempt}")
    if job.states & OVER and "PENDING" not in job.states:
        raise SchedulerError(f"job {job.job_id} is over: {'+'.join(sorted(job.states))}", "job_over", again=False)
    if amends(order, job.nodes, exact=True):
        return None
    if order.attempt is not None and attempt > order.attempt and job.states & RUNNING:
        return Done(status="old_attempt", note=f"job {job.job_id} already runs attempt {attempt}")
    if order.attempt is not None and attempt > order.attempt + 1:
        return Done(status="old_attempt", note=f"job {job.job_id} is at attempt {attempt}")
    return None


def _slots(job: SlurmJob) -> list[str]:
    """The node of each rank as srun's block distribution places them."""
    each = max(job.tasks_per_node, -(-job.tasks // len(job.nodes)), 1)
    return [node for node in job.nodes for _ in range(each)]


def _mark(order: Data, stage: str) -> str:
    return f"outrider fence={order.fence} incident={order.incident} {stage}"


def _node_state(node: SlurmNode) -> NodeState:
    out = node.states & {"DRAIN", "DOWN", "FAIL", "MAINT", "POWERED_DOWN", "NOT_RESPONDING"}
    return NodeState(
        node=node.name, in_service=not out, alive=not node.states & {"DOWN", "NOT_RESPONDING", "NO_RESPOND"},
        busy=bool(node.states & {"ALLOCATED", "MIXED", "COMPLETING"}), ours=fence_of(node.reason) is not None, reason=node.reason,
    )  # fmt: skip
