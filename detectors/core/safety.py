"""What else holds a hand back: limits per rack and switch, repeat offenders, and approvals that nobody gave in time. Pure."""

from dataclasses import dataclass, field
from typing import Any

from outrider.config.policy import Policy
from outrider.fleet import Fleet

HOUR = 3600.0
DAY = 86_400.0
#: Times remembered of one node or domain; more than any limit needs.
TIMES_MAX = 64


class Domains:
    """Racks and switches of the nodes, and how many incidents of the last hour touched each."""

    def __init__(self, fleet: Fleet, policy: Policy) -> None:
        self._limits = {"rack": policy.rack_actions_per_hour, "switch": policy.switch_actions_per_hour}
        self._of: dict[str, set[tuple[str, str]]] = {}
        for node in fleet.nodes:
            switches = {node.switch, *node.nics.values()} - {None, ""}
            found = {("switch", str(name)) for name in switches} | ({("rack", node.rack)} if node.rack else set())
            self._of[node.node] = found
        self.times: dict[str, list[float]] = {}

    def refuses(self, nodes: list[str], now: float) -> str | None:
        """Which domain has had enough; None: none."""
        for kind, name in sorted({domain for node in nodes for domain in self._of.get(node, ())}):
            key = f"{kind} {name}"
            recent = [t for t in self.times.get(key, ()) if now - t < HOUR]
            limit = self._limits[kind]
            if limit and len(recent) >= limit:
                return f"limit: {len(recent)} actions in {key} within an hour"
        return None

    def count(self, nodes: list[str], now: float) -> None:
        """One incident's actions touched these nodes: it counts once in each of their domains."""
        for kind, name in {domain for node in nodes for domain in self._of.get(node, ())}:
            times = self.times.setdefault(f"{kind} {name}", [])
            times.append(now)
            del times[:-TIMES_MAX]


@dataclass(slots=True)
class Offenders:
    """How often each node was taken out: one that comes back again and again is no spare."""

    count_max: int
    seconds: float
    times: dict[str, list[float]] = field(default_factory=dict)

    def note(self, node: str, now: float) -> None:
        times = self.times.setdefault(node, [])
        times.append(now)
        del times[:-TIMES_MAX]

    def often(self, node: str, now: float) -> int:
        """How often within the window."""
        return sum(now - t < self.seconds for t in self.times.get(node, ()))

    def lemons(self, now: float) -> set[str]:
        """Nodes that are kept out of every slot."""
        return {node for node in self.times if self.count_max and self.often(node, now) >= self.count_max}


@dataclass(slots=True)
class Approvals:
    """Incidents whose actions wait for a person. After `seconds` the site's default holds."""

    seconds: float
    deadlines: dict[str, float] = field(default_factory=dict)
    #: Nobody answered: a later word changes nothing.
    expired: dict[str, None] = field(default_factory=dict)

    def ask(self, incident: str, now: float) -> None:
        if self.seconds and incident not in self.expired:
            self.deadlines.setdefault(incident, now + self.seconds)

    def answered(self, incident: str) -> None:
        self.deadlines.pop(incident, None)

    def due(self, now: float) -> list[str]:
        """Incidents whose time is over; they are not asked about again."""
        over = [incident for incident, deadline in self.deadlines.items() if now >= deadline]
        for incident in over:
            del self.deadlines[incident]
            self.expired[incident] = None
            if len(self.expired) > 10_000:
                del self.expired[next(iter(self.expired))]
        return over

    def next_deadline(self) -> float:
        return min(self.deadlines.values(), default=float("inf"))


@dataclass(slots=True)
class Loop:
    """How often a job failed since its newest committed step."""

    committed: int = -1
    failures: int = 0
    attempt: int = -1


@dataclass(slots=True)
class Safety:
    """All three, and what a new leader must know of them."""

    domains: Domains
    offenders: Offenders
    approvals: Approvals
    #: Spares that failed the site's check: not used before a person releases them.
    unfit_spares: dict[str, None] = field(default_factory=dict)

    @classmethod
    def make(cls, fleet: Fleet, policy: Policy) -> "Safety":
        offenders = Offenders(policy.lemon_count, policy.lemon_days * DAY)
        return cls(Domains(fleet, policy), offenders, Approvals(policy.approval_seconds))

    def unfit(self, now: float) -> set[str]:
        """Nodes that may take no slot."""
        return self.offenders.lemons(now) | set(self.unfit_spares)

    def snapshot(self) -> dict[str, Any]:
        return {
            "domains": self.domains.times, "offenders": self.offenders.times, "approvals": self.approvals.deadlines,
            "expired": list(self.approvals.expired), "unfit_spares": list(self.unfit_spares),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        self.domains.times = {key: list(times) for key, times in state["domains"].items()}
        self.offenders.times = {key: list(times) for key, times in state["offenders"].items()}
        self.approvals.deadlines = dict(state["approvals"])
        self.approvals.expired = dict.fromkeys(state["expired"])
        self.unfit_spares = dict.fromkeys(state["unfit_spares"])
