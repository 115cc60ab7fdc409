"""Many silent nodes at once: first what they share is asked, then whether it is the watching itself that fails.

    a rack, switch or power feed explains them      -> `domain.lost` (or `path.broken`, if their jobs prove them alive):
                                                       a page, and a restart if it took its job with it (`outage`)
    nothing explains them and they are very many    -> `monitor.blind`: nobody is judged, a person is paged

While either may still turn out, verdicts on single nodes are held for a moment: nodes of one rack go late within one
heartbeat of each other, and the first must not be quarantined before the last is late.
"""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, Protocol

from detectors.core.docket import Docket
from detectors.core.rules.outage import Stands, outage_of
from detectors.core.rules.silence import HOLD_SECONDS, SilenceRule
from detectors.core.rules.silence_ladder import Case
from detectors.core.types import Evidence
from detectors.core.window import Arrivals
from detectors.core.world import World
from outrider.config.policy import Policy

#: Neighbours that must be quiet, and their share of the rack, before a single verdict is held.
QUIET_MIN, QUIET_SHARE = 3, 0.5
#: Nodes of one cut become late within one heartbeat and some jitter of each other; then it is asked what they share.
SETTLE_SECONDS = 1.0
#: No verdict waits longer than this for others to fall silent too.
LONGEST_HOLD_SECONDS = 5.0
#: So many common causes at once, with a large part of the fleet, are none: it is our own eyes.
CAUSES_MAX = 3
#: Agents that fell silent together come to the hard limit within this time of each other.
NEAR_SECONDS = 3.0
#: A domain comes back when no more than this part of it is still silent.
BACK_SHARE = 0.4


class Cause(Protocol):
    """What `locate` tells of a common cause."""

    level: str
    name: str
    parts: tuple[tuple[str, ...], ...]
    share: float


Locate = Callable[[set[tuple[str, ...]], set[tuple[str, ...]]], Sequence[Any]]
Above = Callable[[tuple[str, ...]], tuple[tuple[str, str], ...]]


class DomainRule:
    """Judges silent nodes together, for one witness.

    Args:
        world, arrivals, docket, policy, silence: what is known, and the cases of single nodes.
        locate: failing and working parts -> common causes.
        above: the vertices that a part hangs below.
        stands: whether a job has made no progress for longer than it should.
    """

    def __init__(
        self, world: World, arrivals: Arrivals, docket: Docket, policy: Policy, silence: SilenceRule, locate: Locate, above: Above,
        stands: Stands,
    ) -> None:  # fmt: skip
        self.world, self.arrivals, self.docket, self.policy = world, arrivals, docket, policy
        self.silence, self.locate, self._stands = silence, locate, stands
        self._siblings: dict[str, list[list[int]]] = {}
        members: dict[tuple[str, str], list[int]] = {}
        for node, row in world.row.items():
            for vertex in above(("node", node)):
                members.setdefault(vertex, []).append(row)
        for node in world.nodes:
            groups = [members[vertex] for vertex in above(("node", node))]
            self._siblings[node] = [rows for rows in groups if len(rows) >= QUIET_MIN]
        self._above, self._members = above, members
        #: (fault, vertex) -> (subject, nodes).
        self._accused: dict[tuple[str, tuple[str, str]], tuple[dict[str, Any], list[str]]] = {}
        #: Vertices that are accused: whatever is silent below one of them is its matter.
        self._vertices: set[tuple[str, str]] = set()
        self._settles_at: float | None = None
        #: A silent node below an accused vertex would be lost by itself: whether the vertex took its job is to be looked at.
        self._weigh_at = float("inf")
        self.blind = False
        self._blind_since = 0.0
        self._deaf = False

    @property
    def blind_nodes(self) -> int:
        """So many silent nodes without a common cause, and it is probably the watching that fails."""
        return max(self.policy.brake_nodes + 1, ceil(self.policy.blind_ratio * int(self.arrivals.judged.sum())))

    @property
    def deaf_nodes(self) -> int:
        """So many silent agents on living nodes are one matter of the watching: people want one page for them."""
        return max(self.policy.brake_nodes + 1, ceil(self.policy.brake_nodes_ratio * int(self.arrivals.judged.sum())))

    def holds(self, case: Case, now: float) -> str | None:
        """Why a verdict on a single node must wait, or None."""
        for vertex in self._above(("node", case.node)):
            if vertex in self._vertices:
                self._weigh_at = min(self._weigh_at, now)
                return f"it is one of those behind {vertex[0]} {vertex[1]}"
        if self.blind:
            return "too many nodes are silent at once to judge any of them"
        if case.alive and (self._deaf or len(self._living(now)) >= self.deaf_nodes):
            return "many agents whose jobs live are silent"
        if self._settles_at is not None and now < case.opened + LONGEST_HOLD_SECONDS:
            return "more nodes are falling silent"
        if now >= case.opened + HOLD_SECONDS:
            return None
        since = now - self.policy.heartbeat_timeout / 2
        last, judged = self.arrivals.last, self.arrivals.judged
        for rows in self._siblings[case.node]:
            quiet = int((judged[rows] & (last[rows] <= since)).sum())
            if quiet >= QUIET_MIN and quiet >= QUIET_SHARE * len(rows):
                return "its neighbours are falling silent too"
        if int((judged & (last <= since)).sum()) >= self.blind_nodes:
            return "many nodes are falling silent at once"
        return None

    def next_due(self) -> float:
        """When many nodes fell silent and no more have for a moment, or a lost domain is to be weighed."""
        return min(self._weigh_at, self._settles_at if self._settles_at is not None else float("inf"))

    def advance(self, now: float, limit: bool) -> None:
        """Looks at what is due. `limit`: a silent node has come to its hard limit."""
        if limit or (self._settles_at is not None and now >= self._settles_at):
            self.look(now)
        if now >= self._weigh_at:
            self._weigh(now)

    def look(self, now: float) -> None:
        """Asks what the silent nodes share. Call it when a node has become late, is heard again, or came to its limit."""
        cases = self.silence.cases
        self._take_back(now)
        if len(cases) < QUIET_MIN:
            self._settles_at = None
            self._see(now)
            return
        newest = max(case.opened for case in cases.values())
        if now < newest + SETTLE_SECONDS:
            # Nodes of one cut go late within one heartbeat of each other: a rack is not named before its switch could be.
            self._settles_at = newest + SETTLE_SECONDS
            return
        held, self._settles_at = self._settles_at is not None, None
        dead: set[tuple[str, ...]] = {("node", node) for node, case in cases.items() if not case.alive}
        causes = self.locate(dead, set()) if len(dead) >= QUIET_MIN else []
        if len(causes) >= CAUSES_MAX and len(cases) >= self.blind_nodes:
            self._go_blind(sorted(cases), f"{len(cases)} nodes in {len(causes)} places", now)
            return
        for cause in causes:
            self._accuse("domain.lost", cause, now)
        living = [] if self.blind else self._living(now)
        for cause in self.locate({("node", node) for node in living}, set()) if len(living) >= QUIET_MIN else ():
            self._accuse("path.broken", cause, now)
        self._look_blind(now)
        self._look_deaf(now)
        if held:
            self._again([node for node in sorted(cases) if self._explaining(node) is None], now)

    def alone(self, node: str) -> bool:
        """Whether nothing that a silent node shares with others, nor the watching itself, explains its silence."""
        return not self.blind and not self._deaf and self._explaining(node) is None

    def _explaining(self, node: str) -> tuple[str, str] | None:
        return next((vertex for vertex in self._above(("node", node)) if vertex in self._vertices), None)

    def heard(self, now: float) -> None:
        """A silent node is heard again: what was said of many may be over."""
        if self._accused:
            self._take_back(now)
        if self.blind:
            self._see(now)
        if self._deaf:
            self._look_deaf(now)

    def _accuse(self, fault: str, cause: Cause, now: float) -> None:
        vertex = self._nearest(fault, (cause.level, cause.name))
        nodes = sorted(part[1] for part in cause.parts)
        known = self._accused.get((fault, vertex))
        if (known is not None and known[1] == nodes) or any(self._explaining(node) not in (None, vertex) for node in nodes[:1]):
            return
        subject = {"switch" if vertex[0] == "spine" else vertex[0]: vertex[1]}
        self._accused[fault, vertex] = (subject, nodes)
        self._vertices.add(vertex)
        pieces = tuple(
            Evidence(t=now, kind="heartbeat", subject={"node": node}, effect="confirm", text=f"{node} is silent")
            for node in nodes[:8]
        )
        text = f"{len(nodes)} nodes behind {vertex[0]} {vertex[1]} fell silent together, {cause.share:.0%} of it"
        self.docket.accuse(
            fault, subject, now=now, evidence=pieces, reason=text, reason_code="common_cause", response="page", decisive=True,
            extra={"nodes": nodes, "silence_group": True},
        )  # fmt: skip
        self._again(nodes, now)

    def _nearest(self, fault: str, vertex: tuple[str, str]) -> tuple[str, str]:
        """Of a switch and a rack that hold the same nodes: the rack where the nodes are gone, the switch where only the way is."""
        rows = self._members.get(vertex, [])
        if fault != "domain.lost" or vertex[0] != "switch" or not rows:
            return vertex
        rack = self.world.rack.get(self.world.nodes[rows[0]])
        return ("rack", rack) if rack and self._members.get(("rack", rack)) == rows else vertex

    def _weigh(self, now: float) -> None:
        """Which lost domains took their jobs with them."""
        self._weigh_at = float("inf")
        for (fault, vertex), (subject, nodes) in list(self._accused.items()) if not self.blind else ():
            found = outage_of(nodes, self.world, self.silence, self._stands, now) if fault == "domain.lost" else None
            if found is not None:
                text = f"{len(nodes)} nodes behind {vertex[0]} {vertex[1]} are silent: {found.text}"
                self.docket.accuse(
                    fault, subject, now=now, evidence=found.evidence, reason=text, reason_code=found.code, response="restart",
                    decisive=True, extra=found.told(self.world),
                )  # fmt: skip

    def _take_back(self, now: float) -> None:
        for key, (subject, nodes) in list(self._accused.items()):
            silent = [node for node in nodes if node in self.silence.cases]
            if len(silent) <= BACK_SHARE * len(nodes):
                del self._accused[key]
                self._vertices = {vertex for _, vertex in self._accused}
                self.docket.clear_subject(key[0], subject, now, f"{len(nodes) - len(silent)} of its nodes are heard again")
                self._again(silent, now)

    def _alone(self) -> list[str]:
        return [node for node in self.silence.cases if self._explaining(node) is None]

    def _look_blind(self, now: float) -> None:
        alone = self._alone()
        if len(alone) >= self.blind_nodes:
            self._go_blind(sorted(alone), f"{len(alone)} of {len(self.world.nodes)} nodes, which share nothing,", now)
        self._see(now)

    def _living(self, now: float) -> list[str]:
        """Silent nodes that their jobs prove alive, and that have come, or come within seconds, to the hard limit."""
        since = now - self.policy.hard_limit_seconds + NEAR_SECONDS
        return [node for node, case in self.silence.cases.items() if case.alive and case.since <= since]

    def _look_deaf(self, now: float) -> None:
        """Many agents are silent and their nodes work: one incident about the watching, not one a node."""
        alone = [node for node in self._living(now) if self._explaining(node) is None]
        if not self.blind and not self._deaf and len(alone) >= self.deaf_nodes:
            self._deaf = True
            text = f"{len(alone)} agents are silent, and their nodes' jobs live"
            piece = Evidence(t=now, kind="heartbeat", subject={}, effect="confirm", text=text, layer="operator")
            self.docket.accuse(
                "monitor.blind", {"fleet": "agents"}, now=now, evidence=(piece,), reason=text, reason_code="mass_agents",
                extra={"nodes": sorted(alone)[:2000], "silence_group": True},
            )  # fmt: skip
        elif self._deaf and len(alone) < self.deaf_nodes / 2:
            self._deaf = False
            self.docket.clear_subject("monitor.blind", {"fleet": "agents"}, now, "most agents are heard again")

    def _go_blind(self, nodes: list[str], who: str, now: float) -> None:
        if self.blind:
            return
        self.blind, self._blind_since = True, now
        text = f"{who} are silent at once: it is probably the watching that fails"
        piece = Evidence(t=now, kind="heartbeat", subject={}, effect="confirm", text=text, layer="operator")
        self.docket.accuse(
            "monitor.blind", {"fleet": "all"}, now=now, evidence=(piece,), reason=text, reason_code="mass_silence",
            extra={"nodes": nodes[:2000], "silence_group": True},
        )  # fmt: skip
        self._again(nodes, now)

    def _see(self, now: float) -> None:
        alone = self._alone() if self.blind else []
        if self.blind and len(alone) < self.blind_nodes / 2:
            self.blind = False
            self.silence.shift(now - self._blind_since, now)  # what nobody could have heard was no silence
            self.docket.clear_subject("monitor.blind", {"fleet": "all"}, now, "most nodes are heard again")
            self._again(alone, now)

    def _again(self, nodes: list[str], now: float) -> None:
        for node in nodes:
            if (case := self.silence.cases.get(node)) is not None:
                self.silence.judge(case, now)
