"""One page per incident, in words: culprit, evidence, what was done, what is left to do, links. Pure: a picture in, a page out."""

import fnmatch
import re
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from alerts.redact import Redactor
from outrider.catalogue import FAULTS
from outrider.config.alerts import AlertsConfig

#: Pieces of evidence in a page; the whole stands in the console and in the export.
EVIDENCE_MAX: Final = 6

#: What a person does for each repair.
LEFT_TO_DO: Final[dict[str, str]] = {
    "none": "Nothing.",
    "reset_gpu": "Reset the GPU (or reboot the node), run its check, then `outrider release {node}`.",
    "reboot_node": "Reboot {node}, run its check, then `outrider release {node}`.",
    "replace_part": "Replace the part of {node}, run its check, then `outrider release {node}`.",
    "check_link": "Check cable, transceiver and port of {place}, watch its counters, then release what is in quarantine.",
    "fix_app": "The owner of {job} looks at the program's error.",
    "fix_data": "The owner of {job} looks at the data loader and its source.",
    "fix_storage": "Look at the mount and its server.",
    "investigate": "Find out why {place} failed; the runbook has the first three commands.",
}

#: How an action reads once it was asked for.
_DONE: Final = {
    "snapshot": "asked the living ranks of {job} to save their last step",
    "quarantine": "took {node} out of service",
    "drain": "told the scheduler to drain {node}",
    "restart": "restarted {job}{moves}",
    "agent_restart": "asked for a restart of the agent on {node}",
    "release": "gave {node} back to service",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What leaves for people. `labels` are of bounded values and stay the same over an incident's life."""

    title: str
    severity: str
    body: str
    labels: dict[str, str]
    links: dict[str, str] = field(default_factory=dict)
    owner: str = ""
    over: bool = False

    def text(self) -> str:
        """The whole as plain text."""
        return "\n".join([self.title, "", self.body, *(f"{name}: {url}" for name, url in self.links.items())])


def tell(picture: dict[str, Any], settings: AlertsConfig, site: str, redactor: Redactor) -> Page:
    """The page of one incident.

    Args:
        picture: as `Ledger.incident` gives it: newest picture, `history`, `actions`.
    """
    fault = str(picture.get("fault", ""))
    entry = FAULTS.get(fault)
    subject = picture.get("subject") or {}
    names = _names(picture)
    state = str(picture.get("state", "confirmed"))
    over = state in ("resolved", "refuted")
    place = place_of(subject)
    title = f"[{'over' if over else state}] {fault} {place}: {entry.summary if entry else 'unknown fault'}"
    parts = [
        f"Culprit: {picture.get('culprit', 'unknown')} ({place}). Response: {picture.get('response', 'unknown')}.",
        f"Why: {picture.get('explanation') or 'not stated'}",
        _evidence(picture), _votes(picture), _done(picture), _left(picture, names), _notes(picture),
    ]  # fmt: skip
    known = {"site": site, "incident": str(picture.get("incident", "")), "fault": fault, **names}
    return Page(
        title=redactor.text(title), severity=entry.severity if entry else "warning", over=over,
        body=redactor.text("\n".join(part for part in parts if part)), labels=labels_of(picture, site, settings),
        links=links_of(settings, known), owner=owner_of(names["job"], settings),
    )  # fmt: skip


def labels_of(picture: dict[str, Any], site: str, settings: AlertsConfig) -> dict[str, str]:
    """The alert's identity. `incident` is here and not in any metric: Alertmanager forgets it when the incident ends."""
    fault = str(picture.get("fault", ""))
    entry = FAULTS.get(fault)
    subject = picture.get("subject") or {}
    labels = {
        "alertname": alert_name(fault), "cluster": site, "incident": str(picture.get("incident", "")), "fault": fault,
        "severity": entry.severity if entry else "warning", "culprit": entry.culprit if entry else "none",
        "level": level_of(fault), "source": "outrider",
    }  # fmt: skip
    for key in ("node", "gpu", "nic", "port", "switch", "mount", "job", "witness"):
        if subject.get(key) is not None:
            labels[key] = str(subject[key])
    jobs = picture.get("extra", {}).get("jobs")
    if "job" not in labels and isinstance(jobs, dict | list) and len(jobs) == 1:
        labels["job"] = str(next(iter(jobs)))
    if owner := owner_of(labels.get("job", ""), settings):
        labels["owner"] = owner
    return labels


def alert_name(fault: str) -> str:
    """`gpu.fallen_off_bus` -> `OutriderGpuFallenOffBus`."""
    return "Outrider" + "".join(part.capitalize() for part in fault.replace(".", "_").split("_"))


def level_of(fault: str) -> str:
    """What an alert of a class covers: `switch` > `node` > `gpu` > `job`; one level inhibits those below it."""
    family = fault.partition(".")[0]
    if fault in ("switch.down", "domain.lost", "monitor.blind"):
        return "switch"
    return {"gpu": "gpu", "nic": "gpu", "link": "gpu", "job": "job", "monitor": "monitor"}.get(family, "node")


def owner_of(job: str, settings: AlertsConfig) -> str:
    """Who owns a job; the first pattern that fits."""
    return next((owner for pattern, owner in settings.owners.items() if job and fnmatch.fnmatchcase(job, pattern)), "")


def place_of(subject: dict[str, Any]) -> str:
    """`n2 gpu 3`."""
    return " ".join(f"{value}" if key == "node" else f"{key} {value}" for key, value in subject.items()) or "the site"


def links_of(settings: AlertsConfig, known: dict[str, str]) -> dict[str, str]:
    """Console, dashboard and runbook, as far as the site named them."""
    bases = {"Incident": settings.console_url, "Dashboard": settings.dashboard_url, "Runbook": settings.runbook_url}
    found = {}
    for name, base in bases.items():
        if base:
            found[name] = re.sub(r"\{(\w+)\}", lambda match: quote(known.get(match[1], match[0]), safe=""), base)
    return found


def _names(picture: dict[str, Any]) -> dict[str, str]:
    subject = picture.get("subject") or {}
    job, node = str(subject.get("job") or ""), str(subject.get("node") or "")
    for line in picture.get("history", ()):
        target = line.get("target") or {}
        job, node = job or str(target.get("job") or ""), node or str(target.get("node") or "")
    return {"job": job, "node": node}


def _evidence(picture: dict[str, Any]) -> str:
    pieces = [piece for piece in picture.get("evidence") or () if piece.get("effect") == "confirm"]
    lines = [f"  {piece.get('kind', '')}: {piece.get('text', '')}" for piece in pieces[:EVIDENCE_MAX]]
    if len(pieces) > EVIDENCE_MAX:
        lines.append(f"  .. and {len(pieces) - EVIDENCE_MAX} more")
    return "\n".join(["Evidence:", *lines]) if lines else ""


def _votes(picture: dict[str, Any]) -> str:
    votes = picture.get("votes") or {}
    return "Votes: " + ", ".join(f"{witness} {verdict}" for witness, verdict in sorted(votes.items())) if votes else ""


def _done(picture: dict[str, Any]) -> str:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in picture.get("actions") or ():
        rows.setdefault(row.get("decision_id", ""), []).append(row)
    lines = []
    for line in picture.get("history") or ():
        action, target = line.get("action"), line.get("target") or {}
        if action not in _DONE or line.get("event") not in ("action", "refused"):
            continue
        moves = ", ".join(
            f"slot {move['slot']} from {move['from']} to {move.get('to') or 'any node'}" for move in target.get("replace") or ()
        )
        words = _DONE[action].format(job=target.get("job"), node=target.get("node"), moves=f" ({moves})" if moves else "")
        if line.get("refused"):
            lines.append(f"  not done: {words} ({line['refused']})")
        else:
            lines.append(f"  {words}: {_outcome(rows.get(line.get('decision_id', ''), []))}")
    return "\n".join(["What was done:", *lines]) if lines else "What was done: nothing yet."


def _notes(picture: dict[str, Any]) -> str:
    """What the council knows besides: repeat offenders, a job that fails again and again, an approval that nobody gave."""
    extra = picture.get("extra") or {}
    lines = []
    for line in picture.get("history") or ():
        found = re.search(r"taken out \d+ times of late$", str(line.get("reason") or ""))
        if found and line.get("action") in ("quarantine", "drain"):
            lines.append(f"{(line.get('target') or {}).get('node')} was {found[0]}: look for the cause before it is released.")
    if loop := extra.get("crash_loop"):
        lines.append(f"{loop.get('job')} failed {loop.get('failures')} times without a new snapshot; it is not restarted any more.")
    if approval := extra.get("approval"):
        lines.append(f"Approval: {approval}.")
    return "\n".join(lines)


def _outcome(rows: list[dict[str, Any]]) -> str:
    """How an action stands; of one that failed, what the other side said, which says what to do."""
    if not rows:
        return "asked"
    for row in rows:
        if row.get("state") == "dead":
            said = f": {row['error']}" if row.get("error") else ""
            return f"failed{said} (`outrider outbox retry {row.get('id')}` tries it again)"
    return "done" if all(row.get("state") == "done" for row in rows) else "under way"


def _left(picture: dict[str, Any], names: dict[str, str]) -> str:
    repair = picture.get("repair") or "investigate"
    words = LEFT_TO_DO.get(repair, LEFT_TO_DO["investigate"])
    subject = picture.get("subject") or {}
    fill = {"node": names["node"] or "the node", "job": names["job"] or "the job", "place": place_of(subject)}
    approval = any(str(line.get("refused") or "").startswith("mode advise") for line in picture.get("history") or ())
    ask = (
        f" Outrider waits for you: `outrider approve {picture.get('incident')}`."
        if approval and picture.get("state") != "resolved"
        else ""
    )
    return f"Left to do: {words.format(**fill)}{ask}"
