"""What ranks and trainers print: NCCL's and PyTorch's last words, exits, and steps of trainers without the SDK.

Follows the files that the configuration names (globs; `{job}` and `{rank}` stand for parts of the path). JSON lines with a step are
read as steps. Witnesses: `job.*`, `nic.*` by completions and peers. Cost: a look at each file's size every second. Rights: to
read the files. Source of the meaning: `outrider/parsers/train_log*.py`, `outrider/parsers/nccl.py`.
"""

import json
import math
import re
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from collectors.frame.flood import FloodGate
from collectors.frame.types import Collector, News, Note, NotSupported, Outcome, Place, Readings, Sample
from collectors.tails import Tails
from outrider.config.collectors import CollectorsSection, LogEntry
from outrider.parsers.train_log import Scanner, to_signal
from outrider.signals import Signal

#: Pace of looking.
LOOK_SECONDS = 1.0
#: How trainers name things in JSON lines, the most usual first.
_STEP_KEYS = ("step", "global_step", "iteration", "iter", "update", "train/step", "_step")
_FIGURES = {
    "loss": ("loss", "train_loss", "train/loss", "lm_loss", "lm loss"),
    "grad_norm": ("grad_norm", "gnorm", "train/grad_norm", "grad norm"),
    "lr": ("lr", "learning_rate", "train/learning_rate"),
    "step_s": ("step_time", "step_s", "iteration_time", "elapsed_per_step"),
    "tokens": ("tokens", "num_tokens", "consumed_tokens"),
}


class PathNames:
    """Job and rank out of a file's path, by the pattern that found it."""

    def __init__(self, entry: LogEntry) -> None:
        self.glob = entry.glob.replace("{job}", "*").replace("{rank}", "*")
        self._job = entry.job
        pattern = re.escape(entry.glob).replace(r"\*\*", ".*").replace(r"\*", "[^/]*").replace(r"\?", ".")
        pattern = pattern.replace(r"\{job\}", "(?P<job>[^/]+?)", 1).replace(r"\{rank\}", r"\D*(?P<rank>\d+)", 1)
        self._pattern = re.compile(pattern)

    def names(self, path: str) -> tuple[str | None, int | None] | None:
        """(job, rank) of a path, None where it does not say; None for a path of another pattern."""
        match = self._pattern.fullmatch(path)
        if match is None:
            return None
        found = match.groupdict()
        return self._job or found.get("job") or None, int(found["rank"]) if found.get("rank") else None


def parse_json_step(line: str) -> tuple[int, dict[str, Any]] | None:
    """(step, figures) of a JSON line of a trainer, or None."""
    if not line.startswith("{") or len(line) > 65536:
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    step = next((value for key in _STEP_KEYS if _is_number(value := record.get(key))), None)
    figures = {
        name: float(value)
        for name, keys in _FIGURES.items()
        if (value := next((record[key] for key in keys if _is_number(record.get(key), finite=False)), None)) is not None
    }
    return (int(step), figures) if step is not None and step >= 0 and figures else None


class Logs(Collector):
    """See the module."""

    name: ClassVar[str] = "logs"
    group: ClassVar[str] = "files"
    interval_seconds: ClassVar[float] = LOOK_SECONDS

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        self._entries = [PathNames(entry) for entry in (*place.section.rank_logs, *place.section.train_logs)]
        self._tails = Tails([entry.glob for entry in self._entries], Path(place.state_dir) / "logs.json")
        self._scanner = Scanner()
        self._gate = FloodGate(burst=20, seconds_each=5.0)
        self._ranks: dict[tuple[str, int], int] = {}
        self._lines = 0

    @classmethod
    def wanted(cls, section: CollectorsSection) -> NotSupported | None:
        return (
            None if section.rank_logs or section.train_logs else NotSupported("[collectors] rank_logs and train_logs name no files")
        )

    def supported(self) -> NotSupported | None:
        return self.wanted(self.place.section)

    def told(self, news: News) -> None:
        self._ranks = {(rank.job, rank.rank): rank.attempt for rank in news.ranks}

    def handed_over(self) -> None:
        self._tails.save()

    def read(self, now: float) -> Outcome:
        signals: list[Signal] = []
        self.note("log files")
        for block in self._tails.blocks():
            self._lines += block.body.count(b"\n")
            named = (found for entry in self._entries if (found := entry.names(block.path)) is not None)
            job, rank = next(named, (None, None))
            signals += self._parse(block.body, job, rank, now)
        signals += self._gate.due(now)
        samples = [
            Sample("outrider_rank_log_lines_total", float(self._lines)),
            Sample("outrider_rank_log_files", float(self._tails.files)),
            Sample("outrider_rank_log_suppressed_total", float(self._gate.suppressed)),
        ]
        return Readings(signals=signals, samples=samples)

    def _parse(self, body: bytes, job: str | None, rank: int | None, now: float) -> list[Signal]:
        """Signals of a block of lines; of its steps only the last, for a block is read at once."""
        signals, step = [], None
        if body.startswith(b"{"):
            for line in body.split(b"\n"):
                if (found := parse_json_step(line.decode("utf-8", "replace"))) is not None:
                    step = self.signal(now, "step", found[0], job=job, rank=rank, data=found[1])
        for _, record in self._scanner.feed(body):
            signal = to_signal(record, now, node=self.place.node, job=job)
            if signal is None:
                continue
            signal = msgspec.structs.replace(signal, rank=signal.rank if signal.rank is not None else rank, source=self.name)
            if signal.kind == "step":
                step = signal
                continue
            if self._gate.admit((signal.kind, record.what, signal.job, signal.rank), signal, now):
                signals.append(self._with_attempt(signal))
        if step is not None and (step.job, step.rank) not in self._ranks and not self._has_sdk(step.job):
            signals.append(step)
        return signals

    def _has_sdk(self, job: str | None) -> bool:
        """Whether the job speaks for itself: then its printed steps are old news."""
        return any(known == job for known, _ in self._ranks)

    def _with_attempt(self, signal: Signal) -> Signal:
        attempt = self._ranks.get((signal.job or "", signal.rank if signal.rank is not None else -1))
        return signal if attempt is None else msgspec.structs.replace(signal, data={"attempt": attempt, **signal.data})


def _is_number(value: object, *, finite: bool = True) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and (not finite or math.isfinite(value))
