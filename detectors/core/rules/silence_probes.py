"""The probing of a silent node: who is asked to look at it, how often, and whose answers still say something."""

from bisect import bisect_left

from detectors.core.identity import short_hash, spread
from detectors.core.rules.silence_ladder import Case
from detectors.core.types import ProbeRequest
from detectors.core.window import Arrivals
from detectors.core.world import World
from outrider.config.policy import Policy

#: Rounds of probes at the short interval; later ones come at four times of it.
FAST_ROUNDS = 5
#: Probers are chosen among at most so many living nodes: of thousands any few do as well.
CANDIDATES_MAX = 64


class Probing:
    """Chooses who probes silent nodes, for one witness.

    Args:
        world, arrivals: who is near whom, and who was heard lately.
        policy: how many probers, and how often.
    """

    def __init__(self, world: World, arrivals: Arrivals, policy: Policy) -> None:
        self.world, self.arrivals, self.policy = world, arrivals, policy
        self._living_rows: list[int] = []
        self._living_at = float("-inf")

    def ask(self, case: Case, now: float) -> ProbeRequest | None:
        """Asks three living peers to probe the node: one of its own rack, the others from elsewhere. None: it is not time yet, or
        nobody is there to ask."""
        if now < case.next_probe:
            return None
        interval = self.policy.probe_interval_seconds * (1 if case.rounds < FAST_ROUNDS else 4)
        case.next_probe = now + interval
        case.rounds += 1
        living = [node for node in self._living(now, case.node) if node != case.node]
        living.sort(key=lambda node: (spread(case.node, node), node))
        rack = self.world.rack.get(case.node)
        near = [node for node in living if rack is not None and self.world.rack.get(node) == rack][:1]
        probers = tuple((near + [node for node in living if node not in near])[: self.policy.probers])
        if not probers:
            return None
        return ProbeRequest(
            decision_id=short_hash("probe", case.node, case.incarnation, case.seq, case.rounds), node=case.node,
            probers=probers, reason=f"{case.node} has been silent for {now - case.since:.1f} s",
        )  # fmt: skip

    def answers(self, case: Case, now: float) -> dict[str, str]:
        """The newest answer of each prober; one that is two long rounds old says nothing of now."""
        oldest = now - 8 * self.policy.probe_interval_seconds
        return {by: answer for by, (answer, when) in sorted(case.probes.items()) if when >= oldest}

    def _living(self, now: float, suspect: str) -> list[str]:
        """Nodes that could probe: all that were heard lately, or of very many a few, the suspect's neighbours among them.

        Looked up once for all suspects of one moment: when half of a large fleet falls silent, each look costs the whole fleet.
        """
        if self._living_at != now:
            heard = ~self.arrivals.late & (self.arrivals.last >= now - self.policy.heartbeat_timeout)
            self._living_rows, self._living_at = heard.nonzero()[0].tolist(), now
        rows = self._living_rows
        if len(rows) > CANDIDATES_MAX:
            place = bisect_left(rows, self.world.row[suspect])
            start = spread(suspect) % (len(rows) - CANDIDATES_MAX // 2)
            beside = rows[max(0, place - CANDIDATES_MAX // 4) : place + CANDIDATES_MAX // 4]
            rows = list(dict.fromkeys(beside + rows[start : start + CANDIDATES_MAX // 2]))
        return [self.world.nodes[row] for row in rows]
