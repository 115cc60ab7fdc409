"""A small API server: nodes, pods, ConfigMaps, jobs and their owners, Workloads; versions, watches, evictions, and controllers that
bring indexes back.

Every body is checked as strict field validation has it: an unknown field, a missing one or a wrong type is a 422 that names the
path. Kubernetes' own kinds by the models made from the published OpenAPI (`kube_openapi`), all others by their published CRDs
(`kube_crds`).
"""

import asyncio
import json
from typing import Any

import kube_world
from aiohttp import web
from kube_crds import misfit_of_custom, misfit_of_custom_patch
from kube_kueue import FakeKueue
from kube_openapi import merge, misfit, misfit_of_eviction, misfit_of_patch, models
from kube_world import INDEX, KINDS

from alerts.schedulers.kube_ranks import map_name

TOKEN = "kube-token"
NAMES = {place: name for name, place in KINDS.items()}


class Kube:
    """The server's state, and the faults it is told to show. `queue`: the job waits in this queue of Kueue."""

    def __init__(self, kind: str, nodes: list[str], slots: list[str], job: str = "j1", queue: str = "") -> None:
        models()  # now, not inside an answer: the import takes a second or two, or skips the test
        self.version, self.clock = 100, 0
        self.requests: list[tuple[str, str, Any]] = []
        self.refused: list[str] = []
        #: Faults: how often another writer comes in between; answers to evictions; how watches end; nodes whose kubelet is gone.
        self.conflicts = 0
        self.budget_refusals = 0
        self.watch_ends: list[str] = []
        self.dead: set[str] = set()
        self.token = TOKEN
        self.job, self.kind = job, kind
        self.nodes = {name: self._stamped(kube_world.node(name)) for name in nodes}
        self.pods: dict[str, dict[str, Any]] = {}
        self.commands: dict[str, Any] = {}
        self.maps: dict[str, dict[str, Any]] = {}
        chain = kube_world.owners(kind, job, map_name(job), len(slots), queue)
        names = kube_world.CHAINS[kind]
        self.owners = {
            (one["apiVersion"], f"{KINDS[name][1]}/{job}"): self._stamped(one) for name, one in zip(names, chain, strict=True)
        }
        self.top, self.owner = (chain[0], chain[-1]) if chain else (None, None)
        self.kueue: FakeKueue | None = None
        if queue and self.top is not None:
            made = self._stamped(kube_world.workload(self.top, job, map_name(job), len(slots), queue))
            self.kueue = FakeKueue(made)
            self.owners[made["apiVersion"], f"workloads/{made['metadata']['name']}"] = made
        self.events: list[tuple[int, str, str, dict[str, Any]]] = []
        self.news = asyncio.Event()
        self.slots = dict(enumerate(slots))
        for slot, node in self.slots.items():
            self._bring(slot, node)

    # -- the world behind the server ---------------------------------------------------------------------------------------

    def _stamped(self, item: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        return item

    def _bring(self, slot: int, node: str) -> None:
        self.clock += 1
        name = f"{self.job}-{slot}" if self.kind in ("VolcanoJob", "PyTorchJob") else f"{self.job}-{slot}-{self.clock}"
        self.pods[name] = self._stamped(kube_world.pod(name, self.clock, self.job, slot, node, self.owner))
        self.slots[slot] = node
        self._tell("pods", "ADDED", self.pods[name])

    def _tell(self, what: str, kind: str, item: dict[str, Any]) -> None:
        self.version += 1
        self.events.append((self.version, what, kind, json.loads(json.dumps(item))))
        self.news.set()

    def _remove(self, name: str) -> None:
        """The pod goes; unless Kueue has suspended the job, its controller brings the index back on a node that takes work."""
        pod = self.pods.pop(name)
        self._tell("pods", "DELETED", pod)
        if self.owner and not (self.kueue and self.kueue.suspended):
            self._bring_back(int(pod["metadata"]["labels"][INDEX]))

    def _bring_back(self, slot: int) -> None:
        used = {one["spec"]["nodeName"] for one in self.pods.values()}
        free = [node for node in self.nodes if self.takes_work(node) and (node == self.slots[slot] or node not in used)]
        self._bring(slot, self.slots[slot] if self.slots[slot] in free else free[-1] if free else "")

    def run_kueue(self) -> None:
        """One turn of Kueue and of the job's controller."""
        if self.kueue is None:
            return
        before = json.dumps(self.kueue.workload)
        if self.kueue.look(len(self.pods)):
            for slot in sorted(self.slots):
                self._bring_back(slot)
        if self.kueue.suspended:
            for name in [name for name, pod in self.pods.items() if pod["spec"]["nodeName"] not in self.dead]:
                self._remove(name)
        if json.dumps(self.kueue.workload) != before:
            self._stamped(self.kueue.workload)
            self._tell("workloads", "MODIFIED", self.kueue.workload)

    def evict(self, reason: str) -> None:
        """Kueue takes the job out by itself."""
        assert self.kueue is not None
        self.kueue.evict(reason)
        self._tell("workloads", "MODIFIED", self._stamped(self.kueue.workload))
        self.run_kueue()

    def takes_work(self, node: str) -> bool:
        return not self.nodes[node]["spec"].get("unschedulable", False)

    def placed(self) -> list[str]:
        """The node of each slot."""
        ordered = sorted(self.pods.values(), key=lambda pod: int(pod["metadata"]["labels"][INDEX]))
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
        watching = "watch" in request.query
        self.requests.append(("WATCH" if watching else request.method, request.path, body))
        empty = request.method in ("PATCH", "POST") and not isinstance(body, dict)
        if answer := self._refused("body: must be an object" if empty else None):
            return answer
        self.run_kueue()
        answer = await self._watch(request) if watching else self._serve(request, body)
        self.run_kueue()
        return answer

    def _serve(self, request: web.Request, body: Any) -> web.Response:
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
                return self._page([*self.pods.values()], request)
            case ("POST", ["api", "v1", "namespaces", "default", "pods", name, "eviction"]):
                return self._evict(name, body)
            case ("DELETE", ["api", "v1", "namespaces", "default", "pods", name]):
                return self._refused(misfit("V1DeleteOptions", body)) or self._end(name, body or {})
            case ("POST", ["api", "v1", "namespaces", "default", "configmaps"]):
                return self._refused(misfit("V1ConfigMap", body)) or self._create(self.maps, body)
            case ("PATCH", ["api", "v1", "namespaces", "default", "configmaps", name]):
                return self._patch(self.maps.get(name), body, request, "V1ConfigMap")
            case ("POST", ["apis", "bus.volcano.sh", "v1alpha1", "namespaces", "default", "commands"]):
                return self._refused(misfit_of_custom("Command", body)) or self._command(body)
            case ("GET", ["apis", *rest]):
                return self._apis(rest, request)
            case ("PATCH", ["apis", group, version, "namespaces", "default", plural, name]):
                found = self.owners.get((f"{group}/{version}", f"{plural}/{name}"))
                return self._patch(found, body, request, NAMES[f"{group}/{version}", plural])
            case _:
                return _status(405, f"{request.method} {request.path} is not served")

    def _apis(self, path: list[str], request: web.Request) -> web.Response:
        """Discovery, and objects of groups."""
        match path:
            case ["kueue.x-k8s.io"] if self.kueue is None:
                return _status(404, "no such group")
            case [group]:
                version = next(version for version, _ in NAMES if version.startswith(f"{group}/"))
                return web.json_response({"kind": "APIGroup", "name": group, "preferredVersion": {"groupVersion": version}})
            case [group, version]:
                resources = [
                    {"kind": kube_world.kind_of(name), "name": plural}
                    for (where, plural), name in NAMES.items()
                    if where == f"{group}/{version}"
                ]
                return web.json_response({"kind": "APIResourceList", "resources": resources})
            case [group, version, "namespaces", "default", plural]:
                place = (f"{group}/{version}", plural)
                items = [one for (where, what), one in self.owners.items() if (where, what.split("/")[0]) == place]
                return self._page(items, request)
            case [group, version, "namespaces", "default", plural, name]:
                found = self.owners.get((f"{group}/{version}", f"{plural}/{name}"))
                return web.json_response(found) if found else _status(404, "not found")
        return _status(404, "not found")

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
        custom = model in KINDS and model != "Job"
        said = (
            misfit_of_custom_patch(model, body, found)
            if custom
            else misfit_of_patch("V1Job" if model == "Job" else model, body, found, "merge")
        )
        if answer := self._refused(said):
            return answer
        if self.conflicts > 0:
            self.conflicts -= 1
            self._stamped(found)  # somebody else was quicker
        if body.get("metadata", {}).pop("resourceVersion", now := found["metadata"]["resourceVersion"]) != now:
            return _status(409, "the object has been modified")
        active = (found.get("spec") or {}).get("active", True)
        merge(found, body)
        if model == "Workload" and self.kueue is not None:
            self.kueue.activity(active, len(self.pods))
        return web.json_response(self._stamped(found))

    def _patch_status(self, node: dict[str, Any], body: Any, request: web.Request) -> web.Response:
        if request.content_type != "application/strategic-merge-patch+json":
            return _status(415, request.content_type)
        if answer := self._refused(misfit_of_patch("V1Node", body, node, "strategic")):
            return answer
        merge(node, body, by={"conditions": "type"})
        return web.json_response(self._stamped(node))

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
        if self.pods[name]["spec"]["nodeName"] not in self.dead or options.get("gracePeriodSeconds") == 0:
            self._remove(name)  # else it stays in Terminating: nobody can say that it is gone
        return web.json_response({"kind": "Status", "status": "Success"}, status=status)

    def _create(self, where: dict[str, Any], body: Any) -> web.Response:
        name = body["metadata"]["name"]
        if name in where:
            return _status(409, "AlreadyExists")
        where[name] = self._stamped(body)
        return web.json_response(body, status=201)

    def _command(self, body: Any) -> web.Response:
        answer = self._create(self.commands, body)
        if answer.status == 201:
            for pod in list(self.pods):
                self._remove(pod)
        return answer

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
        since, what = int(request.query["resourceVersion"]), request.path.rpartition("/")[2]
        for version, where, kind, item in self.events:
            if version > since and where == what:
                await response.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
        return response


def _status(code: int, message: str) -> web.Response:
    return web.json_response(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}, status=code
    )
