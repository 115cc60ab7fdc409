"""Who shares what, in arrays: derived once from the site's graph, and then the graph is let go.

One row a part (a node, or a port of it) with the numbers of all that it hangs on; blame counts rows. At 12,500 nodes with eight
ports each the graph takes some hundred MiB for some seconds; what is kept of it takes 30.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from outrider.fleet import Fleet
from outrider.topology.graph import site_graph, ways_up

#: A part: ("node", name), ("port", node, nic), or ("client", node, where), a node's use of a mount or server.
Part = tuple[str, ...]
#: What parts share: (level, name).
Vertex = tuple[str, str]
#: Sites whose tables are kept: the engines of one process (three in a replay) judge one site.
_KEPT_MAX = 2


class Topology:
    """The ways up from every part, and how many parts hang below each vertex.

    Args:
        fleet: the site; what it says of racks, feeds, switches, cables and rails.
    """

    def __init__(self, fleet: Fleet) -> None:
        ways = list(ways_up(site_graph(fleet)))
        #: Every vertex; its place here is its number.
        self.vertices: list[Vertex] = sorted({(vertex[0], vertex[1]) for _, way in ways for vertex in way})
        number = {vertex: index for index, vertex in enumerate(self.vertices)}
        self.row: dict[Part, int] = {part: row for row, (part, _) in enumerate(ways)}
        names = {name: index for index, name in enumerate(sorted({part[1] for part, _ in ways}))}
        #: Shape (rows,), int32: the node of each part, by its number.
        self.node = np.fromiter((names[part[1]] for part, _ in ways), dtype=np.int32, count=len(ways))
        width = max((len(way) for _, way in ways), default=0)
        #: Shape (rows, width), int32: the vertices above each part, lowest level first; `len(vertices)` stands for none.
        self.above_row: npt.NDArray[np.int32] = np.full((len(ways), width), len(self.vertices), dtype=np.int32)
        for row, (_, way) in enumerate(ways):
            self.above_row[row, : len(way)] = [number[vertex[0], vertex[1]] for vertex in way]
        kinds = np.fromiter((part[0] == "port" for part, _ in ways), dtype=bool, count=len(ways))
        #: Parts of one kind below each vertex.
        self.size = {"node": self.count(self.above_row[~kinds]), "port": self.count(self.above_row[kinds])}

    def above(self, part: Part) -> tuple[Vertex, ...]:
        """What a part hangs below, lowest level first; empty if the part is unknown."""
        row = self.row.get(part)
        if row is None:
            return ()
        return tuple(self.vertices[index] for index in self.above_row[row] if index < len(self.vertices))

    def count(self, above: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        """How many rows hang below each vertex; shape (vertices,), int64."""
        counted: npt.NDArray[np.int64] = np.bincount(above.ravel(), minlength=len(self.vertices) + 1)[: len(self.vertices)]
        return counted

    def rows(self, parts: Iterable[Part]) -> npt.NDArray[np.int32]:
        """The rows of those parts that are known; shape (n,), int32."""
        return np.array([row for part in parts if (row := self.row.get(part)) is not None], dtype=np.int32)


def topology_of(fleet: Fleet) -> Topology:
    """The tables of a site, made once for all engines of a process that judge the same `Fleet`."""
    for known, topology in _kept:
        if known is fleet:
            return topology
    topology = Topology(fleet)
    _kept.append((fleet, topology))
    del _kept[:-_KEPT_MAX]
    return topology


#: A memory of pure results, newest last: it changes nothing but the time it takes.
_kept: list[tuple[Fleet, Topology]] = []
