"""Compares what was decided in an episode with what was true. Knows nothing of how faults are played."""

from dataclasses import dataclass, field, replace
from typing import Any

from detectors.core.types import IncidentChange
from drills.simulate.baselines import Conviction
from drills.simulate.record import Record
from drills.simulate.world import Truth
from outrider.catalogue.faults import RESPONSES

WATCH, PAGE = RESPONSES.index("watch"), RESPONSES.index("page")
#: Verdicts that a heartbeat detector means when it convicts a node.
SILENT = frozenset({"node.lost", "node.panic", "node.reboot", "node.hung", "domain.lost"})


@dataclass(slots=True)
class Found:
    """How one true fault fared: seconds until the right verdict (None: never), and whether the place was right.

    `acted`: seconds until a restart was ordered, if one was needed; `detected`: seconds until any verdict on it.
    """

    truth: Truth
    seconds: float | None = None
    placed: bool = False
    acted: float | None = None
    detected: float | None = None


@dataclass(slots=True)
class Outcome:
    """An episode's score for one detector. `named`: (class, verdict right, place right) of each verdict.

    A right verdict counts for the fault that it found, a wrong one for the class that it named.
    """

    found: list[Found] = field(default_factory=list)
    named: list[tuple[str, bool, bool]] = field(default_factory=list)
    false_restarts: list[str] = field(default_factory=list)
    false_pages: list[str] = field(default_factory=list)
    extra_incidents: int = 0


def outrider(record: Record) -> Outcome:
    """The score of the real core."""
    outcome = Outcome([Found(truth) for truth in record.truths])
    matched: dict[int, set[str]] = {}
    for change in confirmed(record, {fault for truth in record.truths if not truth.stops for fault in truth.accept}):
        index = next((i for i, truth in enumerate(record.truths) if change.fault in truth.accept and _touches(change, truth)), None)
        if index is None:
            index = next((i for i, truth in enumerate(record.truths) if change.fault in truth.accept), None)
        if index is None:
            outcome.named.append((change.fault, False, False))
            cause = _cause(change, record.truths)
            if cause is None:
                outcome.false_pages.append(f"{change.fault} {change.subject} at {change.t:.1f}")
            elif outcome.found[cause].detected is None:
                outcome.found[cause].detected = change.t - record.truths[cause].t
            continue
        found, truth = outcome.found[index], record.truths[index]
        placed = _placed(change, truth)
        outcome.named.append((truth.fault, True, placed))
        found.placed = found.placed or placed
        if found.seconds is None:
            found.seconds = change.t - truth.t
        if found.detected is None:
            found.detected = change.t - truth.t
        matched.setdefault(index, set()).add(change.incident)
    outcome.extra_incidents = sum(len(incidents) - 1 for incidents in matched.values())
    _restarts(record, outcome)
    return outcome


def confirmed(record: Record, mild: set[str]) -> list[IncidentChange]:
    """Each incident at `page` or above that did not turn out to be a consequence of another.

    Faults that stop no job (`mild`) are found at `watch` too: that may be all that they deserve.
    The time is that of its first confirmation, what it says of fault and place is its last word: evidence refines it.
    """
    merged = {change.incident for change in record.changes if change.extra.get("merged_into")}
    first: dict[str, IncidentChange] = {}
    for change in record.changes:
        enough = RESPONSES.index(change.response) >= (WATCH if change.fault in mild else PAGE)
        if change.event == "confirmed" and enough and change.incident not in merged:
            began = first.get(change.incident, change)
            first[change.incident] = replace(change, t=began.t)
    return list(first.values())


def _restarts(record: Record, outcome: Outcome) -> None:
    """Which orders were needed. An incident that touched the innocent counts once, with the first such order."""
    needed = [found for found in outcome.found if found.truth.stops]
    false: dict[str, str] = {}
    for action in record.actions:
        if action.refused is not None or action.action not in ("restart", "quarantine", "drain"):
            continue
        due = [found for found in needed if found.truth.t <= action.t]
        if action.action == "restart":
            if not due:
                false.setdefault(action.incident, f"restart at {action.t:.1f}: {action.reason}")
            for found in due:
                if found.acted is None:
                    found.acted = action.t - found.truth.t
        elif not _guilty(action.target.get("node"), record.truths):
            text = f"{action.action} of {action.target.get('node')} at {action.t:.1f}: {action.reason}"
            false.setdefault(action.incident, text)
    outcome.false_restarts += false.values()


def _guilty(node: Any, truths: list[Truth]) -> bool:
    return any(node in truth.nodes for truth in truths)


def _touches(change: IncidentChange, truth: Truth) -> bool:
    return _placed(change, truth) or change.subject.get("node") in truth.nodes


def _placed(change: IncidentChange, truth: Truth) -> bool:
    """Whether the incident names what the truth's place names: one key is enough, but a wrong node is wrong."""
    said = {**change.subject, "rack": change.subject.get("rack") or change.extra.get("domain")}
    for key, want in truth.place.items():
        if key == "nodes":
            named = set(change.extra.get("nodes") or ())
            if named and named == want:
                return True
        elif said.get(key) is not None and str(said[key]) == str(want):
            return key in ("node", "job", "rank") or said.get("node") is None or said["node"] in truth.nodes
    return False


def _cause(change: IncidentChange, truths: list[Truth]) -> int | None:
    """The fault of which a verdict of another class speaks, if there is one: same node, or the job that it stopped."""
    node = change.subject.get("node")
    for index, truth in enumerate(truths):
        if change.t < truth.t:
            continue
        if node in truth.nodes or (change.subject.get("job") is not None and (truth.stops or node is None)):
            return index
    return None


def baseline(record: Record, said: list[Conviction], *, hears_silence: bool) -> Outcome:
    """The score of a detector that only convicts nodes, or (not `hears_silence`) only sees that the job has ended."""
    outcome = Outcome([Found(truth) for truth in record.truths])
    for one in said:
        index = next(
            (i for i, truth in enumerate(record.truths) if truth.t <= one.t and truth.stops
             and (one.node in truth.nodes or one.node is None or not hears_silence)), None)  # fmt: skip
        name = "node.lost" if hears_silence else "job.rank_exit"
        if index is None:
            outcome.named.append((name, False, False))
            outcome.false_restarts.append(f"restart without {one.node} at {one.t:.1f}")
            continue
        found, truth = outcome.found[index], record.truths[index]
        right = truth.fault in SILENT if hears_silence else True
        placed = one.node is not None and one.node in truth.nodes and "node" in truth.place
        outcome.named.append((truth.fault if right else name, right, placed))
        found.placed = found.placed or placed
        for field_name in ("seconds", "detected", "acted"):
            if getattr(found, field_name) is None and (right or field_name != "seconds"):
                setattr(found, field_name, one.t - truth.t)
    return outcome
