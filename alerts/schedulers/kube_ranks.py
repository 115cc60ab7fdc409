"""Rank map and environment in Kubernetes: the ConfigMap `outrider-ranks-<job>`, written before an attempt is ended.

Pods of the next attempt take their environment from it (`configMapKeyRef`, optional) and mount `ranks.json`
(`deploy/kubernetes/jobset.yaml`). A pod's rank is its completion index, which its controller keeps; the nodes in the map are those
that Outrider expects, for Kubernetes has the last word on where a pod goes. The job owns the ConfigMap: it goes when the job goes.
"""

from typing import Final

import msgspec

from alerts.bodies import Data
from alerts.schedulers.kube_api import Conflict, KubeApi
from alerts.schedulers.kube_owners import Owner
from alerts.schedulers.ranks import make_map, plain_name

#: Longest name of an object: a DNS subdomain (RFC 1123).
NAME_MAX: Final = 253
PREFIX: Final = "outrider-ranks-"


def map_name(job: str) -> str:
    """The ConfigMap of a job, as a name that Kubernetes takes: the job's own, or with a hash where that is no such name."""
    label = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
    return PREFIX + plain_name(job, rf"{label}(\.{label})*", r"[^a-z0-9]+", NAME_MAX - len(PREFIX))


def map_data(job: str, attempt: int, fence: int, order: Data | None) -> dict[str, str]:
    """What stands in it: the environment's words, and the map if the order tells where the slots are.

    Args:
        attempt: the one that starts next.
        order: None where nothing moved (Kueue stopped the job): the map that is there stays.
    """
    data = {"OUTRIDER_JOB": job, "OUTRIDER_ATTEMPT": str(attempt), "OUTRIDER_FENCE": str(fence)}
    if order is not None and order.slots:
        ranks = make_map(job, attempt, fence, [node or "" for node in order.slots])
        data |= {"WORLD_SIZE": str(len(order.slots)), "ranks.json": msgspec.json.encode(ranks).decode()}
    return data


async def write_map(api: KubeApi, top: Owner, job: str, data: dict[str, str]) -> None:
    """Makes the ConfigMap, or changes what `data` names in the one that is there."""
    name = map_name(job)
    folder = f"/api/v1/namespaces/{top.namespace}/configmaps"
    meta = {"name": name, "namespace": top.namespace, "labels": {"app.kubernetes.io/managed-by": "outrider"},
            "ownerReferences": [top.reference()]}  # fmt: skip
    try:
        await api.create(folder, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
    except Conflict:
        await api.patch(f"{folder}/{name}", {"metadata": {"ownerReferences": [top.reference()]}, "data": data})
