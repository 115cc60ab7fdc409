"""Reads what the ranks wrote of their steps: one JSON-lines file a rank and attempt (see `drills.job`)."""

import itertools
import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(kw_only=True)
class Attempt:
    """One attempt of one rank: steps by number, what it restored, its final digest."""

    steps: dict[int, dict[str, Any]] = field(default_factory=dict)
    restored_step: int | None = None
    restored_t: float | None = None
    digest: str | None = None


@dataclass(kw_only=True)
class Run:
    """All attempts of all ranks: `ranks[rank][attempt]`, attempts from 1."""

    ranks: list[dict[int, Attempt]]

    @property
    def attempts(self) -> int:
        return max((max(one) for one in self.ranks if one), default=0)

    def last(self) -> list[Attempt]:
        """The newest attempt of each rank."""
        return [one.get(self.attempts, Attempt()) for one in self.ranks]

    @property
    def digests(self) -> list[str]:
        """Each rank's digest of its parameters at the end; empty if one has none."""
        found = [one.digest for one in self.last()]
        return [digest for digest in found if digest is not None] if all(found) else []

    @property
    def restored_step(self) -> int | None:
        return self.last()[0].restored_step

    @property
    def restored_t(self) -> float | None:
        """When the last rank had loaded and verified what it resumes from."""
        times = [one.restored_t for one in self.last()]
        return max(time for time in times if time is not None) if all(times) and times else None

    @property
    def first_step_t(self) -> float | None:
        """When the last rank had finished its first step of the newest attempt."""
        firsts = [min(one.steps) for one in self.last() if one.steps]
        if len(firsts) < len(self.ranks):
            return None
        return max(float(one.steps[first]["end"]) for one, first in zip(self.last(), firsts, strict=True))

    @property
    def repeated_steps(self) -> int:
        """Steps that some rank had finished in an older attempt and that were run again in the newest."""
        again = {step for one in self.last() for step in one.steps}
        before = {step for one in self.ranks for attempt, held in one.items() if attempt < self.attempts for step in held.steps}
        return len(again & before)

    def steps_after_restart(self) -> list[int]:
        """Steps that every rank finished in the newest attempt (all steps where there was one attempt only)."""
        common = set.intersection(*(set(one.steps) for one in self.last())) if self.ranks else set()
        return sorted(common)

    def _newest(self, rank: int, step: int) -> dict[str, Any]:
        for attempt in sorted(self.ranks[rank], reverse=True):
            if step in self.ranks[rank][attempt].steps:
                return self.ranks[rank][attempt].steps[step]
        return {}

    def step_facts(self, step: int) -> list[tuple[Any, Any]]:
        """Loss (exact, hexadecimal) and samples of a step on each rank."""
        return [(held.get("loss"), held.get("samples")) for held in (self._newest(rank, step) for rank in range(len(self.ranks)))]

    def mean_losses(self) -> dict[int, float]:
        """Mean loss over ranks by step, the newest attempt's where a step was run twice."""
        steps = sorted({step for one in self.ranks for held in one.values() for step in held.steps})
        curves = {}
        for step in steps:
            losses = [float.fromhex(held["loss"]) for held in (self._newest(rank, step) for rank in range(len(self.ranks))) if held]
            curves[step] = statistics.fmean(losses)
        return curves

    def median_step_s(self) -> float:
        """Median time between the ends of neighbouring steps of rank 0, seconds."""
        ends = [float(held["end"]) for _, held in sorted(self.last()[0].steps.items())]
        return statistics.median(later - earlier for earlier, later in itertools.pairwise(ends))

    def differences(self, other: "Run") -> list[str]:
        """Where two runs differ, a sentence a step."""
        return [
            f"step {step}: {self.step_facts(step)} and not {other.step_facts(step)}"
            for step in self.steps_after_restart()
            if self.step_facts(step) != other.step_facts(step)
        ]


def read_run(folder: Path, world: int) -> Run:
    """Everything that stands in a folder of records; half a last line (its writer was killed) is passed over."""
    ranks: list[dict[int, Attempt]] = [{} for _ in range(world)]
    for path in sorted(folder.glob("rank-*.attempt-*.jsonl")):
        rank, attempt = (int(part.split("-")[1]) for part in path.stem.split(".")[:2])
        held = ranks[rank].setdefault(attempt, Attempt())
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            _take(held, entry)
    return Run(ranks=ranks)


def _take(held: Attempt, entry: dict[str, Any]) -> None:
    match entry:
        case {"loss": _, "step": int() as step}:
            held.steps[step] = entry
        case {"event": "restored", "step": step, "t": t}:
            held.restored_step, held.restored_t = step, t
        case {"event": "end", "digest": str() as digest}:
            held.digest = digest


def newest_step(folder: Path, world: int) -> int:
    """The newest step that every rank has finished; -1 if there is none. Reads only the ends of the files."""
    newest: dict[int, int] = {}
    for path in folder.glob("rank-*.attempt-*.jsonl"):
        rank = int(path.stem.split(".")[0].split("-")[1])
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 4096))
            lines = file.read().split(b"\n")
        for line in reversed(lines):
            try:
                entry = json.loads(line)
                newest[rank] = max(newest.get(rank, -1), int(entry["step"]))
                break
            except (ValueError, KeyError, TypeError):
                continue
    return min(newest.values()) if len(newest) == world else -1
