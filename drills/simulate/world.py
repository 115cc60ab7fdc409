"""The truth of an episode: which hosts, agents and paths are down when, what a prober sees, and how the job steps."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Literal

Kind = Literal["agent_stopped", "agent_dead", "processes_stopped", "host_frozen", "host_dead", "path_cut", "unreachable"]

#: What a prober on another node finds.
ANSWERS: dict[Kind, str] = {
    "host_dead": "none",
    "host_frozen": "none",
    "unreachable": "none",
    "agent_dead": "refused",
    "processes_stopped": "mute",
    "agent_stopped": "mute",
    "path_cut": "reply",
}
#: Outages in which the node's ranks stand still, and the whole job with them.
HOLDING = frozenset({"processes_stopped", "host_frozen", "host_dead"})
#: Outages after which what waited in the agent or its spool is sent.
KEEPING = frozenset({"agent_stopped", "processes_stopped", "host_frozen", "path_cut", "unreachable"})


@dataclass(frozen=True, slots=True)
class Outage:
    """One node out from `start` until `end`. `witnesses`: those that do not hear it; None: all of them."""

    node: str
    kind: Kind
    start: float
    end: float = inf
    witnesses: frozenset[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What really happened, for the checkers.

    `accept`: fault classes that name it rightly. `place`: what the verdict must name, at least one of them; the node of a
    rank or GPU counts where `place` has it. `stops`: the job cannot go on. `shard_lost`: state of a node or GPU is gone with it.
    `poisoned`: the newest state is not worth saving. `nodes`: those concerned.
    """

    fault: str
    t: float
    accept: frozenset[str]
    place: dict[str, object]
    stops: bool
    shard_lost: bool = False
    poisoned: bool = False
    nodes: tuple[str, ...] = ()


@dataclass(slots=True)
class Job:
    """The job's clock. It is held while any reason stands; a reason is (what, node or "")."""

    step_seconds: float
    next_step: float
    step: int = 0
    attempt: int = 1
    holds: dict[tuple[str, str], float] = field(default_factory=dict)
    slow: float = 1.0
    remaining: float = 0.0
    #: Grows whenever the planned next step changes; a planned step of an older number is void.
    plan: int = 0

    def hold(self, reason: tuple[str, str], now: float) -> None:
        """Stops the clock."""
        if not self.holds:
            self.remaining = max(0.0, self.next_step - now)
            self.plan += 1
        self.holds.setdefault(reason, now)

    def release(self, reasons: Iterable[tuple[str, str]], now: float) -> bool:
        """Takes reasons away; True if the clock runs again."""
        held = bool(self.holds)
        for reason in list(reasons):
            self.holds.pop(reason, None)
        if held and not self.holds:
            self.next_step = now + self.remaining
            self.plan += 1
            return True
        return False


class Outages:
    """All outages of an episode, by node."""

    def __init__(self) -> None:
        self.by_node: dict[str, list[Outage]] = {}

    def add(self, outage: Outage) -> None:
        """Adds one."""
        self.by_node.setdefault(outage.node, []).append(outage)

    def at(self, node: str, now: float) -> list[Outage]:
        """Those that stand now."""
        return [one for one in self.by_node.get(node, ()) if one.start <= now < one.end]

    def answer(self, node: str, now: float) -> str:
        """What a prober finds: the deepest outage decides."""
        kinds = {one.kind for one in self.at(node, now)}
        return next((answer for kind, answer in ANSWERS.items() if kind in kinds), "reply")

    def sends_at(self, node: str, now: float) -> float | None:
        """When the agent can send what it learns now; None: never, it is lost with it."""
        standing = self.at(node, now)
        if not standing:
            return now
        if any(one.kind not in KEEPING or one.witnesses is not None for one in standing):
            return now if all(one.witnesses is not None for one in standing) else None
        end = max(one.end for one in standing)
        return None if end == inf else end
