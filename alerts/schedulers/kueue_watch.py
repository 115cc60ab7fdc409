"""Watches Kueue's Workloads and tells the witnesses when Kueue stops a job, so that a preemption is never called a fault.

An eviction that somebody wanted (preemption, a stopped queue, a person) is told as `process_exit` with its reason, before the ranks
fall over one another; the next attempt's number goes into the job's rank map, so that what comes back counts as a new attempt. An
eviction that a fault may have caused (`PodsReadyTimeout`, `NodeFailures`) is not told: the witnesses judge it by themselves.

A job whose pods do not take their attempt from the rank map is left alone: without a new number the witnesses would hold what comes
back for the attempt that was stopped, and judge it no more.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Final

import structlog

from alerts.schedulers.kube_api import Expired, KubeApi, Missing, Object
from alerts.schedulers.kube_owners import ATTEMPT, FENCE, Owner, Owners, numbered
from alerts.schedulers.kube_ranks import map_data, map_name, write_map
from alerts.schedulers.kueue import Kueue, WorkloadState, job_name, state_of, workload_of
from alerts.schedulers.port import SchedulerError
from outrider.config.targets import KubernetesTarget
from outrider.errors import InputError
from outrider.signals import Signal
from outrider.wire import signal_id

#: On the owner: when Kueue evicted it, as far as the witnesses have been told.
TOLD: Final = "outrider.dev/eviction-told"
#: How long one watch lasts; how long to wait where there is no Kueue, or no API server.
WATCH_SECONDS: Final = 300.0
AGAIN_SECONDS: Final = 15.0
#: Between a watch that ended and the next list: a server that ends each watch at once is not stormed.
PAUSE_SECONDS: Final = 0.2

log = structlog.get_logger()
Tell = Callable[[list[Signal]], Awaitable[bool]]


class KueueWatch:
    """The Workloads of one cluster.

    Args:
        tell: brings signals to the witnesses; False: not to a majority of them, so they are told again.
    """

    def __init__(self, target: KubernetesTarget, tell: Tell) -> None:
        self._target, self._tell = target, tell
        self._api = KubeApi(target)
        self._owners = Owners(self._api)
        self._kueue = Kueue(self._api, self._owners, target.job_label)

    async def run(self) -> None:
        """Watches until cancelled."""
        await self._api.open()
        try:
            async with asyncio.TaskGroup() as group:
                for namespace in self._target.namespaces:
                    group.create_task(self._forever(namespace))
        finally:
            await self._api.close()

    async def _forever(self, namespace: str) -> None:
        while True:
            try:
                folder = await self._kueue.folder(namespace)
                if folder is not None:
                    await self.once(folder, WATCH_SECONDS)
                await asyncio.sleep(AGAIN_SECONDS if folder is None else PAUSE_SECONDS)
            except Expired:
                await asyncio.sleep(PAUSE_SECONDS)
            except (SchedulerError, InputError) as error:
                log.warning("kueue_watch", target=self._target.name, namespace=namespace, error=str(error))
                await asyncio.sleep(getattr(error, "wait", None) or AGAIN_SECONDS)
            except Exception:  # an answer of no shape that we know must not end the watch: from then on each preemption was a fault
                log.exception("kueue_watch_bug", target=self._target.name, namespace=namespace)
                await asyncio.sleep(AGAIN_SECONDS)

    async def once(self, folder: str, seconds: float) -> None:
        """Looks at all Workloads, then watches for a while. Raises Expired where the watch's place is gone: list again.

        One that cannot be understood, or whose owner we may not read, holds no other up; what may work later is raised at the end.
        """
        items, version = await self._api.list(folder)
        later = [error for item in items if (error := await self._heed(folder, item)) is not None]
        if later:
            raise later[0]
        async for kind, item in self._api.watch(folder, version, seconds):
            if kind != "DELETED" and (error := await self._heed(folder, item)) is not None:
                raise error

    async def _heed(self, folder: str, item: Object) -> SchedulerError | None:
        """Looks at one Workload. Returns an error that may pass."""
        try:
            await self._look(folder, item)
        except SchedulerError as error:
            if error.again:
                return error
            log.warning("kueue_workload", target=self._target.name, folder=folder, error=str(error))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            log.warning("kueue_workload_strange", target=self._target.name, folder=folder, error=repr(error))
        return None

    async def _look(self, folder: str, item: Object) -> None:
        state, job = state_of(item), job_name(item, self._target.job_label)
        if job is None or not state.wanted or state.finished:
            return
        chain = await self._owners.chain(item)
        if not chain or chain[-1].notes.get(TOLD) == state.evicted_at:
            return
        workload = workload_of(folder, item)
        if map_name(job) not in json.dumps(item["spec"]):
            log.warning("kueue_eviction_not_told", job=job, reason=f"its pods do not take OUTRIDER_ATTEMPT from {map_name(job)}")
            return
        await self._stopped(chain[-1], workload, state, job)

    async def _stopped(self, top: Owner, workload: Owner, state: WorkloadState, job: str) -> None:
        """Tells the witnesses, then numbers the next attempt, then remembers it: a repeat tells the same."""
        attempt = numbered(top.notes, ATTEMPT, 0) + 1
        words = f"Kueue evicted {workload.name}: {state.evicted}" + (f" ({state.preempted})" if state.preempted else "")
        signal = Signal(
            t=time.monotonic(), kind="process_exit", job=job, value=0, source="kueue", text=words,
            id=signal_id("kueue", workload.uid, 0, _seconds(state.evicted_at)), data={"attempt": attempt, "reason": state.wanted},
        )  # fmt: skip
        if not await self._tell([signal]):
            raise SchedulerError("too few witnesses could be told of an eviction", "unreachable", again=True)
        await write_map(self._api, top, job, map_data(job, attempt + 1, numbered(top.notes, FENCE, 0), None))

        def make(now: Object) -> Object | None:
            notes = now["metadata"].get("annotations") or {}
            new = {TOLD: state.evicted_at, ATTEMPT: str(max(attempt, numbered(notes, ATTEMPT, 0)))}
            return None if notes.get(TOLD) == state.evicted_at else {"metadata": {"annotations": new}}

        with suppress(Missing):
            await self._api.change(top.path, make)
        log.info("kueue_eviction_told", job=job, attempt=attempt, reason=state.evicted)


def _seconds(moment: str) -> int:
    """RFC 3339 -> seconds since 1970: it grows with each eviction of a Workload."""
    try:
        return int(datetime.fromisoformat(moment).timestamp())
    except ValueError:
        return 0


@asynccontextmanager
async def watching(targets: tuple[KubernetesTarget, ...], tell: Tell) -> AsyncIterator[None]:
    """Runs a watch for each cluster that wants one, while it lasts."""
    tasks = [asyncio.create_task(KueueWatch(target, tell).run()) for target in targets if target.watch_kueue and target.rank_map]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
