"""What every collector must bear: junk, halves, endless answers, lines of 10 MB, sources that vanish, a clock that steps.

Each collector that an entry point names is under it, so a new one is tested without a word here. Whatever its source does, `read`
comes back in time with readings, with a reason, or with a `CollectorError`; what it tells is in the tables of signals and metrics;
nothing stays open; and when the source is well again, so is the collector.
"""

import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from ras_double import FakeRas

from collectors import http_text, ras
from collectors.emulated.node import EmulatedNode
from collectors.frame.identity import Identities
from collectors.frame.types import Collector, CollectorError, LocalRank, News, NoData, Note, NotSupported, Outcome, Place, Readings
from outrider.config.collectors import CollectorsSection, LogEntry, MountEntry
from outrider.metrics import METRICS
from outrider.signals import KINDS, Signal

POINTS = {point.name: point for point in entry_points(group="outrider.collectors")}
#: Shorter than the collectors' own waits, so that the tests are quick; the waits themselves are tested elsewhere.
WAIT_SECONDS = 0.3
LONG = 10 << 20
#: Folders of the emulated node that stand for sysfs, /proc and logs.
Break = Callable[["Sources"], None]


class Sources:
    """All sources of a node, well at first; `spoil` applies a change to every file of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.node = EmulatedNode(folder / "node", gpus=2, ports=2, exporter=True)
        self.talker = FakeRas(stuck_seconds=2 * WAIT_SECONDS)
        self.proc, self.logs, self.flight, self.board, self.mount = (
            folder / one for one in ("proc", "logs", "flight", "tb", "mount")
        )
        for made in (self.logs, self.flight, self.board, self.mount):
            made.mkdir()
        (self.proc / "1").mkdir(parents=True)
        (self.proc / "self").mkdir()
        self.well()
        assert self.node.exporter is not None
        self.node.exporter.values["train_step", 0] = 7.0
        url = self.node.exporter.url
        self.section = CollectorsSection(
            **{**self.node.settings(), "dcgm_url": url},
            proc_root=str(self.proc), mounts=(MountEntry(path=str(self.mount), deadline_seconds=2.0),), train_page_url=url,
            rank_logs=(LogEntry(glob=f"{self.logs}/rank{{rank}}.log", job="j"),), ras_address=self.talker.address, provider="gcp",
            train_logs=(LogEntry(glob=f"{self.logs}/*.jsonl", job="j"),), flight_dir=str(self.flight),
            tensorboard_dir=str(self.board), train_job="j", provider_url=url.removesuffix("/metrics"),
        )  # fmt: skip
        self.saved = folder / "saved"

    def well(self) -> None:
        stat = "1 (python) S 0 " + " ".join(["0"] * 17) + " 77 0"
        for name, text in {"1/stat": stat, "1/environ": "RANK=0", "1/cgroup": "0::/x", "loadavg": "0.1 0.2 0.3 1/99 7",
                           "meminfo": "MemTotal: 1000 kB\nMemAvailable: 500 kB\n", "uptime": "1000.0 1.0", "mounts": "",
                           "stat": "cpu 1 2 3\n", "vmstat": "oom_kill 0\n"}.items():  # fmt: skip
            (self.proc / name).write_text(text)
        (self.logs / "rank0.log").write_text("step 1\n")
        (self.logs / "t.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
        (self.flight / "dump_0").write_bytes(b"x")
        (self.board / "events.out.tfevents.1").write_bytes(b"")

    def files(self) -> list[Path]:
        roots = (self.node.sysfs, self.proc, self.logs, self.flight, self.board, self.node.kmsg)
        return [path for root in roots for path in ([root] if root.is_file() else sorted(root.rglob("*"))) if path.is_file()]

    def spoil(self, change: Callable[[bytes], bytes]) -> None:
        for path in self.files():
            path.write_bytes(change(path.read_bytes()))

    def mood(self, page: str, talk: str) -> None:
        assert self.node.exporter is not None
        self.node.exporter.mood = page  # type: ignore[assignment]
        self.talker.mood = talk  # type: ignore[assignment]

    def save(self) -> None:
        for root in (self.node.sysfs, self.proc, self.logs, self.flight, self.board):
            shutil.copytree(root, self.saved / root.name)

    def mend(self) -> None:
        for root in (self.node.sysfs, self.proc, self.logs, self.flight, self.board):
            shutil.rmtree(root, ignore_errors=True)
            shutil.copytree(self.saved / root.name, root)
        self.node.kmsg.touch()
        self.mood("well", "well")

    def close(self) -> None:
        self.talker.close()
        self.node.close()


def junk(sources: Sources) -> None:
    sources.spoil(lambda _: b"\x00\xff{[banana]}\x01 -1e999 \n\n=;:\xfe\n" * 3)
    sources.mood("junk", "junk")


def empty(sources: Sources) -> None:
    sources.spoil(lambda _: b"")
    sources.mood("error", "stuck")


def halves(sources: Sources) -> None:
    sources.spoil(lambda body: body[: len(body) // 2])
    sources.mood("cut", "cut")


def endless(sources: Sources) -> None:
    """Pages that never end; files that are far longer than any of their kind."""
    sources.spoil(lambda body: body * (1 << 12))
    sources.mood("endless", "endless")


def long_lines(sources: Sources) -> None:
    for path in (sources.node.kmsg, sources.logs / "rank0.log", sources.logs / "t.jsonl", sources.proc / "meminfo"):
        with open(path, "ab") as file:
            file.write(b"x" * LONG + b"\n")
    sources.mood("trickle", "stuck")


def gone(sources: Sources) -> None:
    for root in (sources.node.sysfs, sources.proc, sources.logs, sources.flight, sources.board, sources.mount):
        shutil.rmtree(root)
    sources.node.kmsg.unlink()
    sources.mood("stuck", "stuck")


def folders(sources: Sources) -> None:
    """Where a file should be, there is a folder."""
    for path in sources.files():
        if path != sources.node.kmsg:
            path.unlink()
            path.mkdir()
    sources.mood("error", "junk")


def huge_numbers(sources: Sources) -> None:
    sources.spoil(lambda _: b"9" * 400 + b"\n")
    sources.mood("junk", "junk")


TROUBLES: tuple[Break, ...] = (junk, empty, halves, endless, long_lines, gone, folders, huge_numbers)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sources]:
    made = Sources(tmp_path)
    for name, value in made.node.environment().items():
        monkeypatch.setenv(name, value)
    begin = http_text.Fetcher.__init__
    monkeypatch.setattr(http_text.Fetcher, "__init__", lambda self, seconds: begin(self, min(seconds, WAIT_SECONDS)))
    monkeypatch.setattr(ras.ask, "__defaults__", (WAIT_SECONDS,))
    made.save()
    yield made
    made.close()


class Run:
    """One collector over time, each of its readings held against the contract."""

    def __init__(self, name: str, sources: Sources) -> None:
        kind: type[Collector] = POINTS[name].load()
        state = sources.folder / "state" / name
        state.mkdir(parents=True, exist_ok=True)
        self.collector = kind(Place(node="n1", boot="b1", state_dir=str(state), section=sources.section, gpus=2), Note())
        ranks = [LocalRank(job="j", rank=0, slot=0, attempt=1, pid=os.getpid())]
        self.collector.told(News(ranks=ranks, suspected_job="j"))
        self.now = 1000.0

    def turn(self) -> Outcome | CollectorError:
        self.now += max(self.collector.interval_seconds, 10.0)
        began = time.monotonic()
        try:
            outcome = self.collector.supported() or self.collector.read(self.now)
        except CollectorError as error:
            assert str(error).strip() and "\n" not in str(error)
            return error
        finally:
            # A collector's own bound, with the waits cut short: no source may hold it to its deadline.
            assert time.monotonic() - began < self.collector.deadline_seconds / 2
        match outcome:
            case NotSupported(reason=reason) | NoData(reason=reason):
                assert reason.strip()
            case Readings(signals=signals, samples=samples):
                assert len(signals) < 500
                for signal in signals:
                    self._check_signal(signal)
                for sample in samples or []:
                    metric = METRICS[sample.name]
                    assert math.isfinite(sample.value), sample
                    assert set(sample.labels) == set(metric.labels) - {"node"}, sample
        self.collector.handed_over()
        return outcome

    def _check_signal(self, signal: Signal) -> None:
        assert signal.kind in KINDS and signal.node == "n1" and signal.source == self.collector.name
        assert signal.text is None or len(signal.text) < 20_000


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", sorted(POINTS))
def test_a_collector_bears_whatever_its_source_does(name: str, trouble: Break, sources: Sources) -> None:
    run = Run(name, sources)
    for _ in range(2):
        run.turn()
    trouble(sources)
    for _ in range(3):
        run.turn()
    sources.mend()
    after = [run.turn() for _ in range(3)]
    run.collector.close()
    assert not isinstance(after[-1], CollectorError), after


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", sorted(POINTS))
def test_a_collector_that_starts_in_the_middle_of_it_bears_it_too(name: str, trouble: Break, sources: Sources) -> None:
    trouble(sources)
    run = Run(name, sources)
    for _ in range(2):
        run.turn()
    run.collector.close()


@pytest.mark.parametrize("name", sorted(POINTS))
def test_a_wall_clock_that_steps_moves_nothing(name: str, sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    """Back and forth by a day: readings go on, and only the clock's own series tell of it."""
    run = Run(name, sources)
    real, kinds = time.time, []
    for step in (0.0, 86_400.0, -86_400.0, 0.0):
        monkeypatch.setattr(time, "time", lambda step=step: real() + step)
        outcome = run.turn()
        assert not isinstance(outcome, CollectorError)
        kinds.append({one.kind for one in outcome.signals} if isinstance(outcome, Readings) else set())
    run.collector.close()
    assert all(later <= kinds[0] | kinds[1] for later in kinds[2:])


@pytest.mark.parametrize("name", sorted(POINTS))
def test_nothing_stays_open_in_trouble(name: str, sources: Sources) -> None:
    run = Run(name, sources)
    for _ in range(2):
        run.turn()
    counts = []
    for trouble in (junk, gone):
        trouble(sources)
        for _ in range(4):
            run.turn()
        counts.append(len(os.listdir("/proc/self/fd")))
        sources.mount.mkdir(exist_ok=True)
        sources.mend()
        run.turn()
    run.collector.close()
    assert counts[1] <= counts[0] + 4, counts  # a handful: sockets of the servers in this very process come and go


def test_junk_in_what_a_collector_remembers_is_a_first_start(sources: Sources) -> None:
    for name in sorted(POINTS):
        run = Run(name, sources)
        run.turn()
        run.collector.close()
        for path in (sources.folder / "state" / name).rglob("*"):
            if path.is_file():
                path.write_bytes(b"\x00\xff{junk")
        again = Run(name, sources)
        assert not isinstance(again.turn(), CollectorError), name
        again.collector.close()
    Identities(str(sources.folder / "state" / "nvml")).all()


def test_every_collector_is_under_the_contract() -> None:
    """The list is the entry points' own; a collector that is a class elsewhere but has no entry point would be seen by nobody."""
    folder = Path(__file__).parents[2] / "collectors"
    classes: list[Any] = [path.stem for path in folder.glob("*.py") if "(Collector):" in path.read_text()]
    assert {point.value.split(":")[0].rpartition(".")[2] for point in POINTS.values()} >= set(classes)
