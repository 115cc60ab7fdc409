"""Kubernetes: cordon, taint, annotations, condition; the job's pods evicted, so that each completion index comes back elsewhere.

Job kinds by discovery: JobSet, Kubeflow Trainer (TrainJob, PyTorchJob), Volcano, plain Jobs; jobs that Kueue admitted are restarted
through their Workload (`alerts.schedulers.kueue`).

Rank and slot are the pod's completion index, which the job controller keeps. The job's topmost owner carries fence and attempt as
annotations, written at the version that was read: the compare-and-swap. Pods up to the newest of the old attempt are ended, so a
repeat after a crash of ours does not end the pods of the next attempt. No pod is ended before the nodes to be left are cordoned.
"""

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from alerts.bodies import Data
from alerts.schedulers.kube_api import Conflict, KubeApi, Missing, Object
from alerts.schedulers.kube_owners import ATTEMPT, FENCE, INCIDENT, REASON, Owner, Owners, numbered
from alerts.schedulers.kube_ranks import map_data, write_map
from alerts.schedulers.kueue import Kueue
from alerts.schedulers.port import Done, NodeState, SchedulerError, amends, job_of, node_of, reason_of
from outrider.config.targets import KubernetesTarget

TAINT: Final = "outrider.dev/quarantined"
#: Creation time of the newest pod of the attempt that is being ended, and whether all of them are gone.
UP_TO: Final = "outrider.dev/ended-up-to"
STAGE: Final = "outrider.dev/stage"
CONDITION: Final = "OutriderHealthy"
#: On a node that somebody had cordoned before us: it stays so when ours is taken off.
CORDONED: Final = "outrider.dev/cordoned-before"
#: How long pods may take to go; then the call fails and the next try goes on from there.
GONE_SECONDS: Final = 60.0
#: A label's value. Source: Kubernetes, "Labels and Selectors", syntax and character set.
LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
VOLCANO: Final = ("batch.volcano.sh", "Job")


class KubernetesScheduler:
    """See `alerts.schedulers.port.Scheduler`."""

    def __init__(self, target: KubernetesTarget) -> None:
        self.name, self._target = target.name, target
        self._api = KubeApi(target)
        self._owners = Owners(self._api)
        self._kueue = Kueue(self._api, self._owners, target.job_label)

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
            if numbered(notes, FENCE, -1) > order.fence:
                status[:] = [Done(status="old_fence", note=f"{name} was taken out again by fence {notes[FENCE]}")]
                return None
            taints = [taint for taint in node["spec"].get("taints") or () if taint["key"] != TAINT]
            off: Object = {"taints": taints or None} if CORDONED in notes else {"unschedulable": None, "taints": taints or None}
            return {"metadata": {"annotations": {FENCE: None, INCIDENT: None, REASON: None, CORDONED: None}}, "spec": off}

        if (node := await self._change_node(name, make)) is None:
            return status[0]
        await self._condition(name, True, "Released", "released by Outrider")
        kept = (node["spec"] or {}).get("unschedulable")
        return Done(status="done", note=f"{name} is {'as it was: a person has cordoned it' if kept else 'in service again'}")

    async def restart(self, order: Data) -> Done:
        job = job_of(order)
        pods = await self._pods(job)
        top, workload = await self._found(job, pods)
        mark = await self._mark(top, order, pods)
        if isinstance(mark, Done):
            return mark
        lost = {item.from_ for item in order.replace}
        await self._keep_off(order, lost - {item.to for item in order.replace})
        if self._target.rank_map:
            await write_map(self._api, top, job, map_data(job, mark.attempt + 1, order.fence, order))
        old = [pod for pod in pods if pod["metadata"]["creationTimestamp"] <= mark.up_to]
        why = "its indexes come back elsewhere"
        if workload is not None and self._target.kueue == "requeue":
            why = await self._requeue(workload, order, old, lost)
        elif top.group_kind == VOLCANO:
            await self._volcano(top, order)
        else:
            await self._end_all(old, lost)
            await self._gone(old)
        await self._api.change(top.path, lambda _: {"metadata": {"annotations": {STAGE: "ended"}}})
        note = f"{top.kind} {top.name}: attempt {mark.attempt} ended, {why}"
        return Done(status="done", note=note, detail={"kind": top.kind, "pods": len(pods), "kueue": workload is not None})

    # -- nodes -----------------------------------------------------------------------------------------------------------

    async def _take_out(self, order: Data, effect: str) -> Done:
        name = node_of(order)
        status: list[Done] = []

        def make(node: Object) -> Object | None:
            notes = node["metadata"].get("annotations") or {}
            if (before := numbered(notes, FENCE, -1)) >= order.fence:
                old = before > order.fence
                status[:] = [Done(status="old_fence" if old else "already", note=str(notes.get(REASON)))]
                return None
            taints = [taint for taint in node["spec"].get("taints") or () if taint["key"] != TAINT]
            taints.append({"key": TAINT, "value": (order.fault or "unknown")[:63], "effect": effect})
            marks = {FENCE: str(order.fence), INCIDENT: str(order.incident), REASON: reason_of(order)}
            if FENCE not in notes and node["spec"].get("unschedulable"):
                marks[CORDONED] = "true"
            return {"metadata": {"annotations": marks}, "spec": {"unschedulable": True, "taints": taints}}

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
        if not LABEL.fullmatch(job):  # a selector has its own grammar: `j1,app` would be another job's pods
            raise SchedulerError(f"{job!r} is no value of a label: no pod carries it", "no_such_job", again=False)
        found: list[Object] = []
        for namespace in self._target.namespaces:
            items, _ = await self._api.list(f"/api/v1/namespaces/{namespace}/pods", labelSelector=f"{self._target.job_label}={job}")
            found += [item for item in items if (item.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
        return found

    async def _found(self, job: str, pods: list[Object]) -> tuple[Owner, Owner | None]:
        """The object at the head of the chain of owners, which carries our mark, and the Workload, if Kueue admits the job."""
        if pods:
            chain = await self._owners.chain(pods[0])
            if not chain:
                raise SchedulerError(f"the pods of {job} have no owner that would bring them back", "not_supported", again=False)
            return chain[-1], await self._kueue.of_owners(chain)
        workload = await self._kueue.of_job(self._target.namespaces, job)
        chain = await self._owners.chain(workload.body) if workload is not None else []
        if not chain:
            raise SchedulerError(f"no pod carries {self._target.job_label}={job}", "no_such_job", again=True)
        return chain[-1], workload

    async def _keep_off(self, order: Data, lost: set[str]) -> None:
        """No pod is ended before the nodes that it shall leave are out: its controller would put it back there."""
        for name in sorted(lost):
            try:
                node = await self._api.get(f"/api/v1/nodes/{name}")
            except Missing:
                continue  # nothing goes there
            if _node_state(node).in_service:
                await self._take_out(msgspec.structs.replace(order, node=name), "NoSchedule")

    async def _requeue(self, workload: Owner, order: Data, old: list[Object], lost: set[str]) -> str:
        """Kueue ends the pods and places the job anew: inactive, pods gone, quota free, active. Says what became of it."""
        if (why := await self._kueue.hold(workload, order.fence)) is not None:
            return why
        # Kueue suspends the job and its controller ends the pods; those on lost nodes can tell nobody that they are gone.
        await self._end_all([pod for pod in old if pod["spec"].get("nodeName") in lost], lost)
        await self._gone(old)
        await self._kueue.wait_released(workload)
        await self._kueue.let_go(workload)
        return "Kueue places it anew"

    async def _mark(self, top: Owner, order: Data, pods: list[Object]) -> "Mark | Done":
        """Writes fence and attempt onto the owner. Returns what is to be ended, or why there is nothing to do."""
        result: list[Mark | Done] = []
        nodes = {str(pod["spec"].get("nodeName")) for pod in pods}

        def make(owner: Object) -> Object | None:
            notes = owner["metadata"].get("annotations") or {}
            fence, attempt = numbered(notes, FENCE, -1), numbered(notes, ATTEMPT, 0)
            up_to = max((pod["metadata"]["creationTimestamp"] for pod in pods), default="")
            if fence > order.fence:
                result[:] = [Done(status="old_fence", note=f"fence {fence} was here")]
                return None
            if fence == order.fence:
                ended = notes.get(STAGE) == "ended"
                done = Done(status="already", note=f"attempt {attempt} was ended under this fence")
                result[:] = [done if ended else Mark(attempt, notes.get(UP_TO, up_to))]
                return None
            if order.attempt is not None and order.attempt <= attempt and not amends(order, nodes, exact=False):
                result[:] = [Done(status="old_attempt", note=f"attempt {attempt} was ended before")]
                return None
            mark = Mark(max(order.attempt or 0, attempt + 1), up_to)
            result[:] = [mark]
            new = {
                FENCE: str(order.fence), INCIDENT: str(order.incident), STAGE: "ending", UP_TO: up_to, ATTEMPT: str(mark.attempt),
            }  # fmt: skip
            return {"metadata": {"annotations": new}}

        await self._api.change(top.path, make)
        return result[0]

    async def _gone(self, pods: list[Object]) -> None:
        """Waits until none of them is there any more."""
        for namespace in {pod["metadata"]["namespace"] for pod in pods}:
            uids = {pod["metadata"]["uid"] for pod in pods if pod["metadata"]["namespace"] == namespace}
            left = await self._api.until_gone(f"/api/v1/namespaces/{namespace}/pods", uids, GONE_SECONDS)
            if left:
                raise SchedulerError(f"{len(left)} pods did not go within {GONE_SECONDS:g} s", "busy", again=True)

    async def _end_all(self, pods: list[Object], lost: set[str]) -> None:
        """Ends every one that can be ended, then raises for the first that cannot."""
        ends = (self._end(pod, pod["spec"].get("nodeName") in lost) for pod in pods)
        for error in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(error, BaseException):
                raise error

    async def _end(self, pod: Object, lost: bool) -> None:
        """Evicts a pod: its end counts as a disruption, not as a failure of the program. One on a lost node, where nobody can
        confirm that it is gone, is deleted without grace."""
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

    async def _volcano(self, top: Owner, order: Data) -> None:
        """Volcano restarts all pods of a job by itself; the command's name is made of the fence: a repeat is the same command."""
        command = {
            "apiVersion": "bus.volcano.sh/v1alpha1", "kind": "Command", "action": "RestartJob", "reason": "Outrider",
            "metadata": {"name": f"outrider-{order.fence}-{top.name}"[:63].rstrip("-."), "namespace": top.namespace},
            "message": reason_of(order), "target": top.reference(),
        }  # fmt: skip
        try:
            await self._api.create(f"/apis/bus.volcano.sh/v1alpha1/namespaces/{top.namespace}/commands", command)
        except Conflict:
            return


@dataclass(frozen=True, slots=True)
class Mark:
    """What is being ended: the attempt, and the creation time of its newest pod."""

    attempt: int
    up_to: str


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
