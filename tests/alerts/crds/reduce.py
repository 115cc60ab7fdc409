"""Makes the fragments beside it from published CRDs: `python reduce.py SOURCE VERSION < crd.yaml > GROUP_KIND.json`.

Descriptions go; pod templates and pod specs become "any object", for the models of Kubernetes itself know them; all else that the
schema says of types, required fields, values and lengths stays. CEL rules (`x-kubernetes-validations`) go too: nothing here can
evaluate them.
"""

import json
import sys
from typing import Any

import yaml

#: What the tests look at; the rest of a schema (defaults, merge keys, CEL) plays no part in "does this body fit?".
KEPT = frozenset({
    "type", "properties", "required", "items", "additionalProperties", "enum", "pattern", "format", "nullable", "minLength",
    "maxLength", "minimum", "maximum", "minItems", "maxItems", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
})  # fmt: skip
#: A pod's spec, wherever it stands, is known by these fields.
POD_SPEC = frozenset({"containers", "nodeSelector", "tolerations"})
#: Fields that the adapter never touches, and whose schemas are long.
LONG = frozenset({"podFailurePolicy", "volumeClaimTemplates", "podTemplateOverrides", "successPolicy", "elasticPolicy"})


def reduced(schema: Any) -> Any:
    """The schema without what `KEPT` does not name."""
    if not isinstance(schema, dict):
        return schema
    if schema.get("properties", {}).keys() >= POD_SPEC:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    kept = {key: value for key, value in schema.items() if key in KEPT}
    if "properties" in kept:
        kept["properties"] = {
            name: {"type": inner.get("type"), "x-kubernetes-preserve-unknown-fields": True} if name in LONG else reduced(inner)
            for name, inner in kept["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = reduced(kept[key])
    return kept


def main() -> None:
    source, version = sys.argv[1:]
    crd = yaml.safe_load(sys.stdin)
    spec = crd["spec"]
    served = {one["name"]: one for one in spec["versions"] if one["served"]}
    print(json.dumps({
        "source": source, "version": version, "licence": "Apache-2.0", "group": spec["group"], "kind": spec["names"]["kind"],
        "plural": spec["names"]["plural"], "scope": spec["scope"],
        "versions": {
            name: {"storage": one["storage"], "status": "status" in (one.get("subresources") or {}),
                   "schema": reduced(one["schema"]["openAPIV3Schema"])}
            for name, one in served.items()
        },
    }, indent=1, sort_keys=True))  # fmt: skip


if __name__ == "__main__":
    main()
