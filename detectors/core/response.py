"""What an incident asks for: actions in order, each after the one before. Whether they may happen is the policy's matter."""

from dataclasses import dataclass, field
from typing import Any

from detectors.core.incident import Incident
from detectors.core.types import Action, ActionName
from detectors.core.world import JobState, World

#: Faults after which no state of the job is worth saving: the last good snapshot is taken.
POISONED = frozenset({"job.loss_nan", "job.resume_mismatch", "gpu.sdc", "storage.hang", "storage.full", "job.snapshot_failed"})
#: Pages that come with a copy of the state, for the job may not last.
SAVE_AND_PAGE = frozenset({"job.hang", "job.loss_stagnant", "switch.down", "domain.lost"})
#: Culprits that are a part of a machine: the machine is taken out.
OF_A_MACHINE = frozenset({"gpu", "node", "nic", "link"})
#: Faults that take the whole host with all its ranks.
LOSES_HOST = frozenset({"node.lost", "node.hung", "node.panic", "node.reboot"})


@dataclass(slots=True)
class Planned:
    """One action that is wanted."""

    action: ActionName
    target: dict[str, Any]
    jobs: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Place:
    """Where a job goes on: what takes whose slot, and from which snapshot.

    `rule`: `newest` (the emergency set if it is committed in time), `last_good` (nothing of the fault's own time) or
    `previous` (one before the newest: the job failed again and again without a new one).
    """

    replace: list[dict[str, Any]]
    rule: str


class Spares:
    """Who stands by. A spare is claimed once, and comes back only by release."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        #: spare -> incident that took it.
        self.claimed: dict[str, str] = {}

    def claim(self, incident: str, free: list[str]) -> str | None:
        """The first of the free ones; None if there is none."""
        name = next(iter(free), None)
        if name is not None:
            self.claimed[name] = incident
        return name


def taken_out(incident: Incident) -> list[str]:
    """The machines that the incident's response takes out; of a lost domain those that the job it took with it needs."""
    if incident.fault == "domain.lost":
        return sorted(incident.extra.get("members", ())) if incident.response == "restart" else []
    return incident.nodes if incident.culprit in OF_A_MACHINE else []


def suffering(incident: Incident, world: World) -> list[JobState]:
    """The jobs that the incident touches, that still run, and that have not gone on in another attempt off its machines."""
    out = taken_out(incident)
    return [
        state for name, attempt in sorted(incident.jobs.items())
        if (state := world.jobs.get(name)) is not None and not state.ended
        and (state.attempt <= attempt or any(node in state.node_ranks for node in out))
    ]  # fmt: skip


def wanted(incident: Incident, world: World, places: dict[str, Place], served: set[str]) -> list[Planned]:
    """The actions that the incident's response means, in their order.

    Args:
        incident: confirmed.
        world: jobs and slots.
        places: job -> where it goes on; a job that is not in it is not restarted (it fails again and again).
        served: jobs whose restart was ordered already; nothing more is asked of them.
    """
    jobs = [state for state in suffering(incident, world) if state.name not in served]
    plan: list[Planned] = []
    response = incident.response
    if incident.fault == "domain.lost" and response == "restart" and not taken_out(incident):
        response = "page"  # whatever the site asks for: no job is known to be lost with it
    match response:
        case "restart":
            going = [state for state in jobs if state.name in places]
            if incident.fault not in POISONED:
                plan += [_snapshot(state, incident) for state in jobs]
            plan += [Planned("quarantine", {"node": node}, _living(node, world), [node]) for node in taken_out(incident)]
            plan += [_restart(state, places[state.name]) for state in going]
            if len(going) < len(jobs) or not (plan or served):
                plan.append(_page(incident))
        case "drain":
            plan += [Planned("drain", {"node": node}, _living(node, world), [node]) for node in incident.nodes]
            if not plan:
                plan.append(_page(incident))
        case "page":
            plan.append(_page(incident))
            if incident.fault in SAVE_AND_PAGE:
                plan += [_snapshot(state, incident) for state in jobs]
            if incident.fault == "agent.lost":
                plan += [Planned("agent_restart", {"node": node}, nodes=[node]) for node in incident.nodes]
            if "short_of_spares" in incident.extra:
                plan += [_restart(state, Place([], "newest")) for state in jobs]  # refused, and recorded as such
        case _:
            pass
    return plan


def _living(node: str, world: World) -> list[str]:
    """The jobs that a node cannot be taken from without touching them: one that opted out keeps it."""
    return sorted(state.name for state in world.jobs_on(node))


def dead_ranks(incident: Incident, state: JobState) -> set[int]:
    """Ranks of a job that cannot save anything any more."""
    told = incident.extra.get("dead_ranks", {}).get(state.name, ())
    gone: set[int] = set()
    if incident.fault in LOSES_HOST:
        gone = {rank for node in incident.nodes for rank in state.node_ranks.get(node, ())}
    return {*told, *gone, *state.exits}


def _snapshot(state: JobState, incident: Incident) -> Planned:
    living = sorted(set(range(state.size)) - dead_ranks(incident, state))
    return Planned("snapshot", {"job": state.name, "attempt": state.attempt, "ranks": living, "step": None}, [state.name])


def _restart(state: JobState, place: Place) -> Planned:
    target = {
        "job": state.name, "attempt": state.attempt, "replace": place.replace,
        "resume": {"step": None, "manifest": None, "rule": place.rule},
    }  # fmt: skip
    return Planned("restart", target, [state.name], sorted({str(item["to"]) for item in place.replace if item["to"]}))


def _page(incident: Incident) -> Planned:
    return Planned("page", {"fault": incident.fault, "subject": dict(incident.subject)}, sorted(incident.jobs), [])


def kept(action: Action) -> list[Any]:
    """What is asked of an order later on; the whole of it, with thousands of ranks, would be most of the leader's memory."""
    target = {name: action.target[name] for name in ("node", "replace") if action.target.get(name)}
    return [action.decision_id, action.incident, action.action, target, action.t, action.fence]


def recalled(decision: str, incident: str, name: ActionName, target: dict[str, Any], t: float, fence: int) -> Action:
    """Reads what `kept` wrote."""
    return Action(t=t, decision_id=decision, incident=incident, action=name, target=target, fence=fence, deadline_seconds=0.0)
