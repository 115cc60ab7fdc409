"""The kernel log: told at once, nothing twice, gaps counted, floods held back. Lines in the form of /dev/kmsg (dev-kmsg ABI)."""

import select
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from collectors.frame.identity import Gpu, Identities
from collectors.frame.types import Note, Place, Readings
from collectors.kmsg import Kmsg
from outrider.config.collectors import CollectorsSection
from outrider.signals import Signal

XID = "NVRM: Xid (PCI:0000:3b:00): {code}, pid=4242, name=python, GPU has fallen off the bus."


class Log:
    """A file that stands for /dev/kmsg, and a collector on it."""

    def __init__(self, folder: Path) -> None:
        self.path, self.state = folder / "kmsg", folder / "state"
        self.state.mkdir()
        self.path.touch()
        self.number = 0
        self.collector = self.start()

    def start(self, boot: str = "b1") -> Kmsg:
        section = CollectorsSection(kmsg_path=str(self.path))
        if hasattr(self, "collector"):
            self.collector.close()
        place = Place(node="n1", boot=boot, state_dir=str(self.state), section=section)
        self.collector = Kmsg(place, Note())
        return self.collector

    def write(self, text: str, *, priority: int = 3, seconds: float = 99.0) -> None:
        self.number += 1
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(f"{priority},{self.number},{int(seconds * 1e6)},-;{text}\n")

    def read(self, now: float = 100.0) -> list[Signal]:
        assert self.collector.supported() is None
        outcome = self.collector.read(now)
        self.collector.handed_over()
        assert isinstance(outcome, Readings)
        self.samples = {(s.name, *s.labels.values()): s.value for s in outcome.samples or []}
        return outcome.signals


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    made = Log(tmp_path)
    yield made
    made.collector.close()


def test_an_xid_is_told_with_its_gpu_from_the_cache(log: Log) -> None:
    Identities(str(log.state)).learn([Gpu(gpu=3, uuid="GPU-abc", pci="0000:3b:00")])
    log.write("usb 1-1: new device")
    log.write(XID.format(code=79))
    (signal,) = log.read()
    assert (signal.kind, signal.value, signal.pci, signal.gpu, signal.uuid) == ("xid", 79, "0000:3b:00", 3, "GPU-abc")
    assert (signal.node, signal.source, signal.data["boot"], signal.data["sequence"]) == ("n1", "kmsg", "b1", 2)
    assert "observed_s" not in signal.data
    assert log.samples["outrider_gpu_xid_errors_total", "0000:3b:00", "79"] == 1.0
    assert log.samples["outrider_kernel_log_lines_total",] == 2.0


def test_what_was_written_before_the_first_start_is_told_with_its_time(log: Log) -> None:
    log.write(XID.format(code=79), seconds=12.0)
    (signal,) = log.read(now=100.0)
    assert signal.t == 100.0 and signal.data["observed_s"] == 12.0


def test_a_restart_goes_on_from_the_cursor(log: Log) -> None:
    log.write(XID.format(code=79))
    assert len(log.read()) == 1
    log.start()
    log.write(XID.format(code=48))
    assert [signal.value for signal in log.read()] == [48]


def test_another_boot_begins_anew(log: Log) -> None:
    log.write(XID.format(code=79))
    log.read()
    log.start(boot="b2")
    assert [signal.value for signal in log.read()] == [79]


def test_a_signal_that_was_not_handed_over_is_told_again(log: Log) -> None:
    log.write(XID.format(code=79))
    assert log.collector.supported() is None
    log.collector.read(100.0)  # the child dies before it could send
    log.start()
    assert [signal.value for signal in log.read()] == [79]


def test_a_gap_in_the_numbers_is_counted(log: Log) -> None:
    log.write("one")
    log.number += 41
    log.write("two")
    log.read()
    assert log.samples["outrider_kernel_log_gaps_total",] == 41.0


def test_a_flood_costs_a_counter_and_a_handful_of_signals(log: Log) -> None:
    signals = []
    for turn in range(20):
        for _ in range(500):
            log.write(XID.format(code=31))
        signals += log.read(now=100.0 + turn * 0.01)
    assert len(signals) <= 6
    assert log.samples["outrider_gpu_xid_errors_total", "0000:3b:00", "31"] == 10_000.0
    later = log.read(now=120.0)
    assert [signal.data["count"] for signal in later] == [10_000 - len(signals)]
    assert log.read(now=200.0) == []


def test_the_same_message_hours_later_has_its_own_time(log: Log) -> None:
    log.write(XID.format(code=79), seconds=99.0)
    log.write(XID.format(code=79), seconds=5000.0)
    first, second = log.read(now=5001.0)
    assert first.data["observed_s"] == 99.0 and "observed_s" not in second.data


def test_a_flood_of_one_does_not_hide_another(log: Log) -> None:
    for _ in range(100):
        log.write(XID.format(code=31))
    log.write(XID.format(code=79))
    assert 79 in [signal.value for signal in log.read()]


def test_a_line_that_a_process_wrote_is_not_the_kernels(log: Log) -> None:
    log.write(XID.format(code=79), priority=11)
    assert log.read() == []


@pytest.mark.parametrize(
    "junk",
    ["", "no number at all", "3,x,y,-;text", "\x00\xff", "3," + "9" * 50 + ",1,-;x", "a" * 100_000],
    ids=["empty", "prose", "letters", "bytes", "huge number", "long line"],
)
def test_junk_is_survived(log: Log, junk: str) -> None:
    with open(log.path, "a", encoding="latin-1") as file:
        file.write(junk + "\n")
    log.write(XID.format(code=79))
    log.read()
    log.write(XID.format(code=48))
    values = [signal.value for signal in log.read()]
    assert 48 in values or junk.startswith("3,999")


def test_half_a_line_waits_for_its_other_half(log: Log) -> None:
    line = "3,1,99000000,-;" + XID.format(code=79) + "\n"
    with open(log.path, "a") as file:
        file.write(line[:30])
    assert log.read() == []
    with open(log.path, "a") as file:
        file.write(line[30:])
    assert [signal.value for signal in log.read()] == [79]


def test_a_cursor_file_of_junk_is_a_first_start(log: Log) -> None:
    log.write(XID.format(code=79))
    (log.state / "kmsg.json").write_bytes(b"\x00junk")
    assert len(log.read()) == 1


def test_no_kernel_log_is_told_with_its_reason(tmp_path: Path) -> None:
    section = CollectorsSection(kmsg_path=str(tmp_path / "none"), journalctl="")
    collector = Kmsg(Place(node="n1", boot="b", state_dir=str(tmp_path), section=section), Note())
    absent = collector.supported()
    assert absent is not None and "No such file" in absent.reason


@pytest.mark.real
def test_the_journal_serves_where_the_kernel_log_does_not(tmp_path: Path) -> None:
    entry = {
        "__CURSOR": "s=1;i=2",
        "_TRANSPORT": "kernel",
        "MESSAGE": XID.format(code=79),
        "__REALTIME_TIMESTAMP": "1700000000000000",
    }
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\necho '{msgspec.json.encode(entry).decode()}'\nexec sleep 60\n")
    program.chmod(0o755)
    section = CollectorsSection(kmsg_path=str(tmp_path / "none"), journalctl=str(program))
    collector = Kmsg(Place(node="n1", boot="b", state_dir=str(tmp_path), section=section), Note())
    assert collector.supported() is None
    select.select([collector.fileno()], [], [], 5)
    outcome = collector.read(100.0)
    collector.handed_over()
    assert isinstance(outcome, Readings) and [signal.value for signal in outcome.signals] == [79]
    assert "s=1;i=2" in (tmp_path / "kmsg.json").read_text()
    collector.close()
