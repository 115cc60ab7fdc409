"""The pause scenarios through three witnesses in virtual time: what is confirmed, and what is done to anybody.

    python bench/pause_scenarios.py SCENARIO.json [..]

Nobody dies in them, so every verdict is false. Each is run three times: agents paused (their kernels answer probes) beside a job
that steps on; whole nodes paused with their ranks, kernels answering; whole hosts frozen, nothing answering.
"""

import json
import sys
from collections import Counter
from typing import Any

from detectors.core.types import Action
from detectors.replay.runner import Replay
from detectors.replay.trace import read_header, read_signals
from outrider.config.policy import Policy

WAYS: dict[str, dict[str, Any]] = {
    "agents paused, job steps": {"heartbeats": True, "steps": False, "kernel": True},
    "agents and ranks paused, kernels answer": {"kernel": True},
    "hosts frozen": {"kernel": False},
}


def run(scenario: dict[str, Any], way: dict[str, Any], longest: float) -> tuple[Counter[str], Counter[str], float]:
    """Confirmed faults, actions, and the longest pause among the blocks that were used (<= `longest` seconds)."""
    count = scenario["members"] if isinstance(scenario["members"], int) else len(scenario["members"])
    names = [f"n{number}" for number in range(1, count + 1)]
    events = [event for block in scenario["blocks"] for event in block.get("events", block.get("pauses", ()))]
    events = [event for event in events if event["pause_s"] <= longest]
    end = max(event["t"] + event["pause_s"] for event in events) + 30
    header = {
        "kind": "fleet", "nodes": [{"node": name, "rack": name, "gpus": 1} for name in names], "until": end,
        "jobs": [{"job": "j", "slots": [[name, 0] for name in names]}], "auto": {"heartbeat_s": 1.0, "step_s": {"j": 1.0}},
    }  # fmt: skip
    fleet = read_header(json.dumps(header).encode(), "scenario")
    lines = [
        json.dumps(
            {"t": event["t"], "kind": "pause", "node": f"n{event['member']}", "value": event["pause_s"], "data": way}
        ).encode()
        for event in sorted(events, key=lambda event: event["t"])
    ]
    confirmed: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for decision in Replay(fleet, Policy(mode="act")).run(read_signals(lines, fleet, "scenario")):
        if isinstance(decision, Action):
            done[decision.action] += 1
        elif decision.event == "confirmed":
            confirmed[f"{decision.fault} ({decision.response})"] += 1
    return confirmed, done, max(event["pause_s"] for event in events)


def main(paths: list[str]) -> None:
    for path in paths:
        with open(path, encoding="utf-8") as stream:
            scenario = json.load(stream)
        for name, way in WAYS.items():
            for longest in (20.0, 30.0, 60.0):
                confirmed, done, used = run(scenario, way, longest)
                print(f"{path.rpartition('/')[2]}: {name}, pauses up to {used:g} s: confirmed {dict(confirmed) or 'nothing'}, "
                      f"actions {dict(done) or 'none'}")  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(print("needs scenario files: python bench/pause_scenarios.py SCENARIO.json .."))
    main(sys.argv[1:])
