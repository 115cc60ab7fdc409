"""Adds up the outcomes of all episodes for one detector, and turns them into the contract's keys."""

import math
from dataclasses import dataclass, field
from typing import Any

from drills.simulate.check import Outcome
from drills.simulate.ettr import Account, Stop
from drills.simulate.options import Options

#: Failures that are listed with their episode, so that each can be played again; the counts hold all of them.
LISTED_MAX = 50
#: A stop that no detector and no watchdog of the training would ever see is found by a person in half an hour.
PERSON_SECONDS = 1_800.0


@dataclass(slots=True)
class ClassTotals:
    """One fault class: true ones (`n`, `seconds`, `placed`) and verdicts that named it (`said`, `right`, `right_placed`)."""

    n: int = 0
    seconds: list[float] = field(default_factory=list)
    placed: int = 0
    said: int = 0
    right: int = 0
    right_placed: int = 0

    def figures(self) -> dict[str, Any]:
        """Keys of the contract; None where nothing was there to count."""
        ordered = sorted(self.seconds)
        return {
            "n": self.n,
            "p50_s": quantile(ordered, 0.5),
            "p95_s": quantile(ordered, 0.95),
            "p99_s": quantile(ordered, 0.99),
            "max_s": ordered[-1] if ordered else None,
            "precision": self.right / self.said if self.said else None,
            "recall": len(ordered) / self.n if self.n else None,
            "local_precision": self.right_placed / self.said if self.said else None,
            "local_recall": self.placed / self.n if self.n else None,
        }


class Totals:
    """Everything counted for one detector."""

    def __init__(self, options: Options, young: float) -> None:
        self.options = options
        self.account = Account(options, young)
        self.classes: dict[str, ClassTotals] = {}
        self.false_restarts = self.false_pages = self.extra_incidents = 0
        self.failures: list[dict[str, Any]] = []

    def add(self, number: int, start: float, outcome: Outcome, fallback: list[float | None], *, emergency: bool) -> None:
        """Adds one episode. `start`: fleet time at the episode's zero; `fallback`: when the training's own time-out acts."""
        for found, late in zip(outcome.found, fallback, strict=True):
            truth = found.truth
            entry = self.classes.setdefault(truth.fault, ClassTotals())
            entry.n += 1
            entry.placed += found.placed
            if found.seconds is not None:
                entry.seconds.append(found.seconds)
            else:
                self._list(number, "missed", f"{truth.fault} {truth.place}")
            if truth.stops:
                saved = emergency and found.acted is not None and not truth.poisoned
                acted = found.acted if found.acted is not None else late if late is not None else PERSON_SECONDS
                self.account.stops.append(Stop(start + truth.t, acted, saved and (self.options.replicated or not truth.shard_lost)))
        for fault, right, placed in outcome.named:
            entry = self.classes.setdefault(fault, ClassTotals())
            entry.said += 1
            entry.right += right
            entry.right_placed += right and placed
            if not right:
                self._list(number, "wrong verdict", fault)
        self._false(number, start, outcome, emergency)

    def _false(self, number: int, start: float, outcome: Outcome, emergency: bool) -> None:
        self.false_restarts += len(outcome.false_restarts)
        self.false_pages += len(outcome.false_pages)
        self.extra_incidents += outcome.extra_incidents
        for text in outcome.false_restarts:
            self._list(number, "false restart", text)
        for text in outcome.false_pages:
            self._list(number, "false page", text)
        if outcome.false_restarts:
            self.account.stops.append(Stop(start + 1_000.0, 0.0, emergency))

    def _list(self, number: int, what: str, text: str) -> None:
        if len(self.failures) < LISTED_MAX:
            self.failures.append({"episode": number, "what": what, "text": text})

    def figures(self) -> dict[str, Any]:
        """Keys of the contract and a few more."""
        days = self.options.node_days / 1_000
        ettr, lost, interval = self.account.total()
        return {
            "classes": {fault: self.classes[fault].figures() for fault in sorted(self.classes)},
            "false_restarts": self.false_restarts,
            "false_restarts_per_1000_node_days": self.false_restarts / days,
            "false_restarts_per_1000_node_days_upper_95": poisson_upper(self.false_restarts) / days,
            "false_pages": self.false_pages,
            "false_pages_per_1000_node_days": self.false_pages / days,
            "false_pages_per_1000_node_days_upper_95": poisson_upper(self.false_pages) / days,
            "extra_incidents": self.extra_incidents,
            "lost_steps": lost,
            "ettr": ettr,
            "interval_s": interval,
        }


def quantile(ordered: list[float], part: float) -> float | None:
    """The smallest value that at least `part` of the values do not exceed; None of nothing."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else None


def poisson_upper(count: int, confidence: float = 0.95) -> float:
    """One-sided upper bound of a Poisson mean of which `count` were seen: 3.0 for none at 95 %."""
    low, high = float(count), count + 10 * math.sqrt(count + 1) + 10
    for _ in range(60):
        middle = (low + high) / 2
        below = math.fsum(math.exp(k * math.log(middle) - middle - math.lgamma(k + 1)) for k in range(count + 1)) if middle else 1.0
        low, high = (middle, high) if below > 1 - confidence else (low, middle)
    return high
