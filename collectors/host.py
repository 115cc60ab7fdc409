"""The host: pressure, load, memory, OOM kills, EDAC, whether the clock is synchronised, and steps of the wall clock.

Witnesses: `node.memory` (EDAC), and what people look at when a node is slow. Cost: a dozen small files each interval, 0.5 ms.
Rights: none. Source of the meaning: the kernel's Documentation/accounting/psi.rst, filesystems/proc.rst, admin-guide/RAS,
adjtimex(2).
"""

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from collectors.frame.changes import Counters
from collectors.frame.files import list_folder, read_int, read_text
from collectors.frame.types import Collector, Note, NotSupported, Outcome, Place, Readings, Sample
from outrider.signals import Signal

#: A wall clock that moved so much against the monotonic one was stepped; slewing is 0.5 ms a second at most.
STEP_SECONDS = 0.5
#: State of adjtimex(2) that means: not synchronised.
TIME_ERROR = 5
_MEMORY = {
    "MemTotal": "total",
    "MemAvailable": "available",
    "SwapTotal": "swap_total",
    "SwapFree": "swap_free",
}


def parse_pressure(text: str) -> dict[str, float]:
    """`some` and `full` -> seconds waited since boot, from a file of /proc/pressure."""
    found = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if kind in ("some", "full") and _is_number(total):
            found[kind] = float(total) / 1e6
    return found


def parse_memory(text: str) -> dict[str, float]:
    """Bytes by kind, from /proc/meminfo."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if name in _MEMORY and number and _is_number(number[0]):
            found[_MEMORY[name]] = float(number[0]) * 1024
    return found


def parse_field(text: str, name: str) -> int | None:
    """The number behind `name` in a file of `name number` lines (/proc/vmstat)."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name and _is_number(value):
            return int(float(value))
    return None


class _Timex(ctypes.Structure):
    _fields_: ClassVar = [("modes", ctypes.c_uint), ("longs", ctypes.c_long * 4), ("rest", ctypes.c_byte * 256)]


#: Digits of a number that a kernel writes; more is junk.
DIGITS_MAX = 24


class Host(Collector):
    """See the module."""

    name: ClassVar[str] = "host"
    group: ClassVar[str] = "steady"

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        self.interval_seconds = place.section.interval_seconds  # type: ignore[misc]
        self._proc, self._sys = Path(place.section.proc_root), Path(place.section.sysfs_root)
        self._edac = Counters()
        self._offset: float | None = None
        self._steps = 0

    def supported(self) -> NotSupported | None:
        return None if read_text(self._proc / "loadavg") else NotSupported(f"{self._proc} is not there")

    def read(self, now: float) -> Outcome:
        signals: list[Signal] = []
        samples = [*self._load(), *self._memory(), *self._clock(now)]
        samples += self._read_edac(now, signals)
        return Readings(signals=signals, samples=samples)

    def _load(self) -> Iterator[Sample]:
        load = (read_text(self._proc / "loadavg") or "").split()
        if load and _is_number(load[0]):
            yield Sample("outrider_host_load", float(load[0]))
        uptime = (read_text(self._proc / "uptime") or "").split()
        if uptime and _is_number(uptime[0]):
            yield Sample("outrider_host_boot_seconds", float(uptime[0]))
        for resource in ("cpu", "io", "memory"):
            for kind, seconds in parse_pressure(read_text(self._proc / "pressure" / resource) or "").items():
                labels = {"resource": resource, "kind": kind}
                yield Sample("outrider_host_pressure_seconds_total", seconds, labels)

    def _memory(self) -> Iterator[Sample]:
        for kind, size in parse_memory(read_text(self._proc / "meminfo") or "").items():
            yield Sample("outrider_host_memory_bytes", size, {"kind": kind})
        kills = parse_field(read_text(self._proc / "vmstat") or "", "oom_kill")
        if kills is not None:
            yield Sample("outrider_host_oom_kills_total", float(kills))

    def _clock(self, now: float) -> Iterator[Sample]:
        offset = time.time() - time.monotonic()
        if self._offset is not None and abs(offset - self._offset) > STEP_SECONDS:
            self._steps += 1
        self._offset = offset
        yield Sample("outrider_host_clock_steps_total", float(self._steps))
        timex = _Timex()
        state = ctypes.CDLL(None).adjtimex(ctypes.byref(timex))
        if state >= 0:
            yield Sample("outrider_host_clock_synchronized", float(state != TIME_ERROR))
            # longs: offset, frequency, maxerror, esterror; errors in microseconds.
            yield Sample("outrider_host_clock_error_seconds", timex.longs[2] / 1e6)

    def _read_edac(self, now: float, signals: list[Signal]) -> list[Sample]:
        samples = []
        folder = self._sys / "devices/system/edac/mc"
        for controller in list_folder(folder):
            for kind, file, event in (
                ("corrected", "ce_count", "memory_corrected"),
                ("uncorrected", "ue_count", "memory_uncorrected"),
            ):
                count = read_int(folder / controller / file)
                if count is None:
                    continue
                labels = {"controller": controller, "kind": kind}
                samples.append(Sample("outrider_host_edac_errors_total", float(count), labels))
                if grown := self._edac.grown((controller, kind), count):
                    data = {"event": event, "count": grown, "controller": controller}
                    signals.append(self.signal(now, "kernel", data=data))
        return samples


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal() and len(text) < DIGITS_MAX
