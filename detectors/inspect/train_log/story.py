"""The story that a training log tells: records in order, split into episodes of trouble between which the job made progress.

Bounded: an episode keeps a limited number of records of each kind, the story a limited number of episodes; the rest is counted.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine
from detectors.inspect.sources import Source
from detectors.inspect.train_log.numbers import Numbers
from outrider.parsers.train_log_rule import Record

#: Records of one kind that an episode keeps: causes are early, and floods repeat.
KEEP_OF_A_KIND: Final = 2000
#: Episodes kept; a log with more is told by its first ones.
EPISODES_MAX: Final = 200
#: Step lines with growing step after the last sign of trouble that prove that the job goes on. One alone may be a line
#: that was printed late.
STEPS_TO_RECOVER: Final = 2

#: Kinds that are ordinary life: they open no episode of trouble.
LIFE: Final = frozenset(
    {
        "step",
        "saved",
        "resumed",
        "fresh_start",
        "attempt",
        "address",
        "phase_eval",
        "phase_compile",
        "phase_checkpoint",
        "done",
    }
)
#: Kinds that the analysis of numbers takes; they open no episode either.
NUMERIC: Final = frozenset(
    {"rerun", "rerun_unexpected", "rerun_same_gpu", "overflow", "scale_minimum", "nan_text", "replica_mismatch"}
)
#: Kinds after which a rank is gone: one late step line does not prove that the job lives.
FATAL: Final = frozenset(
    {"teardown", "elastic_exit", "task_exit", "exception", "segfault", "nccl_error", "cuda_error", "elastic_closing"}
)
#: Kinds that say that the job was asked to stop.
PLANS: Final = frozenset({"cancelled", "signal_received", "user_stop", "done", "reclaim"})


@dataclass(slots=True)
class Told:
    """One record with its place. `at`: seconds of its own stamp, or of the last stamp before it in the same file, or None."""

    line: int
    file: str | None
    record: Record
    at: float | None
    order: int = 0
    counted: bool = False

    @property
    def what(self) -> str:
        return self.record.what

    @property
    def data(self) -> dict[str, Any]:
        return self.record.data

    @property
    def own(self) -> float | None:
        """Its own stamp; None if it has none."""
        return self.record.wall

    def evidence(self) -> EvidenceLine:
        return EvidenceLine(line=self.line, text=self.record.text.strip(), file=self.file)


@dataclass(slots=True)
class Episode:
    """Trouble without progress between its records. `recovered`: the job stepped on afterwards; `restarted`: in a new attempt."""

    told: list[Told] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    recovered: bool = False
    restarted: bool = False
    life: list[Told] = field(default_factory=list)

    def add(self, one: Told) -> None:
        self.counts[one.what] += 1
        if self.counts[one.what] <= KEEP_OF_A_KIND:
            self.told.append(one)

    def of(self, *kinds: str) -> list[Told]:
        """The records of these kinds, in order."""
        return [one for one in self.told if one.what in kinds]


@dataclass(slots=True)
class Story:
    """All that was read. `places` maps a (node, pid) or a pid to a rank where some line told both."""

    episodes: list[Episode] = field(default_factory=list)
    numbers: Numbers = field(default_factory=Numbers)
    life: list[Told] = field(default_factory=list)
    numeric: list[Told] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)
    kernel: list[tuple[int, str | None, str | None, str]] = field(default_factory=list)
    ranks_heard: set[int] = field(default_factory=set)
    nodes_heard: set[str] = field(default_factory=set)
    sources: Sequence[Source] = ()

    def node_at(self, address: str, context: Context) -> str | None:
        """The node behind an address that the context or the log itself names."""
        ip = address.partition("<")[0].removeprefix("::ffff:").strip("[]")
        return context.node_at(address) or context.node_at(ip) or self.addresses.get(ip) or (ip if ip in self.nodes_heard else None)


class Builder:
    """Takes records in order and keeps the episode that is open."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._open: Episode | None = None
        self._steps_since = 0
        self._last_step: int | None = None
        self._restart_since = False
        self._item: dict[str, Any] = {}
        self._order = 0

    def take(self, one: Told) -> None:
        self._order += 1
        one.order = self._order
        record, story = one.record, self._story
        if record.rank is not None and len(story.ranks_heard) < 200_000:
            story.ranks_heard.add(record.rank)
        if record.node is not None and len(story.nodes_heard) < 50_000:
            story.nodes_heard.add(record.node)
        if one.what == "step":
            self._step(one)
        elif one.what == "address":
            if record.node and len(story.addresses) < 50_000:
                story.addresses[str(one.data["address"])] = record.node
        elif one.what == "elastic_field":
            self._elastic(one)
        elif one.what in NUMERIC:
            if len(story.numeric) < KEEP_OF_A_KIND:
                story.numeric.append(one)
            story.numbers.told(one.what, one.line)
        elif one.what in LIFE and one.what != "done":
            self._life(one)
        else:
            self._trouble(one)

    def _step(self, one: Told) -> None:
        if not one.counted:
            self._story.numbers.step(one.record, one.line, one.file, one.own)
        step = one.data.get("step")
        if one.data.get("eval"):
            return
        advanced = step is None or self._last_step is None or step > self._last_step
        if step is not None:
            if self._last_step is not None and step < self._last_step:
                self._restart_since = True
                advanced = True
            self._last_step = step
        if self._open is not None and advanced:
            self._steps_since += 1
            if self._steps_since >= STEPS_TO_RECOVER:
                self._open.recovered, self._open.restarted = True, self._restart_since
                self._finish()

    def _life(self, one: Told) -> None:
        if one.what in ("resumed", "fresh_start", "attempt"):
            self._restart_since = True
        keep = self._open.life if self._open else self._story.life
        if len(keep) < KEEP_OF_A_KIND:
            keep.append(one)
        if one.what in ("resumed", "fresh_start", "attempt"):
            self._story.numbers.resumed(one.what, one.data.get("step"), one.line)

    def _trouble(self, one: Told) -> None:
        if one.what == "ib_async" and "active" in str(one.data.get("event")) and self._open is None and self._story.episodes:
            self._story.episodes[-1].add(one)
            return
        if self._open is None:
            self._open, self._restart_since = Episode(), False
            self._story.numbers.split_times()
        self._steps_since = 0
        self._open.add(one)

    def _elastic(self, one: Told) -> None:
        """Joins the fields of one item of a ChildFailedError block; the exit code comes last."""
        self._item |= {key: value for key, value in (("node", one.record.node), ("rank", one.record.rank)) if value is not None}
        self._item |= one.data
        if "exitcode" in one.data:
            record = Record(
                what="elastic_exit",
                text=one.record.text,
                rank=self._item.get("rank"),
                local_rank=one.record.local_rank,
                node=self._item.get("node"),
                pid=one.record.pid,
                wall=one.record.wall,
                data={"exitcode": one.data["exitcode"]},
            )
            self._item = {}
            self._trouble(Told(line=one.line, file=one.file, record=record, at=one.at, order=one.order))

    def _finish(self) -> None:
        assert self._open is not None
        if len(self._story.episodes) < EPISODES_MAX:
            self._story.episodes.append(self._open)
        self._open, self._steps_since, self._restart_since = None, 0, False

    def close(self) -> None:
        if self._open is not None:
            fatal = bool(FATAL & set(self._open.counts))
            self._open.recovered = self._steps_since > 0 and not self._restart_since and not fatal
            self._finish()
