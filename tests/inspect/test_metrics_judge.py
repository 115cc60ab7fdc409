"""What pages of metrics say: scrapes as exporters write them, and the incidents that a careful operator would open.

Series names are those of dcgm-exporter, node_exporter and Outrider's agent; devices, addresses and numbers are invented.
"""
# ruff: noqa: E501 (raw lines keep their length)

from pathlib import Path
from typing import Any

import pytest
from metrics_pages import Rows, always, assert_told, judged, page

from outrider.errors import InputError

NODES = {f"n{n}:9100": f"n{n}" for n in range(6)} | {"n1:9400": "n1"}
SITE: dict[str, Any] = {"instances": NODES, "expected": {"gpus": 8}}


def gpus(name: str, usual: object = 0, more: str = "", **odd: object) -> Rows:
    """One row for each of 8 GPUs; `g3=..` is GPU 3's value, None leaves it out."""
    rows = []
    for n in range(8):
        value = odd.get(f"g{n}", usual)
        if value is not None:
            labels = f'gpu="{n}",UUID="GPU-{n:04d}",pci_bus_id="00000000:{16 * n + 11:02X}:00.0",Hostname="n1",instance="n1:9400"'
            rows.append(f"{name}{{{labels}{more}}} {value}")
    return rows


def port(node: str, nic: str, **values: object) -> Rows:
    return [f'node_infiniband_{key}{{device="{nic}",port="1",instance="{node}:9100"}} {value}' for key, value in values.items()]


def host(name: str, value: object, labels: str = "") -> str:
    return f'{name}{{{labels}instance="n1:9100"}} {value}'


XID, DBE, SBE = "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"
CLOCK, TEMP, UTIL = "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL"
WATTS = "DCGM_FI_DEV_POWER_USAGE"
MASK = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"


def load(clock: Rows, temp: Rows, mask: Rows) -> str:
    return always(lambda _: clock + temp + mask + gpus(UTIL, 99))


#: name -> (page, fault, culprit, response, keys of the subject) of the only finding above `watch`, or None.
SCENARIOS: dict[str, tuple[str, tuple[str, str, str, dict[str, Any]] | None]] = {
    "a GPU is lost and its series end": (
        page(
            (0, gpus(XID) + gpus(TEMP, 50)),
            (30, gpus(XID, g3=79) + gpus(TEMP, 50)),
            (60, gpus(XID, g3=None) + gpus(TEMP, 50, g3=None)),
        ),
        ("gpu.fallen_off_bus", "gpu", "restart", {"gpu": 3, "uuid": "GPU-0003", "pci": "0000:3b:00", "node": "n1"}),
    ),
    "a code from before the first scrape": (always(lambda _: gpus(XID, g3=79)), None),
    "a program's code that stays for ever": (page((0, gpus(XID)), (30, gpus(XID, g3=31)), (900, gpus(XID, g3=31))), None),
    "a count that leaves its window": (
        page(
            (0, gpus("DCGM_EXP_XID_ERRORS_COUNT")),
            (30, gpus("DCGM_EXP_XID_ERRORS_COUNT") + gpus("DCGM_EXP_XID_ERRORS_COUNT", None, ',xid="94"', g3=2)),
            (360, gpus("DCGM_EXP_XID_ERRORS_COUNT")),
        ),
        ("gpu.ecc_contained", "gpu", "restart", {"gpu": 3}),
    ),
    "uncorrectable errors of the past": (always(lambda _: gpus("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", g3=4)), None),
    "an uncorrectable error now": (
        page((0, gpus(DBE) + gpus("DCGM_FI_DEV_ROW_REMAP_PENDING")), (30, gpus(DBE, g3=1) + gpus("DCGM_FI_DEV_ROW_REMAP_PENDING", g3=1))),
        ("gpu.ecc_uncontained", "gpu", "restart", {"gpu": 3}),
    ),
    "an exporter that starts anew": (page((0, gpus(DBE, g3=3)), (30, gpus(DBE)), (60, gpus(DBE, g3=3))), None),
    "no spare rows": (page((0, gpus("DCGM_FI_DEV_ROW_REMAP_FAILURE", g5=1))), ("gpu.row_remap_failed", "gpu", "drain", {"gpu": 5})),
    "a pending remap": (page((0, gpus("DCGM_FI_DEV_ROW_REMAP_PENDING", g5=1))), ("gpu.row_remap_pending", "gpu", "drain", {"gpu": 5})),
    "unknown values": (
        page(
            (0, gpus(TEMP, 50, g3="N/A") + gpus("DCGM_FI_DEV_ROW_REMAP_FAILURE", g3=2147483632) + gpus(DBE)),
            (30, gpus(TEMP, 50, g3="NaN") + gpus(DBE, g3=9223372036854775794)),
        ),
        None,
    ),
    "counters begin anew at a boot": (
        page(
            (0, [*gpus(SBE, g3=100000), host("node_boot_time_seconds", 1000)]),
            (30, [*gpus(SBE), host("node_boot_time_seconds", 9000)]),
            (60, gpus(SBE, g3=2)),
        ),
        None,
    ),
    "a flood of corrected errors": (
        page((0, gpus(SBE, g2=10)), (600, gpus(SBE, g2=9_000_000))),
        ("gpu.ecc_corrected", "gpu", "drain", {"gpu": 2}),
    ),
    "three corrected errors": (page((0, gpus(SBE)), (600, gpus(SBE, g2=3))), None),
    "heat holds one GPU": (
        load(gpus(CLOCK, 1700, g2=1100), gpus(TEMP, 62, g2=88), gpus(MASK, 4, g2=0x44)),
        ("gpu.thermal", "gpu", "drain", {"gpu": 2}),
    ),
    "heat holds all GPUs of a machine": (
        load(gpus(CLOCK, 1100), gpus(TEMP, 88), gpus(MASK, 0x40)),
        ("gpu.thermal", "node", "drain", {"node": "n1"}),
    ),
    "the power supply holds all GPUs": (
        load(gpus(CLOCK, 900), gpus(TEMP, 60), gpus(MASK, 0x80)),
        ("gpu.thermal", "node", "page", {"node": "n1"}),
    ),
    "a slow GPU without a reason": (
        load(gpus(CLOCK, 1700, g2=1000), gpus(TEMP, 62), gpus(MASK, 4)),
        ("gpu.slow", "gpu", "drain", {"gpu": 2}),
    ),
    "an idle GPU": (always(lambda _: gpus(CLOCK, 1700, g2=300) + gpus(UTIL, 99, g2=0)), None),
    "full load": (load(gpus(CLOCK, 1700, g1=1690, g5=1710), gpus(TEMP, 62, g7=70), gpus(MASK, 4)), None),
    "a GPU that was never there": (always(lambda _: gpus(TEMP, 50, g3=None)), ("gpu.missing", "gpu", "drain", {"gpu": 3, "node": "n1"})),
    "an exporter that does not answer": (
        page((0, [*gpus(TEMP, 50), 'up{job="dcgm",instance="n1:9400"} 1']), (30, ['up{job="dcgm",instance="n1:9400"} 0'])),
        None,
    ),
    "an NVLink that trains again and again": (
        page((0, gpus("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL")), (60, gpus("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", g3=12))),
        ("gpu.nvlink", "link", "page", {"gpu": 3}),
    ),
    "PCIe repeats": (
        page((0, gpus("DCGM_FI_DEV_PCIE_REPLAY_COUNTER")), (60, gpus("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 1, g3=9000))),
        ("gpu.other", "gpu", "page", {"gpu": 3}),
    ),
    "a port goes down": (
        always(lambda t: port("n1", "mlx5_0", state_id=1 if t else 4) + port("n1", "mlx5_1", state_id=4)),
        ("nic.down", "nic", "restart", {"node": "n1", "nic": "mlx5_0"}),
    ),
    "a blip": (always(lambda t: port("n1", "mlx5_0", state_id=4, link_downed_total=1 if t else 0)), None),
    "flapping": (
        always(lambda t: port("n1", "mlx5_0", state_id=4, link_downed_total=t / 10)),
        ("link.flapping", "link", "page", {"nic": "mlx5_0"}),
    ),
    "half the rate": (
        always(lambda _: [row for n in range(3) for row in port(f"n{n}", "mlx5_0", rate_bytes_per_second=2.5e10 if n == 1 else 5e10)]),
        ("nic.degraded", "nic", "page", {"node": "n1"}),
    ),
    "a port that nobody uses": (always(lambda _: port("n1", "mlx5_9", state_id=1) + port("n1", "mlx5_0", state_id=4)), None),
    "errors of the past": (always(lambda _: port("n1", "mlx5_0", symbol_error_total=99_999, link_downed_total=9)), None),
    "errors that came from elsewhere": (
        always(lambda t: port("n1", "mlx5_0", port_receive_remote_physical_errors_total=t * 100, port_transmit_wait_total=t * 1e6)),
        None,
    ),
    "raw errors on every fast link": (
        always(lambda t: [row for n in range(5) for row in port(f"n{n}", "mlx5_0", symbol_error_total=t * (20 + n))]),
        None,
    ),
    "one bad cable": (
        always(lambda t: [row for n in range(5) for row in port(f"n{n}", "mlx5_0", symbol_error_total=t * 30 if n == 2 else 0)]),
        ("link.errors", "link", "page", {"node": "n2", "nic": "mlx5_0"}),
    ),
    "the brake is in the fabric": (
        always(
            lambda t: [f'node_ethtool_received_prio3_pause{{device="ens3",instance="n{n}:9100"}} {t * 5000}' for n in range(4)]
            + [f'node_ethtool_transmitted_prio3_pause{{device="ens3",instance="n{n}:9100"}} 0' for n in range(4)]
        ),
        ("nic.congestion", "switch", "page", {}),
    ),
    "congestion notices of an incast": (always(lambda t: port("n1", "mlx5_0", np_cnp_packets_sent_total=t * 500)), None),
    "a full disk among images that always are": (
        page(
            (
                0,
                [
                    host("node_filesystem_size_bytes", 1e12, 'mountpoint="/scratch",fstype="xfs",'),
                    host("node_filesystem_avail_bytes", 1e8, 'mountpoint="/scratch",fstype="xfs",'),
                    host("node_filesystem_size_bytes", 1e9, 'mountpoint="/snap",fstype="squashfs",'),
                    host("node_filesystem_avail_bytes", 0, 'mountpoint="/snap",fstype="squashfs",'),
                ],
            )
        ),
        ("storage.full", "storage", "page", {"mount": "/scratch"}),
    ),
    "a memory error": (
        page(
            (0, [host("node_edac_uncorrectable_errors_total", 0, 'controller="0",')]),
            (60, [host("node_edac_uncorrectable_errors_total", 1, 'controller="0",')]),
        ),
        ("node.memory", "node", "drain", {"node": "n1"}),
    ),
    "processes killed for memory": (
        page((0, [host("node_vmstat_oom_kill", 3)]), (60, [host("node_vmstat_oom_kill", 4)])),
        ("job.oom", "app", "page", {"node": "n1"}),
    ),
    "all wait for one": (
        page(*((t, gpus(UTIL, 99, g6=99 if t < 60 else 0) + gpus(WATTS, 650 if t < 60 else 130, g6=650 if t < 60 else 90)) for t in range(0, 600, 30))),
        ("job.hang", "gpu", "page", {"gpu": 6}),
    ),
    "a minute of evaluation": (
        page(*((t, gpus(UTIL, 99, g6=0 if t in (60, 90) else 99) + gpus(WATTS, 130 if t in (60, 90) else 650)) for t in range(0, 120, 30))),
        None,
    ),
    "an idle machine": (always(lambda _: gpus(UTIL, 0) + gpus(WATTS, 70)), None),
    "the agent's own page": (
        page(
            (0, ['outrider_gpu_xid_errors_total{node="n1",pci="0000:3b:00",xid="31"} 1']),
            (
                30,
                [
                    'outrider_gpu_xid_errors_total{node="n1",pci="0000:3b:00",xid="31"} 1',
                    'outrider_gpu_xid_errors_total{node="n1",pci="0000:3b:00",xid="119"} 1',
                ],
            ),
        ),
        ("gpu.gsp_hang", "gpu", "restart", {"pci": "0000:3b:00", "node": "n1"}),
    ),
}  # fmt: skip


@pytest.fixture
def ask(tmp_path: Path):
    return lambda text, site=SITE: judged(text, tmp_path, site)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_page_is_judged_as_a_careful_operator_would(ask, name: str) -> None:
    text, wanted = SCENARIOS[name]
    assert_told(ask(text), wanted)


def test_an_exporter_pod_with_a_new_name_loses_no_gpu(ask) -> None:
    rows = '{{gpu="1",UUID="GPU-1",Hostname="{pod}"}} 50'
    text = page(*((t, ["DCGM_FI_DEV_GPU_TEMP" + rows.format(pod=f"exporter-{t}")]) for t in (0, 30)))
    assert ask(text, {}) == []


def test_a_gpu_cut_into_instances_is_not_a_counter_that_jumps(ask) -> None:
    rows = [f'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{gpu="1",UUID="GPU-1",GPU_I_ID="{n}",Hostname="n1"}} {n}' for n in range(1, 8)]
    assert ask(page((0, rows), (30, rows), (60, rows))) == []


def test_one_broken_line_costs_one_line(ask) -> None:
    text = page((0, gpus("DCGM_FI_DEV_ROW_REMAP_FAILURE", g5=1))).replace('gpu="2"', 'gpu="2')
    assert [one.fault for one in ask(text)] == ["gpu.row_remap_failed"]


def test_a_page_without_a_sample_is_an_error_and_not_an_empty_answer(ask) -> None:
    with pytest.raises(InputError, match="no sample"):
        ask("this is\nno page at all {\n")
