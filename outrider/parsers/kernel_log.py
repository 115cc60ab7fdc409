"""Reads a kernel log, line by line, into signals; and finds the few lines that matter in large blocks of text.

`KernelLog.feed(line)` is pure but for what it must remember: the first half of a message of three records, and the last time.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from outrider.parsers.kernel_log_prefix import split_record
from outrider.parsers.kernel_log_rules import RULES
from outrider.parsers.sxid import parse_sxid
from outrider.parsers.xid import parse_xid
from outrider.signals import Signal

_PCI: Final = re.compile(r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?")
_IDENTITY: Final = re.compile(r"NVRM: GPU at (?:PCI:)?([0-9a-fA-F:]{10,16})(?:\.[0-9a-f])?: (GPU-[0-9a-fA-F-]{8,40})")
#: Characters of a line that are read: the kernel cuts its records at 1 KiB, a journal's JSON record carries its other fields too.
_LINE_MAX: Final = 4096
_JSON_MAX: Final = 65_536
#: Records between the first and the last of the three that tell of a GPU lost at driver load.
_HALVES_MAX: Final = 8


def _driver_signal(event: str, text: str, pci: str | None) -> Signal:
    return Signal(t=0.0, kind="kernel", pci=pci, data={"event": event}, text=text, source="kernel_log")


def _address(text: str) -> str | None:
    """The first PCI address in a text, as `dddd:bb:dd`."""
    if not (match := _PCI.search(text)):
        return None
    domain, bus, device = match[1].lower().split(":")
    return f"{int(domain, 16):04x}:{bus}:{device}"


def _read_identity(text: str) -> Signal | None:
    match = _IDENTITY.match(text)
    return match and msgspec.structs.replace(_driver_signal("gpu_identity", text, _address(match[1])), uuid=match[2])


#: Lines of NVIDIA's driver besides Xids: literal -> event.
_DRIVER: Final[tuple[tuple[str, str], ...]] = (
    ("RmInitAdapter failed", "gpu_init_failed"),
    ("probe routine failed", "gpu_init_failed"),
    ("nvidia: probe of ", "gpu_init_failed"),
    ("None of the NVIDIA devices were", "gpu_init_failed"),
    ("Failed to update Rx Detect Link mask", "nvlink_detect_failed"),
    ("NVIDIA UNIX", "driver_load"),
)

#: What a line must hold to be looked at; everything else is passed over at the speed of a plain search.
LITERALS: Final[tuple[str, ...]] = tuple(
    dict.fromkeys(
        ["Xid (", "SXid (", "fallen off the bus", "NVRM: The NVIDIA GPU ", "NVRM: GPU at PCI:", "[78,86,82,77"]
        + [literal for literal, _ in _DRIVER]
        + [literal for literal, _ in RULES]
    )
)


class KernelLog:
    """A reader of one machine's kernel log.

    Args:
        bare: lines without any prefix are the kernel's (`dmesg -t`).
        user_records: accept records that a process wrote to /dev/kmsg, for a test of a whole machine.
    """

    def __init__(self, *, bare: bool = False, user_records: bool = False) -> None:
        self._bare, self._user_records = bare, user_records
        self._half: tuple[str, int] | None = None  # a lost GPU's address, and how many records may still follow
        self._t = 0.0

    def feed(self, line: str) -> Signal | None:
        """What one line says, or None. `t` is in seconds on the log's own clock, the last known one if the line has none."""
        limit = _JSON_MAX if line.startswith("{") else _LINE_MAX
        record = split_record(line[:limit], bare=self._bare, user_records=self._user_records)
        if record is None:
            if self._half and "NVRM: fallen off the bus" in line and line.lstrip().startswith("NVRM:"):
                return self._finish(self._lost(line.strip()), None)
            return None
        if record.t is not None:
            self._t = record.t
        elif record.delta is not None:
            self._t += record.delta
        signal = self._read(record.message)
        return signal and self._finish(signal, record.host)

    def _finish(self, signal: Signal, host: str | None) -> Signal:
        return msgspec.structs.replace(signal, t=self._t, node=host)

    def _read(self, message: str) -> Signal | None:
        if self._half:
            pci, left = self._half
            self._half = (pci, left - 1) if left > 0 else None
        if message.startswith(("NVRM: Xid (", "Xid (", "nvidia_dev_xid: Xid (")):
            return parse_xid(message.removeprefix("nvidia_dev_xid: "))
        if "SXid (" in message:
            return parse_sxid(message)
        if message.startswith(("NVRM: ", "nvidia ", "nvidia: ")):
            return self._read_driver(message)
        for literal, read in RULES:
            if literal in message and (signal := read(message)):
                return signal
        return None

    def _read_driver(self, message: str) -> Signal | None:
        if "fallen off the bus" in message:
            return self._lost(message)
        if message.startswith("NVRM: The NVIDIA GPU ") and (pci := _address(message)):
            self._half = (pci, _HALVES_MAX)
            return None
        if message.startswith("NVRM: GPU at PCI:"):
            return _read_identity(message)
        for literal, event in _DRIVER:
            if literal in message:
                return _driver_signal(event, message, _address(message))
        return None

    def _lost(self, message: str) -> Signal:
        """A GPU that fell off the bus, told without an Xid. The address stands in the same record or in the first of three."""
        pci = _address(message) or (self._half[0] if self._half else None)
        self._half = None
        data: dict[str, Any] = {"detail": message, "form": "no_xid"}
        return Signal(t=0.0, kind="xid", pci=pci, value=79, data=data, text=message, source="kernel_log")


def has_prefixes(head: str) -> bool:
    """Whether a log's lines carry a prefix that says who wrote them; if not, it may be the bare text of `dmesg -t`."""
    return any(split_record(line) is not None for line in head.splitlines()[:200])


def lines_that_matter(block: str, first_line: int) -> Iterator[tuple[int, str]]:
    """The lines of a block that hold one of `LITERALS`, in order, with their numbers.

    Args:
        block: text that begins at the start of a line.
        first_line: number of its first line.
    """
    starts: dict[int, int] = {}
    for literal in LITERALS:
        at = block.find(literal)
        while at >= 0:
            start = block.rfind("\n", 0, at) + 1
            end = block.find("\n", at)
            end = len(block) if end < 0 else end
            starts[start] = end
            at = block.find(literal, end)
    number, counted = first_line, 0
    for start in sorted(starts):
        number += block.count("\n", counted, start)
        counted = start
        yield number, block[start : starts[start]]
