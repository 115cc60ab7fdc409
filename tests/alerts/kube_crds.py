"""Says whether an object or patch of a custom kind fits its published CRD (`crds/*.json`, reduced by `crds/reduce.py`).

As the API server judges with strict field validation: types, required fields, allowed values, lengths, patterns; a field that the
schema does not have is named. Metadata and pod templates are checked against the models of Kubernetes itself (`kube_openapi`). CEL
rules of the CRDs are not evaluated; the one that concerns us stands in `kube_fake` (what is immutable while quota is reserved).
"""

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from kube_openapi import TIME, merge, misfit

FOLDER = Path(__file__).parent / "crds"
TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
BOUNDS = {
    "minLength": lambda value, bound: len(value) >= bound, "maxLength": lambda value, bound: len(value) <= bound,
    "minItems": lambda value, bound: len(value) >= bound, "maxItems": lambda value, bound: len(value) <= bound,
    "minimum": lambda value, bound: value >= bound, "maximum": lambda value, bound: value <= bound,
    "pattern": lambda value, bound: re.search(bound, value) is not None, "enum": lambda value, bound: value in bound,
}  # fmt: skip


@cache
def crd(name: str) -> dict[str, Any]:
    """One file: `Workload`, `JobSet`, `TrainJob`, `PyTorchJob`, `VolcanoJob`, `Command`."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def api_version(name: str) -> str:
    """The group and version that the server stores."""
    found = crd(name)
    stored = next(version for version, one in found["versions"].items() if one["storage"])
    return f"{found['group']}/{stored}"


def schema(name: str, version: str) -> dict[str, Any]:
    """The schema that one served version has."""
    found: dict[str, Any] = crd(name)["versions"][version.rpartition("/")[2]]["schema"]
    return found


def misfit_of_custom(name: str, value: Any, version: str | None = None) -> str | None:
    """What keeps `value` from being a whole object of that kind; None: nothing."""
    version = version or api_version(name)
    said = _misfit(schema(name, version), value, "", whole=True)
    if said is None and (value.get("apiVersion"), value.get("kind")) != (version, crd(name)["kind"]):
        said = f".apiVersion, .kind: must be {version} {crd(name)['kind']}"
    return said or misfit("V1ObjectMeta", value["metadata"], "", ".metadata")


def misfit_of_custom_patch(name: str, patch: Any, found: dict[str, Any]) -> str | None:
    """What is wrong with a merge patch, or with what it makes of the object; a patch of the object leaves its status alone."""
    if said := _misfit(schema(name, found["apiVersion"]), patch, "", whole=False):
        return said
    if "status" in patch:
        return "unknown field .status: it is changed by its own path"
    if said := misfit("V1ObjectMeta", patch.get("metadata"), "merge", ".metadata"):
        return said
    after = copy.deepcopy(found)
    merge(after, copy.deepcopy(patch), {})
    return misfit_of_custom(name, after, found["apiVersion"])


def _misfit(shape: dict[str, Any], value: Any, path: str, *, whole: bool) -> str | None:
    """`whole`: null and missing fields count; in a merge patch they do not."""
    if value is None:
        return None if not whole or shape.get("nullable") else f"{path}: must not be null"
    if shape.get("x-kubernetes-int-or-string"):
        return None if isinstance(value, int | str) and not isinstance(value, bool) else f"{path}: must be int or string"
    kind = shape.get("type")
    if kind is not None and (not isinstance(value, TYPES[kind]) or (isinstance(value, bool) and kind != "boolean")):
        return f"{path}: must be {kind}"
    if shape.get("format") == "date-time" and not TIME.fullmatch(value):
        return f"{path}: must be a time as in RFC 3339"
    for bound, holds in BOUNDS.items():
        if bound in shape and not holds(value, shape[bound]):
            return f"{path}: {bound} is {shape[bound]}"
    if kind == "array":
        items = ((f"{path}[{index}]", shape.get("items", {}), item) for index, item in enumerate(value))
        return next((said for where, inner, item in items if (said := _misfit(inner, item, where, whole=True))), None)
    return _misfit_of_fields(shape, value, path, whole=whole) if kind == "object" else None


def _misfit_of_fields(shape: dict[str, Any], value: dict[str, Any], path: str, *, whole: bool) -> str | None:
    known, others = shape.get("properties", {}), shape.get("additionalProperties")
    open_ = shape.get("x-kubernetes-preserve-unknown-fields") or (path == ".metadata" and not known)
    for name, item in value.items():
        if name in known or isinstance(others, dict):
            if said := _misfit(known.get(name, others), item, f"{path}.{name}", whole=whole):
                return said
        elif not open_ and not others:
            return f"unknown field {path}.{name}"
    missing = sorted(set(shape.get("required", ())) - value.keys()) if whole else []
    return f"{path}.{missing[0]}: Required value" if missing else None
