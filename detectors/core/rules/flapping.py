"""A node that falls silent and comes back again and again is `unstable`: shown soon, told of when it goes on; it moves nobody.

    suspect -> heard again          counts 1 against the node, and half as much each hour later
    the count reaches the limit  -> `node.unstable`, a suspicion that everybody can see
    it goes on for half an hour  -> confirmed, and told once
    no gap for much longer than it used to take between two silences -> over; once told of, not before an hour

What ends for many nodes at once was the watching's matter (a switch, a witness, the network) and counts for none of them.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from detectors.core.docket import Docket
from detectors.core.types import Evidence
from detectors.core.world import World

#: One silence counts half after this long: what happened yesterday is no pattern today.
HALF_LIFE_SECONDS = 3600.0
#: Three silences within half an hour, or one each half an hour for hours, reach this; two never do, nor one an hour (at most 2).
UNSTABLE_AT = 2.5
#: A bad quarter of an hour (a host that swaps, a paused machine) wakes nobody.
TOLD_AFTER_SECONDS = 1800.0
#: A count below this is forgotten: the next silence begins a new series.
FORGOTTEN_BELOW = 0.5
#: It is over after this many times the longest gap between its last silences, within these bounds. The upper one is the half-life:
#: who flaps less often than that never gets here. What was told of needs all of it, or each burst would be told of again.
CALM_TIMES, CALM_SECONDS_MIN, CALM_SECONDS_MAX = 4.0, 120.0, 3600.0
#: Nodes that come back within this time of each other, so many, were away for a reason that is none of theirs.
TOGETHER_SECONDS, TOGETHER_NODES = 5.0, 3
#: Silences whose times are remembered of one node; nodes remembered, the calmest leave first.
TIMES_MAX, NODES_MAX = 8, 20_000


@dataclass(slots=True)
class _Record:
    """One node's silences. `count` as of `t`; `began`: the first of the series; `ends`: when it is stable again, None: it is."""

    count: float = 0.0
    t: float = 0.0
    began: float = 0.0
    told: bool = False
    times: deque[float] = field(default_factory=lambda: deque(maxlen=TIMES_MAX))
    ends: float | None = None


class FlappingRule:
    """Judges nodes that come and go, for one witness. Times: seconds on its clock.

    Args:
        world, docket: what is known, where suspicions are kept.
        silent: whether a node is silent now.
    """

    def __init__(self, world: World, docket: Docket, silent: Callable[[str], bool]) -> None:
        self.world, self.docket, self._silent = world, docket, silent
        self._records: dict[str, _Record] = {}
        #: Returns that may still turn out to be those of many: (when, node, seconds of silence), oldest first.
        self._fresh: deque[tuple[float, str, float]] = deque()
        self._recent: deque[tuple[float, str]] = deque()
        self._due = float("inf")

    def returned(self, node: str, silent: float, now: float, *, alone: bool) -> None:
        """A suspect is heard again after `silent` seconds; `alone`: nothing that it shares with others explains that."""
        self._recent.append((now, node))
        if alone:
            self._fresh.append((now, node, silent))
        self._due = min(self._due, now + TOGETHER_SECONDS)

    def next_due(self) -> float:
        """When `advance` has something to do."""
        return self._due

    def advance(self, now: float) -> None:
        """Counts returns that stayed alone, and lets go of nodes that have been calm for long enough."""
        if now < self._due:
            return
        recent = list(self._recent) if self._fresh else []
        while self._fresh and self._fresh[0][0] + TOGETHER_SECONDS <= now:
            when, node, silent = self._fresh.popleft()
            first = bisect_left(recent, when - TOGETHER_SECONDS, key=_when)
            # A node comes back once within these seconds, or twice: of so many some are other nodes.
            near = {other for at, other in recent[first : first + 4 * TOGETHER_NODES] if at <= when + TOGETHER_SECONDS}
            if len(near) < TOGETHER_NODES:
                self._count(node, when, silent, now)
        while self._recent and self._recent[0][0] + 2 * TOGETHER_SECONDS < now:
            self._recent.popleft()
        waiting = {node for _, node, _ in self._fresh}
        for node, record in list(self._records.items()):
            if record.ends is None or now < record.ends:
                continue
            if node in waiting or self._silent(node):
                record.ends = now + TOGETHER_SECONDS
            else:
                record.ends, record.told = None, False
                self.docket.clear_subject("node.unstable", {"node": node}, now, "it has been heard without a gap since")
        ends = [record.ends for record in self._records.values() if record.ends is not None]
        self._due = min([*ends, *(when + TOGETHER_SECONDS for when, _, _ in list(self._fresh)[:1])], default=float("inf"))

    def _count(self, node: str, when: float, silent: float, now: float) -> None:
        record = self._records.pop(node, None) or _Record(t=when)
        self._records[node] = record  # the newest last
        left = record.count * 0.5 ** ((when - record.t) / HALF_LIFE_SECONDS)
        if left < FORGOTTEN_BELOW:
            record.began = when
            record.times.clear()
        record.count, record.t = left + 1.0, when
        record.times.append(when)
        if len(self._records) > NODES_MAX:
            del self._records[next((name for name, one in self._records.items() if one.ends is None), node)]
        if record.ends is None and record.count < UNSTABLE_AT:
            return
        record.told = record.told or when - record.began >= TOLD_AFTER_SECONDS
        longest = max((after - before for before, after in list(pairwise(record.times))[-3:]), default=0.0)
        calm = min(max(CALM_TIMES * longest, CALM_SECONDS_MIN), CALM_SECONDS_MAX)
        record.ends = when + (CALM_SECONDS_MAX if record.told else calm)
        times = f"{len(record.times)} times" + (" or more" if len(record.times) == TIMES_MAX else "")
        text = f"{node} fell silent and came back {times} within {when - record.began:.0f} s"
        heard = f"{node} heard again after {silent:.1f} s"
        piece = Evidence(t=when, kind="heartbeat", subject={"node": node}, effect="confirm", text=heard)
        self.docket.accuse(
            "node.unstable", {"node": node}, now=now, evidence=(piece,), reason=text, sure=record.told, decisive=True,
            reason_code="goes_on" if record.told else "flapping", response=None if record.told else "watch",
        )  # fmt: skip


def _when(item: tuple[float, str]) -> float:
    return item[0]
