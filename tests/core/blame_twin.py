"""A slow, simple twin of the blame: it walks the graph of networkx for every question. A helper of the tests."""

import networkx as nx

from detectors.core.blame import NODES_MIN, OUTSIDE_MAX, SHARE_MIN, SHARE_OF_PORTS
from outrider.fleet import Fleet
from outrider.topology.graph import SHARED, site_graph

Part = tuple[str, ...]
Found = tuple[str, str, tuple[Part, ...]]


class Twin:
    """Answers as `common_causes` does, from the graph itself."""

    def __init__(self, fleet: Fleet) -> None:
        self.graph = nx.DiGraph(site_graph(fleet))

    def above(self, part: Part) -> set[Part]:
        """All that a part shares with others."""
        if part[0] == "client":
            return {("mount", part[2]), *self.above(("node", part[1]))}
        if part not in self.graph:
            return set()
        graph = self.graph
        if part[0] == "port":
            managed = [edge for edge in graph.out_edges(("node", part[1])) if edge[1][0] == "switch"]
            graph = nx.restricted_view(graph, [], managed)
        return {vertex for vertex in nx.descendants(graph, part) if vertex[0] not in ("node", "port", "mount")}

    def below(self, vertex: Part, kind: str) -> set[Part]:
        """The parts of a kind that hang below a vertex."""
        return {part for part in self.graph if part[0] == kind and vertex in self.above(part)}

    def causes(self, failing: set[Part], working: set[Part]) -> list[Found]:
        found = []
        for kind in ("node", "port", "client"):
            dead = {part for part in failing if part[0] == kind and ("node", part[1]) in self.graph}
            dead = {part for part in dead if kind == "client" or part in self.graph}
            alive = {part for part in working - failing if part[0] == kind and ("node", part[1]) in self.graph}
            if len({part for part in failing if part[0] == kind}) < NODES_MIN:
                continue
            left = set(dead)
            while (best := self._best(left, dead, alive, kind)) is not None:
                found.append(best)
                left -= set(best[2])
        return found

    def _best(self, left: set[Part], dead: set[Part], alive: set[Part], kind: str) -> Found | None:
        wholes, parts = [], []
        for vertex in sorted({vertex for part in left for vertex in self.above(part)}):
            mine = {part for part in left if vertex in self.above(part)}
            members = (
                {part for part in dead | alive if vertex in self.above(part)} if kind == "client" else self.below(vertex, kind)
            )
            elsewhere = len(left) - len(mine)
            if len({part[1] for part in mine}) < NODES_MIN:
                continue
            near_all = elsewhere <= OUTSIDE_MAX * len(mine) or mine == members
            if len(mine) / len(members) >= SHARE_MIN and (vertex[0] == "mount" or not (members & alive)) and near_all:
                wholes.append((vertex, mine, len(members)))
            elif kind == "port" and not elsewhere and len(mine) / len(members) >= SHARE_OF_PORTS.get(vertex[0], 2.0):
                parts.append((vertex, mine, len(members)))
        fits = wholes or parts
        spines = [one[1] for one in fits if one[0][0] == "spine"]
        fits = [one for one in fits if one[0][0] != "spine" or spines.count(one[1]) == 1]
        most = max((len(mine) for _, mine, _ in fits), default=0)
        near = [one for one in fits if most - len(one[1]) <= OUTSIDE_MAX * len(one[1])]
        if not near:
            return None
        vertex, mine, _ = min(near, key=lambda one: (SHARED.index(one[0][0]), -len(one[1]), one[2], one[0][1]))
        return vertex[0], vertex[1], tuple(sorted(mine))
