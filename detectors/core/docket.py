"""A witness's docket: what it suspects now, and the votes that tell of it."""

from dataclasses import dataclass, field
from math import ceil
from typing import Any

from detectors.core.identity import vote_key
from detectors.core.types import Evidence, Verdict, Vote
from outrider.catalogue.faults import FAULTS

#: Evidence kept for one suspicion; the oldest after the first few gives way. A flood of one XID costs no more than this.
EVIDENCE_MAX = 24
#: Suspicions kept at once; a bound against floods, far above what a cluster has in a bad hour.
SUSPICIONS_MAX = 20_000
#: A vote is cast anew after this part of its life, so that one lost write does not let it expire.
RENEW_PART = 0.45


@dataclass(slots=True, kw_only=True)
class Suspicion:
    """One doubt of this witness. `sure`: this witness would act; `ends`: forget it then (events), None: until cleared."""

    fault: str
    subject: dict[str, Any]
    incarnation: str
    culprit: str
    response: str
    repair: str
    reason: str
    reason_code: str
    since: float
    sure: bool
    decisive: bool
    verdict: Verdict = Verdict.FAULTY
    evidence: list[Evidence] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    ends: float | None = None
    renew: float = 0.0

    def take(self, newer: "Suspicion") -> bool:
        """Takes over what is now said of the same thing; True if the witnesses' votes must say it too."""
        before = self._opinion()
        known = {(piece.kind, piece.text) for piece in self.evidence}
        self.evidence += [piece for piece in newer.evidence if (piece.kind, piece.text) not in known]
        if len(self.evidence) > EVIDENCE_MAX:
            del self.evidence[EVIDENCE_MAX // 2 : len(self.evidence) - EVIDENCE_MAX // 2]
        self.subject = {**self.subject, **newer.subject}
        self.verdict, self.sure, self.decisive, self.ends = newer.verdict, newer.sure, newer.decisive, newer.ends
        self.culprit, self.response, self.repair = newer.culprit, newer.response, newer.repair
        self.reason, self.reason_code = newer.reason, newer.reason_code
        changed = any(self.extra.get(name) != value for name, value in newer.extra.items())
        self.extra.update(newer.extra)
        return changed or self._opinion() != before

    def _opinion(self) -> tuple[object, ...]:
        return (self.verdict, self.sure, self.decisive, self.culprit, self.response, self.reason_code, self.layers())

    def layers(self) -> tuple[str, ...]:
        """Layers whose evidence confirms, in a fixed order."""
        found = {piece.layer for piece in self.evidence if piece.effect == "confirm"}
        return tuple(layer for layer in ("hardware", "communication", "application", "operator") if layer in found)


class Docket:
    """All suspicions of one witness. Rules accuse and clear; the engine takes the votes out.

    Args:
        witness: whose docket it is.
        vote_seconds: how long a vote counts.
    """

    def __init__(self, witness: str, vote_seconds: float) -> None:
        self.witness, self.vote_seconds = witness, vote_seconds
        self.suspicions: dict[str, Suspicion] = {}
        self.dirty: dict[str, None] = {}
        self.dropped = 0
        #: When something must be said again or forgotten, at the earliest.
        self.due = float("inf")
        self.abstaining = False

    def accuse(
        self,
        fault: str,
        subject: dict[str, Any],
        *,
        now: float,
        reason: str,
        reason_code: str,
        incarnation: str = "",
        evidence: tuple[Evidence, ...] = (),
        sure: bool = True,
        decisive: bool | None = None,
        response: str | None = None,
        culprit: str | None = None,
        repair: str | None = None,
        extra: dict[str, Any] | None = None,
        lasts: float | None = None,
        key_subject: dict[str, Any] | None = None,
    ) -> Suspicion | None:
        """Opens a suspicion or adds to it; what is left out comes from the catalogue.

        `lasts`: seconds after which it is forgotten unless it is renewed; None: it stands until it is cleared.
        `key_subject`: the identity, where `subject` carries more than that. Returns None when the docket is full.
        """
        key = vote_key(fault, key_subject or subject, incarnation)
        entry = FAULTS[fault]
        fresh = Suspicion(
            fault=fault, subject=subject, incarnation=incarnation, since=now, sure=sure,
            ends=None if lasts is None else now + lasts, culprit=culprit or entry.culprit,
            decisive=entry.decisive if decisive is None else decisive,
            response=response or entry.response, repair=repair or entry.repair, reason=reason, reason_code=reason_code,
            evidence=list(evidence), extra=extra or {},
        )  # fmt: skip
        if fresh.ends is not None and fresh.ends < self.due:
            self.due = fresh.ends
        old = self.suspicions.get(key)
        if old is not None:
            if old.take(fresh):
                self.dirty[key] = None
            return old
        if len(self.suspicions) >= SUSPICIONS_MAX:
            self.dropped += 1
            return None
        self.suspicions[key] = fresh
        self.dirty[key] = None
        return fresh

    def last(self, job: str) -> None:
        """Lets the votes about a job as a whole leave after those about its parts."""
        for key in [key for key in self.dirty if self.suspicions[key].subject.get("job") == job and key.startswith("job.")]:
            del self.dirty[key]
            self.dirty[key] = None

    def find(self, fault: str, key_subject: dict[str, Any], incarnation: str = "") -> Suspicion | None:
        """The suspicion of that identity, if there is one."""
        return self.suspicions.get(vote_key(fault, key_subject, incarnation))

    def clear(self, key: str, now: float, reason: str, evidence: tuple[Evidence, ...] = ()) -> None:
        """Takes a suspicion back and says so in a last vote."""
        old = self.suspicions.get(key)
        if old is not None and old.verdict is Verdict.FAULTY:
            old.verdict, old.reason, old.reason_code, old.sure = Verdict.CLEAR, reason, "cleared", False
            old.evidence += evidence
            old.ends = now + self.vote_seconds
            self.due = min(self.due, old.ends)
            self.dirty[key] = None

    def clear_subject(self, fault: str, key_subject: dict[str, Any], now: float, reason: str, incarnation: str = "") -> None:
        """`clear` by identity instead of by key; nothing happens if nothing is suspected."""
        self.clear(vote_key(fault, key_subject, incarnation), now, reason)

    def votes(self, now: float) -> list[Vote]:
        """Votes on what changed, and on what must be said again; forgets what has ended."""
        self.due = float("inf")
        for key, old in list(self.suspicions.items()):
            if old.ends is not None and now >= old.ends:
                del self.suspicions[key]
                self.dirty.pop(key, None)
                continue
            if now >= old.renew > 0.0:
                self.dirty[key] = None
            else:
                self.due = min(self.due, old.renew)
            if old.ends is not None:
                self.due = min(self.due, old.ends)
        return self.changed(now)

    def changed(self, now: float) -> list[Vote]:
        """Votes on what changed since the last call."""
        votes = [self._vote(key, self.suspicions[key], now) for key in self.dirty if key in self.suspicions]
        self.dirty.clear()
        return votes

    def _vote(self, key: str, old: Suspicion, now: float) -> Vote:
        # On a grid of half seconds, so that a thousand suspicions are gone through twice a second and not a thousand times.
        old.renew = ceil((now + RENEW_PART * self.vote_seconds) * 2) / 2
        self.due = min(self.due, old.renew)
        abstains = self.abstaining and old.extra.get("silence") is not None and old.verdict is Verdict.FAULTY
        return Vote(
            key=key, witness=self.witness, verdict=Verdict.ABSTAIN if abstains else old.verdict, fault=old.fault,
            culprit=old.culprit, subject=dict(old.subject), incarnation=old.incarnation, response=old.response,
            repair=old.repair, layers=old.layers(), evidence=tuple(old.evidence), reason=old.reason,
            reason_code="own_stall" if abstains else old.reason_code, t=now, expires_seconds=self.vote_seconds,
            decisive=old.decisive, extra={**old.extra, "sure": old.sure and not abstains, "since": old.since},
        )  # fmt: skip
