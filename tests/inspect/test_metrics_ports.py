"""What the page of Outrider's agent says of ports and modules: errors beyond correction and alarms matter, corrected ones do not.

Counters are the kernel's and mlx5's; devices and numbers are invented.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from metrics_pages import Rows, always, assert_told, judged, page


def agent(node: str, nic: str = "mlx5_0", flags: Sequence[str] = (), **counters: object) -> Rows:
    """A port on the page of Outrider's agent: it is up, its module is there, and this is what both say."""
    labels = f'node="{node}",nic="{nic}",port="1"'
    module = f'outrider_module_info{{{labels},kind="QSFP-DD",vendor="ACME",part="FR4",serial="S7"}} 1'
    rows = [f"outrider_port_up{{{labels}}} {counters.pop('up', 1)}", module]
    rows += [f'outrider_port_events_total{{{labels},counter="{name}"}} {value}' for name, value in counters.items()]
    return rows + [f'outrider_module_flag{{{labels},flag="{flag}"}} 1' for flag in flags]


def fleet(t: float, **odd: object) -> Rows:
    """Five ports of five machines with large and growing counts that mean nothing; n2's differ by `odd`."""
    usual = {
        "fec_corrected_blocks": 5e12 + t * 1e6, "fec_corrected_bits": 9e12 + t * 1e6, "rx_corrected_bits_phy": 9e12 + t * 1e6,
        "rx_err_lane_0_phy": 7e9 + t * 1e4, "rx_err_lane_1_phy": 7e9 + t * 1e4, "rx_bytes": 1e15 + t * 4e10,
        "rx_packets_phy": 1e12 + t * 1e7, "fec_uncorrectable_blocks": 977, "rx_symbol_err_phy": 41, "rx_crc_errors_phy": 12,
        "link_down_events_phy": 3, "carrier_changes": 7,
    }  # fmt: skip
    return [row for n in range(5) for row in agent(f"n{n}", **(usual | odd if n == 2 else usual))]


#: name -> (page, fault, culprit, response, keys of the subject) of the only finding above `watch`, or None.
SCENARIOS: dict[str, tuple[str, tuple[str, str, str, dict[str, Any]] | None]] = {
    "large and growing counts of what error correction mended": (always(fleet), None),
    "one port corrects far more than the others": (
        always(lambda t: fleet(t, fec_corrected_blocks=t * 1e9, rx_err_lane_0_phy=t * 1e8, rx_corrected_bits_phy=t * 1e9)), None,
    ),
    "blocks beyond correction": (
        always(lambda t: fleet(t, fec_uncorrectable_blocks=977 + t * 20)),
        ("link.errors", "link", "page", {"node": "n2", "nic": "mlx5_0", "port": "1"}),
    ),
    "blocks beyond correction, at last": (
        page(*((t, fleet(t, fec_uncorrectable_blocks=max(0, t - 3540) * 40)) for t in range(0, 3601, 30))),
        ("link.errors", "link", "page", {"node": "n2"}),
    ),
    "blocks beyond correction on two scrapes": (
        page(*((t, fleet(t, fec_uncorrectable_blocks=t * 50)) for t in (0, 60))), ("link.errors", "link", "page", {"node": "n2"}),
    ),
    "blocks of a link that trains once": (
        always(lambda t: fleet(t, fec_uncorrectable_blocks=5000 if t else 0, link_down_events_phy=4 if t else 3)), None,
    ),
    "blocks of a driver's own statistics, by node_exporter": (
        always(lambda t: [f'node_ethtool_received_fec_uncorrectable_blocks{{device="ens3",instance="n1:9100"}} {t * 40}']),
        ("link.errors", "link", "page", {"node": "n1", "nic": "ens3"}),
    ),
    "a counter of blocks that starts anew": (always(lambda t: fleet(t, fec_uncorrectable_blocks=90_000 if t < 30 else 8)), None),
    "symbols of a driver's own statistics": (
        always(lambda t: fleet(t, rx_symbol_err_phy=t * 30)), ("link.errors", "link", "page", {"node": "n2"}),
    ),
    "CRC errors of a driver's own statistics": (
        always(lambda t: fleet(t, rx_crc_errors_phy=t * 30)), ("link.errors", "link", "page", {"node": "n2"}),
    ),
    "CRC errors that a fabric passes on to all": (
        always(lambda t: [row for n in range(5) for row in agent(f"n{n}", rx_crc_errors_phy=t * (20 + n))]), None,
    ),
    "flapping by a driver's own statistics": (
        always(lambda t: fleet(t, link_down_events_phy=3 + t / 10)), ("link.flapping", "link", "page", {"node": "n2"}),
    ),
    "flapping by the carrier": (
        always(lambda t: fleet(t, carrier_changes=7 + t / 5)), ("link.flapping", "link", "page", {"node": "n2"}),
    ),
    "a blip by the carrier": (always(lambda t: fleet(t, carrier_changes=9 if t else 7)), None),
    "half the rate on the agent's page": (
        always(lambda _: [
            f'outrider_port_rate_bytes_per_second{{node="n{n}",nic="mlx5_0",port="1"}} {rate}'
            for n, rate in enumerate((5e10, 2.5e10, 5e10))
        ]),
        ("nic.degraded", "nic", "page", {"node": "n1", "nic": "mlx5_0"}),
    ),
    "a module's alarm": (
        always(lambda t: [*fleet(t), *agent("n5", flags=["temperature_high_alarm", "temperature_high_warning"])]),
        ("nic.degraded", "nic", "page", {"node": "n5", "nic": "mlx5_0", "port": "1"}),
    ),
    "a module's alarm on a single scrape": (
        page((0, agent("n5", flags=["receive_power_low_alarm"]))), ("nic.degraded", "nic", "page", {"node": "n5"}),
    ),
    "a card at its critical temperature": (
        page((0, agent("n5", flags=["asic_temperature_high_alarm"]))), ("nic.degraded", "nic", "page", {"node": "n5"}),
    ),
    "a module's warning": (always(lambda t: agent("n5", flags=["receive_power_low_warning"])), None),
    "a module's alarm that is over": (
        always(lambda t: agent("n5", flags=["bias_high_alarm"] if t < 30 else [])), None,
    ),
    "a flag alone on the page, and over": (
        page((0, ['outrider_module_flag{node="n5",nic="mlx5_0",port="1",flag="bias_high_alarm"} 1', *agent("n5", "mlx5_1")]),
             (30, agent("n5", "mlx5_1"))), None,
    ),
    "no light in a port without a cable": (always(lambda t: agent("n5", up=0, flags=["receive_power_low_alarm"])), None),
    "no light in a port that went down": (
        always(lambda t: agent("n5", up=int(t == 0), flags=["receive_power_low_alarm"] if t else [])),
        ("nic.down", "nic", "restart", {"node": "n5"}),
    ),
}  # fmt: skip


@pytest.fixture
def ask(tmp_path: Path):
    return lambda text: judged(text, tmp_path, {})


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_port_is_judged_as_the_live_rules_would(ask, name: str) -> None:
    text, wanted = SCENARIOS[name]
    assert_told(ask(text), wanted)


def test_a_finding_of_a_module_names_it_and_what_it_says(ask) -> None:
    (one,) = ask(page((0, agent("n5", flags=["temperature_high_alarm"]))))
    assert "ACME FR4, serial S7" in one.explanation and "temperature high alarm" in one.explanation
    assert any('flag="temperature_high_alarm"' in line.text for line in one.evidence)


@pytest.mark.parametrize(
    ("flags", "state"), [(lambda t: ["bias_high_warning"], "open"), (lambda t: ["bias_high_alarm"] if t < 30 else [], "resolved")]
)
def test_warnings_and_alarms_of_the_past_are_shown_and_wake_nobody(ask, flags: Callable[[float], Rows], state: str) -> None:
    (one,) = ask(always(lambda t: agent("n5", flags=flags(t))))
    assert (one.fault, one.response, one.state) == ("nic.degraded", "watch", state)


def test_a_module_that_complains_of_a_port_that_is_down_is_evidence_and_no_second_incident(ask) -> None:
    (one,) = ask(always(lambda t: agent("n5", up=int(t == 0), flags=["receive_power_low_alarm"])))
    assert one.fault == "nic.down" and "receive power low alarm" in one.explanation


def test_the_lane_that_loses_the_blocks_is_named(ask) -> None:
    def rows(t: float) -> Rows:
        name = 'outrider_port_fec_events_total{{node="n1",nic="mlx5_0",port="1",lane="{}",kind="uncorrectable_blocks"}} {}'
        return agent("n1", fec_uncorrectable_blocks=t * 40) + [name.format(lane, t * 40 * (lane == 2)) for lane in range(4)]

    (one,) = ask(always(rows))
    assert one.fault == "link.errors" and "blocks beyond correction, most bad blocks on lane 2" in one.explanation


def test_a_few_lost_blocks_are_shown_and_wake_nobody(ask) -> None:
    (one,) = ask(always(lambda t: agent("n1", fec_uncorrectable_blocks=t / 10)))
    assert (one.fault, one.response) == ("link.errors", "watch")
