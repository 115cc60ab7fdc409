"""A small API server: nodes, pods, jobs and their owners, versions, watches, evictions, and a controller that brings indexes back.

Every body is checked as strict field validation has it (`kube_openapi`): an unknown field, a missing one or a wrong type is a 422
that names the path.
"""

import asyncio
import json
from typing import Any

from aiohttp import web
from kube_openapi import merge, misfit, misfit_of_command, misfit_of_eviction, misfit_of_patch, models

TOKEN = "kube-token"

#: Kind -> API version, plural.
KINDS = {
    "Job": ("batch/v1", "jobs"), "JobSet": ("jobset.x-k8s.io/v1alpha2", "jobsets"),
    "TrainJob": ("trainer.kubeflow.org/v1alpha1", "trainjobs"),
    "VolcanoJob": ("batch.volcano.sh/v1alpha1", "jobs"),
}  # fmt: skip


class Kube:
    """The server's state, and the faults it is told to show."""

    def __init__(self, kind: str, nodes: list[str], slots: list[str], job: str = "j1") -> None:
        models()  # now, not inside an answer: the import takes a second or two, or skips the test
        self.version, self.clock = 100, 0
        self.requests: list[tuple[str, str, Any]] = []
        self.refused: list[str] = []
        #: Faults: how often another writer comes in between; answers to evictions; how watches end.
        self.conflicts = 0
        self.budget_refusals = 0
        self.watch_ends: list[str] = []
        self.token = TOKEN
        self.nodes = {name: self._node(name) for name in nodes}
        self.pods: dict[str, dict[str, Any]] = {}
        self.commands: dict[str, Any] = {}
        self.owners: dict[tuple[str, str], dict[str, Any]] = {}
        self.job, self.kind = job, kind
        self._owner = self._owners(kind, job)
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.news = asyncio.Event()
        for slot, node in enumerate(slots):
            self._bring(slot, node)

    # -- the world behind the server ---------------------------------------------------------------------------------------

    def _stamp(self, meta: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        meta["resourceVersion"] = str(self.version)
        return meta

    def _node(self, name: str) -> dict[str, Any]:
        ready = {"type": "Ready", "status": "True"}
        return {"metadata": self._stamp({"name": name, "uid": f"node-{name}"}), "spec": {}, "status": {"conditions": [ready]}}

    def _owners(self, kind: str, job: str) -> dict[str, Any] | None:
        """The chain of owners; returns the reference that pods carry."""
        chain = {
            "Pod": [],
            "Job": ["Job"],
            "JobSet": ["JobSet", "Job"],
            "TrainJob": ["TrainJob", "JobSet", "Job"],
            "VolcanoJob": ["VolcanoJob"],
        }[kind]
        reference = None
        for one in chain:
            version, plural = KINDS[one]
            body = {
                "metadata": self._stamp({"name": job, "namespace": "default", "uid": f"{one}-uid"}),
                "kind": one.removeprefix("Volcano"),
            }
            if reference:
                body["metadata"]["ownerReferences"] = [reference]
            self.owners[version, f"{plural}/{job}"] = body
            reference = {
                "apiVersion": version,
                "kind": one.removeprefix("Volcano"),
                "name": job,
                "uid": f"{one}-uid",
                "controller": True,
            }
        return reference

    def _bring(self, slot: int, node: str) -> None:
        self.clock += 1
        name = f"{self.job}-{slot}-{self.clock}" if self.kind != "VolcanoJob" else f"{self.job}-{slot}"
        meta = {
            "name": name, "namespace": "default", "uid": f"pod-{self.clock}",
            "creationTimestamp": f"2026-01-01T00:{self.clock // 60:02d}:{self.clock % 60:02d}Z",
            "labels": {"outrider.dev/job": self.job, "batch.kubernetes.io/job-completion-index": str(slot)},
        }  # fmt: skip
        if self._owner:
            meta["ownerReferences"] = [self._owner]
        spec = {"nodeName": node, "containers": [{"name": "train"}]}
        self.pods[name] = {"metadata": self._stamp(meta), "spec": spec, "status": {"phase": "Running"}}
        self._tell("ADDED", self.pods[name])

    def _tell(self, kind: str, item: dict[str, Any]) -> None:
        self.version += 1
        self.events.append((self.version, kind, json.loads(json.dumps(item))))
        self.news.set()

    def _remove(self, name: str) -> None:
        """The pod goes; its controller brings the index back on a node that takes work."""
        pod = self.pods.pop(name)
        self._tell("DELETED", pod)
        if self._owner:
            slot = int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
            used = {one["spec"]["nodeName"] for one in self.pods.values()}
            old = pod["spec"]["nodeName"]
            free = [node for node in self.nodes if self.takes_work(node) and (node == old or node not in used)]
            self._bring(slot, old if old in free else free[-1] if free else "")

    def takes_work(self, node: str) -> bool:
        return not self.nodes[node]["spec"].get("unschedulable", False)

    def placed(self) -> list[str]:
        """The node of each slot."""
        ordered = sorted(
            self.pods.values(), key=lambda pod: int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])
        )
        return [pod["spec"]["nodeName"] for pod in ordered]

    # -- the server --------------------------------------------------------------------------------------------------------

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_route("*", "/{tail:.*}", self._answer)
        return application

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized")
        raw = await request.read()
        body = json.loads(raw) if raw else None
        self.requests.append((request.method, request.path, body))
        empty = request.method in ("PATCH", "POST") and not isinstance(body, dict)
        if answer := self._refused("body: must be an object" if empty else None):
            return answer
        match (request.method, request.path.strip("/").split("/")):
            case ("GET", ["api", "v1", "nodes"]):
                return self._page([*self.nodes.values()], request)
            case ("GET", ["api", "v1", "nodes", name]):
                return web.json_response(self.nodes[name]) if name in self.nodes else _status(404, f'nodes "{name}" not found')
            case ("PATCH", ["api", "v1", "nodes", name]):
                return self._patch(self.nodes.get(name), body, request, "V1Node")
            case ("PATCH", ["api", "v1", "nodes", name, "status"]):
                return self._patch_status(self.nodes[name], body, request)
            case ("GET", ["api", "v1", "namespaces", "default", "pods"]):
                return await self._watch(request) if "watch" in request.query else self._page([*self.pods.values()], request)
            case ("POST", ["api", "v1", "namespaces", "default", "pods", name, "eviction"]):
                return self._evict(name, body)
            case ("DELETE", ["api", "v1", "namespaces", "default", "pods", name]):
                return self._refused(misfit("V1DeleteOptions", body)) or self._end(name, body or {})
            case ("POST", ["apis", "bus.volcano.sh", "v1alpha1", "namespaces", "default", "commands"]):
                return self._command(body)
            case ("GET", ["apis", group, version]):
                resources = [
                    {"kind": kind.removeprefix("Volcano"), "name": plural}
                    for kind, (where, plural) in KINDS.items()
                    if where == f"{group}/{version}"
                ]
                return (
                    web.json_response({"kind": "APIResourceList", "resources": resources})
                    if resources
                    else _status(404, "no such group")
                )
            case (method, ["apis", group, version, "namespaces", "default", plural, name]):
                found = self.owners.get((f"{group}/{version}", f"{plural}/{name}"))
                if method == "GET":
                    return web.json_response(found) if found else _status(404, "not found")
                return self._patch(found, body, request, "V1Job" if group == "batch" else "custom owner")
            case _:
                return _status(405, f"{request.method} {request.path} is not served")

    def _page(self, items: list[dict[str, Any]], request: web.Request) -> web.Response:
        if selector := request.query.get("labelSelector"):
            key, _, value = selector.partition("=")
            items = [item for item in items if item["metadata"].get("labels", {}).get(key) == value]
        start, limit = int(request.query.get("continue", "0")), min(int(request.query.get("limit", "500")), 2)
        meta: dict[str, Any] = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            meta["continue"] = str(start + limit)
        return web.json_response({"kind": "List", "metadata": meta, "items": items[start : start + limit]})

    def _refused(self, said: str | None) -> web.Response | None:
        if said is None:
            return None
        self.refused.append(said)
        return _status(422, said)

    def _patch(self, found: dict[str, Any] | None, body: Any, request: web.Request, model: str) -> web.Response:
        if request.content_type != "application/merge-patch+json":
            return _status(415, request.content_type)
        if found is None:
            return _status(404, "not found")
        if answer := self._refused(misfit_of_patch(model, body, found, "merge")):
            return answer
        if self.conflicts > 0:
            self.conflicts -= 1
            self._stamp(found["metadata"])  # somebody else was quicker
        if body["metadata"].get("resourceVersion", found["metadata"]["resourceVersion"]) != found["metadata"]["resourceVersion"]:
            return _status(409, "the object has been modified")
        body["metadata"].pop("resourceVersion", None)
        merge(found, body)
        self._stamp(found["metadata"])
        return web.json_response(found)

    def _patch_status(self, node: dict[str, Any], body: Any, request: web.Request) -> web.Response:
        if request.content_type != "application/strategic-merge-patch+json":
            return _status(415, request.content_type)
        if answer := self._refused(misfit_of_patch("V1Node", body, node, "strategic")):
            return answer
        merge(node, body, by={"conditions": "type"})
        self._stamp(node["metadata"])
        return web.json_response(node)

    def _evict(self, name: str, body: Any) -> web.Response:
        if answer := self._refused(misfit_of_eviction(name, body)):
            return answer
        if self.budget_refusals > 0:
            self.budget_refusals -= 1
            return _status(429, "Cannot evict pod as it would violate the pod's disruption budget.")
        return self._end(name, body.get("deleteOptions") or {}, status=201)

    def _end(self, name: str, options: dict[str, Any], status: int = 200) -> web.Response:
        uid = (options.get("preconditions") or {}).get("uid")
        if name not in self.pods:
            return _status(404, f'pods "{name}" not found')
        if uid and uid != self.pods[name]["metadata"]["uid"]:
            return _status(409, "Precondition failed: UID in precondition")
        self._remove(name)
        return web.json_response({"kind": "Status", "status": "Success"}, status=status)

    def _command(self, body: Any) -> web.Response:
        if answer := self._refused(misfit_of_command(body)):
            return answer
        name = body["metadata"]["name"]
        if name in self.commands:
            return _status(409, "AlreadyExists")
        self.commands[name] = body
        for pod in list(self.pods):
            self._remove(pod)
        return web.json_response(body, status=201)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        ending = self.watch_ends.pop(0) if self.watch_ends else ""
        if ending == "410":
            return _status(410, "too old resource version")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if ending == "410 event":
            error = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}
            await response.write(json.dumps(error).encode() + b"\n")
            return response
        if ending == "half a line":
            await response.write(b'{"type": "DELE')
            return response
        since = int(request.query["resourceVersion"])
        for version, kind, item in self.events:
            if version > since:
                await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
        return response


def _status(code: int, message: str) -> web.Response:
    return web.json_response(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}, status=code
    )
