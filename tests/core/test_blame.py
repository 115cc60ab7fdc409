"""The smallest common cause, and what contradicts it."""

from typing import Any

from blame_twin import Twin
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.core.blame import common_causes, most_accused
from detectors.core.topology import Topology
from outrider.fleet import Fleet, Node


def site(racks: int = 4, per_rack: int = 8, **more: Any) -> Topology:
    nodes = tuple(
        Node(node=f"n{r}-{k}", rack=f"r{r}", power=f"p{r // 2}", nics={"mlx5_0": f"leaf-{r}-0", "mlx5_1": f"leaf-{r}-1"})
        for r in range(racks)
        for k in range(per_rack)
    )
    links = tuple({"from": f"leaf-{r}-{x}", "to": f"spine-{x}"} for r in range(racks) for x in range(2))
    return Topology(Fleet(nodes=nodes, **{"links": links, **more}))


def names(causes: list) -> list[tuple[str, str]]:
    return [(cause.level, cause.name) for cause in causes]


def test_a_whole_rack_is_the_racks_matter() -> None:
    assert names(common_causes(site(), {("node", f"n1-{k}") for k in range(8)})) == [("rack", "r1")]


def test_two_racks_of_one_feed_are_the_feeds_matter() -> None:
    failing = {("node", f"n{r}-{k}") for r in (2, 3) for k in range(8)}
    assert names(common_causes(site(), failing)) == [("power", "p1")]


def test_ports_below_one_leaf_and_ports_below_one_spine() -> None:
    leaf = {("port", f"n1-{k}", "mlx5_1") for k in range(8)}
    assert names(common_causes(site(), leaf)) == [("switch", "leaf-1-1")]
    spine = {("port", f"n{r}-{k}", "mlx5_1") for r in range(4) for k in range(8)}
    assert names(common_causes(site(), spine)) == [("spine", "spine-1")]


def test_single_nodes_here_and_there_share_nothing() -> None:
    assert common_causes(site(), {("node", "n0-1"), ("node", "n1-2"), ("node", "n2-3")}) == []


def test_what_works_contradicts() -> None:
    failing = {("node", f"n1-{k}") for k in range(7)}
    assert names(common_causes(site(), failing)) == [("rack", "r1")]
    assert common_causes(site(), failing, {("node", "n1-7")}) == []


def test_the_one_that_many_complain_of_stands_out() -> None:
    assert most_accused([("a", "x"), ("b", "x"), ("c", "x"), ("d", "x")]) == "x"
    assert most_accused([("x", "a"), ("x", "b"), ("x", "c")]) == "x"  # who accuses everybody sits behind its own broken port
    assert most_accused([("a", "b"), ("c", "d")]) is None


def test_a_leaf_and_a_stray_port_are_not_their_spines_matter() -> None:
    failing = {("port", f"n1-{k}", "mlx5_1") for k in range(8)} | {("port", "n3-0", "mlx5_1")}
    assert names(common_causes(site(), failing)) == [("switch", "leaf-1-1")]


def test_a_rail_whose_ports_fail_across_leaves_is_named_and_a_switch_above_it_first() -> None:
    failing = {("port", f"n{r}-{k}", "mlx5_1") for r in range(4) for k in range(8) if (r, k) != (2, 3)}
    assert names(common_causes(site(links=()), failing)) == [("rail", "mlx5_1")]
    assert names(common_causes(site(), failing)) == [("spine", "spine-1")]
    few = {("port", f"n{r}-0", "mlx5_1") for r in range(4)}
    assert common_causes(site(links=()), few) == []  # four ports of one device name in four racks are four ports


def test_of_spines_that_explain_the_same_none_is_named() -> None:
    links = tuple({"from": f"leaf-{r}-{x}", "to": f"spine-{x}-{s}"} for r in range(4) for x in range(2) for s in range(2))
    failing = {("port", f"n{r}-{k}", "mlx5_1") for r in range(4) for k in range(8)}
    assert names(common_causes(site(links=links), failing)) == [("rail", "mlx5_1")]
    links += ({"from": "leaf-0-1", "to": "spine-x"}, {"from": "leaf-1-1", "to": "spine-x"})
    two = {part for part in failing if part[1][1] in "01"}
    assert names(common_causes(site(links=links), two)) == [("spine", "spine-x")]  # it alone is above both leaves and no other


def test_rails_may_be_named_by_the_site() -> None:
    rails = {"blue": tuple(f"leaf-{r}-0" for r in range(4)), "red": ("mlx5_1",)}
    topology = site(links=(), rails=rails)
    for name, nic in (("blue", "mlx5_0"), ("red", "mlx5_1")):
        failing = {("port", f"n{r}-{k}", nic) for r in range(4) for k in range(8)}
        assert names(common_causes(topology, failing)) == [("rail", name)]


def test_all_ports_of_a_rack_over_all_its_leaves_are_the_racks_matter() -> None:
    nodes = tuple(
        Node(node=f"n{r}-{k}", rack=f"r{r}", nics={f"mlx5_{x}": f"leaf-{x}" for x in range(4)}) for r in range(4) for k in range(4)
    )
    failing = {("port", f"n2-{k}", f"mlx5_{x}") for k in range(4) for x in range(4)}
    assert names(common_causes(Topology(Fleet(nodes=nodes)), failing)) == [("rack", "r2")]


def test_clients_of_one_mount_are_the_mounts_matter_and_of_one_rack_the_racks() -> None:
    failing = {("client", f"n{r}-{k}", "nfs1") for r in (0, 1) for k in range(8)}
    assert names(common_causes(site(), failing)) == [("mount", "nfs1")]
    others = {("client", f"n{r}-{k}", "nfs1") for r in (2, 3) for k in range(8)}
    assert names(common_causes(site(), failing, others)) == [("power", "p0")]
    rack = {part for part in failing if part[1].startswith("n1")}
    assert names(common_causes(site(), rack, others | (failing - rack))) == [("rack", "r1")]
    two_mounts = {("client", f"n1-{k}", where) for k in range(8) for where in ("nfs1", "nfs2")}
    assert names(common_causes(site(), two_mounts, others)) == [("rack", "r1")]


@st.composite
def sites(draw: st.DrawFn) -> Fleet:
    """Racks, feeds, leaves (one or one a device), spines, sometimes a second tier of them, sometimes named rails."""
    racks, per_rack, nics = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(0, 3))
    shared, tiers, managed = draw(st.booleans()), draw(st.integers(0, 2)), draw(st.booleans())
    nodes = tuple(
        Node(
            node=f"n{r}-{k}", rack=f"r{r}" if draw(st.integers(0, 9)) else None, power=f"p{r // 2}",
            switch=f"m{r // 3}" if managed else None, mounts={"/data": "nfs1"},
            nics={f"mlx5_{x}": f"leaf-{r // 2}" if shared else f"leaf-{r // 2}-{x}" for x in range(nics)},
        )
        for r in range(racks) for k in range(per_rack)
    )  # fmt: skip
    leaves = sorted({leaf for node in nodes for leaf in (*node.nics.values(), *([node.switch] if node.switch else []))})
    links = [{"from": f"spine-{k % 2}", "to": leaf} for k, leaf in enumerate(leaves)] if tiers else []
    links += [{"leaf": leaf, "spine": "spine-1"} for leaf in leaves] if tiers and draw(st.booleans()) else []
    links += [{"a": f"spine-{k}", "b": "core"} for k in range(2)] if tiers > 1 and len(leaves) > 1 else []
    rails = {"blue": tuple(leaf for leaf in leaves if leaf.endswith("-0"))} if draw(st.booleans()) else {}
    return Fleet(nodes=nodes, links=tuple(links), rails=rails)


@given(fleet=sites(), data=st.data())
@settings(max_examples=150, deadline=None)
def test_blame_answers_as_its_slow_twin_does(fleet: Fleet, data: st.DataObject) -> None:
    twin, topology = Twin(fleet), Topology(fleet)
    parts = [part for part in twin.graph if part[0] in ("node", "port")]
    parts += [("client", node.node, where) for node in fleet.nodes for where in ("nfs1", "/own")]
    for part in parts:
        assert part[0] == "client" or set(topology.above(part)) == twin.above(part)
    shared = sorted({vertex for part in parts for vertex in twin.above(part)})
    causes = set(data.draw(st.lists(st.sampled_from(shared), max_size=2))) if shared else set()
    failing = {part for part in parts if causes & twin.above(part)}
    failing |= set(data.draw(st.lists(st.sampled_from([*parts, ("node", "stranger"), ("client", "stranger", "nfs1")]), max_size=4)))
    working = set(data.draw(st.lists(st.sampled_from(parts), max_size=6)))
    told = [(cause.level, cause.name, cause.parts) for cause in common_causes(topology, failing, working)]
    assert told == twin.causes(failing, working)


def test_what_explains_hardly_more_is_not_worth_going_higher_for() -> None:
    nodes = tuple(Node(node=f"n{k}", rack="big" if k < 16 else "rest", power="feed") for k in range(17))
    failing = {("node", node.node) for node in nodes}
    assert names(common_causes(Topology(Fleet(nodes=nodes)), failing)) == [("rack", "big")]
    nodes = tuple(Node(node=f"n{k}", rack="big" if k < 16 else "rest", power="feed") for k in range(20))
    failing = {("node", node.node) for node in nodes}
    assert names(common_causes(Topology(Fleet(nodes=nodes)), failing)) == [("power", "feed")]
