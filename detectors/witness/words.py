"""What a turn's controls, signals and decisions mean: people's words, effects that a signal shows, a line of the log. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from detectors.core.types import Action, Decision, IncidentChange, OperatorEvent
from detectors.witness import translate
from detectors.witness.ledger import Control
from detectors.witness.memory import Standing
from detectors.witness.outbox import SNAPSHOT_TYPE, OutboxRow
from outrider.signals import Signal

#: Standing orders of people -> what the council hears when one begins and when it ends.
STANDING: Final[dict[str, tuple[str, str]]] = {"maintenance": ("maintenance_on", "maintenance_off"), "pause": ("pause", "resume")}
#: The same by the end's own word, under which the ledger holds who said it: the row of the order itself is gone by then.
ENDS: Final = {end: kind for kind, (_, end) in STANDING.items()}
#: Who ends a window of maintenance that nobody ends.
RUN_OUT: Final = {"who": "council", "reason": "its time is over"}
#: Orders that are carried out once.
ONCE: Final = frozenset({"ack", "approve", "false_alarm", "release", "reset_brake"})
#: A person's word, and its control where it is carried out once.
Said = tuple[OperatorEvent, Control | None]


def words(controls: list[Control], before: Standing) -> tuple[list[Said], Standing]:
    """What people said since the last look: standing orders that began, were given anew with another name or reason, or ended, and
    single ones; and what stands now."""
    said: list[Said] = [(translate.operator_event(one.kind, one), one) for one in controls if one.kind in ONCE]
    standing: Standing = {(one.kind, one.key): one for one in controls if one.kind in STANDING}
    ends = {(ENDS[one.kind], one.key): one for one in controls if one.kind in ENDS}
    for place, end in ends.items():
        if place not in standing or standing[place].number > end.number:  # else the order is about to be taken back
            said.append((translate.operator_event(end.kind, end), end))
    for place, control in before.items():
        if place not in standing and place not in ends:
            nobody = replace(control, body=RUN_OUT if control.kind == "maintenance" else {})
            said.append((translate.operator_event(STANDING[control.kind][1], nobody), None))
    for place, control in standing.items():
        known = before.get(place)
        if known is None or known.body != control.body or (place in ends and control.number > ends[place].number):
            said.append((translate.operator_event(STANDING[control.kind][0], control), None))
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
