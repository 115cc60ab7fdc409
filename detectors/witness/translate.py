"""Turns decisions into what the world hears: webhooks for the outbox, orders for agents, pictures for people. Pure.

The type of each action's webhook stands in `TYPES`. A refused action becomes audit only; a dry run becomes a webhook that says so
and no order.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final, cast

import msgspec

from detectors.core.types import Action, ActionName, ActionResult, CopyRequest, IncidentChange, OperatorEvent, ProbeRequest
from detectors.witness import waiting
from detectors.witness.ledger import Control, IncidentWrite, OrderTo
from detectors.witness.outbox import SNAPSHOT_TYPE, OutboxRow
from outrider.fleet import Fleet, Job
from outrider.wire import Order

#: Action -> webhook type (the public contract, README "Webhooks").
TYPES: Final[dict[ActionName, str]] = {
    "snapshot": SNAPSHOT_TYPE,
    "quarantine": "node.quarantine.requested",
    "drain": "node.drain.requested",
    "restart": "job.restart.requested",
    "agent_restart": "agent.restart.requested",
    "release": "node.release.requested",
    "page": "incident.confirmed",
}

#: How long agents are told to copy early: the wish is stale after that.
COPY_SECONDS = 10.0
#: How long a probe is worth an answer.
PROBE_SECONDS = 5.0


def probe_orders(request: ProbeRequest, fleet: Fleet, ports: tuple[int, int]) -> list[OrderTo]:
    """One order for each prober; none if the suspect's address is not known."""
    address = next((node.address for node in fleet.nodes if node.node == request.node), None)
    if not address:
        return []
    order = Order(
        number=0, id=request.decision_id, order="probe", node=request.node, address=address, port=ports[0], closed_port=ports[1],
        reason=request.reason,
    )  # fmt: skip
    return [OrderTo(to=prober, order=order, keep_seconds=PROBE_SECONDS) for prober in request.probers]


def copy_orders(request: CopyRequest, job: Job | None) -> list[OrderTo]:
    """One order for each node of the job."""
    order = Order(number=0, id=request.decision_id, order="copy", job=request.job, reason=request.reason)
    nodes = sorted({node for node, _ in job.slots}) if job else []
    return [OrderTo(to=node, order=order, keep_seconds=COPY_SECONDS) for node in nodes]


def slots_after(target: dict[str, Any], job: Job) -> list[str | None]:
    """The node of each slot in the next attempt, in rank order; None: no spare was free, the scheduler chooses."""
    nodes: list[str | None] = [node for node, _ in job.slots]
    for item in target.get("replace") or ():
        if 0 <= item["slot"] < len(nodes):
            nodes[item["slot"]] = item["to"]
    return nodes


def outbox_row(action: Action, incident: dict[str, Any], wall: float, job: Job | None = None) -> OutboxRow:
    """The webhook of an action. `incident` is the picture that `picture` made; `wall` seconds since 1970, for people; `job`: the
    job of a restart, whose rank map goes with it."""
    kind = TYPES[action.action]
    placed = {"slots": slots_after(action.target, job)} if job is not None and job.slots and action.action == "restart" else {}
    return OutboxRow(
        id=action.decision_id, decision_id=action.decision_id, incident=action.incident, action=action.action, type=kind,
        body=webhook_body(
            kind, action.target | placed, incident, wall, fence=action.fence, dry_run=action.dry_run, reason=action.reason
        ),
        fence=action.fence, deadline_seconds=action.deadline_seconds, after=action.after, dry_run=action.dry_run,
    )  # fmt: skip


def told_row(change: IncidentChange, incident: dict[str, Any], fence: int, deadline_seconds: float, wall: float) -> OutboxRow:
    """The webhook that tells people of an incident for which the council ordered no page of its own."""
    name = f"{change.incident}.told"
    return OutboxRow(
        id=name, decision_id=name, incident=change.incident, action="page", type=TYPES["page"],
        body=webhook_body(TYPES["page"], {}, incident, wall, fence=fence, dry_run=False, reason=change.explanation),
        fence=fence, deadline_seconds=deadline_seconds,
    )  # fmt: skip


def told_write(change: IncidentChange, now: float, wall: float, before: dict[str, Any]) -> IncidentWrite:
    """The history line that says that people are being told."""
    picture = {**before, "times": {**before.get("times", {}), "page": now}, "told": f"{change.incident}.told"}
    line = {"event": "told", "t": now, "wall": iso(wall), "incident": change.incident}
    return IncidentWrite(incident=change.incident, state=before.get("state", "confirmed"), picture=picture, line=line)


def resolved_row(change: IncidentChange, incident: dict[str, Any], fence: int, deadline_seconds: float, wall: float) -> OutboxRow:
    """The webhook that tells people that it is over; it does not overtake the one that told them that it began."""
    name = f"{change.incident}.resolved.{fence}"
    return OutboxRow(
        id=name, decision_id=name, incident=change.incident, action="resolved", type="incident.resolved",
        body=webhook_body("incident.resolved", {}, incident, wall, fence=fence, dry_run=False, reason=change.explanation),
        fence=fence, deadline_seconds=deadline_seconds, after=(incident["told"],) if incident.get("told") else (),
    )  # fmt: skip


def webhook_body(
    kind: str, target: dict[str, Any], incident: dict[str, Any], wall: float, *, fence: int, dry_run: bool, reason: str
) -> str:
    """`{"type", "timestamp", "data"}` as the contract has it: `data` says incident, fault, job, replace, resume, fence, dry_run."""
    subject = incident.get("subject", {})
    data = {
        "incident": incident.get("incident"), "fault": incident.get("fault"), "culprit": incident.get("culprit"),
        "subject": subject,
        "response": incident.get("response"), "repair": incident.get("repair"),
        "job": target.get("job", subject.get("job")),
        "node": target.get("node", subject.get("node")), "replace": target.get("replace", []), "resume": target.get("resume"),
        **{key: value for key, value in target.items() if key not in ("job", "node", "replace", "resume")},
        "explanation": incident.get("explanation"), "reason": reason, "fence": fence, "dry_run": dry_run,
    }  # fmt: skip
    return json.dumps({"type": kind, "timestamp": iso(wall), "data": data}, separators=(",", ":"))


def action_orders(action: Action, jobs: dict[str, Job]) -> list[OrderTo]:
    """What agents must do for an action: publish the copies of a snapshot, stop what runs on a node in quarantine."""
    if action.refused or action.dry_run:
        return []
    target = action.target
    match action.action:
        case "snapshot":
            return _publish_orders(action, jobs.get(str(target.get("job"))))
        case "quarantine" if target.get("node"):
            order = Order(
                number=0, id=action.decision_id, order="stop", job=target.get("job"), attempt=target.get("attempt"),
                fence=action.fence, incident=action.incident, reason=action.reason,
            )  # fmt: skip
            # It stands until the node is released: a node that was cut off hears it whenever it comes back.
            return [OrderTo(to=str(target["node"]), order=order, keep_seconds=None)]
        case _:
            return []


def _publish_orders(action: Action, job: Job | None) -> list[OrderTo]:
    if job is None:
        return []
    wanted = action.target.get("ranks")
    ranks = tuple(wanted) if wanted is not None else tuple(range(len(job.slots)))
    step = action.target.get("step")
    order = Order(
        number=0, id=action.decision_id, order="publish", job=job.job, ranks=ranks, attempt=action.target.get("attempt"),
        step=step, fence=action.fence, incident=action.incident, deadline_s=action.deadline_seconds, reason=action.reason,
    )  # fmt: skip
    nodes = sorted({job.slots[rank][0] for rank in ranks if 0 <= rank < len(job.slots)})
    return [OrderTo(to=node, order=order, keep_seconds=action.deadline_seconds) for node in nodes]


def drop_orders(incident: str, jobs: list[Job]) -> list[OrderTo]:
    """A suspicion was unfounded: the early copies that it caused are let go."""
    return [
        OrderTo(to=node, order=Order(number=0, id=f"{incident}.drop", order="drop", job=job.job, incident=incident))
        for job in jobs
        for node in sorted({node for node, _ in job.slots})
    ]


def incident_write(change: IncidentChange, wall: float, before: dict[str, Any] | None) -> IncidentWrite:
    """The newest picture of an incident and its line of history."""
    line = {"event": change.event, **_line(change, wall)}
    state = str(change.extra.get("state", change.event))
    picture = {
        **(before or {}), **_line(change, wall), "state": state, "opened": (before or {}).get("opened", iso(wall)),
        "times": (before or {}).get("times", {}) | {change.event: change.t}, "extra": change.extra,
    }  # fmt: skip
    return IncidentWrite(incident=change.incident, state=state, picture=picture, line=line)


def action_write(action: Action, wall: float, before: dict[str, Any]) -> IncidentWrite:
    """The history line of an action or a refusal; the incident is acting from its first action on. To tell people, or to give a
    node back, is none: nothing is being done about the fault by that."""
    line = {
        "event": "refused" if action.refused else "action", "t": action.t, "wall": iso(wall), "incident": action.incident,
        "action": action.action, "target": action.target, "fence": action.fence, "decision_id": action.decision_id,
        "refused": action.refused, "dry_run": action.dry_run, "reason": action.reason,
    }  # fmt: skip
    state = before.get("state", "confirmed")
    if state == "confirmed" and not action.refused and not action.dry_run and action.action not in ("page", "release"):
        state = "acting"
    times = before.get("times", {})
    if not action.refused:
        times = {**times, action.action: times.get(action.action, action.t)}
    picture = waiting.after_action(action, iso(wall), {**before, "incident": action.incident, "state": state, "times": times})
    if action.action == "page" and not action.refused:
        picture["told"] = action.decision_id
    if action.action == "restart" and not action.refused and not action.dry_run:
        restarts = before.get("restarts", {})
        picture["restarts"] = {**restarts, str(action.target.get("job")): int(action.target.get("attempt") or 1)}
    return IncidentWrite(incident=action.incident, state=state, picture=picture, line=line)


def result_write(result: ActionResult, action: str, now: float, wall: float, before: dict[str, Any]) -> IncidentWrite:
    """The history line of an action's end; a restart that was carried out makes the incident a recovering one."""
    line = {
        "event": "action_result", "t": now, "wall": iso(wall), "incident": before["incident"], "action": action,
        "decision_id": result.decision_id, "outcome": result.outcome, "detail": result.detail,
    }  # fmt: skip
    state = before.get("state", "acting")
    if state == "acting" and action == "restart" and result.outcome == "done":
        state = "recovering"
    times = {**before.get("times", {}), f"{action}_{result.outcome}": now}
    return IncidentWrite(incident=before["incident"], state=state, picture={**before, "state": state, "times": times}, line=line)


def audit_entry(action: Action, wall: float) -> dict[str, Any]:
    """What an auditor reads of an action or its refusal."""
    return {
        "who": "council", "what": "refused" if action.refused else "action", "incident": action.incident, "wall": iso(wall),
        "decision_id": action.decision_id, "action": action.action, "target": action.target, "fence": action.fence,
        "dry_run": action.dry_run, "why": action.refused or action.reason,
    }  # fmt: skip


def operator_event(kind: str, control: Control) -> OperatorEvent:
    """A person's order as the council hears it."""
    body = control.body
    return OperatorEvent(
        kind=cast(Any, kind),  # the callers' tables name the literal's own words
        target=control.key,
        who=str(body.get("who", "")),
        reason=str(body.get("reason", "")),
    )


def word_write(event: OperatorEvent, now: float, wall: float, before: dict[str, Any]) -> IncidentWrite:
    """The history line of a person's order about one incident; the picture keeps who said it."""
    line = {
        "event": event.kind, "t": now, "wall": iso(wall), "incident": before["incident"], "who": event.who, "reason": event.reason,
    }  # fmt: skip
    said = {"ack": "acknowledged", "approve": "approved"}.get(event.kind, event.kind)
    picture = {**before, said: event.who}
    if event.kind == "approve":
        picture.pop("waits", None)
    return IncidentWrite(incident=before["incident"], state=before.get("state", "confirmed"), picture=picture, line=line)


def word_entry(event: OperatorEvent, wall: float) -> dict[str, Any]:
    """What an auditor reads of a person's order."""
    incident = event.target if event.kind in ("ack", "approve", "false_alarm") else None
    return {
        "who": event.who,
        "what": event.kind,
        "target": event.target,
        "why": event.reason,
        "wall": iso(wall),
        "incident": incident,
    }


def iso(wall: float) -> str:
    """Seconds since 1970 as people and programs read them."""
    return datetime.fromtimestamp(wall, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _line(change: IncidentChange, wall: float) -> dict[str, Any]:
    picture: dict[str, Any] = msgspec.to_builtins(change)
    picture.pop("extra")
    picture.pop("event")
    return {**picture, "wall": iso(wall)}
