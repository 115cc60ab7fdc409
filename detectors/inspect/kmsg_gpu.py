"""Findings about a machine's GPUs and NVSwitches from its kernel log."""

from collections.abc import Iterable
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding, State, XidMark, finding
from detectors.inspect.part import soften
from detectors.inspect.xid_events import XidEvent, XidEvents
from detectors.inspect.xid_incidents import XidIncident, build_incidents
from detectors.inspect.xid_programs import Repetition, find_repetitions
from outrider.catalogue import FAULTS, RESPONSES, Culprit, Repair, Response
from outrider.catalogue.reading import read_code
from outrider.signals import Signal

#: A machine that shows more kinds of program errors than this is told about in one line each for the first ones only.
_PROGRAMS_MAX: Final = 20


def judge_gpus(node: str | None, events: XidEvents, related: list[tuple[Signal, EvidenceLine]], context: Context) -> list[Finding]:
    """All GPU findings of one machine.

    Args:
        node: the machine's name, if it is known.
        events: its Xids and SXids.
        related: other lines about its GPUs (failed start, PCIe errors), in order; what fits an incident is joined to it.
    """
    incidents, left = build_incidents(events.events)
    repeated = find_repetitions(left)
    found = []
    for one in incidents:
        if one.unseen_root is not None:
            found.append(_unseen(node, one, context, events))
        else:
            found.append(_hardware(node, one, context, events, related))
    found += [_repetition(node, one, context) for one in repeated]
    told = {id(event) for one in repeated for event in one.events}
    found += _programs(node, [event for event in left if id(event) not in told], context)
    found += _quiet(node, events, context)
    return found


def subject_of(node: str | None, event: XidEvent, context: Context, pci: str | None = None) -> dict[str, Any]:
    """Who an event is about: a GPU with all its identities, or a switch with its link.

    `pci`: the address where the event's own line does not name it.
    """
    signal = event.signal
    if signal.kind == "sxid":
        return {"node": node, "switch": signal.switch, "pci": signal.pci, "link": signal.link, "job": context.job_name}
    subject = context.gpu_subject(node=node, pci=signal.pci or pci, uuid=signal.uuid, index=signal.gpu)
    return subject | ({"link": signal.link} if signal.link is not None else {})


def _hardware(
    node: str | None,
    one: XidIncident,
    context: Context,
    events: XidEvents,
    related: list[tuple[Signal, EvidenceLine]],
) -> Finding:
    cause, fault = one.cause, one.fault
    joined = [line for signal, line in related if _belongs(signal, one)]
    lost = list(dict.fromkeys(event.unit for event in one.roots if event.reading.fault == fault))
    shared = len(lost) > 1 and fault in ("gpu.fallen_off_bus", "gpu.gsp_hang", "gpu.driver_hang", "gpu.missing")
    culprit: Culprit = "node" if shared else FAULTS[fault].culprit
    healed = one.recovered or _booted_well(one, events)
    state: State = "resolved" if healed else "open"
    response = "watch" if healed and RESPONSES.index(one.response) > 1 else soften(one.response, context)
    repair: Repair = "none" if healed else one.repair
    decisive = any(event.reading.decisive for event in one.roots)
    ordered = sorted((*one.roots, *one.verdicts, *one.followers), key=lambda event: event.order)
    address = cause.signal.pci or next((signal.pci for signal, _ in related if signal.pci and _belongs(signal, one)), None)
    subject = subject_of(node, cause, context, address)
    if cause.signal.kind == "xid" and "uuid" not in subject and str(subject.get("pci")) in events.uuids:
        subject["uuid"] = events.uuids[str(subject["pci"])]
    return finding(
        fault,
        subject,
        _explain(one, cause, lost, shared, events),
        evidence=_evidence(cause, ordered, joined),
        xids=_marks(ordered, one),
        culprit=culprit,
        response=response,
        repair=repair,
        decisive=decisive,
        state=state,
        next_steps=FAULTS[fault].first_commands,
    )


def _booted_well(one: XidIncident, events: XidEvents) -> bool:
    """Whether a boot after the incident has cured it: the GPUs were reset, and a lost one is seen again."""
    if one.first.boot >= events.boot or one.fault == "gpu.row_remap_failed":
        return False
    return one.fault != "gpu.fallen_off_bus" or all(unit in events.seen_after_boot for unit in one.units)


def _belongs(signal: Signal, one: XidIncident) -> bool:
    """A failed start or a PCIe error of one of the incident's GPUs, or of an unnamed one at about the same time."""
    pci = signal.pci and signal.pci.split(".")[0]
    near = abs(signal.t - one.first.t) <= 60 or abs(signal.t - one.last_t) <= 60
    unnamed = pci is None or None in one.units
    return near and (pci in one.units or (unnamed and one.fault in ("gpu.fallen_off_bus", "gpu.missing")))


def joined_lines(related: list[tuple[Signal, EvidenceLine]], events: XidEvents) -> set[int]:
    """The numbers of the related lines that belong to an incident of the Xids."""
    incidents = [one for one in build_incidents(events.events)[0] if one.unseen_root is None]
    return {line.line for signal, line in related if any(_belongs(signal, one) for one in incidents)}


def _explain(one: XidIncident, cause: XidEvent, lost: list[str | None], shared: bool, events: XidEvents) -> str:
    kind = "SXid" if cause.signal.kind == "sxid" else "Xid"
    without = cause.signal.data.get("form") == "no_xid"
    name = "The driver lost the GPU (as Xid 79, told without an Xid)" if without else f"{kind} {cause.number}"
    parts = [f"{name}." if without else f"{name}: {_inside(cause.reading.code.meaning)}."]
    if cause.reading.note:
        parts.append(f"Here {cause.reading.note}.")
    if shared:
        parts.append(f"{len(lost)} GPUs at once ({', '.join(str(unit) for unit in lost)}): look for what they share.")
    count = events.count(cause.signal.kind, cause.number, cause.signal.switch or cause.signal.pci)
    if count > 2:
        parts.append(f"{count} such lines are one event.")
    asked = [event for event in one.verdicts if not event.reading.recovered]
    if asked:
        parts.append(f"{asked[-1].reading.note[0].upper()}{asked[-1].reading.note[1:]} (Xid 154).")
    if one.recovered:
        parts.append("The driver's last word (Xid 154) says that it recovered.")
    elif _booted_well(one, events):
        parts.append("The machine was booted since, and the error did not come back.")
    others = sorted({(e.number, e.unit) for e in one.roots if e.number != cause.number or e.unit != cause.unit}, key=str)
    if others and not shared:
        parts.append(f"With it: {', '.join(f'Xid {number} on {unit}' for number, unit in others[:6])}.")
    if one.followers:
        told = sorted({event.number for event in one.followers})
        parts.append(f"Xid {', '.join(map(str, told))} ({len(one.followers)} line{'s' * (len(one.followers) > 1)}) only followed.")
    return " ".join(parts)


def _inside(text: str) -> str:
    """A sentence's text inside another: its first letter is small, unless it is a name's."""
    return text if text[1:2].isupper() or text[:2] in ("A ", "I ") else text[:1].lower() + text[1:]


def _evidence(cause: XidEvent, ordered: list[XidEvent], joined: list[EvidenceLine]) -> list[EvidenceLine]:
    """The naming line first, then the others in order."""
    return [cause.line, *(event.line for event in ordered if event is not cause), *joined]


def _marks(ordered: list[XidEvent], one: XidIncident) -> list[XidMark]:
    """Each code of each device once; a root is what is neither verdict nor follower, nor the echo of the first."""
    first = one.cause
    marks: dict[tuple[int, str | None], XidMark] = {}
    for event in ordered:
        key = (event.number, event.signal.pci)
        root = event in one.roots and event.number == first.number and not event.reading.peer
        if key not in marks or root:
            marks[key] = XidMark(xid=event.number, pci=event.signal.pci, root=root, sxid=event.signal.kind == "sxid")
    return list(marks.values())


def _unseen(node: str | None, one: XidIncident, context: Context, events: XidEvents) -> Finding:
    """45s name a cause whose line is not in the log."""
    assert one.unseen_root is not None
    event = one.followers[0]
    root = Signal(t=event.t, kind="xid", pci=event.signal.pci, value=one.unseen_root)
    reading = read_code(root, events.codes)
    # a Nonfatal link error takes no channel away: where channels were taken away for one, it was fatal
    link_error: Response = "restart" if 144 <= one.unseen_root <= 150 else "page"
    response = max((reading.response, link_error), key=RESPONSES.index)
    return finding(
        reading.fault,
        subject_of(node, event, context),
        f"Xid 45 says that Xid {one.unseen_root} caused it ({_inside(reading.code.meaning)}); that line itself is not in the log.",
        evidence=[follower.line for follower in one.followers],
        xids=[
            XidMark(xid=one.unseen_root, pci=event.signal.pci, root=True),
            *(XidMark(xid=45, pci=pci, root=False) for pci in dict.fromkeys(f.signal.pci for f in one.followers)),
        ],
        response=soften(response, context),
        repair=reading.repair,
        decisive=False,
        next_steps=FAULTS[reading.fault].first_commands,
    )


def _repetition(node: str | None, one: Repetition, context: Context) -> Finding:
    event = one.events[0]
    where = f" in {one.part}" if one.part else ""
    return finding(
        "gpu.other",
        subject_of(node, event, context),
        f"Xid {event.number} looks like a program's error, but it came {one.spells} times on this one GPU{where}, from "
        f"{len(one.programs)} program{'s' * (len(one.programs) != 1)} ({', '.join(one.programs[:5])}), while the other GPUs are "
        "silent: what they have in common is the GPU. Run diagnostics.",
        evidence=[event.line for event in one.events],
        xids=[XidMark(xid=number, pci=event.signal.pci, root=True) for number in dict.fromkeys(e.number for e in one.events)],
        response=one.response,
        repair="investigate",
        decisive=False,
        next_steps=FAULTS["gpu.other"].first_commands,
    )


def _programs(node: str | None, left: list[XidEvent], context: Context) -> list[Finding]:
    """Errors that are a program's own: one finding a program, never above `watch`; a link's echo without its cause: a page."""
    groups: dict[str, list[XidEvent]] = {}
    for event in left:
        link = event.reading.fault == "gpu.nvlink" and event.reading.response == "page"
        groups.setdefault("link" if link else event.program or f"pid {event.pid}", []).append(event)
    found = []
    for name, group in list(groups.items())[:_PROGRAMS_MAX]:
        if name == "link":
            found.append(_echo(node, group, context))
            continue
        causes = [event for event in group if event.reading.role == "app"]
        numbers = list(dict.fromkeys(event.number for event in causes or group))
        units = list(dict.fromkeys(event.unit for event in group))
        response: Response = max((event.reading.response for event in group), key=RESPONSES.index)
        spread = f"{len(units)} GPUs" if len(units) > 1 else f"GPU {units[0]}"
        why = "the program, not a GPU, is common to them" if len(units) > 1 else "nothing points at the GPU"
        subject = {"node": node, "process": name, "job": context.job_name}
        if len(units) == 1:
            subject = subject_of(node, group[0], context) | subject
        found.append(
            finding(
                "job.app_error",
                {key: value for key, value in subject.items() if value is not None},
                f"Xid {', '.join(map(str, numbers))} of {name} on {spread}: a program's own error; {why}.",
                evidence=[event.line for event in group],
                xids=_plain_marks(group),
                response=response,
                repair="fix_app" if causes else "none",
                layers=("hardware",),
            )
        )
    return found


def _echo(node: str | None, group: list[XidEvent], context: Context) -> Finding:
    return finding(
        "gpu.nvlink",
        subject_of(node, group[0], context),
        f"Xid {group[0].number} {group[0].reading.note}, and the log of this node does not hold that error: look at the device at "
        "the other end of the link.",
        evidence=[event.line for event in group],
        xids=_plain_marks(group),
        response="page",
        repair="check_link",
        decisive=False,
        next_steps=FAULTS["gpu.nvlink"].first_commands,
    )


def _plain_marks(group: Iterable[XidEvent]) -> list[XidMark]:
    keys = dict.fromkeys((event.number, event.signal.pci, event.reading.role == "app") for event in group)
    return [XidMark(xid=number, pci=pci, root=root) for number, pci, root in keys]


def _quiet(node: str | None, events: XidEvents, context: Context) -> list[Finding]:
    """What is counted or shown and no more: notices, Nonfatal link errors, tests. One finding a class, at most `watch`."""
    cleared = {event.unit for event in events.events if event.number == 162}
    groups: dict[tuple[str, Response], list[XidEvent]] = {}
    for event in events.of_role("info", "injected"):
        response = event.reading.response
        if event.number == 163 and event.unit in cleared:
            response = "ignore"
        groups.setdefault((event.reading.fault, response), []).append(event)
    found = []
    for (fault, response), group in groups.items():
        kind = "SXid" if group[0].signal.kind == "sxid" else "Xid"
        numbers = sorted({event.number for event in group})
        notes = list(dict.fromkeys(event.reading.note for event in group if event.reading.note))
        if response not in ("ignore", "watch"):  # the site's configuration, or 165 and its like, ask for more
            notes.append("the catalogue asks for it")
        found.append(
            finding(
                fault,
                subject_of(node, group[0], context),
                f"{kind} {', '.join(map(str, numbers))}: counted. {'; '.join(notes)}".strip(),
                evidence=[event.line for event in group],
                xids=[XidMark(xid=e.number, pci=e.signal.pci, root=True, sxid=kind == "SXid") for e in group[:8]],
                culprit="none" if response == "ignore" else None,
                response=response,
                repair=group[0].reading.repair,
                decisive=False,
            )
        )
    return found
