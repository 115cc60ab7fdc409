"""Joins findings of several kinds of files into one incident each: the kernel's word and what the ranks printed of it.

Files that are given together are taken to be of one time. A fault of a part (from a kernel log or from metrics) explains what a
job's log tells of the same machine; it never explains a program's own error.
"""

from dataclasses import replace
from typing import Any, Final

from detectors.inspect.findings import EVIDENCE_MAX, Finding, finding
from detectors.inspect.xid_incidents import PRECEDENCE
from outrider.catalogue import RESPONSES

#: Kinds whose findings tell of parts, and those that tell of the job that used them.
_PARTS: Final = ("kmsg", "metrics")
_JOBS: Final = ("train_log", "dump")
#: What a job's log says when a part under it failed.
_EFFECTS: Final = frozenset(
    {"job.rank_exit", "job.hang", "job.app_error", "link.errors", "nic.down", "link.flapping", "node.lost", "gpu.other",
     "gpu.nvlink", "gpu.ecc_uncontained", "gpu.ecc_contained", "gpu.fallen_off_bus", "gpu.driver_hang", "gpu.missing"}
)  # fmt: skip
#: Faults of the program whose traces both the kernel and the ranks show.
_SHARED: Final = {
    "job.oom": frozenset({"job.rank_exit", "job.oom", "job.dataloader_stall"}),
    "storage.hang": frozenset({"job.hang"}),
}
#: What ails a port and its cable: faults of one port are one incident.
_PORT: Final = frozenset({"link.flapping", "link.errors", "nic.down", "nic.degraded", "nic.congestion"})


def settle(found: list[Finding]) -> list[Finding]:
    """One incident a port, and nothing beside an incident that only asks to be shown.

    `watch` is no incident: where the same machine or job has one that needs a person, it becomes `ignore` (told with `--all`).
    """
    kept: list[Finding] = []
    for one in sorted(found, key=lambda each: -each.height):
        home = next((other for other in kept if _same_port(other, one)), None)
        if home is None:
            kept.append(one)
        elif one.height > RESPONSES.index("watch"):
            kept[kept.index(home)] = _merge(home, one, one.explanation)
    order = {id(one): place for place, one in enumerate(found)}
    kept.sort(key=lambda one: order.get(id(one), len(found)))
    loud = [one for one in kept if one.height > RESPONSES.index("watch")]
    return [replace(one, response="ignore") if _is_beside(one, loud) else one for one in kept]


def _same_port(one: Finding, other: Finding) -> bool:
    return {one.fault, other.fault} <= _PORT and "nic" in one.subject and _same_part(one.subject, other.subject)


def _is_beside(one: Finding, loud: list[Finding]) -> bool:
    if one.response != "watch":
        return False
    return any(key in one.subject and one.subject[key] == other.subject.get(key) for other in loud for key in ("node", "job"))


def join(by_kind: dict[str, list[Finding]]) -> list[Finding]:
    """All findings, those of one cause joined to one.

    Args:
        by_kind: kind of the files -> their findings.
    """
    parts = _join_parts([one for kind in _PARTS for one in by_kind.get(kind, [])])
    rest = [one for kind, found in by_kind.items() if kind not in (*_PARTS, *_JOBS) for one in found]
    for job in (one for kind in _JOBS for one in by_kind.get(kind, [])):
        cause = next((part for part in parts if _explains(part, job)), None)
        if cause is None:
            rest.append(job)
        else:
            parts[parts.index(cause)] = _merge(cause, job, f"The job's own lines tell of its effect: {job.explanation}")
    return parts + rest


def _join_parts(found: list[Finding]) -> list[Finding]:
    """One part told of by the kernel and by metrics is one incident: the class that explains the other names it."""
    kept: list[Finding] = []
    for one in sorted(found, key=lambda each: (-each.height, _rank(each))):
        home = next((other for other in kept if _same_part(other.subject, one.subject) and _related(other, one)), None)
        if home is None:
            kept.append(one)
        else:
            kept[kept.index(home)] = _merge(home, one, one.explanation)
    return kept


def _rank(one: Finding) -> int:
    return PRECEDENCE.index(one.fault) if one.fault in PRECEDENCE else len(PRECEDENCE)


def _same_part(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two subjects name one part: no shared name differs, and one that is finer than the machine is the same."""
    shared = [key for key in ("node", "uuid", "pci", "gpu", "nic", "mount", "server") if key in one and key in other]
    fine = [key for key in shared if key != "node"]
    return bool(fine) and all(str(one[key]) == str(other[key]) for key in shared)


def _related(one: Finding, other: Finding) -> bool:
    """Two findings of one part that may have one cause: a program's own error is none of the part's."""
    return not (one.fault.startswith("job.") or other.fault.startswith("job."))


def _explains(part: Finding, job: Finding) -> bool:
    here, there = part.subject.get("node"), job.subject.get("node")
    if part.state == "resolved" or (here and there and here != there):
        return False
    if part.fault in _SHARED:
        return job.fault in _SHARED[part.fault]
    if part.fault.startswith("job.") or RESPONSES.index(part.response) < RESPONSES.index("drain"):
        return False
    gpu, its = part.subject.get("gpu"), job.subject.get("gpu")
    if job.fault == "job.app_error" and (gpu is None or its is None or gpu != its):
        return False  # a program's error is the part's only if it is told of that very part
    return job.fault in _EFFECTS


def _merge(cause: Finding, effect: Finding, told: str) -> Finding:
    half = EVIDENCE_MAX // 2
    return finding(
        cause.fault,
        effect.subject | cause.subject,
        f"{cause.explanation} {told}",
        evidence=(*cause.evidence[:half], *effect.evidence[: EVIDENCE_MAX - half]),
        xids=tuple(dict.fromkeys((*cause.xids, *effect.xids))),
        culprit=cause.culprit,
        response=max(cause.response, effect.response, key=RESPONSES.index),
        repair=cause.repair,
        layers=tuple(dict.fromkeys((*cause.layers, *effect.layers))),
        decisive=cause.decisive,
        state=cause.state,
        next_steps=cause.next_steps,
        data=cause.data,
    )
