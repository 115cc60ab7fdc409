"""Writes plain structures as YAML for Prometheus and Alertmanager: no anchors, no folding, texts in quotes as JSON has them."""

import json
from typing import Any


def dump(value: Any, header: str) -> str:
    """`value` (dicts, lists, texts, numbers) as YAML under a comment."""
    return "".join(f"# {line}\n" for line in header.splitlines()) + "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> list[str]:
    lines: list[str] = []
    if isinstance(value, dict):
        for key, item in value.items():
            lines += _under(f"{key}:", item)
    else:
        for item in value:
            if isinstance(item, dict) and item:
                inner = _lines(item)
                lines += [f"- {inner[0]}", *(f"  {line}" for line in inner[1:])]
            else:
                lines.append(f"- {_scalar(item)}")
    return lines


def _under(head: str, item: Any) -> list[str]:
    if isinstance(item, dict | list) and item:
        return [head, *(f"  {line}" for line in _lines(item))]
    return [f"{head} {_scalar(item)}"]


def _scalar(item: Any) -> str:
    return json.dumps(item, ensure_ascii=False)
