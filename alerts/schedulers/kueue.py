"""Kueue: what a Workload's conditions say, and a restart through its `spec.active`, so that Kueue itself places the job anew.

`spec.active` from true to false evicts a running Workload and keeps it out of the queue; back to true it is queued again. Kueue
suspends the job meanwhile: no pod of it comes back before Kueue says so, and then not onto a node that is cordoned.
Source: Kueue documentation, "Workload" (Active), "Preemption"; API reference kueue.x-k8s.io/v1beta2 (conditions and reasons).
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

from alerts.schedulers.kube_api import KubeApi, Missing, Object
from alerts.schedulers.kube_owners import Owner, Owners
from alerts.schedulers.port import SchedulerError

GROUP: Final = "kueue.x-k8s.io"
#: Label of a job that waits for Kueue; label of a Workload with its job's uid.
QUEUE: Final = "kueue.x-k8s.io/queue-name"
JOB_UID: Final = "kueue.x-k8s.io/job-uid"
#: On a Workload that we set inactive: the fence under which we did.
HELD: Final = "outrider.dev/held"
#: How long Kueue may take to let go of the quota once the pods are gone; it does so within a second or two.
RELEASE_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.2

#: Why Kueue evicted -> the word of a wanted end (`detectors.core.rules.exits`). What is not here may come from a fault: pods that
#: did not get ready (`PodsReadyTimeout`), nodes that failed (`NodeFailures`).
WANTED: Final = {
    "Preempted": "preempted", "FlavorMigration": "requeued", "AdmissionCheck": "requeued", "ClusterQueueStopped": "requeued",
    "LocalQueueStopped": "requeued", "EvictedOnManagerCluster": "requeued", "Deactivated": "cancelled",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadState:
    """A Workload's conditions. `evicted`: why Kueue took it out ("": it did not); `evicted_at`: when, as the server writes it.
    `preempted`: by what kind of preemption. `pods_ready`: None where Kueue does not look. `held`: we set it inactive."""

    active: bool
    reserved: bool
    finished: bool
    evicted: str
    evicted_at: str
    preempted: str
    pods_ready: bool | None
    held: bool

    @property
    def wanted(self) -> str:
        """The word for an end that somebody wanted, so that nobody takes it for a fault; empty: it may be one."""
        if self.held or not self.evicted:
            return ""
        if self.evicted.startswith("Deactivated"):
            cause = self.evicted.removeprefix("DeactivatedDueTo")
            return {"MaximumExecutionTimeExceeded": "time_limit", "RequeuingLimitExceeded": ""}.get(cause, "cancelled")
        return WANTED.get(self.evicted, "")


def state_of(workload: Object) -> WorkloadState:
    """What a Workload says of itself (pure)."""
    found = {one["type"]: one for one in (workload.get("status") or {}).get("conditions") or ()}

    def is_(name: str) -> bool:
        return bool(found.get(name, {}).get("status") == "True")

    evicted, ready = is_("Evicted"), found.get("PodsReady", {}).get("status")
    return WorkloadState(
        active=(workload.get("spec") or {}).get("active") is not False, reserved=is_("QuotaReserved"), finished=is_("Finished"),
        evicted=str(found["Evicted"].get("reason") or "Unknown") if evicted else "",
        evicted_at=str(found["Evicted"].get("lastTransitionTime") or "") if evicted else "",
        preempted=str(found["Preempted"].get("reason") or "") if is_("Preempted") else "",
        pods_ready=None if ready is None else ready == "True",
        held=HELD in (workload["metadata"].get("annotations") or {}),
    )  # fmt: skip


def job_name(workload: Object, label: str) -> str | None:
    """Outrider's name of the job, from the pod template; None: it is no job of ours."""
    for podset in (workload.get("spec") or {}).get("podSets") or ():
        labels = ((podset.get("template") or {}).get("metadata") or {}).get("labels") or {}
        if label in labels:
            return str(labels[label])
    return None


class Kueue:
    """Workloads of one cluster."""

    def __init__(self, api: KubeApi, owners: Owners, label: str) -> None:
        self._api, self._owners, self._label = api, owners, label

    async def folder(self, namespace: str) -> str | None:
        """Where the Workloads of a namespace are; None: there is no Kueue here."""
        version = await self._owners.preferred(GROUP)
        return None if version is None else f"/apis/{version}/namespaces/{namespace}/workloads"

    async def of_owners(self, chain: list[Owner]) -> Owner | None:
        """The Workload of one of these owners: by the label with its job's uid, and by its owner reference."""
        for owner in chain:
            folder = await self.folder(owner.namespace)
            if folder is None:
                return None
            for item in (await self._api.list(folder, labelSelector=f"{JOB_UID}={owner.uid}"))[0]:
                uids = {one.get("uid") for one in item["metadata"].get("ownerReferences") or ()}
                if owner.uid in uids and not state_of(item).finished:
                    return workload_of(folder, item)
        if any(QUEUE in (owner.body["metadata"].get("labels") or {}) for owner in chain):
            raise SchedulerError(f"{chain[-1].name} waits for Kueue and has no Workload yet", "busy", again=True)
        return None

    async def of_job(self, namespaces: tuple[str, ...], job: str) -> Owner | None:
        """The Workload of a job that has no pods: one that is evicted, or that we hold."""
        for namespace in namespaces:
            folder = await self.folder(namespace)
            for item in (await self._api.list(folder))[0] if folder else ():
                if job_name(item, self._label) == job and not state_of(item).finished:
                    return workload_of(str(folder), item)
        return None

    async def hold(self, workload: Owner, fence: int) -> str | None:
        """Sets it inactive. Returns None, or why there is nothing to hold: it is not admitted, or a person keeps it out."""
        why: list[str] = []

        def make(now: Object) -> Object | None:
            state = state_of(now)
            if state.held:
                return None
            if not state.active:
                why[:] = ["a person set its Workload inactive"]
            elif not state.reserved:
                cause = f"Kueue evicted it ({state.evicted})" if state.evicted else "it waits in its queue"
                why[:] = [f"{cause}, and brings it back in its turn"]
            else:
                return {"metadata": {"annotations": {HELD: str(fence)}}, "spec": {"active": False}}
            return None

        await self._api.change(workload.path, make)
        return why[0] if why else None

    async def wait_released(self, workload: Owner) -> None:
        """Until its quota is free: Kueue has seen that its pods are gone.

        Raises:
            SchedulerError: it takes too long; the next try goes on from there.
        """
        end = time.monotonic() + RELEASE_SECONDS
        while state_of(await self._api.get(workload.path)).reserved:
            if time.monotonic() >= end:
                raise SchedulerError(f"Kueue keeps the quota of {workload.name}", "busy", again=True)
            await asyncio.sleep(LOOK_SECONDS)

    async def let_go(self, workload: Owner) -> None:
        """Active again, if it was we who held it."""

        def make(now: Object) -> Object | None:
            if not state_of(now).held:
                return None
            return {"metadata": {"annotations": {HELD: None}}, "spec": {"active": True}}

        try:
            await self._api.change(workload.path, make)
        except Missing:
            raise SchedulerError(f"the Workload {workload.name} is gone", "no_such_job", again=False) from None


def workload_of(folder: str, item: Any) -> Owner:
    """A Workload from a list."""
    version = folder.removeprefix("/apis/").split("/namespaces/")[0].rpartition("/")[2]
    return Owner(GROUP, version, "Workload", f"{folder}/{item['metadata']['name']}", item)
