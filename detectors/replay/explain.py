"""Why was it decided so? The story of one incident in a trace, and what would have changed it.

What would have changed it is not guessed: the trace is run again without one kind of evidence, or under another limit, and
the outcomes are compared. The judge is deterministic, so the difference is the evidence's own doing.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from detectors.replay.runner import Lines, Replay
from detectors.replay.trace import TraceSignal
from outrider.catalogue.codes import CodeBook
from outrider.config.policy import Policy
from outrider.errors import InputError
from outrider.fleet import Fleet

#: Kinds of evidence that come from what is not heard: they cannot be left out of a trace.
FROM_SILENCE = frozenset({"heartbeat", "witness"})
#: Other runs for one explanation, at most.
RUNS_MAX = 12


@dataclass(slots=True, frozen=True)
class Judge:
    """Under what a trace is judged: the site of its header, the policy, the codes with the site's overrides."""

    fleet: Fleet
    policy: Policy
    codes: CodeBook


@dataclass(slots=True)
class Story:
    """One incident: its lines in order, and what other runs made of it: (what was changed, what came of it)."""

    incident: str
    lines: list[dict[str, Any]]
    changes: list[tuple[str, str]] = field(default_factory=list)

    @property
    def head(self) -> dict[str, Any]:
        """The line that says most: the last confirmation, else the last line."""
        return next((line for line in reversed(self.lines) if line["event"] == "confirmed"), self.lines[-1])

    def to_json(self) -> dict[str, Any]:
        """One object for programs."""
        head = self.head
        effects: dict[str, list[Any]] = {"confirm": [], "veto": [], "neutral": []}
        for piece in head["evidence"]:
            effects[piece["effect"]].append(piece)
        return {
            "incident": self.incident, "fault": head["fault"], "culprit": head["culprit"], "subject": head["subject"],
            "response": head["response"], "explanation": head["explanation"], "votes": head["votes"],
            "for": effects["confirm"], "against": effects["veto"], "neutral": effects["neutral"],
            "timeline": [{key: line[key] for key in ("t", "event", "response")} | _action(line) for line in self.lines],
            "would_change": [{"without": what, "outcome": outcome} for what, outcome in self.changes],
        }  # fmt: skip


def tell(judge: Judge, signals: list[tuple[int, TraceSignal]], wanted: str | None) -> list[Story]:
    """The stories of all incidents of a trace, or of the one whose name begins with `wanted`.

    Raises:
        InputError: no incident has that name, or several have.
    """
    stories = _stories(judge, signals)
    if wanted is not None:
        stories = [story for story in stories if story.incident.startswith(wanted)]
        if len(stories) != 1:
            raise InputError(f"{'no incident' if not stories else 'more than one incident'} of this trace begins with {wanted!r}")
    for story in stories:
        story.changes = list(_other_runs(judge, signals, story))
    return stories


def _stories(judge: Judge, signals: Iterable[tuple[int, TraceSignal]]) -> list[Story]:
    lines = Lines()
    found: dict[str, Story] = {}
    for decision in Replay(judge.fleet, judge.policy, judge.codes).run(iter(signals)):
        line = lines.line(decision)
        found.setdefault(line["incident"], Story(line["incident"], [])).lines.append(line)
    return list(found.values())


def _other_runs(judge: Judge, signals: list[tuple[int, TraceSignal]], story: Story) -> Iterator[tuple[str, str]]:
    head, fleet, policy = story.head, judge.fleet, judge.policy
    kinds = {piece["kind"] for piece in head["evidence"] if piece["effect"] != "neutral"}
    present = {signal.kind for _, signal in signals}
    for kind in sorted((kinds & present) - FROM_SILENCE)[:RUNS_MAX]:
        rest = [(number, signal) for number, signal in signals if signal.kind != kind]
        yield f"all signals of kind {kind}", _outcome(_stories(judge, rest), story)
    if any(piece["kind"] in FROM_SILENCE for piece in head["evidence"]):
        longer = msgspec.structs.replace(
            policy, heartbeat_timeout=policy.heartbeat_timeout * 2, heartbeat_timeout_max=policy.heartbeat_timeout_max * 2
        )
        yield "the present heartbeat time-out (with twice of it)", _outcome(_stories(replace(judge, policy=longer), signals), story)
        shorter = msgspec.structs.replace(policy, hard_limit_seconds=policy.hard_limit_seconds * 2)
        yield "the present hard limit (with twice of it)", _outcome(_stories(replace(judge, policy=shorter), signals), story)
    for witness in fleet.witnesses if len(fleet.witnesses) > 1 else ():
        deaf = [(number, _without(signal, witness, fleet)) for number, signal in signals]
        yield f"everything that {witness} heard", _outcome(_stories(judge, deaf), story)


def _without(signal: TraceSignal, witness: str, fleet: Fleet) -> TraceSignal:
    to = signal.to if signal.to is not None else fleet.witnesses
    return signal if signal.kind == "pause" else msgspec.structs.replace(signal, to=tuple(name for name in to if name != witness))


def _outcome(stories: list[Story], story: Story) -> str:
    """What became of the incident in another run, in words."""
    head, was_at = story.head, _confirmed_t(story)
    same = next((other for other in stories if other.incident == story.incident), None)
    if same is None:
        near = [other for other in stories if set(other.head["subject"].items()) & set(head["subject"].items())]
        if near:
            return f"it would have been {near[0].head['fault']} ({near[0].head['response']})"
        return "nothing would have been suspected"
    at = _confirmed_t(same)
    if at is None:
        return "the same" if was_at is None else "it would have been suspected and never confirmed"
    if was_at is None:
        return f"it would have been confirmed at {at:.1f} s"
    if same.head["response"] != head["response"]:
        return f"confirmed at {at:.1f} s with the response {same.head['response']}"
    return "the same" if abs(at - was_at) < 0.05 else f"confirmed at {at:.1f} s instead of {was_at:.1f} s"


def _confirmed_t(story: Story) -> float | None:
    return next((float(line["t"]) for line in story.lines if line["event"] == "confirmed"), None)


def _action(line: dict[str, Any]) -> dict[str, Any]:
    return {key: line[key] for key in ("action", "target", "fence", "refused") if key in line}
