"""Reads what the NVSwitch driver writes: `nvidia-nvswitch3: SXid (PCI:0000:0b:00.0): 22013, Non-fatal, Link 26 ..`.

One event gives three or more lines with the same number; the severity line alone is the event, the `Severity ..` and `Data {..}`
rows that follow it are its details. Source: open-gpu-kernel-modules, `src/common/nvswitch/kernel/inc/common_nvswitch.h`.
"""

import re
from typing import Any, Final

from outrider.signals import Signal

_HEAD: Final = re.compile(
    r"nvidia-nvswitch(?P<switch>\d+): SXid \((?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?\)"
    r"\s*:\s*(?P<code>\d{4,6})(?=\D|$),?\s*(?P<text>.*)",
    re.DOTALL,
)
_SEVERITY: Final = re.compile(r"(Fatal|Non-?fatal|Correctable)\s*,\s*(?:Link\s+(\d+)\s+)?(.*)", re.IGNORECASE | re.DOTALL)
_FOLLOW_UP: Final = re.compile(r"Severity \d+ Engine instance|Data \{")


def parse_sxid(message: str) -> Signal | None:
    """One event of an NVSwitch as a signal of kind `sxid`, or None (also for the detail rows of an event).

    `switch` is `nvswitchN`; `data.severity` is `fatal`, `nonfatal`, `correctable` or absent (a free text without a severity).
    """
    match = _HEAD.match(message[:2048])
    if match is None or _FOLLOW_UP.match(match["text"]):
        return None
    text = match["text"].strip()
    data: dict[str, Any] = {}
    link = None
    if severity := _SEVERITY.match(text):
        data["severity"] = severity[1].lower().replace("-", "")
        link = int(severity[2]) if severity[2] else None
        text = severity[3]
    if text.endswith("(First)"):
        data["first"] = True
        text = text[: -len("(First)")].strip()
    data["detail"] = text
    domain, bus, device = match["pci"].lower().split(":")
    return Signal(
        t=0.0, kind="sxid", switch=f"nvswitch{match['switch']}", pci=f"{int(domain, 16):04x}:{bus}:{device}",
        value=int(match["code"]), link=link, data=data, text=message, source="kernel_log",
    )  # fmt: skip
