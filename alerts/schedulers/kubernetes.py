"""Kubernetes: cordon, taint, annotations, condition; the job's pods evicted, so that each completion index comes back elsewhere.

Job kinds by discovery: JobSet, Kubeflow Trainer, Volcano, plain Jobs; Kueue only admits and needs nothing of us.

Rank and slot are the pod's completion index, which the job controller keeps. The job's topmost owner carries fence and attempt as
annotations, written at the version that was read: the compare-and-swap. Pods up to the newest of the old attempt are ended, so a
repeat after a crash of ours does not end the pods of the next attempt.
"""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from alerts.bodies import Data
from alerts.schedulers.kube_api import Conflict, KubeApi, Missing, Object
from alerts.schedulers.port import Done, NodeState, SchedulerError, job_of, node_of, reason_of
from outrider.config.targets import KubernetesTarget

TAINT: Final = "outrider.dev/quarantined"
FENCE: Final = "outrider.dev/fence"
INCIDENT: Final = "outrider.dev/incident"
REASON: Final = "outrider.dev/reason"
ATTEMPT: Final = "outrider.dev/attempt"
#: Creation time of the newest pod of the attempt that is being ended, and whether all of them are gone.
UP_TO: Final = "outrider.dev/ended-up-to"
STAGE: Final = "outrider.dev/stage"
CONDITION: Final = "OutriderHealthy"
#: How long pods may take to go; then the call fails and the next try goes on from there.
GONE_SECONDS: Final = 60.0
#: Owners are followed upwards this far: pod -> Job -> JobSet -> TrainJob is three.
OWNERS_MAX: Final = 5
VOLCANO: Final = ("batch.volcano.sh", "Job")


class KubernetesScheduler:
    """See `alerts.schedulers.port.Scheduler`."""

    def __init__(self, target: KubernetesTarget) -> None:
        self.name, self._target = target.name, target
        self._api = KubeApi(target)
        #: API group and version -> kind -> plural name, as the server tells.
        self._plurals: dict[str, dict[str, str]] = {}

    async def open(self) -> None:
        await self._api.open()

    async def close(self) -> None:
        await self._api.close()

    async def nodes(self) -> dict[str, NodeState]:
        items, _ = await self._api.list("/api/v1/nodes")
        return {item["metadata"]["name"]: _node_state(item) for item in items}

    async def quarantine(self, order: Data) -> Done:
        return await self._take_out(order, "NoExecute" if self._target.no_execute else "NoSchedule")

    async def drain(self, order: Data) -> Done:
        return await self._take_out(order, "NoSchedule")

    async def release(self, order: Data) -> Done:
        name = node_of(order)
        status: list[Done] = []

        def make(node: Object) -> Object | None:
            notes = node["metadata"].get("annotations") or {}
            if FENCE not in notes:
                status[:] = [Done(status="already", note=f"{name} was not taken out by Outrider")]
                return None
            if int(notes[FENCE]) > order.fence:
                status[:] = [Done(status="old_fence", note=f"{name} was taken out again by fence {notes[FENCE]}")]
                return None
            taints = [taint for taint in node["spec"].get("taints") or () if taint["key"] != TAINT]
            return {
                "metadata": {"annotations": {FENCE: None, INCIDENT: None, REASON: None}},
                "spec": {"unschedulable": None, "taints": taints or None},
            }

        if await self._change_node(name, make) is None:
            return status[0]
        await self._condition(name, True, "Released", "released by Outrider")
        return Done(status="done", note=f"{name} is in service again")

    async def restart(self, order: Data) -> Done:
        job = job_of(order)
        pods = await self._pods(job)
        if not pods:
            raise SchedulerError(f"no pod carries {self._target.job_label}={job}", "no_such_job", again=True)
        top = await self._top(pods[0])
        if top.kind == "Pod":
            raise SchedulerError(f"the pods of {job} have no owner that would bring them back", "not_supported", again=False)
        if isinstance(mark := await self._mark(top, order, pods), Done):
            return mark
        if top.group_kind == VOLCANO:
            await self._volcano(top, order)
        else:
            await self._end(pods, mark, {item.from_ for item in order.replace})
        await self._api.change(top.path, lambda _: {"metadata": {"annotations": {STAGE: "ended"}}})
        note = f"{top.kind} {top.name}: attempt {order.attempt} ended, its indexes come back elsewhere"
        return Done(status="done", note=note, detail={"kind": top.kind, "pods": len(pods)})

    # -- nodes -----------------------------------------------------------------------------------------------------------

    async def _take_out(self, order: Data, effect: str) -> Done:
        name = node_of(order)
        status: list[Done] = []

        def make(node: Object) -> Object | None:
            notes = node["metadata"].get("annotations") or {}
            if int(notes.get(FENCE, -1)) >= order.fence:
                old = int(notes[FENCE]) > order.fence
                status[:] = [Done(status="old_fence" if old else "already", note=str(notes.get(REASON)))]
                return None
            taints = [taint for taint in node["spec"].get("taints") or () if taint["key"] != TAINT]
            taints.append({"key": TAINT, "value": (order.fault or "unknown")[:63], "effect": effect})
            notes = {FENCE: str(order.fence), INCIDENT: str(order.incident), REASON: reason_of(order)}
            return {"metadata": {"annotations": notes}, "spec": {"unschedulable": True, "taints": taints}}

        if await self._change_node(name, make) is None:
            return status[0]
        await self._condition(name, False, _camel(order.fault or "unknown"), reason_of(order))
        return Done(status="done", note=f"{name} is cordoned and tainted")

    async def _change_node(self, name: str, make: Any) -> Object | None:
        try:
            return await self._api.change(f"/api/v1/nodes/{name}", make)
        except Missing:
            raise SchedulerError(f"no node is called {name}", "no_such_node", again=False) from None

    async def _condition(self, node: str, healthy: bool, reason: str, words: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {
            "type": CONDITION, "status": "True" if healthy else "False", "reason": reason, "message": words,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }  # fmt: skip
        await self._api.patch_status(f"/api/v1/nodes/{node}", {"status": {"conditions": [condition]}})

    # -- jobs ------------------------------------------------------------------------------------------------------------

    async def _pods(self, job: str) -> list[Object]:
        found: list[Object] = []
        for namespace in self._target.namespaces:
            items, _ = await self._api.list(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"{self._target.job_label}={job}")
            found += [item for item in items if (item.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
        return found

    async def _top(self, pod: Object) -> "_Owner":
        """The object at the head of the chain of owners: it carries our mark."""
        namespace = pod["metadata"]["namespace"]
        here = _Owner("", "v1", "Pod", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}", pod)
        for _ in range(OWNERS_MAX):
            reference = next((one for one in _references(here.body) if one.get("controller")), None)
            if reference is None:
                break
            group, _, version = reference["apiVersion"].rpartition("/")
            plural = await self._plural(reference["apiVersion"], reference["kind"])
            base = f"/apis/{reference['apiVersion']}" if group else f"/api/{version}"
            path = f"{base}/namespaces/{namespace}/{plural}/{reference['name']}"
            try:
                body = await self._api.get(path)
            except Missing:
                break  # its owner is gone already; what is left carries the mark
            here = _Owner(group, version, reference["kind"], path, body)
        return here

    async def _plural(self, api_version: str, kind: str) -> str:
        """Discovery: how the server names a kind in paths."""
        if api_version not in self._plurals:
            base = "/apis/" if "/" in api_version else "/api/"
            found = await self._api.get(base + api_version)
            self._plurals[api_version] = {
                one["kind"]: one["name"] for one in found.get("resources") or () if "/" not in one["name"]
            }
        plural = self._plurals[api_version].get(kind)
        if plural is None:
            raise SchedulerError(f"the API server knows no {kind} in {api_version}", "not_supported", again=False)
        return plural

    async def _mark(self, top: "_Owner", order: Data, pods: list[Object]) -> "str | Done":
        """Writes fence and attempt onto the owner. Returns the newest old pod's creation time, or why there is nothing to do."""
        status: list[Done] = []
        up_to = [max(pod["metadata"]["creationTimestamp"] for pod in pods)]

        def make(owner: Object) -> Object | None:
            notes = owner["metadata"].get("annotations") or {}
            fence, attempt = int(notes.get(FENCE, -1)), int(notes.get(ATTEMPT, 0))
            if fence > order.fence:
                status[:] = [Done(status="old_fence", note=f"fence {fence} was here")]
                return None
            if fence == order.fence:
                if notes.get(STAGE) == "ended":
                    status[:] = [Done(status="already", note=f"attempt {attempt} was ended under this fence")]
                up_to[:] = [notes.get(UP_TO, up_to[0])]
                return None
            if order.attempt is not None and order.attempt <= attempt:
                status[:] = [Done(status="old_attempt", note=f"attempt {attempt} was ended before")]
                return None
            new = {
                FENCE: str(order.fence), INCIDENT: str(order.incident), STAGE: "ending", UP_TO: up_to[0],
                ATTEMPT: str(order.attempt if order.attempt is not None else attempt + 1),
            }  # fmt: skip
            return {"metadata": {"annotations": new}}

        await self._api.change(top.path, make)
        return status[0] if status else up_to[0]

    async def _end(self, pods: list[Object], up_to: str, lost: set[str]) -> None:
        """Evicts the old attempt's pods: their end counts as a disruption, not as a failure of the program. Those on lost nodes,
        which nobody can confirm to be gone, are deleted without grace."""
        old = [pod for pod in pods if pod["metadata"]["creationTimestamp"] <= up_to]
        results = await asyncio.gather(
            *(self._end_one(pod, pod["spec"].get("nodeName") in lost) for pod in old), return_exceptions=True
        )
        for error in results:
            if isinstance(error, BaseException):
                raise error
        for namespace in {pod["metadata"]["namespace"] for pod in old}:
            uids = {pod["metadata"]["uid"] for pod in old if pod["metadata"]["namespace"] == namespace}
            left = await self._api.until_gone(f"/api/v1/namespaces/{namespace}/pods", uids, GONE_SECONDS)
            if left:
                raise SchedulerError(f"{len(left)} pods did not go within {GONE_SECONDS:g} s", "busy", again=True)

    async def _end_one(self, pod: Object, lost: bool) -> None:
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        try:
            if lost:
                await self._api.delete(path, meta["uid"], 0)
            else:
                whom = {"name": meta["name"], "namespace": meta["namespace"]}
                eviction = {
                    "apiVersion": "policy/v1", "kind": "Eviction", "metadata": whom,
                    "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
                }  # fmt: skip
                await self._api.create(f"{path}/eviction", eviction)
        except (Missing, Conflict):
            return  # gone, or another pod of that name is there: either is what was wanted

    async def _volcano(self, top: "_Owner", order: Data) -> None:
        """Volcano restarts all pods of a job by itself; the command's name is made of the fence: a repeat is the same command."""
        meta = top.body["metadata"]
        target = {
            "apiVersion": f"{top.group}/{top.version}",
            "kind": top.kind,
            "name": top.name,
            "uid": meta["uid"],
            "controller": True,
        }
        command = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"name": f"outrider-{top.name}-{order.fence}"[:63], "namespace": meta["namespace"]},
            "action": "RestartJob",
            "reason": "Outrider",
            "message": reason_of(order),
            "target": target,
        }
        try:
            await self._api.create(f"/apis/bus.volcano.sh/v1alpha1/namespaces/{meta['namespace']}/commands", command)
        except Conflict:
            return


class _Owner:
    """An object in a chain of owners."""

    def __init__(self, group: str, version: str, kind: str, path: str, body: Object) -> None:
        self.group, self.version, self.kind, self.path, self.body = group, version, kind, path, body

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def group_kind(self) -> tuple[str, str]:
        return self.group, self.kind


def _references(body: Object) -> Iterator[Object]:
    yield from body["metadata"].get("ownerReferences") or ()


def _node_state(node: Object) -> NodeState:
    notes = node["metadata"].get("annotations") or {}
    ready = [one for one in (node.get("status") or {}).get("conditions") or () if one.get("type") == "Ready"]
    return NodeState(
        node=node["metadata"]["name"], in_service=not node["spec"].get("unschedulable", False),
        alive=bool(ready) and ready[0].get("status") == "True", busy=False, ours=FENCE in notes, reason=str(notes.get(REASON, "")),
    )  # fmt: skip


def _camel(fault: str) -> str:
    """`node.lost` -> `NodeLost`: a condition's reason is a CamelCase word."""
    return "".join(part.capitalize() for part in fault.replace(".", "_").split("_"))
