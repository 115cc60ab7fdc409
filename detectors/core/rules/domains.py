"""Many silent nodes at once: first what they share is asked, then whether it is the watching itself that fails.

    a rack, switch or power feed explains them      -> `domain.lost` (or `path.broken`, if their jobs prove them alive)
    nothing explains them and they are very many    -> `monitor.blind`: nobody is judged, a person is paged

While either may still turn out, verdicts on single nodes are held for a moment: nodes of one rack go late within one
heartbeat of each other, and the first must not be quarantined before the last is late.
"""

from collections.abc import Callable
from math import ceil
from typing import Any

from detectors.core.docket import Docket
from detectors.core.rules.silence import HOLD_SECONDS, Case, SilenceRule
from detectors.core.types import Evidence
from detectors.core.window import Arrivals
from detectors.core.world import World
from outrider.config.policy import Policy

#: Neighbours that must be quiet, and their share of the rack, before a single verdict is held.
QUIET_MIN, QUIET_SHARE = 3, 0.5
#: A domain comes back when no more than this part of it is still silent.
BACK_SHARE = 0.4

Locate = Callable[[set[tuple[str, ...]], set[tuple[str, ...]]], list[Any]]
Above = Callable[[tuple[str, ...]], tuple[tuple[str, str], ...]]


class DomainRule:
    """Judges silent nodes together, for one witness.

    Args:
        world, arrivals, docket, policy, silence: what is known, and the cases of single nodes.
        locate: failing and working parts -> common causes.
        above: the vertices that a part hangs below.
    """

    def __init__(
        self, world: World, arrivals: Arrivals, docket: Docket, policy: Policy, silence: SilenceRule, locate: Locate, above: Above
    ) -> None:
        self.world, self.arrivals, self.docket, self.policy = world, arrivals, docket, policy
        self.silence, self.locate = silence, locate
        self._siblings: dict[str, list[list[int]]] = {}
        members: dict[tuple[str, str], list[int]] = {}
        for node, row in world.row.items():
            for vertex in above(("node", node)):
                members.setdefault(vertex, []).append(row)
        for node in world.nodes:
            groups = [members[vertex] for vertex in above(("node", node))]
            self._siblings[node] = [rows for rows in groups if len(rows) >= QUIET_MIN]
        #: (fault, subject as text) -> (subject, nodes).
        self._accused: dict[tuple[str, str], tuple[dict[str, Any], list[str]]] = {}
        self._explained: dict[str, str] = {}
        self.blind = False

    @property
    def blind_nodes(self) -> int:
        """So many silent nodes without a common cause, and it is probably the watching that fails."""
        return max(self.policy.brake_nodes + 1, ceil(self.policy.blind_ratio * len(self.world.nodes)))

    def holds(self, case: Case, now: float) -> str | None:
        """Why a verdict on a single node must wait, or None."""
        if case.node in self._explained:
            return f"it is one of those behind {self._explained[case.node]}"
        if self.blind:
            return "too many nodes are silent at once to judge any of them"
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

    def look(self, now: float) -> None:
        """Asks what the silent nodes share. Call it when a node has become late, is heard again, or came to its limit."""
        cases = self.silence.cases
        self._take_back(now)
        if len(cases) < QUIET_MIN:
            self._see(now)
            return
        dead: set[tuple[str, ...]] = {("node", node) for node, case in cases.items() if not case.alive}
        self._causes("domain.lost", dead, now)
        hard = self.policy.hard_limit_seconds
        living: set[tuple[str, ...]] = {("node", node) for node, case in cases.items() if case.alive and now >= case.since + hard}
        self._causes("path.broken", living, now)
        self._look_blind(now)

    def heard(self, now: float) -> None:
        """A silent node is heard again: what was said of many may be over."""
        if self._accused:
            self._take_back(now)
        if self.blind:
            self._see(now)

    def _causes(self, fault: str, failing: set[tuple[str, ...]], now: float) -> None:
        for cause in self.locate(failing, set()) if len(failing) >= QUIET_MIN else ():
            level = "switch" if cause.level == "spine" else cause.level
            nodes = sorted(part[1] for part in cause.parts)
            known = self._accused.get((fault, cause.name))
            if known is not None and known[1] == nodes:
                continue
            subject = {level: cause.name}
            self._accused[fault, cause.name] = (subject, nodes)
            words = f"{level} {cause.name}"
            for node in nodes:
                self._explained[node] = words
            pieces = tuple(
                Evidence(t=now, kind="heartbeat", subject={"node": node}, effect="confirm", text=f"{node} is silent")
                for node in nodes[:8]
            )
            text = f"{len(nodes)} nodes behind {words} fell silent together, {cause.share:.0%} of it"
            self.docket.accuse(
                fault, subject, now=now, evidence=pieces, reason=text, reason_code="common_cause", response="page", decisive=True,
                extra={"nodes": nodes, "silence_group": True},
            )  # fmt: skip
            self._again(nodes, now)

    def _take_back(self, now: float) -> None:
        for key, (subject, nodes) in list(self._accused.items()):
            silent = [node for node in nodes if node in self.silence.cases]
            if len(silent) <= BACK_SHARE * len(nodes):
                del self._accused[key]
                for node in nodes:
                    self._explained.pop(node, None)
                self.docket.clear_subject(key[0], subject, now, f"{len(nodes) - len(silent)} of its nodes are heard again")
                self._again(silent, now)

    def _look_blind(self, now: float) -> None:
        alone = [node for node in self.silence.cases if node not in self._explained]
        if len(alone) >= self.blind_nodes and not self.blind:
            self.blind = True
            text = f"{len(alone)} of {len(self.world.nodes)} nodes are silent at once, and they share nothing"
            piece = Evidence(t=now, kind="heartbeat", subject={}, effect="confirm", text=text, layer="operator")
            self.docket.accuse(
                "monitor.blind", {"fleet": "all"}, now=now, evidence=(piece,), reason=text, reason_code="mass_silence",
                extra={"nodes": sorted(alone)[:2000]},
            )  # fmt: skip
            self._again(alone, now)
        self._see(now)

    def _see(self, now: float) -> None:
        alone = [node for node in self.silence.cases if node not in self._explained]
        if self.blind and len(alone) < self.blind_nodes / 2:
            self.blind = False
            self.docket.clear_subject("monitor.blind", {"fleet": "all"}, now, "most nodes are heard again")
            self._again(alone, now)

    def _again(self, nodes: list[str], now: float) -> None:
        for node in nodes:
            if (case := self.silence.cases.get(node)) is not None:
                self.silence.judge(case, now)
