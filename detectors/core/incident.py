"""An incident: one cause, from the first suspicion to the end, however many signals, ranks or collectors tell of it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from detectors.core.identity import short_hash, subject_text
from detectors.core.types import Evidence, IncidentChange, Vote

#: Evidence kept with an incident.
EVIDENCE_MAX = 40


class State(StrEnum):
    """Where an incident stands."""

    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"
    ACTING = "acting"
    RECOVERING = "recovering"
    RESOLVED = "resolved"
    REFUTED = "refuted"


#: Which state may follow which. A move that is not here is a bug, and the assert below tells the incident's story.
MOVES: dict[State, tuple[State, ...]] = {
    State.SUSPECTED: (State.CONFIRMED, State.REFUTED),
    State.CONFIRMED: (State.ACTING, State.RESOLVED),
    State.ACTING: (State.RECOVERING, State.RESOLVED),
    State.RECOVERING: (State.ACTING, State.RESOLVED),
    State.RESOLVED: (),
    State.REFUTED: (),
}
OPEN = (State.SUSPECTED, State.CONFIRMED, State.ACTING, State.RECOVERING)


@dataclass(slots=True, kw_only=True)
class Incident:
    """One incident. Times are the leader's clock, seconds. `keys`: votes that belong to it, its own first."""

    id: str
    fault: str
    culprit: str
    subject: dict[str, Any]
    incarnation: str
    response: str
    repair: str
    layers: tuple[str, ...]
    decisive: bool
    explanation: str
    reason_code: str
    state: State
    opened_t: float
    changed_t: float
    #: Seconds on the witness's clock when the first witness began to doubt.
    since: float
    confirmed_t: float | None = None
    keys: list[str] = field(default_factory=list)
    votes: dict[str, str] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)
    #: Jobs it touches: name -> attempt at that time.
    jobs: dict[str, int] = field(default_factory=dict)
    nodes: list[str] = field(default_factory=list)
    #: The response that the witnesses asked for, before the site's policy changed it.
    asked: str = "watch"
    fence: int = 0
    actions: list[str] = field(default_factory=list)
    #: Jobs whose restart it ordered -> the attempt that was to end.
    restarted: dict[str, int] = field(default_factory=dict)
    #: Something that it asks for was not ordered yet: refused, or not yet looked at.
    held_back: bool = True
    #: The incident that explains this one, when it turned out to be a consequence.
    merged_into: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def move(self, state: State, now: float) -> None:
        """Goes to another state."""
        assert state in MOVES[self.state], f"incident {self.id} ({self.fault} {self.subject}) cannot go {self.state} -> {state}"
        self.state, self.changed_t = state, now

    def add(self, evidence: tuple[Evidence, ...] | list[Evidence]) -> None:
        """Takes evidence in, each piece once, the newest in place of the middle ones when there is too much."""
        known = {(piece.kind, piece.effect, piece.text) for piece in self.evidence}
        self.evidence += [piece for piece in evidence if (piece.kind, piece.effect, piece.text) not in known]
        if len(self.evidence) > EVIDENCE_MAX:
            del self.evidence[EVIDENCE_MAX // 2 : len(self.evidence) - EVIDENCE_MAX // 2]
        found = {piece.layer for piece in self.evidence if piece.effect == "confirm"}
        self.layers = tuple(layer for layer in ("hardware", "communication", "application", "operator") if layer in found)

    def change(self, now: float, event: str, response: str | None = None) -> IncidentChange:
        """The line that tells of it."""
        return IncidentChange(
            t=now, event=event, incident=self.id, fault=self.fault, culprit=self.culprit, subject=dict(self.subject),  # type: ignore[arg-type]
            response=response or self.response, repair=self.repair, layers=self.layers, votes=dict(self.votes),
            evidence=tuple(self.evidence), explanation=self.explanation,
            extra={
                **self.extra, "incarnation": self.incarnation, "state": self.state.value, "since": self.since,
                "decisive": self.decisive, "jobs": sorted(self.jobs),
                **({"merged_into": self.merged_into} if self.merged_into else {}),
            },
        )  # fmt: skip


def incident_id(vote: Vote) -> str:
    """The same for the same fault, subject and attempt, at every leader and in every run."""
    return short_hash("incident", vote.fault, subject_text(_identity(vote)), vote.incarnation)


def _identity(vote: Vote) -> dict[str, Any]:
    """The subject as the key has it: what is learnt later of the same part does not make another incident."""
    text = vote.key.split("|", 2)[1]
    return dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)


def open_incident(vote: Vote, votes: dict[str, str], now: float) -> Incident:
    """A new incident from the fullest vote on it."""
    incident = Incident(
        id=incident_id(vote), fault=vote.fault, culprit=vote.culprit, subject=dict(vote.subject),
        incarnation=vote.incarnation, response=vote.response, repair=vote.repair, layers=vote.layers,
        decisive=vote.decisive, explanation=vote.reason, reason_code=vote.reason_code, state=State.SUSPECTED,
        opened_t=now, changed_t=now, since=float(vote.extra.get("since", vote.t)), keys=[vote.key], votes=votes,
        asked=vote.response,
    )  # fmt: skip
    incident.add(vote.evidence)
    return incident


def dump(incident: Incident) -> Any:
    """A form that JSON can carry."""
    return msgspec.to_builtins(incident)


def load(data: Any) -> Incident:
    """Reads what `dump` wrote."""
    return msgspec.convert(data, Incident)
