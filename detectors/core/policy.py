"""May we act now? Modes, limits, maintenance and brakes. A refusal is a decision, and it is recorded."""

from dataclasses import dataclass, field
from typing import Any

from detectors.core.safety import Domains
from outrider.config.policy import Mode, Policy

#: Modes, most careful first.
MODES: tuple[Mode, ...] = ("observe", "advise", "act")
#: Actions that touch a job or a node; the others only tell people or copy memory.
DRASTIC = frozenset({"quarantine", "drain", "restart"})
HOUR = 3600.0


@dataclass(slots=True)
class Guard:
    """Remembers what was done and says what may be done next. Times: the leader's clock, seconds."""

    policy: Policy
    restarts: dict[str, list[float]] = field(default_factory=dict)
    drastic: list[float] = field(default_factory=list)
    maintenance: dict[str, bool] = field(default_factory=dict)
    #: Incidents that a person approved: mode `advise` does not hold them back.
    approved: set[str] = field(default_factory=set)
    #: A person stopped all actions.
    paused: bool = False
    #: Brakes: hold until then (A), and blind now (B).
    hold_until: float = float("-inf")
    blind: bool = False
    #: Limits per rack and switch.
    domains: Domains | None = None

    def mode(self, fault: str, jobs: list[str], nodes: list[str]) -> Mode:
        """The most careful of all modes that apply; a fault's own mode stands in place of the site's."""
        policy = self.policy
        rule = policy.faults.get(fault)
        modes: list[Mode] = [rule.mode if rule is not None and rule.mode is not None else policy.mode or "observe"]
        for job in jobs:
            scope = policy.jobs.get(job)
            if scope is not None and scope.mode is not None:
                modes.append(scope.mode)
        for scope in policy.groups.values():
            if scope.mode is not None and any(_in_group(node, scope.nodes) for node in nodes):
                modes.append(scope.mode)
        return min(modes, key=MODES.index)

    def refuses(self, action: str, *, incident: str, fault: str, jobs: list[str], nodes: list[str], now: float) -> str | None:
        """Why an action may not be carried out; None: it may."""
        if self.paused:
            return "paused: a person has stopped all actions"
        mode = self.mode(fault, jobs, nodes)
        if mode == "observe":
            return "mode observe: recorded only"
        if mode == "advise" and action != "page" and incident not in self.approved:
            return "mode advise: a person decides"
        held = [name for name in dict.fromkeys((*jobs, *nodes)) if self.maintenance.get(name)]
        if held and action != "page":
            return f"maintenance of {', '.join(held)}"
        if action not in DRASTIC:
            return None
        if self.blind:
            return "brake: too many nodes are suspect at once, so it is probably the watching that fails"
        if now < self.hold_until:
            return "brake: many nodes were lost at once without a common cause"
        if action == "restart":
            limit = self.policy.job_restarts_max
            for job in jobs:
                done = [t for t in self.restarts.get(job, ()) if now - t < self.policy.job_window_seconds]
                self.restarts[job] = done
                if limit and len(done) >= limit:
                    return f"limit: {job} was restarted {len(done)} times within {self.policy.job_window_seconds:.0f} s"
        self.drastic = [t for t in self.drastic if now - t < HOUR]
        if self.policy.cluster_actions_per_hour and len(self.drastic) >= self.policy.cluster_actions_per_hour:
            return f"limit: {len(self.drastic)} actions in the cluster within an hour"
        return self.domains.refuses(nodes, now) if self.domains is not None else None

    def count(self, jobs: list[str], nodes: list[str], now: float) -> None:
        """An incident's drastic actions were let through: they cost one together. `jobs`: those that are restarted."""
        self.drastic.append(now)
        if self.domains is not None:
            self.domains.count(nodes, now)
        for job in jobs:
            self.restarts.setdefault(job, []).append(now)

    def snapshot(self) -> dict[str, Any]:
        """State for the next leader."""
        return {
            "restarts": self.restarts, "drastic": self.drastic, "maintenance": self.maintenance, "paused": self.paused,
            "approved": sorted(self.approved), "blind": self.blind,
            "hold_until": None if self.hold_until == float("-inf") else self.hold_until,
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where another leader was."""
        self.restarts = {job: list(times) for job, times in state["restarts"].items()}
        self.drastic, self.maintenance = list(state["drastic"]), dict(state["maintenance"])
        self.paused, self.blind, self.approved = state["paused"], state["blind"], set(state["approved"])
        self.hold_until = float("-inf") if state["hold_until"] is None else state["hold_until"]


def _in_group(node: str, names: tuple[str, ...]) -> bool:
    return any(node.startswith(name[:-1]) if name.endswith("*") else node == name for name in names)
