"""What an incident asks for: actions in order, each after the one before. Whether they may happen is the policy's matter."""

from dataclasses import dataclass, field
from typing import Any

from detectors.core.incident import Incident
from detectors.core.types import ActionName
from detectors.core.world import JobState, World

#: Faults after which no state of the job is worth saving: the last good snapshot is taken.
POISONED = frozenset({"job.loss_nan", "job.resume_mismatch", "gpu.sdc", "storage.hang", "storage.full", "job.snapshot_failed"})
#: Pages that come with a copy of the state, for the job may not last.
SAVE_AND_PAGE = frozenset({"job.hang", "job.loss_stagnant"})


@dataclass(slots=True)
class Planned:
    """One action that is wanted."""

    action: ActionName
    target: dict[str, Any]
    jobs: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)


class Spares:
    """Who stands by. A spare is claimed once, and comes back only by release."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        #: spare -> incident that took it.
        self.claimed: dict[str, str] = {}

    def claim(self, incident: str, unfit: set[str]) -> str | None:
        """The first spare that is free and not unfit; None if there is none."""
        for name in self.names:
            if name not in self.claimed and name not in unfit:
                self.claimed[name] = incident
                return name
        return None


def wanted(incident: Incident, world: World, spares: Spares, unfit: set[str]) -> list[Planned]:
    """The actions that the incident's response means, in their order.

    Args:
        incident: confirmed; its `nodes` are those to take out, its `jobs` those that suffer.
        world: jobs and slots.
        spares: claims are made here.
        unfit: nodes that must not be used: quarantined, suspect or silent.
    """
    jobs = [world.jobs[name] for name in sorted(incident.jobs) if name in world.jobs and not world.jobs[name].ended]
    out = incident.nodes if incident.culprit in ("gpu", "node", "nic", "link") or incident.extra.get("take_out") else []
    plan: list[Planned] = []
    match incident.response:
        case "restart":
            if incident.fault not in POISONED:
                plan += [_snapshot(state, incident) for state in jobs]
            plan += [Planned("quarantine", {"node": node}, nodes=[node]) for node in out]
            plan += [_restart(state, incident, out, spares, unfit | set(out)) for state in jobs]
            if not plan:
                plan.append(_page(incident))
        case "drain":
            plan += [Planned("drain", {"node": node}, [state.name for state in jobs], [node]) for node in incident.nodes]
            if not plan:
                plan.append(_page(incident))
        case "page":
            plan.append(_page(incident))
            if incident.fault in SAVE_AND_PAGE:
                plan += [_snapshot(state, incident) for state in jobs]
            if incident.fault == "agent.lost":
                plan += [Planned("agent_restart", {"node": node}, nodes=[node]) for node in incident.nodes]
        case _:
            pass
    return plan


def dead_ranks(incident: Incident, state: JobState) -> set[int]:
    """Ranks of a job that cannot save anything any more."""
    told = incident.extra.get("dead_ranks", {}).get(state.name, ())
    gone = {rank for node in incident.nodes for rank in state.node_ranks.get(node, ())} if _loses_host(incident) else set()
    return {*told, *gone, *state.exits}


def _loses_host(incident: Incident) -> bool:
    return incident.fault in ("node.lost", "node.hung", "node.panic", "node.reboot")


def _snapshot(state: JobState, incident: Incident) -> Planned:
    living = sorted(set(range(state.size)) - dead_ranks(incident, state))
    target = {"job": state.name, "attempt": state.attempt, "ranks": living, "step": None}
    return Planned("snapshot", target, [state.name])


def _restart(state: JobState, incident: Incident, out: list[str], spares: Spares, unfit: set[str]) -> Planned:
    replace: list[dict[str, Any]] = []
    for node in out:
        slots = state.node_ranks.get(node, ())
        spare = spares.claim(incident.id, unfit) if slots else None
        replace += [{"slot": slot, "from": node, "to": spare} for slot in slots]
    resume: dict[str, Any] = {"step": None, "manifest": None, "rule": "newest"}
    if incident.fault in POISONED:
        resume["rule"] = "last_good"
    target = {"job": state.name, "attempt": state.attempt, "replace": replace, "resume": resume}
    return Planned("restart", target, [state.name], sorted({str(item["to"]) for item in replace if item["to"]}))


def _page(incident: Incident) -> Planned:
    target = {"fault": incident.fault, "subject": dict(incident.subject), "severity": incident.extra.get("severity", "")}
    return Planned("page", {name: value for name, value in target.items() if value != ""}, sorted(incident.jobs), [])
