"""The words that pass through the judge's door: evidence and votes, decisions, and what the edge answers.

The core has two pure machines. An `Engine` is one witness's judgement: signals and time in; votes, probe requests and
early-copy requests out. A `Council` is the leader's: votes of all witnesses, deliveries and time in; incidents and
actions out. Both are driven by `observe(event, now)`, `advance(now)` and `next_deadline()`; `now` is monotonic seconds.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

Effect = Literal["confirm", "veto", "neutral"]
ActionName = Literal["snapshot", "quarantine", "drain", "restart", "page", "agent_restart", "release"]


class Verdict(StrEnum):
    """What one witness says of one suspicion."""

    FAULTY = "faulty"
    CLEAR = "clear"
    ABSTAIN = "abstain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One piece of evidence. `t`: seconds on the witness's clock; `layer`: of the signal behind it."""

    t: float
    kind: str
    subject: dict[str, Any]
    effect: Effect
    text: str
    layer: str = "hardware"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One witness's opinion on one suspected fault; it goes into the ledger and expires.

    `key` = (fault, subject, incarnation) as one string, the same at every witness: votes with one key are counted
    together. A witness votes again when its opinion or its evidence changes, and before the vote expires.
    `decisive`: the evidence needs no second layer. `extra` carries what the council needs to act (ranks alive, ..).
    """

    key: str
    witness: str
    verdict: Verdict
    fault: str
    culprit: str
    subject: dict[str, Any]
    incarnation: str
    response: str
    repair: str
    layers: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    reason: str
    reason_code: str
    t: float
    expires_seconds: float = 10.0
    decisive: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    def replaces(self) -> tuple[str, ...]:
        """Keys of the votes that this one takes the place of."""
        told = self.extra.get("replaces", ())
        return (told,) if isinstance(told, str) else tuple(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """Ask the agents of `probers` to probe `node` (UDP with a nonce to its port, UDP to a closed port)."""

    decision_id: str
    node: str
    probers: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRequest:
    """Ask the ranks of `job` to copy their last finished state early; it harms nobody and needs no quorum."""

    decision_id: str
    job: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentChange:
    """An incident moved: one line of the output stream (see the design's trace contract)."""

    t: float
    event: Literal["suspected", "confirmed", "refuted", "resolved"]
    incident: str
    fault: str
    culprit: str
    subject: dict[str, Any]
    response: str
    repair: str
    layers: tuple[str, ...]
    votes: dict[str, str]
    evidence: tuple[Evidence, ...]
    explanation: str
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An order to the world, or (`refused` set) the recorded refusal of one.

    Actions of one incident are ordered: an action waits for those in `after` to be done, failed or past their deadline.
    `target` names job, node, replace [{slot, from, to}], ranks, resume, .. ; `fence` only grows over the cluster's life.
    """

    t: float
    decision_id: str
    incident: str
    action: ActionName
    target: dict[str, Any]
    fence: int
    deadline_seconds: float
    after: tuple[str, ...] = ()
    reason: str = ""
    refused: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """What became of an action: the edge tells the council."""

    decision_id: str
    outcome: Literal["done", "failed", "timed_out"]
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorEvent:
    """What a person told the leader. `target`: an incident's id, a node, a job, or empty for everything.

    ack: seen, it is being worked on. approve: carry out what was refused for want of approval. pause, resume: stop and
    start all actions. release: a quarantined node may be used again. false_alarm: close it, count it as wrong.
    reset_brake: let actions go on. maintenance_on, maintenance_off: of a node or a job.
    """

    kind: Literal["ack", "approve", "pause", "resume", "release", "false_alarm", "reset_brake", "maintenance_on", "maintenance_off"]
    target: str = ""
    who: str = ""
    reason: str = ""


Decision = Vote | ProbeRequest | CopyRequest | IncidentChange | Action


class Machine(Protocol):
    """How the edge drives either half of the core. All methods are pure: no clock, no I/O, no chance."""

    def observe(self, event: Any, now: float) -> list[Decision]: ...

    def advance(self, now: float) -> list[Decision]: ...

    def next_deadline(self) -> float | None: ...
