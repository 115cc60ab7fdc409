"""What a turn's controls, signals and decisions mean: people's words, effects that a signal shows, a line of the log. Pure."""

from collections.abc import Iterable
from typing import Any, Final

from detectors.core.types import Action, Decision, IncidentChange, OperatorEvent
from detectors.witness import translate
from detectors.witness.ledger import Control
from detectors.witness.memory import Standing
from detectors.witness.outbox import SNAPSHOT_TYPE, OutboxRow
from outrider.signals import Signal

#: Standing orders of people -> what the council hears when one begins and when it ends.
STANDING: Final[dict[str, tuple[str, str]]] = {"maintenance": ("maintenance_on", "maintenance_off"), "pause": ("pause", "resume")}
#: Orders that are carried out once.
ONCE: Final = frozenset({"ack", "approve", "false_alarm", "release", "reset_brake"})
#: A person's word, and its control where it is carried out once.
Said = tuple[OperatorEvent, Control | None]


def words(controls: list[Control], before: Standing) -> tuple[list[Said], Standing]:
    """What people said since the last look: standing orders that began or ended, and single ones; and what stands now."""
    said: list[Said] = []
    standing: Standing = {}
    for control in controls:
        if control.kind in ONCE:
            said.append((translate.operator_event(control.kind, control), control))
        elif control.kind in STANDING:
            standing[control.kind, control.key] = control
    for place, control in standing.items():
        if place not in before:
            said.append((translate.operator_event(STANDING[control.kind][0], control), None))
    for place, control in before.items():
        if place not in standing:
            said.append((translate.operator_event(STANDING[control.kind][1], control), None))
    return said, standing


def effects(signal: Signal, actions: Iterable[OutboxRow]) -> dict[str, dict[str, Any]]:
    """Snapshot actions whose effect a signal shows: a set was committed under the action's fence."""
    if signal.kind != "snapshot" or signal.data.get("state") != "committed":
        return {}
    return {
        row.decision_id: {"step": signal.value, **{key: signal.data[key] for key in ("manifest", "path") if key in signal.data}}
        for row in actions
        if row.type == SNAPSHOT_TYPE and row.fence == signal.data.get("fence")
    }


def log_line(decision: Decision) -> dict[str, Any]:
    """One structured line of the log for one decision."""
    match decision:
        case IncidentChange():
            return {
                "event_name": decision.event, "incident": decision.incident, "fault": decision.fault, "subject": decision.subject,
                "response": decision.response, "votes": decision.votes, "why": decision.explanation,
            }  # fmt: skip
        case Action():
            return {
                "event_name": "refused" if decision.refused else "action", "incident": decision.incident, "action": decision.action,
                "decision": decision.decision_id, "target": decision.target, "fence": decision.fence,
                "why": decision.refused or decision.reason,
            }  # fmt: skip
        case _:
            return {"event_name": type(decision).__name__}
