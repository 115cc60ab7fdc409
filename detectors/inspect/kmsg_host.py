"""Findings about a machine itself from its kernel log: panic, memory, processes, lock-ups, boots; and its storage."""

from collections import Counter
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding
from detectors.inspect.part import part_finding
from outrider.catalogue import Culprit, Repair, Response
from outrider.signals import Signal

Told = list[tuple[Signal, EvidenceLine]]

#: Corrected memory errors in one log from which the module is worth a person's look (a scrub finds a few a month on good ones).
CORRECTED_MANY: Final = 100
#: From here on they are shown, below they are counted.
CORRECTED_SOME: Final = 10
#: A CPU that was stuck this long, or this often, does not come back by itself.
LOCKUP_SECONDS: Final = 60
LOCKUPS: Final = 3
#: Errors of a file server that were over within this are a hiccup.
HICCUP_SECONDS: Final = 120.0

_STORAGE_MODULES: Final = frozenset(
    {"nfs", "nfsv3", "nfsv4", "sunrpc", "lustre", "ptlrpc", "osc", "mdc", "lov", "ceph", "libceph", "fuse", "mmfs26", "mmfslinux",
     "beegfs", "cifs", "wekafsio", "rpcrdma"}
)  # fmt: skip
_STORAGE_WORDS: Final = ("nfs", "rpc_wait", "ptlrpc", "ll_file", "ceph_", "fuse_", "request_wait_answer", "cifs_")
_DRIVER_MODULES: Final = frozenset({"nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_peermem"})


def events_of(told: Told, event: str) -> Told:
    return [one for one in told if one[0].kind == "kernel" and one[0].data.get("event") == event]


def judge_host(node: str | None, told: Told, context: Context) -> list[Finding]:
    """All findings about the machine, its processes and its storage.

    Args:
        node: its name, if known.
        told: kernel and storage signals with their lines, in order.
    """
    found = [*_panic(node, told, context), *_memory(node, told, context), *_out_of_memory(node, told, context)]
    found += _hung(node, told, context)
    found += [*_lockups(node, told, context), *_boots(node, told, context), *_disks(node, told, context)]
    if faults := events_of(told, "user_fault"):
        names = ", ".join(dict.fromkeys(str(signal.data.get("name") or "a process") for signal, _ in faults))
        why = f"A user process crashed ({names}): its own error."
        found.append(_make("job.app_error", node, why, faults, context, response="watch", layers=("hardware",)))
    return found


def _make(
    fault: str,
    node: str | None,
    explanation: str,
    told: Told,
    context: Context,
    *,
    response: Response | None = None,
    subject: dict[str, Any] | None = None,
    **changed: Any,
) -> Finding:
    where = {"node": node, "job": context.job_name} | (subject or {})
    return part_finding(fault, where, explanation, [line for _, line in told], context, response=response, **changed)


def _panic(node: str | None, told: Told, context: Context) -> list[Finding]:
    panics = events_of(told, "panic") + events_of(told, "thermal_shutdown")
    oopses = events_of(told, "oops")
    if panics:
        fatal_memory = [one for one in told if one[0].data.get("event") in ("machine_check", "memory_uncorrected")]
        first = panics[0][0]
        if first.data["event"] == "thermal_shutdown":
            return [
                _make("node.lost", node, "The machine switched itself off because it was too hot.", panics, context, decisive=True)
            ]
        memory = fatal_memory and "machine check" in (first.text or "").lower()
        why = f"The kernel panicked: {(first.text or '').partition('not syncing:')[2].strip() or 'no reason printed'}."
        repair: Repair = "replace_part" if memory else "investigate"
        fault = "node.memory" if memory else "node.panic"
        lines = (fatal_memory if memory else []) + panics
        return [_make(fault, node, why, lines, context, response="restart", repair=repair, decisive=True)]
    if oopses:
        why = "The kernel hit an error of its own and lives on, damaged: it should be booted before it gets new work."
        return [_make("node.panic", node, why, oopses, context, response="drain", repair="reboot_node", decisive=False)]
    return []


def _memory(node: str | None, told: Told, context: Context) -> list[Finding]:
    if events_of(told, "panic") and any("machine check" in (signal.text or "").lower() for signal, _ in events_of(told, "panic")):
        return []  # told there
    bad = events_of(told, "memory_uncorrected") + events_of(told, "machine_check")
    if bad:
        killed = [str(signal.data["killed"]) for signal, _ in bad if signal.data.get("killed")]
        fatal = any(signal.data.get("severity") == "fatal" for signal, _ in bad)
        why = "Main memory or a CPU gave an error that could not be corrected"
        why += f"; it killed {', '.join(killed)}." if killed else "."
        response: Response = "restart" if killed or fatal else "drain"
        return [_make("node.memory", node, why, bad, context, response=response, repair="replace_part", decisive=True)]
    corrected = events_of(told, "memory_corrected")
    total = sum(int(signal.data.get("count", 1)) for signal, _ in corrected)
    if total < CORRECTED_SOME:
        return []
    places = Counter(str(signal.data.get("place", "an unnamed place")) for signal, _ in corrected)
    why = f"{total} corrected memory errors, most of them at {places.most_common(1)[0][0]}: the data is right, the module is not."
    response = "page" if total >= CORRECTED_MANY else "watch"
    return [_make("node.memory", node, why, corrected, context, response=response, repair="replace_part", decisive=False)]


def _out_of_memory(node: str | None, told: Told, context: Context) -> list[Finding]:
    kills = events_of(told, "oom")
    if not kills:
        return []
    names = list(dict.fromkeys(str(signal.data["name"]) for signal, _ in kills))
    limit = "its memory limit" if all(signal.data.get("where") == "cgroup" for signal, _ in kills) else "the machine's memory"
    why = f"The kernel killed {', '.join(names[:5])}: the work needs more than {limit}. No part is broken."
    subject = {"process": kills[0][0].data["pid"]}
    if (rank := _rank_of(kills[0][0], context)) is not None:
        subject["rank"] = rank
    return [_make("job.oom", node, why, kills, context, subject=subject, layers=("hardware",))]


def _rank_of(signal: Signal, context: Context) -> int | None:
    """The rank of a killed process, where the site's list of processes names it as one (`rank 5`, `train rank=5`)."""
    name = context.processes.get(signal.data.get("pid", -1), "")
    words = name.replace("=", " ").replace(":", " ").split()
    return next((int(words[at + 1]) for at, word in enumerate(words[:-1]) if word == "rank" and words[at + 1].isdecimal()), None)


def _hung(node: str | None, told: Told, context: Context) -> list[Finding]:
    """Tasks that the kernel saw waiting for minutes, and file servers that do not answer: what do they wait for?"""
    groups: dict[str, Told] = {}
    known: dict[object, str] = {}
    for (signal, line), frames in _with_frames(told, "hung_task"):
        what = _waits_for(frames)
        if what == "unknown":  # the kernel tells of a task again without its stack
            what = known.get(signal.data["pid"], what)
        known[signal.data["pid"]] = what
        groups.setdefault(what, []).append((signal, line))
    found = list(_servers(node, told, groups.pop("storage", []), context))
    for what, waiting in groups.items():
        names = ", ".join(dict.fromkeys(f"{s.data['name']} ({s.data['pid']})" for s, _ in waiting[:5]))
        longest = max(int(signal.data["seconds"]) for signal, _ in waiting)
        subject = {"process": waiting[0][0].data["pid"]}
        if what == "driver":
            why = f"{names} wait for {longest} s and more inside the GPU driver: its calls do not return."
            found.append(_make("gpu.driver_hang", node, why, waiting, context, subject=subject, culprit="node"))
        else:
            why = f"{names} wait for {longest} s and more in the kernel" + (" for a local disk." if what == "disk" else ".")
            culprit: Culprit = "storage" if what == "disk" else "node"
            fault = "storage.hang" if what == "disk" else "node.hung"
            found.append(_make(fault, node, why, waiting, context, subject=subject, response="page", culprit=culprit))
    return found


def _with_frames(told: Told, event: str) -> list[tuple[tuple[Signal, EvidenceLine], list[Signal]]]:
    """Each event with the stack frames that stand below it."""
    grouped: list[tuple[tuple[Signal, EvidenceLine], list[Signal]]] = []
    open_group: list[Signal] | None = None
    for one in told:
        name = one[0].data.get("event")
        if name == event:
            open_group = []
            grouped.append((one, open_group))
        elif name == "frame" and open_group is not None:
            open_group.append(one[0])
        elif name != "frame":
            open_group = None
    return grouped


def _waits_for(frames: list[Signal]) -> str:
    """What a stack waits for: `storage` (a remote file system), `driver` (the GPU's), `disk`, or `unknown`."""
    functions = [str(frame.data.get("function", "")) for frame in frames]
    modules = {str(frame.data.get("module")) for frame in frames}
    if modules & _STORAGE_MODULES or any(word in function for function in functions for word in _STORAGE_WORDS):
        return "storage"
    if modules & _DRIVER_MODULES or any(function.startswith(("_nv0", "nv_", "nvidia_", "uvm_")) for function in functions):
        return "driver"
    disk = any(word in function for function in functions for word in ("jbd2", "xfs_", "ext4_", "nvme_", "blk_", "io_schedule"))
    return "disk" if disk else "unknown"


def _servers(node: str | None, told: Told, waiting: Told, context: Context) -> list[Finding]:
    """File servers by their last word; tasks that wait for storage count for the server that is silent."""
    by_server: dict[str, Told] = {}
    for one in told:
        if one[0].kind == "storage" and one[0].server:
            by_server.setdefault(one[0].server, []).append(one)
    found = []
    by_server = {server: lines for server, lines in by_server.items() if any(not signal.data.get("ok") for signal, _ in lines)}
    silent = [server for server, lines in by_server.items() if not lines[-1][0].data.get("ok")]
    for server, lines in by_server.items():
        is_open = server in silent
        lasted = lines[-1][0].t - lines[0][0].t
        blocked = waiting if is_open and (len(silent) == 1 or server == silent[0]) else []
        evicted = any(signal.data.get("error") == "evicted" for signal, _ in lines)
        why = (
            f"The file server {server} does not answer"
            if is_open
            else f"The file server {server} did not answer for {lasted:.0f} s, and does again"
        )
        why += f"; {len(blocked)} tasks wait for it." if blocked else "."
        response: Response = "page" if is_open else "watch"
        found.append(
            _make(
                "storage.hang",
                node,
                why,
                lines + blocked,
                context,
                subject={"server": server},
                response=response,
                state="open" if is_open else "resolved",
                culprit="node" if evicted else "storage",
            )
        )
    if waiting and not silent:
        names = ", ".join(dict.fromkeys(f"{s.data['name']} ({s.data['pid']})" for s, _ in waiting[:5]))
        why = f"{names} wait for minutes for a remote file system, and the log names no server."
        subject = {"process": waiting[0][0].data["pid"]}
        found.append(_make("storage.hang", node, why, waiting, context, subject=subject, response="page"))
    return found


def _lockups(node: str | None, told: Told, context: Context) -> list[Finding]:
    hard, soft, stalls = events_of(told, "hard_lockup"), events_of(told, "soft_lockup"), events_of(told, "cpu_stall")
    if hard:
        return [
            _make("node.hung", node, "A CPU stopped answering even interrupts (hard lock-up).", hard + soft, context, decisive=True)
        ]
    if soft:
        longest = max(int(signal.data["seconds"]) for signal, _ in soft)
        lasting = longest >= LOCKUP_SECONDS or len(soft) >= LOCKUPS
        why = f"A CPU was stuck in the kernel for {longest} s, told {len(soft)} times."
        return [_make("node.hung", node, why, soft + stalls, context, response="restart" if lasting else "page")]
    if stalls:
        return [_make("node.hung", node, "A CPU held up the kernel's housekeeping (RCU stall).", stalls, context, response="watch")]
    return []


def _boots(node: str | None, told: Told, context: Context) -> list[Finding]:
    """A boot in the middle of a log. With an orderly shutdown before it, somebody wanted it."""
    found = []
    for at, (signal, line) in enumerate(told):
        if signal.data.get("event") != "boot" or not _has_past(told, at, line):
            continue
        before = [one[0].data.get("event") for one in told[max(0, at - 50) : at]]
        if any(event in before for event in ("panic", "thermal_shutdown", "hard_lockup")):
            continue  # the boot is how that incident went on
        orderly = "shutdown" in before
        why = "The machine was booted in good order." if orderly else "The machine booted with no shutdown before it in the log."
        response: Response = "watch" if orderly or context.no_job else "restart" if context.job_name else "page"
        found.append(_make("node.reboot", node, why, [(signal, line)], context, response=response, decisive=not orderly))
    return found[:1]


def _has_past(told: Told, at: int, line: EvidenceLine) -> bool:
    """Whether the log was already running: dmesg begins with the boot line, a journal of several boots does not."""
    return line.line > 5 and (at > 0 or line.line > 50)


def _disks(node: str | None, told: Told, context: Context) -> list[Finding]:
    by_disk: dict[str, Told] = {}
    for one in told:
        if one[0].kind == "storage" and (disk := one[0].data.get("disk")):
            by_disk.setdefault(str(disk).split("n1")[0].split("p")[0] if str(disk).startswith("nvme") else str(disk), []).append(
                one
            )
    found = []
    for disk, lines in by_disk.items():
        gone = any(signal.data.get("gone") for signal, _ in lines)
        errors = [signal for signal, _ in lines if signal.data.get("error") != "timeout"]
        response: Response = "drain" if gone else "page" if errors or len(lines) > 2 else "watch"
        what = "is gone or read-only" if gone else "reports errors" if errors else "answers late"
        why = f"The local disk {disk} {what} ({len(lines)} lines)."
        subject = {"mount": disk}
        found.append(_make("storage.errors", node, why, lines, context, subject=subject, response=response, decisive=gone))
    return found
