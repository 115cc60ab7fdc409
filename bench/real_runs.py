"""Real training runs through one witness and the council: false alarms, and what is found when a fault is put in.

    python bench/real_runs.py RUNS.csv.gz

The file holds every step's time and loss of finished runs (columns run, gpus, step, step_seconds, loss). Nothing was
wrong with any of them, so every incident above `watch` on the runs as they are is a false one. Then one fault is put into
each run, at a third of it, and the time or the steps until it is confirmed are told.
"""

import csv
import gzip
import math
import statistics
import sys
from collections.abc import Iterator
from typing import Any

from detectors.core.council import Council
from detectors.core.engine import Engine
from detectors.core.types import IncidentChange, Vote
from outrider.config.policy import Policy
from outrider.fleet import Fleet, Job, Node
from outrider.signals import Signal

Row = tuple[int, float, float | None]


def read(path: str) -> dict[str, list[Row]]:
    """run -> (step, seconds, loss or None)."""
    runs: dict[str, list[Row]] = {}
    with gzip.open(path, "rt") as stream:
        for row in csv.DictReader(stream):
            if row["step_seconds"]:
                loss = float(row["loss"]) if row["loss"] else None
                runs.setdefault(row["run"], []).append((int(row["step"]), float(row["step_seconds"]), loss))
    return runs


def judge(rows: Iterator[Row] | list[Row], then_silent: float = 0.0) -> list[tuple[IncidentChange, int, float]]:
    """Confirmations with the step and the time at which they came. `then_silent`: seconds without steps at the end."""
    fleet = Fleet(
        nodes=tuple(Node(node=f"n{k}", gpus=8) for k in range(4)), jobs=(Job(job="j", slots=tuple((f"n{k}", 0) for k in range(4))),)
    )
    policy = Policy(mode="observe")
    engine, council = Engine(fleet, policy, "w1", ("w1",)), Council(fleet, policy, ("w1",))
    found: list[tuple[IncidentChange, int, float]] = []
    now, step = 0.0, -1

    def take(decisions: list[Any]) -> None:
        for decision in decisions:
            if isinstance(decision, Vote):
                take(council.observe(decision, now))
            elif isinstance(decision, IncidentChange) and decision.event == "confirmed":
                found.append((decision, step, now))

    def until(end: float) -> None:
        nonlocal now
        while True:
            due = min(d for d in (engine.next_deadline(), council.next_deadline(), math.inf) if d is not None)
            if due >= end:
                break
            now = max(now, due)
            take(engine.advance(now))
            take(council.advance(now))
        now = end

    for number, seconds, loss in rows:
        until(now + seconds)
        step = number
        data = {"step_s": seconds} | ({} if loss is None else {"loss": loss})
        take(engine.observe(Signal(t=now, kind="step", job="j", value=number, data=data), now))
    if then_silent:
        until(now + then_silent)
    return found


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(int(part * len(values)), len(values) - 1)] if values else math.nan


def told(found: list[tuple[IncidentChange, int, float]], fault: str, at: int) -> int | None:
    return next((step - at for change, step, _ in found if change.fault == fault and step >= at), None)


def main(path: str) -> None:
    runs = read(path)
    print(f"{len(runs)} runs, {sum(map(len, runs.values()))} steps")
    above = [(name, change.fault, change.explanation) for name, rows in runs.items() for change, _, _ in judge(rows)
             if change.response not in ("ignore", "watch")]  # fmt: skip
    print(f"as they are: {len(above)} incidents above watch")
    for line in above[:10]:
        print("  ", *line)
    waits: list[float] = []
    within: list[bool] = []
    found_steps: dict[str, list[float]] = {"job.straggler": [], "job.loss_nan": [], "job.loss_spike": [], "job.loss_stagnant": []}
    missed = dict.fromkeys(found_steps, 0)
    for rows in runs.values():
        at = max(len(rows) // 3, 30)
        step_at, usual = rows[at][0], statistics.median(seconds for _, seconds, _ in rows)
        ends = sum(seconds for _, seconds, _ in rows[:at])
        hang = [when for change, _, when in judge(rows[:at], then_silent=600) if change.fault == "job.hang"]
        waits.append(hang[0] - ends if hang else math.inf)
        within.append(waits[-1] <= max(4 * usual, 30.0))
        last = next(loss for _, _, loss in reversed(rows[:at]) if loss is not None)
        faults = {
            "job.straggler": [(n, s * 1.3, lo) for n, s, lo in rows[at:]],
            "job.loss_nan": [(rows[at][0], rows[at][1], math.nan), *rows[at + 1 :]],
            "job.loss_spike": [(n, s, None if lo is None else lo * 1.6 if k < 5 else lo) for k, (n, s, lo) in enumerate(rows[at:])],
            "job.loss_stagnant": [(n, s, None if lo is None else last) for n, s, lo in rows[at:]],
        }
        for fault, rest in faults.items():
            steps = told(judge(rows[:at] + rest), fault, step_at)
            if steps is None:
                missed[fault] += 1
            else:
                found_steps[fault].append(float(steps))
    print(f"hang: p50 {quantile(waits, 0.5):.1f} s, p99 {quantile(waits, 0.99):.1f} s")
    print(f"hang: within max(4 steps, 30 s): {sum(within)} of {len(within)}")
    for fault, values in found_steps.items():
        print(f"{fault}: found {len(values)}, missed {missed[fault]}; steps after the fault p50 {quantile(values, 0.5):.0f}, "
              f"p99 {quantile(values, 0.99):.0f}")  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(print("needs the file of real runs: python bench/real_runs.py RUNS.csv.gz"))
    main(sys.argv[1])
