"""The model of the site: one directed graph in which every part points at what it hangs on.

    port   -> its node, its leaf switch, its rail
    node   -> its rack, its power feed, its management switch, the mounts it uses
    switch -> the switches above it (kind "spine", however many tiers there are)

A GPU is an attribute of its node, for nothing hangs on it; jobs, ranks and groups come and go with `job` signals and stand in the
judge's world, not here. What fails takes with it what points at it: that is all that blame needs.

networkx is imported when a graph is made, so that an agent, the SDK and light commands never pay for it (20 MB, 0.2 s).
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from outrider.errors import MissingExtraError
from outrider.fleet import Fleet, Node

if TYPE_CHECKING:
    import networkx as nx

#: ("node", name), ("port", node, nic), or (kind, name) of what is shared.
Vertex = tuple[str, ...]
#: What parts share, from the lowest up.
SHARED = ("mount", "switch", "rack", "power", "spine", "rail")
#: Pairs of names by which a cable between switches is written: one end, the other end.
ENDS = (("from", "to"), ("a", "b"), ("leaf", "spine"), ("source", "target"))


def site_graph(fleet: Fleet) -> "nx.DiGraph[Vertex]":
    """The graph of a site. Acyclic: a cable points from the tier nearer to the nodes to the farther one.

    Vertices carry `kind`; nodes carry what is known of them (`gpus`, `address`, `pcis`, `uuids`, `spare`), switches their `tier`
    (0: nodes hang on it).

    Raises:
        MissingExtraError: networkx is not installed.
    """
    graph = _empty()
    spares = set(fleet.spares)
    rails = Rails(fleet)
    for node in fleet.nodes:
        here = ("node", node.node)
        graph.add_node(here, kind="node", **_known(node), **({"spare": True} if node.node in spares else {}))
        for vertex in _above_node(node):
            graph.add_edge(here, vertex)
        for nic, leaf in node.nics.items():
            port = ("port", node.node, nic)
            graph.add_edge(port, here)
            if leaf:
                graph.add_edge(port, ("switch", leaf))
            if (rail := rails.of(nic, leaf)) is not None:
                graph.add_edge(port, ("rail", rail))
    for (lower, tier), (upper, above) in _cables(fleet):
        graph.add_edge(_switch(lower, tier), _switch(upper, above))
        graph.nodes[_switch(lower, tier)]["tier"], graph.nodes[_switch(upper, above)]["tier"] = tier, above
    for vertex, facts in graph.nodes(data=True):
        facts.setdefault("kind", vertex[0])
        if vertex[0] == "switch":
            facts.setdefault("tier", 0)
    return graph


class Rails:
    """Which rail a port belongs to.

    A site names its rails (`[fleet] rails`: rail -> devices or leaf switches). Where it does not, and every device of a node hangs
    on a leaf of its own, devices of one name are a rail: that is how such fabrics are cabled. A device name whose ports all hang
    on one leaf is no rail: the leaf says it all.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._named = {member: rail for rail, members in fleet.rails.items() for member in members}
        leaves: dict[str, set[str]] = defaultdict(set)
        for node in () if self._named else fleet.nodes:
            if len(node.nics) > 1 and len(set(node.nics.values())) == len(node.nics):
                for nic, leaf in node.nics.items():
                    leaves[nic].add(leaf)
        self._seen = {nic for nic, of_nic in leaves.items() if len(of_nic) > 1}

    def of(self, nic: str, leaf: str) -> str | None:
        """The rail of a port, or None."""
        return self._named.get(leaf) or self._named.get(nic) or (nic if nic in self._seen else None)


def ways_up(graph: "nx.DiGraph[Vertex]") -> Iterator[tuple[Vertex, tuple[Vertex, ...]]]:
    """Every node and port with all that it shares with others, each way sorted by kind and name.

    A port's way passes through its node to the rack and the feed, but not to the node's management switch: no dark port is
    explained by it. A node hangs on no mount: what hangs there is its storage, not itself.
    """
    switches: dict[Vertex, tuple[Vertex, ...]] = {}

    def above(vertex: Vertex) -> tuple[Vertex, ...]:
        if vertex not in switches:
            found = {vertex}
            for upper in graph.successors(vertex):
                found.update(above(upper))
            switches[vertex] = tuple(found)
        return switches[vertex]

    for vertex in graph:
        if vertex[0] not in ("node", "port"):
            continue
        way: set[Vertex] = set()
        for upper in graph.successors(vertex):
            if upper[0] == "node":
                way.update(place for place in graph.successors(upper) if place[0] in ("rack", "power"))
            elif upper[0] != "mount":
                way.update(above(upper))
        yield vertex, tuple(sorted(way, key=lambda one: (SHARED.index(one[0]), one)))


def ends_of(cable: dict[str, Any]) -> tuple[str, str] | None:
    """The two switches that a cable joins, however its ends are called; None if it does not name two."""
    for pair in ENDS:
        if all(name in cable for name in pair):
            return str(cable[pair[0]]), str(cable[pair[1]])
    names = [value for value in cable.values() if isinstance(value, str)][:2]
    return (names[0], names[1]) if len(names) == 2 else None


def strange_keys(cable: dict[str, Any]) -> list[str]:
    """What stands beside the two ends of a cable and is read by nobody."""
    ends = next((set(pair) for pair in ENDS if cable.keys() >= set(pair)), None)
    if ends is None:
        ends = set([name for name, value in cable.items() if isinstance(value, str)][:2])
    return sorted(cable.keys() - ends)


def _empty() -> "nx.DiGraph[Vertex]":
    try:
        import networkx as nx
    except ImportError:
        raise MissingExtraError("the graph of the site", "witness", "networkx") from None

    class Thin(nx.DiGraph):  # type: ignore[misc]
        """All edges share one empty table of attributes: at 100,000 ports this saves a third of the memory."""

        _shared: dict[str, Any] = {}  # noqa: RUF012 - it stays empty: what an edge means, its two ends say

        def _one(self) -> dict[str, Any]:
            return self._shared

        edge_attr_dict_factory = property(lambda self: self._one)

    return Thin()


def _known(node: Node) -> dict[str, Any]:
    facts = {"gpus": node.gpus, "address": node.address, "pcis": node.pcis, "uuids": node.uuids}
    return {name: value for name, value in facts.items() if value}


def _above_node(node: Node) -> Iterator[Vertex]:
    if node.rack:
        yield "rack", node.rack
    if node.power:
        yield "power", node.power
    if node.switch:
        yield "switch", node.switch
    for path, server in node.mounts.items():
        yield "mount", server or path


def _switch(name: str, tier: int) -> Vertex:
    return ("spine" if tier else "switch", name)


def _cables(fleet: Fleet) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Cables between switches as ((lower, its tier), (upper, its tier)).

    Left out is what explains nothing: cables within one tier, and switches that no node's switch is joined to.
    """
    tiers = {leaf: 0 for node in fleet.nodes for leaf in (*node.nics.values(), node.switch) if leaf}
    near: dict[str, set[str]] = defaultdict(set)
    for cable in fleet.links:
        ends = ends_of(cable)
        if ends is not None and ends[0] != ends[1]:
            near[ends[0]].add(ends[1])
            near[ends[1]].add(ends[0])
    edge, tier = sorted(tiers), 0
    while edge:
        tier += 1
        edge = sorted({other for name in edge for other in near[name] if other not in tiers})
        tiers.update(dict.fromkeys(edge, tier))
    for name in sorted(near):
        for other in sorted(near[name]) if name in tiers else ():
            if tiers[other] == tiers[name] + 1:
                yield (name, tiers[name]), (other, tiers[other])
