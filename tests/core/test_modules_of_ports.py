"""A module that complains by itself, and blocks that error correction could not mend: told to a person, no harm to the job."""

import pytest
from core_cluster import Cluster


def test_a_module_that_complains_is_a_degraded_nic_until_it_complains_no_more() -> None:
    cluster = Cluster()
    cluster.run(5.0)
    cluster.signal(
        "port_counters", node="n2", nic="mlx5_1", port="1", data={"module_alarms": ["temperature_high_alarm"]},
        text="module of mlx5_1: temperature high alarm",
    )  # fmt: skip
    cluster.run(5.0)
    (change,) = cluster.changes("confirmed")
    assert (change.fault, change.subject["node"], change.subject["nic"], change.response) == (
        "nic.degraded",
        "n2",
        "mlx5_1",
        "page",
    )
    assert any("temperature high alarm" in piece.text for piece in change.evidence)
    assert "the module of mlx5_1 port 1 of n2 complains: temperature high alarm" in change.explanation
    assert {action.action for action in cluster.actions()} <= {"page"}
    cluster.signal("port_counters", node="n2", nic="mlx5_1", port="1", data={"module_alarms": []})
    cluster.run(60.0)
    assert [one.fault for one in cluster.changes("resolved")] == ["nic.degraded"]


def _hot(cluster: Cluster, *alarms: str) -> None:
    cluster.signal("port_counters", node="n2", nic="mlx5_1", port="1", data={"module_alarms": list(alarms)})
    cluster.run(5.0)


def _rate(cluster: Cluster, rate: float) -> None:
    data = {"state": "up", "rate_gbps": rate, "rate_max_gbps": 400.0}
    cluster.signal("link", node="n2", nic="mlx5_1", port="1", data=data)
    cluster.run(5.0)


@pytest.mark.parametrize("first", ["module", "speed"])
def test_what_is_well_with_a_port_does_not_end_the_doubt_about_something_else(first: str) -> None:
    """Agents say both again and again: an alarm that stands ended with each word of full speed."""
    cluster = Cluster()
    cluster.run(5.0)
    _hot(cluster, "temperature_high_alarm") if first == "module" else _rate(cluster, 200.0)
    for _ in range(3):
        _rate(cluster, 400.0) if first == "module" else _hot(cluster)
    assert [one.fault for one in cluster.changes("confirmed")] == ["nic.degraded"]
    assert cluster.changes("resolved") == []
    _hot(cluster) if first == "module" else _rate(cluster, 400.0)
    cluster.run(60.0)
    assert [one.fault for one in cluster.changes("resolved")] == ["nic.degraded"]


def test_a_modules_complaint_does_not_shorten_the_time_over_which_counters_are_held() -> None:
    """Both come as one kind of signal: a rate must be of the counters' own readings."""
    cluster = Cluster()
    for reading in range(4):
        cluster.run(10.0)
        cluster.signal("port_counters", node="n2", nic="mlx5_1", port="1", data={"module_alarms": []})
        cluster.run(0.05)
        cluster.signal("port_counters", node="n2", nic="mlx5_1", port="1", data={"symbol_error": 20 * reading})
    cluster.run(5.0)
    assert cluster.confirmed() == []


def test_blocks_that_cannot_be_corrected_are_an_error_of_the_link() -> None:
    cluster = Cluster()
    for reading in range(4):
        cluster.run(10.0)
        cluster.signal("port_counters", node="n2", nic="mlx5_1", port="1", data={"fec_uncorrectable_blocks": 500 * reading})
    cluster.run(5.0)
    (change,) = cluster.changes("confirmed")
    assert change.fault == "link.errors"
    assert "mlx5_1 port 1 of n2 has 50.0 blocks beyond correction (lost packets) a second" in change.explanation


@pytest.mark.parametrize("name", ["rx_fec_uncorrectable_blocks", "fec_uncorrectable_cw_lane_0"])
def test_drivers_have_other_names_for_lost_blocks(name: str) -> None:
    cluster = Cluster()
    for reading in range(4):
        cluster.run(10.0)
        data = {name: 500 * reading, "fec_corrected_blocks": 10**9 * reading}
        cluster.signal("port_counters", node="n2", nic="mlx5_1", port="1", data=data)
    cluster.run(5.0)
    assert [change.fault for change in cluster.changes("confirmed")] == ["link.errors"]


LIGHT = ["receive_power_low_alarm", "transmit_power_low_alarm", "bias_low_alarm"]


@pytest.mark.parametrize(("up", "alarms", "faults"), [
    (False, LIGHT, []), (True, LIGHT, ["nic.degraded"]), (None, LIGHT, ["nic.degraded"]),
    (False, [*LIGHT, "temperature_high_alarm"], ["nic.degraded"]), (False, ["supply_low_alarm"], ["nic.degraded"]),
])  # fmt: skip
def test_an_empty_socket_has_no_light_and_is_no_fault(up: bool | None, alarms: list[str], faults: list[str]) -> None:
    cluster = Cluster()
    cluster.run(5.0)
    cluster.signal("port_counters", node="n2", nic="mlx5_1", port="1", data={"module_alarms": alarms, "up": up})
    cluster.run(60.0)
    assert [change.fault for change in cluster.changes("confirmed")] == faults


def test_a_port_that_fell_shows_what_its_module_says() -> None:
    cluster = Cluster()
    cluster.run(5.0)
    cluster.signal("link", node="n2", nic="mlx5_1", port="1", data={"state": "down"})
    cluster.run(2.0)
    text = "module of mlx5_1 (NVIDIA MMS4X00, serial MT1): receive power low alarm"
    data = {"module_alarms": ["receive_power_low_alarm"], "up": False}
    cluster.signal("port_counters", node="n2", nic="mlx5_1", port="1", data=data, text=text)
    cluster.run(120.0)
    changes = cluster.changes("confirmed")
    assert {change.fault for change in changes} == {"nic.down"}
    assert all(text in [piece.text for piece in change.evidence] for change in changes)


def test_strange_alarms_are_passed_over() -> None:
    cluster = Cluster()
    cluster.run(5.0)
    for strange in ("hot", 7, {"a": 1}, None):
        cluster.signal("port_counters", node="n2", nic="mlx5_1", port="1", data={"module_alarms": strange})
    cluster.run(5.0)
    assert cluster.confirmed() == []
