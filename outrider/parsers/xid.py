"""Reads what NVIDIA's GPU driver writes about an Xid: `NVRM: Xid (PCI:0000:3b:00): 79, pid=.., name=.., TEXT`.

Source: open-gpu-kernel-modules, `src/nvidia/src/kernel/gpu/rc/kernel_rc.c` (krcReportXid) and the writers of each code's text.
The function takes the message without its log prefix: whether the kernel wrote it is the caller's knowledge.
"""

import re
from typing import Any, Final

from outrider.signals import Signal

_HEAD: Final = re.compile(
    r"(?:NVRM: )?Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-9a-fA-F])?"
    r"(?: GPU-I:(?P<gi>\w+))?(?: GPU-CI:(?P<ci>\w+))?\)\s*:\s*(?P<code>\d{1,5})(?=\D|$),?[ \t]*(?P<rest>.*)",
    re.DOTALL,
)
_PID: Final = re.compile(r"pid=(?:'?<unknown>'?|'?(\d{1,10})'?)\s*(?:,\s*|$)")
#: How the texts of the driver begin: a process name may hold commas and blanks, so the name ends where a text begins.
_TEXT_START: Final = re.compile(
    r",\s+(?=Ch |Channel |NVLink:|Contained|Uncontained|Timeout |GPU |GSP |An uncorrectable|Row Remapper|Bank Remapper|DRAM "
    r"|Graphics |MMU Fault|intr |Retiring |Unable to |Marking |[A-Z]{2,}[A-Z0-9_]*\s+(?:Non-?[Ff]atal|Fatal|Correctable)\b"
    r"|[0-9a-f]{4,8}(?:\(| |$)|PBDMA|Failed |errorString)"
)
_REGISTERS: Final = re.compile(r"links? (\w+)\s?\(((?:0x[0-9a-fA-F]+(?:,\s*)?){1,8})\)")
_LINK: Final = re.compile(r"\bon link (\d+)|\blinks? ((?:0x)?[0-9a-fA-F]+)\b")
_CAUSED: Final = re.compile(r"caused by previous Xid (\d+)")
_RESET: Final = re.compile(r"\bRST: (Yes|No), D-RST: (Yes|No)")
_RECOVERY: Final = re.compile(r"from 0x([0-9a-fA-F]+) \(([^)]*)\) to 0x([0-9a-fA-F]+) \(([^)]*)\)")
_RECOVERY_SHORT: Final = re.compile(r"GPU recovery action changed .*?to 0x([0-9a-fA-F]+) \(([^)]*)\)")
_NVLINK5: Final = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]+)\s+(?P<severity>Fatal|Non-?[Ff]atal|Correctable)\s+XC(?P<xc>\d)\s+i(?P<injected>\d)"
    r"\s+Link\s+(?P<link>-?\d+)\s*(?:\((?P<words>[^)]*)\)|:?\s*(?P<text>.*))"
)
_UNIT_13: Final = re.compile(r"\bGPC (\d+), TPC (\d+)")
_UNIT_31: Final = re.compile(r"(?:\b(GPC\d+) )?(GPCCLIENT_\w+|HUBCLIENT_\w+)")
_ADDRESS: Final = re.compile(r"\((0x[0-9a-fA-F]+)\)|physAddr:? (0x[0-9a-fA-F]+)|\bat (0x[0-9a-fA-F]+)")
_GSP: Final = re.compile(r"function (\w+)(?: \((\w+)\))?")

#: Characters kept of a text: the longest that a driver writes is below 1 KiB.
_TEXT_MAX: Final = 2048


def parse_xid(message: str) -> Signal | None:
    """One Xid as a signal of kind `xid` (`t` is 0: the caller knows the time), or None.

    `value` is the code, `pci` the bus address without function digit; `data` holds `pid`, `name`, `mig`, the rest of the line as
    `detail`, and what the code's text says (`registers`, `link`, `severity`, `injected`, `recovery`, `reset`, `caused_by`, `unit`).
    """
    match = _HEAD.match(message[:_TEXT_MAX])
    if match is None:
        return None
    rest = match["rest"].strip()
    data: dict[str, Any] = {}
    if match["gi"]:
        data["mig"] = f"GI {match['gi']}" + (f" CI {match['ci']}" if match["ci"] else "")
    rest = _take_process(rest, data)
    data["detail"] = rest
    code = int(match["code"])
    _decode(code, rest, data)
    domain, bus, device = match["pci"].lower().split(":")
    return Signal(
        t=0.0, kind="xid", pci=f"{int(domain, 16):04x}:{bus}:{device}", value=code, link=data.pop("link", None),
        data=data, text=message, source="kernel_log",
    )  # fmt: skip


def _take_process(rest: str, data: dict[str, Any]) -> str:
    """Takes `pid=.., name=..,` off the front; returns the text after it."""
    if not (pid := _PID.match(rest)):
        return rest
    if pid[1]:
        data["pid"] = int(pid[1])
    rest = rest[pid.end() :]
    if not rest.startswith("name="):
        return rest
    rest = rest[5:]
    if known := _TEXT_START.search(rest):
        name, rest = rest[: known.start()], rest[known.end() :]
    else:
        name, _, rest = rest.partition(", ")
    name = name.strip().strip("'")
    if name and name != "<unknown>":
        data["name"] = name
    return rest.strip()


def _decode(code: int, text: str, data: dict[str, Any]) -> None:
    """What the text of this code says beyond its number."""
    if code == 45 and (caused := _CAUSED.search(text)):
        data["caused_by"] = int(caused[1])
    elif code == 154:
        _decode_recovery(text, data)
    elif 144 <= code <= 150 or code == 155:
        _decode_nvlink5(code, text, data)
    elif code in (74, 136, 137):
        _decode_link(text, data)
    elif code in (94, 95) and (reset := _RESET.search(text)):
        data["reset"] = {"rst": reset[1] == "Yes", "d_rst": reset[2] == "Yes"}
    elif code == 13 and (unit := _UNIT_13.search(text)):
        data["unit"] = f"GPC {unit[1]} TPC {unit[2]}"
    elif code == 31 and (unit := _UNIT_31.search(text)):
        data["unit"] = " ".join(part for part in unit.groups() if part)
    elif code in (119, 120) and (call := _GSP.search(text)):
        data["call"] = call[2] or call[1]
    if code in (48, 63, 64, 94, 95, 140, 171, 172) and (address := _ADDRESS.search(text)):
        data["address"] = next(part for part in address.groups() if part)


def _decode_recovery(text: str, data: dict[str, Any]) -> None:
    if change := _RECOVERY.search(text):
        data["recovery"] = {"from": int(change[1], 16), "to": int(change[3], 16), "text": change[4].strip()}
    elif short := _RECOVERY_SHORT.search(text):
        data["recovery"] = {"to": int(short[1], 16), "text": short[2].strip()}


def _decode_link(text: str, data: dict[str, Any]) -> None:
    if registers := _REGISTERS.search(text):
        data["registers"] = tuple(int(word, 16) for word in re.findall(r"0x[0-9a-fA-F]+", registers[2]))
        if registers[1].isdecimal():
            data["link"] = int(registers[1])
    elif (link := _LINK.search(text)) and link[1]:
        data["link"] = int(link[1])


def _decode_nvlink5(code: int, text: str, data: dict[str, Any]) -> None:
    match = _NVLINK5.search(text)
    if not match:
        return
    severity = match["severity"].lower().replace("-", "")
    data |= {"unit": match["unit"], "severity": severity, "injected": match["injected"] != "0"}
    if int(match["link"]) >= 0:
        data["link"] = int(match["link"])
    words = re.findall(r"0x[0-9a-fA-F]+", match["words"] or "")[:8]
    if words:
        info = int(words[0], 16)
        data["info"], data["status"] = info, int(words[1], 16) if len(words) > 1 else 0
        # Both encodings of the sub unit: before R575 bits 9:5, from R575 bits 6:0 (NVIDIA Xid catalog).
        data["sub_unit"] = {"before_r575": info >> 5 & 0x1F, "r575": info & 0x7F}
        if code == 149:
            data["reason"] = info >> 20 & 0x3F


def bits(register: int) -> list[int]:
    """The numbers of the bits that are set, lowest first (registers have 32 bits)."""
    return [bit for bit in range(32) if register >> bit & 1]
