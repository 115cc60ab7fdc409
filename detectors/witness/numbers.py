"""The leader's numbers for `/metrics`, from the incidents' pictures and the council's memory. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from detectors.core.types import Action, Decision, IncidentChange
from detectors.witness.metrics import Histograms, Reading
from outrider.fleet import Fleet, leaf_of
from outrider.metrics import INCIDENT_LABELS

#: States in which an incident is a fact and not yet over.
CONFIRMED_STATES: Final = frozenset({"confirmed", "acting", "recovering"})

Pictures = Mapping[str, dict[str, Any]]


class Tally:
    """Counts what the council decided and what became of it, over the life of this process."""

    def __init__(self) -> None:
        self.histograms = Histograms()
        self._events: Counter[tuple[str, str]] = Counter()
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._refusals: Counter[str] = Counter()

    def decided(self, decision: Decision, pictures: Pictures) -> None:
        """Counts a decision that was committed; `pictures` as they are after it."""
        match decision:
            case IncidentChange():
                self._events[decision.fault, decision.event] += 1
                self._measure(decision, pictures)
            case Action(refused=str() as why):
                self._outcomes[decision.action, "refused"] += 1
                self._refusals[refusal_code(why)] += 1
            case Action():
                self._outcomes[decision.action, "dry_run" if decision.dry_run else "asked"] += 1
            case _:
                pass

    def said(self, kind: str, fault: str) -> None:
        """Counts a person's word that an incident was a false alarm."""
        if kind == "false_alarm":
            self._events[fault, kind] += 1

    def ended(self, action: str, outcome: str) -> None:
        """Counts the end of an action."""
        self._outcomes[action, outcome] += 1

    def readings(self) -> Iterable[Reading]:
        for labels, count in self._events.items():
            yield "outrider_incidents_total", labels, float(count)
        for labels, count in self._outcomes.items():
            yield "outrider_actions_total", labels, float(count)
        for reason, count in self._refusals.items():
            yield "outrider_refusals_total", (reason,), float(count)

    def _measure(self, change: IncidentChange, pictures: Pictures) -> None:
        name = {"confirmed": "detection", "resolved": "recovery"}.get(change.event)
        parts = pictures.get(change.incident, {}).get(name) if name else None
        for part, seconds in (parts or {}).items():
            self.histograms.add(f"outrider_{name}_seconds", (part,), seconds)


def refusal_code(why: str) -> str:
    """A bounded word for a refusal: what stands before its colon, without names (`maintenance of n1` is `maintenance`)."""
    words = why.partition(":")[0].split()
    return "_".join(words[:2]) if words[:1] == ["mode"] else (words or ["unknown"])[0]


def open_incidents(pictures: Pictures, fleet: Fleet) -> Iterable[Reading]:
    """One series for each subject of confirmed, open incidents, and one for each job that they touch. A node's switch stands beside
    it. A job's own series are apart, or the owner who silences a job's alerts would silence its nodes' as well."""
    shown: set[tuple[str, tuple[str, ...]]] = set()
    leaves = {node.node: leaf_of(node) for node in fleet.nodes}
    for picture in pictures.values():
        if picture.get("state") in CONFIRMED_STATES:
            known = {**picture.get("subject", {}), **{name: picture.get(name, "") for name in ("fault", "culprit", "response")}}
            known["switch"] = known.get("switch") or leaves.get(str(known.get("node")), "")
            shown.add(("outrider_incident_open", _labels(known)))
            for job in {*picture.get("extra", {}).get("jobs", ()), *filter(None, [known.get("job")])}:
                shown.add(("outrider_job_incident_open", _labels({**known, "job": job})))
    for name, labels in sorted(shown):
        yield name, labels, 1.0


def _labels(known: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(known.get(label, "")) for label in INCIDENT_LABELS)


def state_of_the_fleet(fleet: Fleet, pictures: Pictures, memory: Mapping[str, Any], now: float) -> Iterable[Reading]:
    """Nodes by state, free spares and brakes.

    Args:
        memory: the council's snapshot; what is absent in it is counted as none.
        now: the ledger's clock, seconds.
    """
    recovery = memory.get("recovery", {})
    guard = recovery.get("guard", {})
    suspect, lost = _nodes(pictures, {"suspected"}), _nodes(pictures, CONFIRMED_STATES)
    quarantined = set(recovery.get("quarantined", {}))
    resting = {name for name, on in guard.get("maintenance", {}).items() if on}
    unfit = set(recovery.get("safety", {}).get("unfit_spares", ()))
    free = set(fleet.spares) - set(recovery.get("claimed", {})) - quarantined - unfit
    states: Counter[str] = Counter(dict.fromkeys(("healthy", "suspect", "lost", "quarantined", "maintenance", "spare"), 0))
    for node in fleet.nodes:
        for state, members in (
            ("quarantined", quarantined), ("lost", lost), ("maintenance", resting), ("suspect", suspect), ("spare", free),
        ):  # fmt: skip
            if node.node in members:
                states[state] += 1
                break
        else:
            states["healthy"] += 1
    for state, count in states.items():
        yield "outrider_nodes", (state,), float(count)
    yield "outrider_spares_free", (), float(len(free))
    yield "outrider_brake", ("mass",), float((guard.get("hold_until") or 0.0) > now)
    yield "outrider_brake", ("blind",), float(bool(guard.get("blind")))
    yield "outrider_brake", ("paused",), float(bool(guard.get("paused")))


def _nodes(pictures: Pictures, states: frozenset[str] | set[str]) -> set[str]:
    """Nodes that incidents in one of `states` are about; a fault of a job alone is about no node."""
    return {
        str(picture["subject"]["node"])
        for picture in pictures.values()
        if picture.get("state") in states
        and "node" in picture.get("subject", {})
        and not str(picture.get("fault", "")).startswith("job.")
    }
