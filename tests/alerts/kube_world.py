"""The objects of a small cluster as the published APIs have them: nodes, pods, the chain of owners of a job, its Workload."""

from typing import Any

from kube_crds import api_version, crd

LABEL = "outrider.dev/job"
INDEX = "batch.kubernetes.io/job-completion-index"
#: Kind -> API version, plural.
KINDS = {"Job": ("batch/v1", "jobs")} | {
    name: (api_version(name), crd(name)["plural"]) for name in ("JobSet", "TrainJob", "PyTorchJob", "VolcanoJob", "Workload")
}
#: Who owns the pods of each kind of job, outermost first.
CHAINS = {
    "Pod": [], "Job": ["Job"], "JobSet": ["JobSet", "Job"], "TrainJob": ["TrainJob", "JobSet", "Job"], "PyTorchJob": ["PyTorchJob"],
    "VolcanoJob": ["VolcanoJob"],
}  # fmt: skip


def kind_of(name: str) -> str:
    """`VolcanoJob` is called `Job` in its own group."""
    return "Job" if name == "VolcanoJob" else name


def node(name: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True"}
    return {"metadata": {"name": name, "uid": f"node-{name}"}, "spec": {}, "status": {"conditions": [ready]}}


def template(job: str, ranks: str) -> dict[str, Any]:
    """A pod template; it takes its attempt from the job's rank map."""
    source = {"configMapKeyRef": {"name": ranks, "key": "OUTRIDER_ATTEMPT", "optional": True}}
    container = {"name": "train", "image": "train:1", "env": [{"name": "OUTRIDER_ATTEMPT", "valueFrom": source}]}
    return {"metadata": {"labels": {LABEL: job}}, "spec": {"containers": [container]}}


def spec(name: str, job: str, ranks: str, count: int) -> dict[str, Any] | None:
    """What a user writes into each kind; None: the fake needs none (a Job's template is in the published model)."""
    pods = template(job, ranks)
    match name:
        case "JobSet":
            inner = {"parallelism": count, "completions": count, "completionMode": "Indexed", "template": pods}
            return {"suspend": False, "replicatedJobs": [{"name": "workers", "replicas": 1, "template": {"spec": inner}}]}
        case "TrainJob":
            return {"suspend": False, "runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": count}}
        case "PyTorchJob":
            return {"runPolicy": {"suspend": False}, "pytorchReplicaSpecs": {"Worker": {"replicas": count, "template": pods}}}
        case "VolcanoJob":
            return {"minAvailable": count, "tasks": [{"name": "worker", "replicas": count, "template": pods}]}
    return None


def owners(kind: str, job: str, ranks: str, count: int, queue: str) -> list[dict[str, Any]]:
    """The chain, outermost first; the outermost waits in `queue`, if one is named."""
    chain: list[dict[str, Any]] = []
    for name in CHAINS[kind]:
        meta: dict[str, Any] = {"name": job, "namespace": "default", "uid": f"{name}-uid"}
        if chain:
            meta["ownerReferences"] = [reference(chain[-1])]
        elif queue:
            meta["labels"] = {"kueue.x-k8s.io/queue-name": queue}
        body = {"apiVersion": KINDS[name][0], "kind": kind_of(name), "metadata": meta}
        chain.append(body | ({"spec": inner} if (inner := spec(name, job, ranks, count)) else {}))
    return chain


def reference(body: dict[str, Any]) -> dict[str, Any]:
    meta = body["metadata"]
    return {"apiVersion": body["apiVersion"], "kind": body["kind"], "name": meta["name"], "uid": meta["uid"], "controller": True}


def workload(owner: dict[str, Any], job: str, ranks: str, count: int, queue: str) -> dict[str, Any]:
    """What Kueue makes of a job when it comes."""
    meta = {
        "name": f"{owner['kind'].lower()}-{job}-4f2a1", "namespace": "default", "uid": "workload-uid",
        "labels": {"kueue.x-k8s.io/job-uid": owner["metadata"]["uid"]}, "ownerReferences": [reference(owner)],
    }  # fmt: skip
    podset = {"name": "main", "count": count, "template": template(job, ranks)}
    return {
        "apiVersion": KINDS["Workload"][0], "kind": "Workload", "metadata": meta,
        "spec": {"active": True, "queueName": queue, "podSets": [podset]}, "status": {"conditions": []},
    }  # fmt: skip


def pod(name: str, number: int, job: str, slot: int, on: str, owner: dict[str, Any] | None) -> dict[str, Any]:
    meta = {
        "name": name, "namespace": "default", "uid": f"pod-{number}",
        "creationTimestamp": f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}Z", "labels": {LABEL: job, INDEX: str(slot)},
    }  # fmt: skip
    if owner:
        meta["ownerReferences"] = [reference(owner)]
    return {"metadata": meta, "spec": {"nodeName": on, "containers": [{"name": "train"}]}, "status": {"phase": "Running"}}
