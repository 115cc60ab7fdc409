"""A rank that ends beside a fault that is suspect already is that fault's second layer: one cause, one restart, on the spare."""

from typing import Any

import pytest
from core_cluster import Cluster, small_fleet

from outrider.fleet import Fleet, Node

RESTARTS = {"quarantine", "restart"}


def cluster_with_ports() -> Cluster:
    fleet = small_fleet(nodes=5)
    nodes = tuple(
        Node(node=one.node, rack=one.rack, gpus=1, address=one.address, nics={"mlx5_0": f"leaf{i}", "mlx5_1": f"leaf{i + 9}"})
        for i, one in enumerate(fleet.nodes)
    )
    cluster = Cluster(fleet=Fleet(nodes=nodes, jobs=fleet.jobs, witnesses=fleet.witnesses, spares=fleet.spares))
    cluster.run(12)
    return cluster


def port(cluster: Cluster, state: str, node: str = "n3") -> None:
    cluster.signal("link", node=node, nic="mlx5_0", port=1, data={"state": state})


def end(cluster: Cluster, code: int = 1, rank: int = 2) -> None:
    cluster.signal("process_exit", job="j1", rank=rank, node=f"n{rank + 1}", value=code, data={"attempt": 1})


def told(cluster: Cluster) -> list[tuple[str, str]]:
    """Fault and response of every incident that asks for more than a look, and the orders it led to."""
    return [(one.fault, one.response) for one in cluster.changes("confirmed") if one.response != "watch"]


def orders(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    return [one.target for one in cluster.actions() if one.action == name and one.refused is None]


@pytest.mark.parametrize("code", [1, 134, -6])
@pytest.mark.parametrize("after", [0.5, 3.0, 9.0])
def test_an_exit_beside_a_dark_port_is_the_ports_second_layer(code: int, after: float) -> None:
    cluster = cluster_with_ports()
    port(cluster, "down")
    cluster.stepping = False
    cluster.run(after)
    end(cluster, code)
    cluster.run(max(2.5 - after, 0.3) if code == 1 or after > 2 else 12.0)
    assert told(cluster) == [("nic.down", "restart")]
    cluster.run(40)
    assert told(cluster) == [("nic.down", "restart")] and len(orders(cluster, "restart")) == 1
    assert orders(cluster, "quarantine") == [{"node": "n3"}]
    assert [item["from"] for item in orders(cluster, "restart")[0]["replace"]] == ["n3"]


def test_a_port_that_only_blinked_does_not_take_the_exit() -> None:
    cluster = cluster_with_ports()
    port(cluster, "down")
    cluster.run(0.5)
    cluster.stepping = False
    end(cluster)
    cluster.run(0.5)
    port(cluster, "up")
    cluster.run(3)
    assert told(cluster) == [("job.rank_exit", "restart")] and orders(cluster, "quarantine") == []


@pytest.mark.parametrize("steps_for", [6.0, 200.0])
def test_a_dark_port_that_the_job_steps_without_takes_no_exit(steps_for: float) -> None:
    cluster = cluster_with_ports()
    port(cluster, "down")
    cluster.run(steps_for)
    cluster.stepping = False
    end(cluster)
    cluster.run(3)
    assert told(cluster)[-1] == ("job.rank_exit", "restart") and orders(cluster, "quarantine") == []


def test_an_exit_of_another_node_is_no_matter_of_the_port() -> None:
    cluster = cluster_with_ports()
    port(cluster, "down", node="n1")
    cluster.stepping = False
    cluster.run(4)
    end(cluster)
    cluster.run(1)
    assert told(cluster) == [("job.rank_exit", "restart")]


def test_two_ranks_whose_transport_broke_over_a_dark_port_make_it_down_at_once() -> None:
    cluster = cluster_with_ports()
    port(cluster, "down")
    cluster.stepping = False
    cluster.run(5)
    for rank in (0, 1):
        cluster.signal("collective_error", job="j1", rank=rank, data={"attempt": 1, "status": 12, "peer_node": "n3"})
        assert told(cluster) == []
        cluster.run(0.5)
    assert told(cluster) == [("nic.down", "restart")]


def test_an_exit_beside_a_driver_call_that_does_not_return_is_the_cards_matter() -> None:
    cluster = cluster_with_ports()
    cluster.stepping = False
    cluster.signal("driver_call", node="n3", gpu=0, value=12.0, data={"call": "nvmlDeviceGetTemperature"})
    assert told(cluster) == []
    end(cluster)
    cluster.run(1)
    assert told(cluster) == [("gpu.driver_hang", "restart")] and orders(cluster, "quarantine") == [{"node": "n3"}]


@pytest.mark.parametrize("code", [1, -6])
def test_an_exit_beside_a_contained_error_of_its_own_card_is_told_at_once(code: int) -> None:
    cluster = cluster_with_ports()
    cluster.stepping = False
    cluster.signal("xid", node="n3", gpu=0, value=94, text="NVRM: Xid (PCI:0000:10:00): 94, Contained: SM (0x1).", data={})
    cluster.run(0.7)
    assert told(cluster) == []
    end(cluster, code)
    cluster.run(0.3)
    assert told(cluster) == [("gpu.ecc_contained", "restart")]
    cluster.run(30)
    assert len(orders(cluster, "restart")) == 1


def test_an_abort_beside_a_contained_error_of_another_card_waits_for_its_cause() -> None:
    cluster = cluster_with_ports()
    cluster.stepping = False
    cluster.signal("xid", node="n3", gpu=0, value=94, text="NVRM: Xid (PCI:0000:10:00): 94, Contained: SM (0x1).", data={})
    cluster.run(0.5)
    end(cluster, -6, rank=1)
    cluster.run(5)
    assert told(cluster) == []


def test_what_only_pages_hides_nothing_that_asks_for_a_restart() -> None:
    """An uncorrected count on one card is a page; a card beside it that falls off the bus is a restart all the same."""
    cluster = cluster_with_ports()
    for count in (0, 1):
        data = {"corrected": 0, "uncorrected": count, "scope": "volatile", "where": "dram"}
        cluster.signal("ecc", node="n3", gpu=1, pci="0000:1b:00", data=data)
    assert told(cluster) == [("gpu.ecc_contained", "page")]
    cluster.signal("xid", node="n3", gpu=2, pci="0000:2b:00", value=79, data={})
    cluster.run(1)
    assert told(cluster)[-1] == ("gpu.fallen_off_bus", "restart") and len(orders(cluster, "restart")) == 1


def test_an_exit_beside_a_heat_that_only_pages_restarts_the_job() -> None:
    cluster = cluster_with_ports()
    for _ in range(4):
        data = {"sm_mhz": 900, "sm_mhz_max": 1980, "temp_c": 91, "throttle": ["hw_thermal_slowdown"]}
        cluster.signal("gpu_state", node="n3", gpu=0, data=data)
    assert told(cluster) == [("gpu.thermal", "page")]
    cluster.stepping = False
    end(cluster)
    cluster.run(1)
    assert told(cluster)[-1] == ("job.rank_exit", "restart")


def test_a_hang_that_joined_a_page_asks_for_its_restart_when_its_limit_is_over() -> None:
    cluster = cluster_with_ports()
    cluster.stepping = False
    cluster.run(25)
    for _ in range(4):
        data = {"sm_mhz": 900, "sm_mhz_max": 1980, "temp_c": 91, "throttle": ["hw_thermal_slowdown"]}
        cluster.signal("gpu_state", node="n3", gpu=0, data=data)
    cluster.run(20)
    assert told(cluster) == [("gpu.thermal", "page")], "the hang is its consequence"
    cluster.run(600)
    assert told(cluster)[-1] == ("job.hang", "restart") and len(orders(cluster, "restart")) == 1


def test_a_new_error_of_its_own_card_and_an_exit_are_two_layers() -> None:
    cluster = cluster_with_ports()
    for count in (0, 1):
        data = {"corrected": 0, "uncorrected": count, "scope": "volatile", "where": "dram"}
        cluster.signal("ecc", node="n3", gpu=0, data=data)
    cluster.stepping = False
    end(cluster, -9)
    cluster.run(1)
    assert told(cluster)[-1] == ("gpu.ecc_contained", "restart") and orders(cluster, "quarantine") == [{"node": "n3"}]
