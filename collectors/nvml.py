"""GPUs by NVIDIA's management library: who they are, how they are, and the XIDs that the driver reports as events.

Identities are kept from when a GPU was well, so that one that is lost still has its name. Values at the interval, events each
two seconds. Witnesses: `gpu.*`. Cost: about 60 calls a GPU and interval, in a child of its own; a call that hangs becomes a
`driver_call` signal. Rights: none (root for some counters). Source of the meaning: NVIDIA's NVML API reference.
"""

from typing import Any, ClassVar

from collectors.frame.changes import Changes
from collectors.frame.identity import Gpu, Identities
from collectors.frame.types import Collector, CollectorError, Note, NotSupported, Outcome, Place, Readings, Sample
from collectors.nvml_reader import GpuLostError, GpuReading, NoDriverError, NvmlReader
from outrider.signals import Signal

#: Pace of looking for XID events; the kernel log tells the same within milliseconds where it can be read.
EVENT_SECONDS = 2.0


class Nvml(Collector):
    """See the module."""

    name: ClassVar[str] = "nvml"
    interval_seconds: ClassVar[float] = EVENT_SECONDS
    kill_safe: ClassVar[bool] = False  # a process killed inside the driver can take the GPU with it

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        self._reader: NvmlReader | None = None
        self._identities = Identities(place.state_dir)
        self._gpus: dict[int, Gpu] = {}
        self._changes = Changes()
        self._links: dict[tuple[int, int], dict[str, int]] = {}
        self._totals: dict[int, dict[str, int]] = {}
        self._read_at = float("-inf")
        self._samples: list[Sample] = []

    @classmethod
    def preload(cls) -> None:
        import pynvml  # noqa: F401

    def supported(self) -> NotSupported | None:
        if self._reader is not None:
            return None
        self.note("nvmlInit")
        try:
            self._open()
        except NoDriverError as error:
            return None if self._expected() else NotSupported(str(error))
        return None

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def read(self, now: float) -> Outcome:
        if self._reader is None:
            try:
                self._open()
            except NoDriverError as error:
                return self._no_driver(str(error), now)
        assert self._reader is not None
        self.note("nvmlEventSetWait")
        signals = [self._xid(index, code, now) for index, code in self._reader.events()]
        if now - self._read_at < self.place.section.interval_seconds - EVENT_SECONDS / 2:
            return Readings(signals=signals)
        self._read_at = now
        signals += self._read_all(self._reader, now)
        return Readings(signals=signals, samples=self._samples)

    def _open(self) -> None:
        self._reader = NvmlReader(self.place.section.nvml_library)
        self._gpus = {}
        for index in range(self._reader.count()):
            try:
                self._gpus[index] = self._reader.identify(index)
            except GpuLostError:
                continue
        self._identities.learn(list(self._gpus.values()))
        self._reader.watch_events()

    def _expected(self) -> int:
        return self.place.gpus or len(self._identities.all())

    def _no_driver(self, why: str, now: float) -> Outcome:
        """A node that should have GPUs and has no driver: all of them are missing, and that is a fact, not an error."""
        expected = self._expected()
        if not expected:
            raise CollectorError(why)
        data = {"expected": expected, "reason": why}
        samples = [Sample("outrider_gpus", 0.0), Sample("outrider_gpus_expected", float(expected))]
        paced = now - self._read_at >= self.place.section.interval_seconds - EVENT_SECONDS / 2
        self._read_at = now if paced else self._read_at
        return Readings(signals=[self.signal(now, "gpu_count", 0, data=data)] if paced else [], samples=samples)

    def _read_all(self, reader: NvmlReader, now: float) -> list[Signal]:
        signals: list[Signal] = []
        samples: list[Sample] = []
        seen, lost = 0, []
        for index, gpu in self._gpus.items():
            self.note("NVML readings", gpu=index, uuid=gpu.uuid, pci=gpu.pci)
            try:
                reading = reader.read(index)
                signals += self._tell(gpu, reading, now)
                signals += self._tell_links(reader, gpu, reading, now)
            except GpuLostError:
                lost.append(gpu.uuid)
                continue
            seen += 1
            samples += gpu_samples(gpu, reading)
        self.note("nvmlDeviceGetCount")
        shown = reader.count()
        seen = min(seen, shown)
        signals += self._tell_count(seen, lost, now)
        if lost or shown != len(self._gpus):
            self.close()  # opened anew at the next reading: the driver may have found or lost one
        self._samples = [*samples, Sample("outrider_gpus", float(seen))]
        if expected := self._expected():
            self._samples.append(Sample("outrider_gpus_expected", float(expected)))
        return signals

    def _tell_count(self, seen: int, lost: list[str], now: float) -> list[Signal]:
        expected = self._expected()
        if seen >= expected and not self._changes.due("count", seen, now):
            return []
        data: dict[str, object] = {"expected": expected}
        if lost:
            data["lost"] = lost
        return [self.signal(now, "gpu_count", seen, data=data)]

    def _tell(self, gpu: Gpu, reading: GpuReading, now: float) -> list[Signal]:
        """State at each reading; counters when they change, and now and then."""
        who = _who(gpu)
        state = {
            name: getattr(reading, name)
            for name in ("sm_mhz", "sm_mhz_max", "temp_c", "power_w", "power_limit_w", "util", "throttle", "recovery_action")
            if getattr(reading, name) is not None
        }
        signals = [self.signal(now, "gpu_state", data=state, **who)] if state else []
        for scope in ("volatile", "aggregate"):
            for where in ("dram", "sram"):
                counts = {kind: reading.ecc.get((scope, kind, where)) for kind in ("corrected", "uncorrected")}
                known = {kind: value for kind, value in counts.items() if value is not None}
                if known and self._changes.due((gpu.uuid, "ecc", scope, where), known, now):
                    signals.append(self.signal(now, "ecc", data={**known, "scope": scope, "where": where}, **who))
        if reading.rows is not None and self._changes.due((gpu.uuid, "rows"), reading.rows, now):
            rows = dict(zip(("corrected", "uncorrected", "pending", "failed"), reading.rows, strict=True))
            signals.append(self.signal(now, "row_remap", data=rows, **who))
        if reading.pcie and self._changes.due((gpu.uuid, "pcie"), reading.pcie, now):
            signals.append(self.signal(now, "pcie", data=dict(reading.pcie), **who))
        return signals

    def _tell_links(self, reader: NvmlReader, gpu: Gpu, reading: GpuReading, now: float) -> list[Signal]:
        """NVLinks that changed, each with what stood before, so that a witness can tell new errors from old ones."""
        first = gpu.gpu not in self._totals
        moved = first or self._totals[gpu.gpu] != reading.totals or not reading.totals
        self._totals[gpu.gpu] = dict(reading.totals)
        signals = []
        for link in range(reading.links):
            key = (gpu.gpu, link)
            before = self._links.get(key)
            values = (
                reader.link_errors(gpu.gpu, link) if moved or before is None else {k: v for k, v in before.items() if k != "down"}
            )
            values["down"] = int(link in reading.links_down)
            self._links[key] = values
            if before is None and not any(values.values()):
                continue
            if before != values:
                for data in ([before] if before is not None else []) + [values]:
                    signals.append(self.signal(now, "nvlink", link=link, data=dict(data), **_who(gpu)))
        return signals

    def _xid(self, index: int | None, code: int, now: float) -> Signal:
        gpu = self._gpus.get(index) if index is not None else None
        who = _who(gpu) if gpu else {}
        return self.signal(now, "xid", code, data={"boot": self.place.boot, "by": "event"}, **who)


def _who(gpu: Gpu) -> dict[str, Any]:
    return {"gpu": gpu.gpu, "uuid": gpu.uuid, "pci": gpu.pci}


def gpu_samples(gpu: Gpu, reading: GpuReading) -> list[Sample]:
    """The series of one GPU; what is unknown has none."""
    labels = {"gpu": str(gpu.gpu), "uuid": gpu.uuid}
    values: dict[str, float | None] = {
        "temperature_celsius": reading.temp_c,
        "power_watts": reading.power_w,
        "power_limit_watts": reading.power_limit_w,
        "utilization_ratio": reading.util / 100 if reading.util is not None else None,
        "memory_used_bytes": reading.memory_used,
        "memory_bytes": reading.memory,
        "sm_clock_hertz": reading.sm_mhz * 1e6 if reading.sm_mhz is not None else None,
        "sm_clock_max_hertz": reading.sm_mhz_max * 1e6 if reading.sm_mhz_max is not None else None,
        "nvlinks_down": len(reading.links_down) if reading.links else None,
        "pcie_replays_total": reading.pcie.get("replay"),
        "pcie_width": reading.pcie.get("width"),
        "pcie_width_max": reading.pcie.get("width_max"),
        "pcie_generation": reading.pcie.get("gen"),
        "pcie_generation_max": reading.pcie.get("gen_max"),
        "recovery_action": reading.recovery_action,
        "fabric_state": reading.fabric_state,
        "processes": len(reading.processes) if reading.processes is not None else None,
    }
    samples = [Sample(f"outrider_gpu_{name}", float(value), labels) for name, value in values.items() if value is not None]
    for (scope, kind, where), value in reading.ecc.items():
        name = "outrider_gpu_ecc_errors_total" if scope == "volatile" else "outrider_gpu_ecc_errors_lifetime_total"
        samples.append(Sample(name, float(value), {**labels, "kind": kind, "where": where}))
    for kind, value in zip(("corrected", "uncorrected", "pending", "failed"), reading.rows or (), strict=False):
        samples.append(Sample("outrider_gpu_remapped_rows", float(value), {**labels, "kind": kind}))
    for kind, value in reading.retired.items():
        samples.append(Sample("outrider_gpu_retired_pages", float(value), {**labels, "kind": kind}))
    for kind, value in reading.totals.items():
        samples.append(Sample("outrider_gpu_nvlink_errors_total", float(value), {**labels, "kind": kind}))
    for reason in reading.throttle or []:
        samples.append(Sample("outrider_gpu_throttled", 1.0, {**labels, "reason": reason}))
    return samples
