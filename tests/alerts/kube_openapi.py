"""Says whether a body fits the published Kubernetes OpenAPI, as the models generated from it (package kubernetes-asyncio) tell it.

The models carry each field's JSON name and type; what is required their setters know. What they do not carry (lists of allowed
values, patterns, merge keys) stands here by hand, as far as the adapter uses it. The package is imported late: without it the tests
that need it are skipped.

Node, Job, ConfigMap, Eviction, DeleteOptions, and the metadata and owner reference of every kind are checked against the models; a
patch twice: as it comes, and what it makes of the object. Custom kinds are not in there: see `kube_crds`.
"""

import copy
import re
from functools import cache
from typing import Any, Literal

import pytest

#: What a body may leave out. A merge patch (RFC 7386) replaces a list whole, so the list's items must be complete;
#: a strategic merge patch merges items too.
Patch = Literal["", "merge", "strategic"]
PLAIN = {"str": str, "int": int, "float": (int, float), "bool": bool}
#: RFC 3339, the one form that the API's Time takes.
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
#: Of a taint; the Taint of the Kubernetes API reference.
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@cache
def models() -> Any:
    return pytest.importorskip("kubernetes_asyncio.client", reason="kubernetes-asyncio (group dev) carries the published OpenAPI")


@cache
def _required(model: str) -> frozenset[str]:
    """JSON names of the required fields: those that the model will not have set to None."""
    client = models()
    rules = client.Configuration()
    rules.client_side_validation = False
    kind = getattr(client, model)
    empty = kind(local_vars_configuration=rules)
    rules.client_side_validation = True
    found = set()
    for attribute, name in kind.attribute_map.items():
        try:
            setattr(empty, attribute, None)
        except ValueError:
            found.add(name)
    return frozenset(found)


def misfit(kind: str, value: Any, patch: Patch = "", path: str = "") -> str | None:
    """What keeps `value` from being a `kind` (a model such as V1Node, or a type as the models write it); None: nothing."""
    if value is None:  # in a patch it takes the field away, in an object it counts as absent
        return None
    if container := re.fullmatch(r"(list|dict)[\[(](?:str, )?(.+)[\])]", kind):
        return _misfit_inside(container[1], container[2], value, patch, path)
    if kind == "object":
        return None
    if kind == "datetime":
        return None if isinstance(value, str) and TIME.fullmatch(value) else f"{path}: must be a time as in RFC 3339"
    if kind in PLAIN:
        good = isinstance(value, PLAIN[kind]) and (kind == "bool" or not isinstance(value, bool))
        return None if good else f"{path}: must be {kind}"
    return _misfit_of_model(kind, value, patch, path)


def _misfit_inside(container: str, inner: str, value: Any, patch: Patch, path: str) -> str | None:
    if container == "list":
        if not isinstance(value, list):
            return f"{path}: must be a list"
        patch = "strategic" if patch == "strategic" else ""
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
        if null := next((where for where, item in items if item is None), None):
            return f"{null}: must not be null"
    else:
        if not isinstance(value, dict):
            return f"{path}: must be an object"
        items = [(f"{path}.{name}", item) for name, item in value.items()]
    return next((said for where, item in items if (said := misfit(inner, item, patch, where))), None)


def _misfit_of_model(model: str, value: Any, patch: Patch, path: str) -> str | None:
    if not isinstance(value, dict):
        return f"{path or model}: must be an object"
    kind = getattr(models(), model)
    types = {name: kind.openapi_types[attribute] for attribute, name in kind.attribute_map.items()}
    for name, item in value.items():
        if name not in types:
            return f"unknown field {path}.{name}"
        if said := misfit(types[name], item, patch, f"{path}.{name}"):
            return said
    missing = sorted(name for name in _required(model) if value.get(name) is None) if not patch else []
    return f"{path}.{missing[0]}: Required value" if missing else None


def misfit_of_patch(model: str, body: Any, found: dict[str, Any], patch: Patch) -> str | None:
    """What is wrong with a patch, or with what it makes of the object."""
    if said := misfit(model, body, patch):
        return said
    after = copy.deepcopy(found)
    merge(after, copy.deepcopy(body), {"conditions": "type"} if patch == "strategic" else {})
    taints = (after.get("spec") or {}).get("taints") or ()
    bad = [taint["effect"] for taint in taints if taint.get("effect") not in (None, *EFFECTS)]
    return f".spec.taints[].effect: Unsupported value {bad}" if bad else misfit(model, after)


def misfit_of_eviction(pod: str, body: Any) -> str | None:
    """The server serves more than one version of Eviction at this path, so it must be told which; the name must be the path's."""
    if said := misfit("V1Eviction", body):
        return said
    if (body.get("apiVersion"), body.get("kind")) != ("policy/v1", "Eviction"):
        return ".apiVersion, .kind: must be policy/v1 Eviction"
    return None if (body.get("metadata") or {}).get("name") == pod else f".metadata.name: must be {pod}"


def merge(found: dict[str, Any], patch: dict[str, Any], by: dict[str, str] | None = None) -> None:
    """RFC 7386; `by`: lists that a strategic merge patch merges by a key of their items."""
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            merge(found.setdefault(key, {}), value, by)
        elif name := (by or {}).get(key):
            items = {item[name]: item for item in found.get(key) or ()}
            for item in value:
                merge(items.setdefault(item.get(name), {}), item, by)
            found[key] = list(items.values())
        else:
            found[key] = value
