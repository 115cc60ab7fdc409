"""Host and storage: what is there is told, what is missing or makes no sense is not shown as healthy."""

import os
import time
from pathlib import Path

import pytest

from collectors import storage as storage_module
from collectors.frame.types import Note, NotSupported, Outcome, Place, Readings
from collectors.host import Host, parse_field, parse_memory, parse_pressure
from collectors.storage import Storage
from outrider.config.collectors import CollectorsSection, MountEntry

# Formats: Documentation/accounting/psi.rst and filesystems/proc.rst of the kernel.
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=250000"
MEMINFO = "MemTotal:       2113572 kB\nMemFree: 1 kB\nMemAvailable:    1500000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"


def place(folder: Path, **fields: object) -> Place:
    return Place(node="n1", boot="b", state_dir=str(folder), section=CollectorsSection(**fields))  # type: ignore[arg-type]


def samples(outcome: Outcome) -> dict[tuple[str, ...], float]:
    assert isinstance(outcome, Readings)
    return {(s.name, *s.labels.values()): s.value for s in outcome.samples or []}


def host_tree(folder: Path) -> tuple[Path, Path]:
    proc, sys = folder / "proc", folder / "sys"
    controller = sys / "devices/system/edac/mc/mc0"
    for path in (proc / "pressure", controller):
        path.mkdir(parents=True)
    (proc / "loadavg").write_text("3.50 1.00 0.50 2/300 999\n")
    (proc / "uptime").write_text("100.5 50.0\n")
    (proc / "pressure/io").write_text(PRESSURE)
    (proc / "meminfo").write_text(MEMINFO)
    (proc / "vmstat").write_text("nr_free_pages 1\noom_kill 3\n")
    (controller / "ce_count").write_text("7\n")
    (controller / "ue_count").write_text("0\n")
    return proc, sys


def test_the_host_is_read(tmp_path: Path) -> None:
    proc, sys = host_tree(tmp_path)
    host = Host(place(tmp_path, proc_root=str(proc), sysfs_root=str(sys)), Note())
    assert host.supported() is None
    found = samples(host.read(1.0))
    assert found["outrider_host_load",] == 3.5
    assert found["outrider_host_pressure_seconds_total", "io", "some"] == 1.5
    assert found["outrider_host_memory_bytes", "available"] == 1_500_000 * 1024
    assert found["outrider_host_oom_kills_total",] == 3.0
    assert found["outrider_host_edac_errors_total", "mc0", "corrected"] == 7.0


def test_memory_errors_are_told_when_they_grow_and_not_before(tmp_path: Path) -> None:
    proc, sys = host_tree(tmp_path)
    host = Host(place(tmp_path, proc_root=str(proc), sysfs_root=str(sys)), Note())
    first = host.read(1.0)
    (sys / "devices/system/edac/mc/mc0/ue_count").write_text("2\n")
    second = host.read(2.0)
    assert isinstance(first, Readings) and not first.signals
    assert isinstance(second, Readings)
    assert [(s.kind, s.data["event"], s.data["count"]) for s in second.signals] == [("kernel", "memory_uncorrected", 2)]


@pytest.mark.parametrize("junk", ["", "nonsense", "some total=x\nMemTotal: kB\noom_kill -", "\x00" * 50])
def test_junk_gives_no_values_and_no_error(tmp_path: Path, junk: str) -> None:
    proc, sys = host_tree(tmp_path)
    for name in ("loadavg", "pressure/io", "meminfo", "vmstat", "uptime"):
        (proc / name).write_text(junk)
    (sys / "devices/system/edac/mc/mc0/ce_count").write_text(junk)
    found = samples(Host(place(tmp_path, proc_root=str(proc), sysfs_root=str(sys)), Note()).read(1.0))
    assert not any(name.startswith(("outrider_host_load", "outrider_host_mem", "outrider_host_press")) for name, *_ in found)
    assert parse_pressure(junk) == {} and parse_memory(junk) == {} and parse_field(junk, "oom_kill") is None


def test_a_step_of_the_wall_clock_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc, sys = host_tree(tmp_path)
    host = Host(place(tmp_path, proc_root=str(proc), sysfs_root=str(sys)), Note())
    assert samples(host.read(1.0))["outrider_host_clock_steps_total",] == 0.0
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 300.0)
    assert samples(host.read(2.0))["outrider_host_clock_steps_total",] == 1.0
    assert samples(host.read(3.0))["outrider_host_clock_steps_total",] == 1.0


@pytest.mark.real
def test_this_machine_is_read(tmp_path: Path) -> None:
    found = samples(Host(place(tmp_path), Note()).read(time.monotonic()))
    assert found["outrider_host_memory_bytes", "total"] > 1e6
    assert found["outrider_host_boot_seconds",] > 0


def mounts(*paths: Path, deadline: float = 5.0) -> tuple[MountEntry, ...]:
    return tuple(MountEntry(path=str(path), server="nas1", deadline_seconds=deadline) for path in paths)


def test_no_mount_named_is_told_as_such(tmp_path: Path) -> None:
    assert isinstance(Storage(place(tmp_path), Note()).supported(), NotSupported)


@pytest.mark.real
def test_a_good_mount_is_told_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "mount"
    target.mkdir()
    probe = Storage(place(tmp_path, mounts=mounts(target)), Note())
    first, second = probe.read(1.0), probe.read(2.0)
    assert isinstance(first, Readings) and isinstance(second, Readings)
    (signal,) = first.signals
    assert (signal.kind, signal.mount, signal.server) == ("storage", str(target), "nas1")
    assert signal.data["ok"] and signal.data["error"] is None and float(signal.value or 0) < 5.0
    assert not second.signals
    assert samples(second)["outrider_storage_probe_ok", str(target)] == 1.0
    assert os.listdir(target) == []


@pytest.mark.real
def test_a_mount_that_is_gone_is_an_error_with_its_name(tmp_path: Path) -> None:
    probe = Storage(place(tmp_path, mounts=mounts(tmp_path / "gone")), Note())
    outcome = probe.read(1.0)
    assert isinstance(outcome, Readings)
    (signal,) = outcome.signals
    assert (signal.data["ok"], signal.data["error"], signal.data["operation"]) == (False, "ENOENT", "open")
    assert ("outrider_storage_probe_seconds", str(tmp_path / "gone")) not in samples(outcome)


@pytest.mark.real
def test_a_hang_is_told_in_time_and_its_probes_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.mkdir()
    bad.mkdir()
    real, starts = storage_module._probe_in_child, tmp_path / "starts"

    def hang(folder: Path, answer: int) -> None:
        if folder != bad:
            real(folder, answer)
        with open(starts, "a") as file:
            file.write("x")
        while True:  # as in state D: it is gone only when the kernel lets it go; here SIGKILL does
            time.sleep(60)

    monkeypatch.setattr(storage_module, "_probe_in_child", hang)
    monkeypatch.setattr(storage_module.os, "kill", lambda *_: None)
    probe = Storage(place(tmp_path, mounts=mounts(bad, good, deadline=0.2)), Note())
    began = time.monotonic()
    outcomes = [probe.read(1.0), probe.read(2.0), probe.read(3.0)]
    assert time.monotonic() - began < 2.0
    for outcome in outcomes:
        assert isinstance(outcome, Readings)
        hangs = [signal for signal in outcome.signals if signal.data["error"] == "hang"]
        assert [signal.mount for signal in hangs] == [str(bad)]
        assert samples(outcome)["outrider_storage_probe_ok", str(bad)] == 0.0
        assert samples(outcome)["outrider_storage_probe_ok", str(good)] == 1.0
    assert starts.read_text() == "x"
    again = Storage(place(tmp_path, mounts=mounts(bad, deadline=0.2)), Note())  # a restarted agent knows of it
    outcome = again.read(4.0)
    assert isinstance(outcome, Readings) and outcome.signals[0].data["error"] == "hang"
    assert starts.read_text() == "x"
    (stuck,) = probe._stuck.values()
    monkeypatch.undo()
    os.kill(stuck.pid, 9)
    os.waitpid(stuck.pid, 0)
    freed = again.read(5.0)
    assert isinstance(freed, Readings) and freed.signals[0].data["ok"] is True
    probe.close()
