"""Ports that go dark together: the smallest part that they share."""

from core_cluster import Cluster, small_fleet

from outrider.fleet import Fleet, Node


def cluster(leaf_of: dict[str, str]) -> Cluster:
    """Nodes with two rails; `leaf_of`: leaf of the first rail of those named, each other node's leaf is its own."""
    fleet = small_fleet(nodes=6)
    nics = {one.node: {"a": leaf_of.get(one.node, f"own-{one.node}"), "b": "other"} for one in fleet.nodes}
    nodes = tuple(Node(node=one.node, rack=one.rack, gpus=1, address=one.address, nics=nics[one.node]) for one in fleet.nodes)
    made = Cluster(fleet=Fleet(nodes=nodes, jobs=fleet.jobs, witnesses=fleet.witnesses, spares=fleet.spares))
    made.run(12)
    return made


def go_dark(made: Cluster, *nodes: str, apart: float = 0.3) -> None:
    made.stepping = False
    for node in nodes:
        made.signal("link", node=node, nic="a", port=1, data={"state": "down"})
        made.run(apart)


def paged(made: Cluster) -> list[tuple[str, dict]]:
    return [(one.fault, one.subject) for one in made.changes("confirmed") if one.fault != "job.hang" and one.response != "watch"]


def test_both_ports_of_a_leaf_that_has_two_go_dark_together() -> None:
    made = cluster({"n1": "leaf", "n2": "leaf"})
    go_dark(made, "n1", "n2")
    made.run(90)
    assert paged(made) == [("switch.down", {"switch": "leaf"})]
    assert "quarantine" not in {one.action for one in made.actions()}


def test_one_of_two_ports_is_a_ports_own_matter() -> None:
    made = cluster({"n1": "leaf", "n2": "leaf"})
    go_dark(made, "n1")
    made.run(90)
    assert [fault for fault, _ in paged(made)] == ["nic.down"]


def test_two_of_three_ports_are_not_the_leaf() -> None:
    made = cluster({"n1": "leaf", "n2": "leaf", "n3": "leaf"})
    go_dark(made, "n1", "n2")
    made.run(90)
    assert {fault for fault, _ in paged(made)} == {"nic.down"}


def test_two_ports_that_go_dark_one_after_the_other_are_two_ports() -> None:
    made = cluster({"n1": "leaf", "n2": "leaf"})
    go_dark(made, "n1", "n2", apart=20.0)
    made.run(90)
    assert {fault for fault, _ in paged(made)} == {"nic.down"}


def test_the_leaf_that_comes_back_ends_its_incident() -> None:
    made = cluster({"n1": "leaf", "n2": "leaf"})
    go_dark(made, "n1", "n2")
    made.run(20)
    for node in ("n1", "n2"):
        made.signal("link", node=node, nic="a", port=1, data={"state": "up"})
    made.run(5)
    assert [one.event for one in made.changes() if one.fault == "switch.down"][-1] == "resolved"
