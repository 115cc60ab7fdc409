"""Reads NVML into typed values; what a GPU does not support is None, never zero. Source: NVIDIA's NVML API reference.

The library is loaded when the reader is opened, in a child process: a call that hangs holds up that child and nobody else.
"""

import contextlib
import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from collectors.frame.identity import Gpu, normal_pci

T = TypeVar("T")

#: Most links that a GPU has (NVML_NVLINK_MAX_LINKS counts future ones too).
LINKS_MAX = 18
#: Bits of the clocks event reasons that tell why a GPU is slower than it could be (nvml.h); idle and settings are left out.
REASONS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "power_brake",
}
_ECC = [
    (scope, kind, where, (kind_number, scope_number, where_number))
    for scope, scope_number in (("volatile", 0), ("aggregate", 1))
    for kind, kind_number in (("corrected", 0), ("uncorrected", 1))
    for where, where_number in (("dram", 2), ("sram", 7))
]
#: Field identifiers of totals over all links, and of the recovery action.
_FIELDS = {38: "crc", 45: "crc_data", 52: "replay", 59: "recovery", 230: "recovery_action"}


class GpuLostError(Exception):
    """The GPU does not answer any more (NVML_ERROR_GPU_IS_LOST, or it is gone)."""


class NoDriverError(Exception):
    """There is no library, or no driver behind it: one line."""


@dataclass
class GpuReading:
    """One GPU at one moment. Units stand in the names; None: not supported or not readable."""

    temp_c: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    util: int | None = None
    memory: int | None = None
    memory_used: int | None = None
    sm_mhz: int | None = None
    sm_mhz_max: int | None = None
    throttle: list[str] | None = None
    ecc: dict[tuple[str, str, str], int] = field(default_factory=dict)
    rows: tuple[int, int, int, int] | None = None
    retired: dict[str, int] = field(default_factory=dict)
    links_down: list[int] = field(default_factory=list)
    links: int = 0
    totals: dict[str, int] = field(default_factory=dict)
    pcie: dict[str, int] = field(default_factory=dict)
    recovery_action: int | None = None
    fabric_state: int | None = None
    processes: list[int] | None = None


class NvmlReader:
    """One opened NVML. Made anew after the driver went away.

    Args:
        library: path of the library; empty: the system's.

    Raises:
        NoDriverError: it cannot be opened.
    """

    def __init__(self, library: str = "") -> None:
        import pynvml

        self._nvml: Any = pynvml
        try:
            if library:
                pynvml.nvmlLib = ctypes.CDLL(library)
            pynvml.nvmlInit()
        except (pynvml.NVMLError, OSError) as error:
            raise NoDriverError(f"{library or 'libnvidia-ml.so.1'}: {error}") from None
        self._handles: dict[int, Any] = {}
        self._by_address: dict[int | None, int] = {}
        self._lost = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_UNINITIALIZED)
        self._events: Any = None

    def count(self) -> int:
        """GPUs that the driver shows, those that are lost among them."""
        return int(self._nvml.nvmlDeviceGetCount())

    def identify(self, index: int) -> Gpu:
        """Who the GPU at that index is. Raises GpuLostError."""
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            uuid, bus = self._nvml.nvmlDeviceGetUUID(handle), self._nvml.nvmlDeviceGetPciInfo(handle).busId
        except self._nvml.NVMLError as error:
            raise GpuLostError(str(error)) from None
        self._handles[index] = handle
        self._by_address[ctypes.cast(handle, ctypes.c_void_p).value] = index
        serial = self._try(lambda: self._nvml.nvmlDeviceGetSerial(handle))
        return Gpu(gpu=index, uuid=_text(uuid), pci=normal_pci(_text(bus)), serial=_text(serial or ""))

    def read(self, index: int) -> GpuReading:
        """All values of a GPU that was identified. Raises GpuLostError."""
        nvml, handle = self._nvml, self._handles[index]
        reading = GpuReading()
        reading.temp_c = self._try(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        reading.power_w = _thousandth(self._try(lambda: nvml.nvmlDeviceGetPowerUsage(handle)))
        reading.power_limit_w = _thousandth(self._try(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle)))
        reading.util = self._try(lambda: int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu))
        reading.sm_mhz = self._try(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
        reading.sm_mhz_max = self._try(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM))
        memory = self._try(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        if memory is not None:
            reading.memory, reading.memory_used = int(memory.total), int(memory.used)
        bits = self._try(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        if bits is not None:
            reading.throttle = [word for bit, word in REASONS.items() if bits & bit]
        self._read_memory_health(reading, handle)
        self._read_links(reading, handle)
        found = self._try(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        reading.processes = [int(process.pid) for process in found] if found is not None else None
        return reading

    def link_errors(self, index: int, link: int) -> dict[str, int]:
        """Error counters of one NVLink: replay, recovery, crc."""
        nvml, handle = self._nvml, self._handles[index]
        counters: dict[str, int] = {}
        for name, numbers in (("replay", (0,)), ("recovery", (1,)), ("crc", (2, 3))):
            values = [self._try(lambda one=one: int(nvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, one))) for one in numbers]  # type: ignore[misc]
            if any(value is not None for value in values):
                counters[name] = sum(value or 0 for value in values)
        return counters

    def watch_events(self) -> None:
        """Asks for XID events of all GPUs that were identified."""
        nvml = self._nvml
        self._events = self._try(nvml.nvmlEventSetCreate)
        for handle in self._handles.values():
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, self._events)

    def events(self, most: int = 64) -> list[tuple[int | None, int]]:
        """XID events since the last call: (index, code). Does not wait."""
        found: list[tuple[int | None, int]] = []
        for _ in range(most if self._events is not None else 0):
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._events, 0)
            except self._nvml.NVMLError:
                break  # nothing more, or the set is gone with its GPU: the readings tell that
            found.append((self._by_address.get(ctypes.cast(event.device, ctypes.c_void_p).value), int(event.eventData)))
        return found

    def close(self) -> None:
        """Gives the library back."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _read_memory_health(self, reading: GpuReading, handle: Any) -> None:
        nvml = self._nvml
        for scope, kind, where, numbers in _ECC:
            value = self._try(lambda numbers=numbers: nvml.nvmlDeviceGetMemoryErrorCounter(handle, *numbers))  # type: ignore[misc]
            if value is not None:
                reading.ecc[scope, kind, where] = int(value)
        rows = self._try(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        if rows is not None:
            corrected, uncorrected, pending, failed = (int(value) for value in rows)
            reading.rows = (corrected, uncorrected, pending, failed)
        for cause, word in ((0, "single_bit"), (1, "double_bit")):
            pages = self._try(lambda cause=cause: nvml.nvmlDeviceGetRetiredPages(handle, cause))  # type: ignore[misc]
            if pages is not None:
                reading.retired[word] = len(pages)

    def _read_links(self, reading: GpuReading, handle: Any) -> None:
        nvml = self._nvml
        for link in range(LINKS_MAX):
            active = self._try(lambda link=link: nvml.nvmlDeviceGetNvLinkState(handle, link))  # type: ignore[misc]
            if active is None:
                break
            reading.links += 1
            if not active:
                reading.links_down.append(link)
        for value in self._try(lambda: list(nvml.nvmlDeviceGetFieldValues(handle, list(_FIELDS)))) or []:
            if value.nvmlReturn == 0:
                name, number = _FIELDS[value.fieldId], int(value.value.ullVal) & 0xFFFFFFFFFFFFFFFF
                if name == "recovery_action":
                    reading.recovery_action = number & 0xFFFFFFFF
                else:
                    key = "crc" if name == "crc_data" else name
                    reading.totals[key] = reading.totals.get(key, 0) + number
        for name, call in (
            ("replay", nvml.nvmlDeviceGetPcieReplayCounter),
            ("width", nvml.nvmlDeviceGetCurrPcieLinkWidth),
            ("width_max", nvml.nvmlDeviceGetMaxPcieLinkWidth),
            ("gen", nvml.nvmlDeviceGetCurrPcieLinkGeneration),
            ("gen_max", nvml.nvmlDeviceGetMaxPcieLinkGeneration),
        ):
            if (found := self._try(lambda call=call: call(handle))) is not None:  # type: ignore[misc]
                reading.pcie[name] = int(found)
        reading.fabric_state = self._try(lambda: self._fabric(handle))

    def _fabric(self, handle: Any) -> int:
        info = self._nvml.c_nvmlGpuFabricInfo_t()
        self._nvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
        return int(info.state)

    def _try(self, call: Callable[[], T]) -> T | None:
        """The call's answer, or None where this GPU or driver has none."""
        try:
            return call()
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) in self._lost:
                raise GpuLostError(str(error)) from None
            return None


def _text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def _thousandth(value: int | None) -> float | None:
    return value / 1000 if value is not None else None
