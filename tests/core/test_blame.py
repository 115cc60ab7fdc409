"""The smallest common cause, and what contradicts it."""

from detectors.core.blame import Topology, common_causes, most_accused
from outrider.fleet import Fleet, Node


def site(racks: int = 4, per_rack: int = 8) -> Topology:
    nodes = tuple(
        Node(node=f"n{r}-{k}", rack=f"r{r}", power=f"p{r // 2}", nics={"mlx5_0": f"leaf-{r}-0", "mlx5_1": f"leaf-{r}-1"})
        for r in range(racks)
        for k in range(per_rack)
    )
    links = tuple({"from": f"leaf-{r}-{x}", "to": f"spine-{x}"} for r in range(racks) for x in range(2))
    return Topology(Fleet(nodes=nodes, links=links))


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
