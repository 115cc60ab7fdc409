"""Storage: a tiny write, sync, rename, read and unlink on every mount that the configuration names, each in a process of its own.

A mount that hangs is a signal within its deadline, never a stuck agent; a probe that hangs in the kernel (state D) stays alone:
its mount is not probed again before it has ended.
Witnesses: `storage.hang`, `storage.full`. Cost: one fork and 5 system calls a mount and interval. Rights: to write to the folder.
Source: errno(3); measured: a hung file system holds every caller until it is released, also against SIGKILL.
"""

import contextlib
import errno
import os
import select
import signal as signals
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec

from collectors.agent.exits import process_born
from collectors.agent.state import replace_file
from collectors.frame.changes import Changes
from collectors.frame.types import Collector, Note, NotSupported, Outcome, Place, Readings, Sample
from outrider.config.collectors import CollectorsSection, MountEntry
from outrider.signals import Signal
from outrider.wire import UNREADABLE

#: What is written: one block; more would measure bandwidth.
BLOCK = b"outrider\n".ljust(4096, b".")
STEPS = ("open", "write", "sync", "rename", "read", "unlink")


@dataclass
class _Probe:
    mount: MountEntry
    pid: int
    pipe: int
    began: float
    told: float | None = None


class Storage(Collector):
    """See the module."""

    name: ClassVar[str] = "storage"
    kill_safe: ClassVar[bool] = False  # it never blocks itself, and it alone knows its stuck probes

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        self.interval_seconds = place.section.storage_interval_seconds  # type: ignore[misc]
        deadlines = [mount.deadline_seconds for mount in place.section.mounts]
        #: A reading waits for its probes, so it may take as long as the longest of them.
        self.deadline_seconds = max([*deadlines, 4.0]) + 4.0  # type: ignore[misc]
        self._stuck: dict[str, _Probe] = {}
        self._changes = Changes()
        self._last: dict[str, tuple[float, float]] = {}
        self._memo = Path(place.state_dir) / "storage.json"
        #: Probes of an earlier start that hung: mount -> (pid, born).
        self._orphans = self._read_memo()

    @classmethod
    def wanted(cls, section: CollectorsSection) -> NotSupported | None:
        return None if section.mounts else NotSupported("no mounts are named in [collectors] mounts")

    def supported(self) -> NotSupported | None:
        return self.wanted(self.place.section)

    def read(self, now: float) -> Outcome:
        signals_: list[Signal] = []
        for probe in list(self._stuck.values()):
            self._collect(probe, signals_)
        running = []
        for mount in self.place.section.mounts:
            if self._orphaned(mount.path):
                signals_.append(self._signal(now, mount, "probe", mount.deadline_seconds, ok=False, error="hang"))
            elif mount.path not in self._stuck:
                running.append(self._begin(mount))
        for probe in running:
            self._collect(probe, signals_)
        return Readings(signals=signals_, samples=self._samples())

    def close(self) -> None:
        for probe in self._stuck.values():
            os.close(probe.pipe)
        self._stuck.clear()

    def _orphaned(self, path: str) -> bool:
        """Whether a probe of an earlier start still hangs on this mount: a second one would hang beside it."""
        pid, born = self._orphans.get(path, (0, 0))
        if pid and born and process_born(pid) == born:
            self._last[path] = (0.0, 0.0)
            return True
        self._orphans.pop(path, None)
        return False

    def _read_memo(self) -> dict[str, tuple[int, int]]:
        try:
            return msgspec.json.decode(self._memo.read_bytes(), type=dict[str, tuple[int, int]])
        except (OSError, *UNREADABLE):
            return {}

    def _write_memo(self) -> None:
        stuck = {path: (probe.pid, process_born(probe.pid)) for path, probe in self._stuck.items()}
        with contextlib.suppress(OSError):
            replace_file(self._memo, msgspec.json.encode(self._orphans | stuck))

    def _begin(self, mount: MountEntry) -> _Probe:
        read_end, write_end = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            _probe_in_child(Path(mount.path), write_end)
        os.close(write_end)
        return _Probe(mount, pid, read_end, time.monotonic())

    def _collect(self, probe: _Probe, signals_: list[Signal]) -> None:
        """Waits for a probe until its deadline; one that is over it is told, killed if it can be, and kept apart."""
        path, stuck = probe.mount.path, probe.mount.path in self._stuck
        limit = 0.0 if stuck else max(0.0, probe.began + probe.mount.deadline_seconds - time.monotonic())
        ready, _, _ = select.select([probe.pipe], [], [], limit)
        now = time.monotonic()
        seconds = now - probe.began
        if ready:
            self._finished(probe, os.read(probe.pipe, 4096), signals_)
            return
        self._stuck[path] = probe
        self._last[path] = (seconds, 0.0)
        if not stuck:
            self._write_memo()
            with contextlib.suppress(ProcessLookupError):
                os.kill(probe.pid, signals.SIGKILL)  # ends it now, or when the kernel lets it go
        signals_.append(self._signal(now, probe.mount, "probe", seconds, ok=False, error="hang"))

    def _finished(self, probe: _Probe, answer: bytes, signals_: list[Signal]) -> None:
        os.close(probe.pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(probe.pid, 0)
        now, path = time.monotonic(), probe.mount.path
        if self._stuck.pop(path, None) is not None:
            self._write_memo()
            return  # it was told as a hang; the next probe says how things are now
        try:
            step, code, seconds = msgspec.msgpack.decode(answer, type=tuple[str, int, float])
        except UNREADABLE:
            step, code, seconds = "start", errno.EIO, now - probe.began
        ok, error = code == 0, errno.errorcode.get(code, str(code)) if code else ""
        self._last[path] = (seconds, float(ok))
        if self._changes.due(path, error, now):
            signals_.append(self._signal(now, probe.mount, step, seconds, ok=ok, error=error))

    def _signal(self, now: float, mount: MountEntry, step: str, seconds: float, *, ok: bool, error: str) -> Signal:
        data = {"operation": step, "seconds": round(seconds, 4), "ok": ok, "error": error or None}
        if not ok:
            self._changes.due(mount.path, error, now)
        return self.signal(now, "storage", round(seconds, 4), mount=mount.path, server=mount.server or None, data=data)

    def _samples(self) -> list[Sample]:
        samples = []
        for path, (seconds, ok) in self._last.items():
            samples.append(Sample("outrider_storage_probe_ok", ok, {"mount": path}))
            if ok:
                samples.append(Sample("outrider_storage_probe_seconds", seconds, {"mount": path}))
        return samples


def _probe_in_child(folder: Path, answer: int) -> None:
    """The probe itself, in a forked process that ends with it. Sends (step, errno, seconds)."""
    began, step = time.monotonic(), STEPS[0]
    first, second = folder / f".outrider-{os.getpid()}", folder / f".outrider-{os.getpid()}.2"
    code = 0
    try:
        descriptor = os.open(first, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        step = "write"
        os.write(descriptor, BLOCK)
        step = "sync"
        os.fsync(descriptor)
        os.close(descriptor)
        step = "rename"
        first.rename(second)
        step = "read"
        if second.read_bytes() != BLOCK:
            code = errno.EIO
        step = "unlink"
        second.unlink()
    except OSError as error:
        code = error.errno or errno.EIO
        for path in (first, second):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    finally:
        os.write(answer, msgspec.msgpack.encode(("probe" if code == 0 else step, code, time.monotonic() - began)))
        os._exit(0)
