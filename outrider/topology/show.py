"""The graph of a site for people and for programs: a tree, what one part hangs on, JSON, and a picture."""

import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.errors import InputError, MissingExtraError
from outrider.fleet import Fleet
from outrider.parsers.hostlist import compress
from outrider.topology.graph import SHARED, Vertex, site_graph, ways_up

if TYPE_CHECKING:
    import networkx as nx
    from rich.tree import Tree

#: How the kinds are called in a sentence.
PLURALS = {
    "node": "nodes", "port": "ports", "switch": "leaf switches", "spine": "upper switches", "rack": "racks",
    "power": "power feeds", "rail": "rails", "mount": "mounts",
}  # fmt: skip
#: A picture of more nodes is a black bar; they are then drawn as one dot a leaf switch or rack.
NODES_DRAWN_MAX = 256


def as_json(fleet: Fleet) -> dict[str, Any]:
    """Counts, vertices with what is known of them, and edges from each part to what it hangs on."""
    graph = site_graph(fleet)
    vertices = [{"id": name_of(vertex), **facts} for vertex, facts in sorted(graph.nodes(data=True))]
    edges = sorted([name_of(lower), name_of(upper)] for lower, upper in graph.edges)
    return {"counts": counts(fleet, graph), "vertices": vertices, "edges": edges}


def counts(fleet: Fleet, graph: "nx.DiGraph[Vertex]") -> dict[str, int]:
    """How many there are of each kind, and of GPUs, spares and cables between switches."""
    found: dict[str, int] = dict.fromkeys(PLURALS, 0)
    for vertex in graph:
        found[vertex[0]] += 1
    more = {"gpu": sum(node.gpus for node in fleet.nodes), "spare": len(fleet.spares), "cable": len(fleet.links)}
    return found | more


def tree(fleet: Fleet) -> "Tree":
    """The network from its upper switches down, then what else is shared."""
    from rich.markup import escape
    from rich.tree import Tree

    graph = site_graph(fleet)
    root = Tree(_sentence(counts(fleet, graph)))
    below: dict[Vertex, set[str]] = defaultdict(set)
    alone = {node.node for node in fleet.nodes}
    for part, way in ways_up(graph):
        for vertex in way:
            below[vertex].add(part[1])
            alone.discard(part[1])

    def uppers(vertex: Vertex) -> list[Vertex]:
        return sorted(one for one in graph.successors(vertex) if one[0] == "spine")

    def grow(here: "Tree", vertex: Vertex) -> None:
        others = [one[1] for one in uppers(vertex)[1:]]
        also = f", also below {_short(compress(others))}" if others else ""
        branch = here.add(escape(f"{_word(vertex, graph.nodes[vertex].get('tier', 0))} {vertex[1]}: {_names(below[vertex])}{also}"))
        for one in sorted(one for one in graph.predecessors(vertex) if one[0] in ("switch", "spine")):
            if uppers(one)[0] == vertex:  # a switch with several ways up stands below the first of them
                grow(branch, one)

    network = sorted(one for one in graph if one[0] in ("switch", "spine"))
    tops = [one for one in network if not uppers(one)]
    for vertex in sorted(tops, key=lambda one: (-graph.nodes[one]["tier"], one)):
        grow(root, vertex)
    for kind in ("rail", "rack", "power"):
        _add_kind(root, PLURALS[kind], {vertex: below[vertex] for vertex in graph if vertex[0] == kind})
    mounts = (vertex for vertex in graph if vertex[0] == "mount")
    _add_kind(root, "mounts", {mount: {one[1] for one in graph.predecessors(mount)} for mount in mounts})
    if alone:
        root.add(escape(f"hang on nothing that is known: {_names(alone)}"))
    return root


def _add_kind(root: "Tree", title: str, below: dict[Vertex, set[str]]) -> None:
    """What else is shared, with the names that hang on it; nothing if there is none of the kind."""
    from rich.markup import escape

    if below:
        branch = root.add(title)
        for vertex, names in sorted(below.items()):
            branch.add(escape(f"{vertex[1]}: {_names(names)}"))


def hangs_on(fleet: Fleet, node: str) -> list[tuple[str, list[str]]]:
    """A node and its ports, each with what it shares with others.

    Raises:
        InputError: there is no such node.
    """
    graph = site_graph(fleet)
    if ("node", node) not in graph:
        raise InputError(f"no node is called {node!r}")
    lines = []
    for part, way in ways_up(graph):
        if part[1] == node:
            above = [f"{_word(vertex, 0)} {vertex[1]}" for vertex in way]
            if part[0] == "node":
                above += [f"mount {one[1]}" for one in graph.successors(part) if one[0] == "mount"]
            lines.append((" ".join(part), above))
    return lines


def draw(fleet: Fleet, path: Path) -> None:
    """Writes a picture: `.dot` (Graphviz) or `.png`, `.svg`, `.pdf`.

    Raises:
        InputError: another ending, or the file cannot be written.
        MissingExtraError: matplotlib is not installed.
    """
    suffix = path.suffix.lower()
    if suffix not in (".dot", ".png", ".svg", ".pdf"):
        raise InputError("a picture's name ends in .dot, .png, .svg or .pdf", file=str(path))
    try:
        if suffix == ".dot":
            path.write_text(_dot(fleet), encoding="utf-8")
        else:
            _plot(fleet, path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from None


def name_of(vertex: Vertex) -> str:
    """`port:n7/mlx5_0`."""
    return f"{vertex[0]}:{'/'.join(vertex[1:])}"


def _word(vertex: Vertex, tier: int) -> str:
    return {"switch": "leaf switch", "power": "power feed"}.get(vertex[0], vertex[0]) + (f" (tier {tier})" if tier > 1 else "")


def _names(names: set[str]) -> str:
    return f"{len(names)} node{'' if len(names) == 1 else 's'} {_short(compress(names))}"


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + ".."


def _sentence(many: dict[str, int]) -> str:
    parts = [f"{many[kind]} {PLURALS[kind]}" for kind in PLURALS if many[kind]]
    return f"{', '.join(parts)}; {many['gpu']} GPUs, {many['spare']} spares"


def _dot(fleet: Fleet) -> str:
    graph = site_graph(fleet)
    lines = ["digraph site {", "  rankdir=BT; node [shape=box, fontsize=10];"]
    for vertex in sorted(graph):
        lines.append(f"  {json.dumps(name_of(vertex))} [label={json.dumps(vertex[-1])}, class={vertex[0]}];")
    lines += [f"  {json.dumps(name_of(lower))} -> {json.dumps(name_of(upper))};" for lower, upper in sorted(graph.edges)]
    return "\n".join([*lines, "}"]) + "\n"


def _plot(fleet: Fleet, path: Path) -> None:
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise MissingExtraError("a picture", "drills", "matplotlib") from None
    graph = site_graph(fleet)
    shown = [one for one in sorted(graph) if one[0] != "port" and (one[0] != "node" or len(fleet.nodes) <= NODES_DRAWN_MAX)]
    layers: dict[int, list[Vertex]] = defaultdict(list)
    for vertex in shown:
        layers[_layer(vertex, graph.nodes[vertex].get("tier", 0))].append(vertex)
    place = {vertex: ((index + 0.5) / len(row), layer) for layer, row in layers.items() for index, vertex in enumerate(row)}
    figure, axes = pyplot.subplots(figsize=(min(40.0, 4 + 0.35 * max(len(row) for row in layers.values())), 2 + 1.6 * len(layers)))
    for lower, upper in sorted({(_node_of(lower), upper) for lower, upper in graph.edges}):
        if lower in place and upper in place and lower != upper:
            axes.plot(*zip(place[lower], place[upper], strict=True), color="#8aa", linewidth=0.6, zorder=1)
    for vertex, (x, y) in place.items():
        axes.text(
            x, y, vertex[1], ha="center", va="center", rotation=90 if len(layers[int(y)]) > 12 else 0, fontsize=7, zorder=2,
            bbox={"boxstyle": "round", "facecolor": _COLOURS[vertex[0]], "edgecolor": "#566", "linewidth": 0.5},
        )  # fmt: skip
    for layer, row in layers.items():
        axes.text(-0.01, layer, PLURALS[row[0][0]], ha="right", va="center", fontsize=7, color="#566")
    axes.set_title(_sentence(counts(fleet, graph)), fontsize=9)
    axes.set_ylim(min(layers) - 0.6, max(layers) + 0.6)
    axes.axis("off")
    figure.savefig(path, bbox_inches="tight", dpi=150)
    pyplot.close(figure)


_COLOURS = {
    "node": "#ffffff", "switch": "#cfe8ff", "spine": "#a9d0f5", "rack": "#fbe9c6", "power": "#f7d5d0", "rail": "#dcefd3",
    "mount": "#e6dcf3",
}  # fmt: skip


def _node_of(vertex: Vertex) -> Vertex:
    """A port is drawn as its node."""
    return ("node", vertex[1]) if vertex[0] == "port" else vertex


def _layer(vertex: Vertex, tier: int) -> int:
    """Nodes at 0, the network above them, what else is shared below."""
    if vertex[0] in ("switch", "spine"):
        return 1 + tier
    return {"node": 0, "rail": -1, "rack": -2, "power": -3, "mount": -4}[vertex[0]]


assert set(SHARED) | {"node", "port"} == set(PLURALS)  # every kind of the graph has a word
