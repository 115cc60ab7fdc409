"""What Kubernetes knows of its nodes: `kubectl get nodes -o json`, by the labels of NVIDIA Topograph and of the cloud providers.

    network.topology.nvidia.com/leaf, .../block, fabric.topograph.run/tier-0   -> switch
    .../spine, .../core, .../datacenter, fabric.topograph.run/tier-1 ..         -> cables upwards from it
    .../accelerator, accelerator.topograph.run/domain, nvidia.com/gpu.clique    -> rack: what shares an NVLink domain
    topology.kubernetes.io/rack                                                 -> rack
    topology.kubernetes.io/zone                                                 -> power, where there are several

Source: NVIDIA Topograph, "node labels and annotations" (both generations of names); Kubernetes, "well-known labels".
"""

import re
from itertools import pairwise
from typing import Any

from outrider.errors import InputError
from outrider.topology.draft import Draft
from outrider.topology.sources.json_text import read_json

_NVIDIA = "network.topology.nvidia.com/"
_RACK = (
    "topology.kubernetes.io/rack", _NVIDIA + "accelerator", "accelerator.topograph.run/domain", "nvidia.com/gpu.clique",
)  # fmt: skip
_ZONE = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
#: Tiers of switches from the lowest up, by the names of the first and of the second generation.
_TIERS = (("leaf", "block"), ("spine",), ("core", "datacenter"))
_TIER = re.compile(r"fabric\.topograph\.run/tier-(\d{1,3})")
_NUMBER = re.compile(r"[0-9]{1,4}")
_CARDS = ("nvidia.com/gpu", "amd.com/gpu")


def read(text: str, file: str) -> Draft:
    """Reads a list of nodes."""
    told = read_json(text, file)
    items = told.get("items", [told]) if isinstance(told, dict) else told
    if not isinstance(items, list):
        raise InputError("must be a list of nodes", file=file, key="items")
    draft = Draft()
    for index, item in enumerate(items):
        _node(item, f"items[{index}]", file, draft)
    if len({facts.get("power") for facts in draft.nodes.values()}) == 1:
        for facts in draft.nodes.values():  # what all nodes share tells none from another
            facts.pop("power", None)
    return draft


def _node(item: Any, place: str, file: str, draft: Draft) -> None:
    def table(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise InputError("must be an object", file=file, key=f"{place}.{key}".rstrip("."))
        return value

    item = table(item, "")
    if item.get("kind", "Node") != "Node":
        return
    meta = table(item.get("metadata"), "metadata")
    name = meta.get("name")
    if not isinstance(name, str) or not name:
        raise InputError("is missing", file=file, key=f"{place}.metadata.name")
    labels = {key: str(value) for key, value in table(meta.get("labels") or {}, "metadata.labels").items()}
    status = table(item.get("status") or {}, "status")
    tiers = _tiers(labels)
    addresses = status.get("addresses") or []
    if not isinstance(addresses, list):
        raise InputError("must be a list", file=file, key=f"{place}.status.addresses")
    told = [one.get("address") for one in addresses if isinstance(one, dict) and one.get("type") == "InternalIP"]
    draft.node(
        name,
        rack=_first(labels, _RACK), power=_first(labels, _ZONE), switch=tiers[0] if tiers else None,
        address=next((one for one in told if isinstance(one, str)), None),
        gpus=_cards(table(status.get("capacity") or {}, "status.capacity"), place, file),
    )  # fmt: skip
    draft.links |= {(lower, upper) for lower, upper in pairwise(tiers) if lower != upper}


def _tiers(labels: dict[str, str]) -> list[str]:
    """Names of the switches above a node, the nearest first."""
    numbered = {int(match[1]): value for key, value in labels.items() if (match := _TIER.fullmatch(key)) and value}
    if numbered:
        return [numbered[tier] for tier in sorted(numbered)]
    found = [_first(labels, tuple(_NVIDIA + word for word in words)) for words in _TIERS]
    return [name for name in found if name]


def _first(labels: dict[str, str], keys: tuple[str, ...]) -> str | None:
    return next((labels[key] for key in keys if labels.get(key)), None)


def _cards(capacity: dict[str, Any], place: str, file: str) -> int:
    for key in _CARDS:
        if key in capacity:
            if not _NUMBER.fullmatch(str(capacity[key])):
                raise InputError(
                    f"must be a number of cards, not {capacity[key]!r}", file=file, key=f"{place}.status.capacity.{key}"
                )
            return int(capacity[key])
    return 0
