"""Where is it? The smallest common cause that explains the complaints and is contradicted by no healthy part.

The site is a graph (`outrider.topology`) whose leaves are nodes, their network ports, and their uses of mounts; its inner vertices
are what they share: leaf switch, rack, power feed, spine, rail, mount. A cause is an inner vertex. It explains the parts below it
that fail; a part below it that works contradicts it (but a client that is answered, from a cache or by another of its servers, does
not clear a mount that most others wait for). Counting is one `bincount` over the rows of the failing parts.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from detectors.core.topology import Part, Topology, Vertex
from outrider.topology.graph import SHARED

#: Causes looked for at once. Each costs a look at all that fails; where more fail together, it is a matter of the mass brake.
CAUSES_MAX = 32
#: Nodes that a cause must explain; fewer have no common cause that could be told from chance.
NODES_MIN = 3
#: So much of what hangs below a cause must fail .. (some ports are unused, some agents late to tell)
SHARE_MIN = 0.8
#: .. but a part of a switch (a line card) may fail alone: if every failing port hangs below it and nothing fails as a whole, so
#: much of it is enough. Of a rail, which is many switches, half: three ports of one device name in three racks are three ports.
SHARE_OF_PORTS = {"switch": 0.25, "spine": 0.25, "rail": 0.5}
#: .. and of all failing parts so much may lie elsewhere. What explains less than this more is not worth going higher for.
OUTSIDE_MAX = 0.1


@dataclass(frozen=True, slots=True)
class Cause:
    """A vertex that explains failing parts. `share`: of the parts below it that fail (0..1)."""

    level: str
    name: str
    parts: tuple[Part, ...]
    share: float


@dataclass(slots=True)
class _Table:
    """Parts of one kind that fail: `above` (parts, width) numbers of vertices, `node` (parts,); `size`, `alive` by vertex."""

    parts: list[Part]
    vertices: list[Vertex]
    above: npt.NDArray[np.int32]
    node: npt.NDArray[np.int32]
    size: npt.NDArray[np.int64]
    alive: npt.NDArray[np.int64]


def common_causes(topology: Topology, failing: Iterable[Part], working: Iterable[Part] = ()) -> list[Cause]:
    """The causes that explain failing parts, each part at most once; parts left over fail by themselves.

    Nodes, ports and clients of mounts are judged apart: a switch that takes ports away leaves nodes alone.

    Args:
        topology: who shares what.
        failing: parts that fail now.
        working: parts that have shown life since the failing ones began to fail; each contradicts what is above it. Of clients
            (`("client", node, where)`) the failing and the working ones are all there are: nobody knows who else uses a mount.

    Returns:
        Causes of nodes, then of ports, then of clients; in each the one that explains most first.
    """
    dead, alive = set(failing), set(working)
    found: list[Cause] = []
    for kind in ("node", "port", "client"):
        parts = sorted(part for part in dead if part[0] == kind)
        if len(parts) >= NODES_MIN:
            table = _table(topology, kind, parts, sorted(part for part in alive - dead if part[0] == kind))
            found += _causes(table, kind)
    return found


def _table(topology: Topology, kind: str, failing: list[Part], working: list[Part]) -> _Table:
    if kind == "client":
        return _client_table(topology, failing, working)
    known = [part for part in failing if part in topology.row]
    rows = topology.rows(known)
    alive = topology.count(topology.above_row[topology.rows(working)])
    return _Table(known, topology.vertices, topology.above_row[rows], topology.node[rows], topology.size[kind], alive)


def _client_table(topology: Topology, failing: list[Part], working: list[Part]) -> _Table:
    """The same of clients: each hangs on its mount and on all that its node hangs on."""
    mounts = sorted({part[2] for part in failing})
    number = {name: index for index, name in enumerate(mounts)}
    none, width = len(topology.vertices), topology.above_row.shape[1]

    def rows(parts: list[Part]) -> npt.NDArray[np.int32]:
        above = np.full((len(parts), width + 1), none + len(mounts), dtype=np.int32)
        nodes = topology.rows(("node", part[1]) for part in parts)
        above[:, 1:] = topology.above_row[nodes]
        above[above == none] = none + len(mounts)
        above[:, 0] = [none + number.get(part[2], len(mounts)) for part in parts]
        return above

    def count(above: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
        counted: npt.NDArray[np.int64] = np.bincount(above.ravel(), minlength=none + len(mounts) + 1)[: none + len(mounts)]
        return counted

    known = [part for part in failing if ("node", part[1]) in topology.row]
    others = [part for part in working if ("node", part[1]) in topology.row]
    above, alive = rows(known), count(rows(others))
    nodes = topology.rows(("node", part[1]) for part in known)
    vertices: list[Vertex] = [*topology.vertices, *(("mount", name) for name in mounts)]
    return _Table(known, vertices, above, topology.node[nodes], count(above) + alive, alive)


def _causes(table: _Table, kind: str) -> list[Cause]:
    left = np.arange(len(table.parts))
    found: list[Cause] = []
    while len(left) >= NODES_MIN and len(found) < CAUSES_MAX:
        best = _best(table, left, kind)
        if best is None:
            return found
        mine = (table.above[left] == best).any(axis=1)
        parts = tuple(table.parts[index] for index in left[mine])
        level, name = table.vertices[best]
        found.append(Cause(level, name, parts, len(parts) / int(table.size[best])))
        left = left[~mine]
    return found


def _best(table: _Table, left: npt.NDArray[np.int64], kind: str) -> int | None:
    """The vertex that explains most of what is left; of those that explain about as much, the lowest and smallest."""
    above, count = table.above[left], len(table.vertices)
    hit = np.bincount(above.ravel(), minlength=count + 1)[:count]
    pairs = np.unique(above.astype(np.int64) * (int(table.node.max(initial=0)) + 1) + table.node[left][:, None])
    nodes = np.bincount(pairs // (int(table.node.max(initial=0)) + 1), minlength=count + 1)[:count]
    whole, partly = [], []
    for index in np.flatnonzero(nodes >= NODES_MIN):
        explained, size = int(hit[index]), int(table.size[index])
        outside = len(left) - explained
        clear = table.alive[index] and table.vertices[index][0] != "mount"
        if explained >= SHARE_MIN * size and not clear and (outside <= OUTSIDE_MAX * explained or explained == size):
            whole.append((int(index), explained))
        elif kind == "port" and not outside and explained >= SHARE_OF_PORTS.get(table.vertices[index][0], 2.0) * size:
            partly.append((int(index), explained))
    fits = _told_apart(whole or partly, above, table)
    if not fits:
        return None
    most = max(explained for _, explained in fits)
    near = [index for index, explained in fits if most - explained <= OUTSIDE_MAX * explained]
    return min(near, key=lambda index: (_level(table, index), -hit[index], table.size[index], table.vertices[index][1]))


def _told_apart(fits: list[tuple[int, int]], above: npt.NDArray[np.int32], table: _Table) -> list[tuple[int, int]]:
    """Without spines that explain the very same parts: a leaf that hangs on four of them is dark by none of the four."""
    spines: dict[bytes, list[int]] = defaultdict(list)
    for index, _ in fits:
        if table.vertices[index][0] == "spine":
            spines[(above == index).any(axis=1).tobytes()].append(index)
    alike = {index for group in spines.values() if len(group) > 1 for index in group}
    return [fit for fit in fits if fit[0] not in alike]


def _level(table: _Table, index: int) -> int:
    return SHARED.index(table.vertices[index][0])


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
