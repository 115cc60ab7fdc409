"""Builds small traces in memory and runs them. A helper of the tests."""

import json
from typing import Any

from detectors.replay.runner import Lines, Replay
from detectors.replay.trace import read_header, read_signals
from outrider.config.policy import Policy


def header(
    nodes: int = 5, spares: int = 1, gpus: int = 2, until: float = 120.0, step_s: float | None = 4.0,
    heartbeat_s: float | None = 1.0, limits: dict[str, float] | None = None, rack: Any = lambda index: f"r{index // 4}",
    nics: int = 0, job: bool = True, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """A header: nodes n1.., the last ones spare, one job j1 over the rest."""
    names = [f"n{index}" for index in range(1, nodes + 1)]
    used = names[: nodes - spares]
    slots = [[name, gpu] for name in used for gpu in range(gpus)]
    auto: dict[str, Any] = {}
    if heartbeat_s is not None:
        auto["heartbeat_s"] = heartbeat_s
    if step_s is not None and job:
        auto["step_s"] = {"j1": step_s}
    return {
        "kind": "fleet",
        "nodes": [
            {"node": name, "rack": rack(index), "gpus": gpus, "nics": {f"mlx5_{k}": f"leaf-{k}" for k in range(nics)}}
            for index, name in enumerate(names)
        ],
        "jobs": [{"job": "j1", "slots": slots, "groups": {"dp": [list(range(len(slots)))]}, "limits": limits or {"train_s": 300}}]
        if job
        else [],
        "witnesses": ["w1", "w2", "w3"],
        "spares": names[nodes - spares :],
        "until": until,
        "auto": auto,
        **more,
    }


def run(head: dict[str, Any], *signals: dict[str, Any], policy: Policy | None = None) -> list[dict[str, Any]]:
    """The lines of the stream."""
    fleet = read_header(json.dumps(head).encode(), "trace")
    replay = Replay(fleet, policy or Policy(mode="act"))
    ordered = sorted(signals, key=lambda signal: signal["t"])
    lines, shown = Lines(), []
    for decision in replay.run(read_signals((json.dumps(one).encode() for one in ordered), fleet, "trace")):
        shown.append(lines.line(decision))
    return shown


def confirmed(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(fault, response) of every confirmation, in order."""
    return [(line["fault"], line["response"]) for line in lines if line["event"] == "confirmed"]


def final(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last line of each incident that was confirmed and not explained by another one."""
    newest: dict[str, dict[str, Any]] = {}
    for line in lines:
        if line["event"] in ("confirmed", "resolved", "refuted"):
            newest[line["incident"]] = line
    told = {line["incident"] for line in lines if line["event"] == "confirmed"}
    return [line for key, line in newest.items() if key in told and "a consequence of" not in line["explanation"]]


def actions(lines: list[dict[str, Any]]) -> list[str]:
    return [line["action"] for line in lines if line["event"] == "action"]
