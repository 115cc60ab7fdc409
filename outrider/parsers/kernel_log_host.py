"""Kernel lines about main memory, processors, processes and the kernel itself.

Source: Linux `drivers/edac`, `drivers/acpi/apei`, `mm/memory-failure.c`, `mm/oom_kill.c`, `kernel/hung_task.c`,
`kernel/watchdog.c`.
"""

import re
from typing import Final

from outrider.parsers.kernel_log_signal import kernel_signal
from outrider.signals import Signal

_EDAC: Final = re.compile(r"EDAC (?:MC|sbridge MC)(\d+): (\d+) (CE|UE) (.*)")
_DIMM: Final = re.compile(r"DIMM[_#]?\w*|CPU_SrcID#\w+|label[: ]\"?[\w#]+", re.IGNORECASE)
_GHES: Final = re.compile(r"\[Hardware Error\]:\s+(?:Error \d+, type|event severity): (corrected|recoverable|fatal|info)")
_FAILED_PAGE: Final = re.compile(r"Memory failure: (0x)?[0-9a-f]+: (.*)")
_KILLED_BY_PAGE: Final = re.compile(r"(?:Killing|Sending SIGBUS to) (\S+?):(\d+) (?:due to )?hardware memory corruption")


def read_edac(text: str) -> Signal | None:
    """`EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (..)`."""
    match = _EDAC.search(text)
    if not match:
        return None
    event = "memory_corrected" if match[3] == "CE" else "memory_uncorrected"
    place = " on ".join(match[4].split(" on ")[1:]).split(" (")[0] or match[4][:60]
    return kernel_signal(
        event, text, data={"count": int(match[2]), "controller": int(match[1]), "place": place}, value=int(match[2])
    )


def read_hardware_error(text: str) -> Signal | None:
    """Lines of the firmware's error records (GHES) and of machine checks."""
    if severity := _GHES.search(text):
        event = {"corrected": "memory_corrected", "info": None}.get(severity[1], "machine_check")
        return kernel_signal(event, text, data={"severity": severity[1], "count": 1}) if event else None
    if "Machine check events logged" in text or "corrected" in text.lower().replace("uncorrected", ""):
        return kernel_signal("memory_corrected", text, data={"count": 1, "severity": "corrected"})
    if "Uncorrected" in text or "Machine Check Exception" in text or "Machine Check: " in text:
        return kernel_signal("machine_check", text, data={"severity": "recoverable"})
    return None


def read_memory_failure(text: str) -> Signal | None:
    """`Memory failure: 0x1234: Killing python3:123 due to hardware memory corruption`."""
    match = _FAILED_PAGE.search(text)
    if not match:
        return None
    killed = _KILLED_BY_PAGE.search(match[2])
    data = {"killed": killed[1], "pid": int(killed[2])} if killed else {}
    return kernel_signal("memory_uncorrected", text, data=data)


_OOM: Final = re.compile(r"(?P<cgroup>Memory cgroup out|Out) of memory: Kill(?:ed)? process (?P<pid>\d+),? \(?(?P<name>[^),]+)")
_OOM_KILL: Final = re.compile(r"oom-kill:constraint=(?P<constraint>\w+).*?task=(?P<name>[^,]+),pid=(?P<pid>\d+)")
_HUNG: Final = re.compile(r"(?:INFO: )?task (?P<name>.+?):(?P<pid>\d+)(?: <\S+>)? blocked for more than (?P<seconds>\d+) seconds")
_LOCKUP: Final = re.compile(r"soft lockup - CPU#(\d+) stuck for (\d+)s!(?: \[(.+?):(\d+)\])?")
_FRAME: Final = re.compile(r"(?:\[<[0-9a-f]*>\] |\? )?\s*([a-zA-Z_][\w.]*)\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[(\w+)\])?")


def read_oom(text: str) -> Signal | None:
    if match := _OOM.search(text):
        where = "cgroup" if match["cgroup"].startswith("Memory cgroup") else "host"
        return kernel_signal("oom", text, data={"pid": int(match["pid"]), "name": match["name"], "where": where})
    if match := _OOM_KILL.search(text):
        where = "cgroup" if match["constraint"] == "CONSTRAINT_MEMCG" else "host"
        return kernel_signal("oom", text, data={"pid": int(match["pid"]), "name": match["name"], "where": where})
    return None


def read_hung_task(text: str) -> Signal | None:
    match = _HUNG.search(text)
    if not match:
        return None
    data = {"pid": int(match["pid"]), "name": match["name"], "seconds": int(match["seconds"])}
    return kernel_signal("hung_task", text, data=data, process=int(match["pid"]))


def read_lockup(text: str) -> Signal | None:
    if match := _LOCKUP.search(text):
        data = {"cpu": int(match[1]), "seconds": int(match[2]), "name": match[3]}
        return kernel_signal("soft_lockup", text, data=data)
    return None


def read_frame(text: str) -> Signal | None:
    """One frame of a kernel stack: which function, of which module; it belongs to the hung task, lockup or oops above it."""
    match = _FRAME.search(text[:200])
    return match and kernel_signal("frame", text, data={"function": match[1], "module": match[2]})


def read_stall(text: str) -> Signal | None:
    return kernel_signal("cpu_stall", text) if "stall" in text and ("rcu" in text.lower()) else None


def read_trap(text: str) -> Signal | None:
    """A user process that crashed is the program's; the same words without a process are the kernel's own."""
    if text.startswith("traps: ") or " ip:" in text:
        return kernel_signal("user_fault", text)
    return kernel_signal("oops", text)


_SEGFAULT: Final = re.compile(r"(?P<name>.{1,15})\[(?P<pid>\d+)\]: segfault at ")


def read_segfault(text: str) -> Signal | None:
    match = _SEGFAULT.match(text)
    return match and kernel_signal("user_fault", text, data={"name": match["name"], "pid": int(match["pid"])})
