"""What kernel logs say: each scenario is one small log and the incidents that a careful operator would open for it.

The lines keep the shapes that drivers print (open-gpu-kernel-modules, Linux); hosts, addresses and times are invented.
"""
# ruff: noqa: E501 (raw lines keep their length)

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from detectors.inspect.context import make_context
from detectors.inspect.findings import Finding, strongest_first
from detectors.inspect.kmsg import judge
from detectors.inspect.sources import Source

SITE: dict[str, Any] = {
    "node": "n1",
    "expected": {"gpus": 8},
    "inventory": [
        {"node": "n1", "nic": "mlx5_2", "netdev": "ens3f0np0", "pci": "0000:5d:00.0"},
        {"node": "n1", "index": 3, "pci": "0000:3b:00", "uuid": "GPU-3b"},
        {"node": "n1", "pci": "0000:0b:00.0", "role": "nvlink_management"},
    ],
    "processes": {"27714": "node_exporter"},
}


@pytest.fixture
def ask(tmp_path: Path):
    def ask(text: str, site: dict[str, Any] | None = None) -> list[Finding]:
        path = tmp_path / "kernel.log"
        path.write_text(text)
        return strongest_first(judge([Source(path)], make_context(SITE if site is None else site)))

    return ask


def xid(t: float, pci: str, code: int, rest: str = "", process: str = "pid='<unknown>', name=<unknown>, ") -> str:
    return f"[{t:.6f}] NVRM: Xid (PCI:0000:{pci}:00): {code}, {process}{rest}\n"


def verdict(t: float, pci: str, to: str) -> str:
    return xid(t, pci, 154, f"GPU recovery action changed from 0x0 (None) to {to}", "")


def fault_31(t: float, pci: str, pid: int, name: str, unit: str) -> str:
    rest = f"Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS {unit} faulted @ 0x7ea3_51c82000"
    return xid(t, pci, 31, rest, f"pid={pid}, name={name}, ")


BOOT = "".join(f"[{900 + n}.0] a line\n" for n in range(10)) + "[    0.000000] Linux version 6.1.0 (build)\n"

#: name -> (log, fault, culprit, response, repair) of the strongest finding, or None where nothing above `watch` may be said.
SCENARIOS: dict[str, tuple[str, tuple[str, str, str, str] | None]] = {
    "lost GPU with its echoes": (
        xid(100.1, "3b", 79, "GPU has fallen off the bus.")
        + "[100.2] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.\n"
        + "[100.2] NVRM: GPU 0000:3b:00.0: GPU serial number is 165.\n"
        + verdict(100.3, "3b", "0x2 (Node Reboot Required)")
        + xid(101, "5c", 45, "Ch 00000001", "pid=7, name=python, ")
        + fault_31(101.2, "5c", 7, "python", "GPCCLIENT_T1_1")
        + xid(130, "3b", 119, "Timeout after 6s of waiting for RPC response from GPU1 GSP! Expected function 76")
        + "[131.0] pcieport 0000:3a:00.0: AER: Uncorrectable (Fatal) error message received from 0000:3b:00.0\n",
        ("gpu.fallen_off_bus", "gpu", "restart", "reboot_node"),
    ),
    "a time-out that was the first sign of a lost GPU": (
        xid(1, "b9", 119, "Timeout after 6s of waiting for RPC response") + xid(30, "b9", 79, "GPU has fallen off the bus."),
        ("gpu.fallen_off_bus", "gpu", "restart", "reboot_node"),
    ),
    "several GPUs lost at once share a cause": (
        "".join(xid(100 + n / 10, pci, 79, "GPU has fallen off the bus.") for n, pci in enumerate(("19", "3b", "4c", "5d"))),
        ("gpu.fallen_off_bus", "node", "restart", "reboot_node"),
    ),
    "uncontained error": (
        xid(1, "b9", 95, "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No")
        + xid(1, "b9", 94, "Contained: SM (0x1). RST: No, D-RST: No")
        + verdict(1.1, "b9", "0x1 (GPU Reset Required)"),
        ("gpu.ecc_uncontained", "gpu", "restart", "reset_gpu"),
    ),
    "contained error alone": (
        xid(1, "b9", 94, "Contained: SM (0x1). RST: No, D-RST: No", "pid=3, name=p, ") + xid(1, "b9", 43, "Ch 1", "pid=3, name=p, "),
        ("gpu.ecc_contained", "gpu", "restart", "investigate"),
    ),
    "a remap that only waits": (xid(1, "b9", 63, "Row Remapper: New row (0x1) marked for remapping, reset gpu to activate."), None),
    "a remap that the driver wants now": (
        xid(1, "b9", 63, "Row Remapper: New row (0x1) marked for remapping, reset gpu to activate.")
        + verdict(1.1, "b9", "0x4 (Drain and Reset)"),
        ("gpu.row_remap_pending", "gpu", "drain", "reset_gpu"),
    ),
    "no spare rows": (
        xid(1, "b9", 64, "Row Remapper Error: (0x1) - All reserved rows for bank are remapped"),
        ("gpu.row_remap_failed", "gpu", "drain", "replace_part"),
    ),
    "a remap told as failed that is only pending": (
        xid(1, "b9", 64, "Row Remapper Error: (0x1) - Attempting to remap a row that is already pending"),
        ("gpu.row_remap_pending", "gpu", "drain", "reset_gpu"),
    ),
    "memory system stuck instead of a time-out": (
        xid(1, "b9", 175, "GPU memory subsystem timeout (type 1) detected", ""),
        ("gpu.driver_hang", "gpu", "restart", "reset_gpu"),
    ),
    "recovered by the driver's own word": (
        xid(1, "b9", 119, "Timeout after 6s of waiting for RPC response from GPU4 GSP!")
        + verdict(1.1, "b9", "0x1 (GPU Reset Required)")
        + "[300.0] NVRM: Xid (PCI:0000:b9:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)\n",
        None,
    ),
    "registers of an NVLink error that mean nothing": (
        xid(1, "5c", 74, "NVLink: fatal error detected on link 11(0x800000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
        None,
    ),
    "an NVLink error that only follows another": (
        xid(1, "5c", 74, "NVLink: fatal error detected on link 11(0x2, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
        ("gpu.nvlink", "link", "page", "check_link"),
    ),
    "parity on an NVLink": (
        xid(1, "5c", 74, "NVLink: fatal error detected on link 11(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
        ("gpu.nvlink", "link", "restart", "reset_gpu"),
    ),
    "fatal NVLink 5 error": (
        xid(1, "b9", 149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x00255546 0x00000000 0x0 0x0 0x0 0x0)", "pid=12, name=python, ")
        + xid(1.3, "b9", 45, "Ch 1 caused by previous Xid 149", "pid=12, name=python, "),
        ("gpu.nvlink", "link", "restart", "check_link"),
    ),
    "link taken down while active": (
        xid(1, "b9", 155, "NETIR_LINK_DOWN Fatal XC0 i0 Link 09 : Link Down While Active.", ""),
        ("gpu.nvlink", "link", "restart", "reset_gpu"),
    ),
    "nonfatal, and then the driver wants a reset": (
        xid(1, "b9", 145, "RLW_SRC_TRACK Nonfatal XC1 i0 Link 17 (0x04084507 0x00000004 0x0 0x0 0x0 0x0)", "")
        + verdict(1.1, "b9", "0x1 (GPU Reset Required)"),
        ("gpu.nvlink", "link", "drain", "reset_gpu"),
    ),
    "injected errors": (
        xid(1, "b9", 149, "NETIR_LINK_EVT  Fatal   XC0 i1 Link 09 (0x025525c6 0x00000000 0x0 0x0 0x0 0x0)", "")
        + verdict(1.1, "b9", "0x1 (GPU Reset Required)")
        + xid(1.2, "b9", 14, "Ch 0", "pid=3, name=inject, "),
        None,
    ),
    "teardown names a cause that is not in the log": (
        xid(1, "b9", 45, "Ch 1 caused by previous Xid 79", "pid=1, name=p, ")
        + xid(1, "ba", 45, "Ch 1 caused by previous Xid 79", "pid=2, name=p, "),
        ("gpu.fallen_off_bus", "gpu", "restart", "reboot_node"),
    ),
    "teardown of a program's own error": (xid(1, "b9", 45, "Ch 1 caused by previous Xid 31", "pid=1, name=p, "), None),
    "teardown alone": (xid(1, "b9", 45, "Ch 1", "pid=1, name=p, "), None),
    "one program on three GPUs, twice": (
        "".join(fault_31(t, pci, n, "python3", f"GPCCLIENT_T1_{n}") for t in (100, 9000) for n, pci in enumerate(("19", "3b", "4c"))),
        None,
    ),
    "one rank of one program, three starts within minutes": (
        "".join(fault_31(t, "d3", t, "python3", f"GPC{n} GPCCLIENT_T1_{n}") for n, t in enumerate((100, 400, 700))),
        None,
    ),
    "four programs on one GPU and unit": (
        "".join(fault_31(t * 30_000, "d3", t, f"job_{t}", "GPCCLIENT_T1_7") for t in range(1, 5)),
        ("gpu.other", "gpu", "drain", "investigate"),
    ),
    "one interpreter, one unit of the die": (
        "".join(
            xid(t, "d3", 13, "Graphics SM Warp Exception on (GPC 2, TPC 1, SM 0): Out Of Range Address", f"pid={t}, name=python3, ")
            for t in (100, 9000, 20_000)
        ),
        ("gpu.other", "gpu", "drain", "investigate"),
    ),
    "four programs, but every GPU has such errors": (
        "".join(fault_31(t * 30_000, f"{pci:02x}", t, f"job_{t}", f"GPCCLIENT_T1_{pci}") for t in range(1, 5) for pci in range(16, 24)),
        None,
    ),
    "an unknown code is not fatal by its number": (xid(1, "b9", 190, "Something new and Fatal", "pid=1, name=x, "), None),
    "switch error: three rows, one event, and the GPU behind it": (
        "[1.0] nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 46 LTSSM Fault Up (First)\n"
        "[1.0] nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Severity 1 Engine instance 46 Sub-engine instance 00\n"
        "[1.0] nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Data {0x00000000, 0x00000000}\n"
        + xid(1.1, "5c", 74, "NVLink: fatal error detected on link 11(0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"),
        ("gpu.nvlink", "link", "restart", "reset_gpu"),
    ),
    "switch notices": (
        "".join(
            f"[{n}.0] nvidia-nvswitch0: SXid (PCI:0000:c5:00.0): 12028, Non-fatal, Link {n} egress PRIV error (First)\n"
            for n in range(60)
        ),
        None,
    ),
    "driver could not start a GPU": (
        "[99.3] NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0xffff:1482)\n" * 2,
        ("gpu.missing", "gpu", "drain", "reboot_node"),
    ),
    "calls into the driver do not return": (
        "[9120.1] INFO: task python3:4411 blocked for more than 120 seconds.\n[9120.1] Call Trace:\n"
        "[9120.1]  os_acquire_rwlock_read+0x35/0x40 [nvidia]\n[9120.1]  _nv042330rm+0x10/0x40 [nvidia]\n"
        "[9241.1] INFO: task python3:4411 blocked for more than 241 seconds.\n",
        ("gpu.driver_hang", "node", "restart", "reboot_node"),
    ),
    "tasks wait for a silent file server": (
        "[9000.1] nfs: server fs01 not responding, still trying\n"
        "[9120.1] INFO: task python3:4411 blocked for more than 120 seconds.\n"
        "[9120.1]  rpc_wait_bit_killable+0x1e/0x60 [sunrpc]\n",
        ("storage.hang", "storage", "page", "fix_storage"),
    ),
    "a file server that came back": (
        "[9000.1] nfs: server fs01 not responding, still trying\n[9020.1] nfs: server fs01 OK\n",
        None,
    ),
    "a disk that is gone": (
        "[9120.1] nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff\n"
        "[9120.2] nvme nvme0: Removing after probe failure status: -19\n"
        "[9120.3] blk_update_request: I/O error, dev nvme0n1, sector 123\n"
        "[9120.3] EXT4-fs (nvme0n1p2): Remounting filesystem read-only\n",
        ("storage.errors", "storage", "drain", "replace_part"),
    ),
    "one late answer of a disk": ("[9120.1] nvme nvme0: I/O 123 QID 4 timeout, aborting\n", None),
    "link down and down": (
        "[9000.1] mlx5_core 0000:5d:00.0 ens3f0np0: Link up\n[9100.1] mlx5_core 0000:5d:00.0 ens3f0np0: Link down\n",
        ("nic.down", "nic", "restart", "check_link"),
    ),
    "one blip": (
        "[9100.1] mlx5_core 0000:5d:00.0 mlx5_2: Port: 1 Link DOWN\n[9104.1] mlx5_core 0000:5d:00.0 mlx5_2: Port: 1 Link ACTIVE\n",
        None,
    ),
    "flapping": (
        "".join(f"[{9000 + n * 60}.1] mlx5_core 0000:5d:00.0 ens3f0np0: Link {('down', 'up')[n % 2]}\n" for n in range(8)),
        ("link.flapping", "link", "page", "check_link"),
    ),
    "links come up at boot": (
        "[0.0] Linux version 6.1\n[20.1] mlx5_core 0000:5d:00.0 ens3f0np0: Link down\n"
        "[22.1] mlx5_core 0000:5e:00.0 ens4f0np0: Link down\n[25.1] mlx5_core 0000:5d:00.0 ens3f0np0: Link up\n",
        None,
    ),
    "a network device whose firmware failed": (
        "[9000.1] mlx5_core 0000:5d:00.0: poll_health:835:(pid 0): device's health compromised - reached miss count\n"
        "[9001.0] mlx5_core 0000:5d:00.0 ens3f0np0: Link down\n",
        ("nic.down", "nic", "restart", "reboot_node"),
    ),
    "a hot optical module": (
        "[9000.1] mlx5_core 0000:5d:00.0: Port module event[error]: module 0, Cable error, High Temperature\n",
        ("nic.degraded", "nic", "page", "check_link"),
    ),
    "half the lanes": (
        "[9.1] mlx5_core 0000:5d:00.0: 63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at 0000:5c:01.0 "
        "(capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)\n",
        ("nic.degraded", "nic", "page", "check_link"),
    ),
    "the scraper asks for what the device does not have": (
        "".join(
            f"[{40310 + n * 15}.2] mlx5_core 0000:0b:00.0: mlx5_cmd_out_err:835:(pid 27714): ACCESS_REG(0x805) op_mod(0x1) failed, "
            "status bad operation(0x2), syndrome (0x9a6171), err(-22)\n"
            for n in range(50)
        ),
        None,
    ),
    "corrected memory errors by the hundred": (
        "".join(
            f"[{9000 + n}.1] EDAC MC0: 50 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0 slot:0)\n" for n in range(10)
        ),
        ("node.memory", "node", "page", "replace_part"),
    ),
    "two corrected memory errors": (
        "[9000.1] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0 (channel:0)\n"
        "[9000.1] mce: [Hardware Error]: Machine check events logged\n",
        None,
    ),
    "a memory error that killed a process": (
        "[9000.2] mce: Uncorrected hardware memory error in user-access at 3f12345000\n"
        "[9000.2] Memory failure: 0x3f12345: Killing python3:4411 due to hardware memory corruption\n",
        ("node.memory", "node", "restart", "replace_part"),
    ),
    "out of memory": (
        "[9000.1] python3 invoked oom-killer: gfp_mask=0x140dca, order=0, oom_score_adj=0\n"
        "[9000.3] Memory cgroup out of memory: Killed process 4411 (python3) total-vm:1234kB, anon-rss:123kB\n",
        ("job.oom", "app", "page", "fix_app"),
    ),
    "a CPU stuck again and again": (
        "".join(f"[{9120 + n * 24}.1] watchdog: BUG: soft lockup - CPU#12 stuck for {22 + n * 24}s! [python3:4411]\n" for n in range(4)),
        ("node.hung", "node", "restart", "reboot_node"),
    ),
    "panic": (
        "[9120.1] Oops: 0000 [#1] SMP\n[9120.2]  foo+0x1/0x2 [bar]\n[9121.1] Kernel panic - not syncing: Fatal exception\n",
        ("node.panic", "node", "restart", "investigate"),
    ),
    "panic by memory": (
        "[9120.1] mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00\n"
        "[9120.1] Kernel panic - not syncing: Fatal machine check\n",
        ("node.memory", "node", "restart", "replace_part"),
    ),
    "a program that crashed": ("[9120.1] python3[4411]: segfault at 0 ip 00007f error 4 in libtorch.so[7f+1]\n", None),
    "an error that a boot has cured": (
        xid(10, "b9", 48, "An uncorrectable double bit error (DBE) has been detected on GPU") + "[20.0] reboot: Restarting system\n" + BOOT,
        None,
    ),
    "a lost GPU that a boot did not bring back": (
        xid(10, "b9", 79, "GPU has fallen off the bus.") + "[20.0] reboot: Restarting system\n" + BOOT,
        ("gpu.fallen_off_bus", "gpu", "restart", "reboot_node"),
    ),
    "power smoothing off and on again": (xid(1, "b9", 163, "PSHC disengaged", "") + xid(2, "b9", 162, "PSHC engaged", ""), None),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kernel_log_is_judged_as_a_careful_operator_would(ask, name: str) -> None:
    text, wanted = SCENARIOS[name]
    found = [one for one in ask(text) if one.response not in ("ignore", "watch")]
    if wanted is None:
        assert not found, found
    else:
        assert len(found) == 1, [one.explanation for one in found]
        assert (found[0].fault, found[0].culprit, found[0].response, found[0].repair) == wanted
        assert found[0].subject["node"] == "n1"


def test_where_no_job_runs_a_lost_gpu_is_drained_and_not_restarted(ask) -> None:
    found = ask(xid(1, "3b", 79, "GPU has fallen off the bus."), {**SITE, "job": None})
    assert [one.response for one in found] == ["drain"]


def test_a_gpu_is_named_by_all_the_identities_that_the_site_knows(ask) -> None:
    found = ask(xid(1, "3b", 79, "GPU has fallen off the bus."), {**SITE, "job": "j1", "ranks": {"5": ["n1", 3]}})
    assert found[0].subject == {"node": "n1", "gpu": 3, "pci": "0000:3b:00", "uuid": "GPU-3b", "rank": 5, "job": "j1"}


def test_two_faults_of_two_gpus_hours_apart_are_two_incidents(ask) -> None:
    text = xid(1, "b9", 48, "An uncorrectable double bit error (DBE)") + xid(9000, "3b", 79, "GPU has fallen off the bus.")
    assert [one.fault for one in ask(text)] == ["gpu.ecc_uncontained", "gpu.fallen_off_bus"]


def test_the_cause_is_marked_among_what_followed(ask) -> None:
    text = (
        xid(1, "5c", 74, "NVLink: fatal error detected on link 11(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")
        + xid(1, "a8", 74, "NVLink: fatal error detected on link 3(0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)")
        + xid(1.1, "84", 45, "Ch 3", "pid=1, name=p, ")
    )
    (one,) = ask(text)
    assert one.subject["pci"] == "0000:5c:00"
    assert [(mark.xid, mark.pci) for mark in one.xids if mark.root] == [(74, "0000:5c:00")]


def test_machines_in_one_pile_are_told_apart(ask) -> None:
    text = "gn-1: " + xid(1, "3b", 79, "GPU has fallen off the bus.") + "gn-2: " + xid(1, "3b", 119, "Timeout")
    assert [(one.fault, one.subject["node"]) for one in ask(text, {})] == [("gpu.fallen_off_bus", "gn-1"), ("gpu.gsp_hang", "gn-2")]


def test_all_links_down_at_one_leaf_are_the_leafs(ask) -> None:
    site = {
        "node": "n1",
        "inventory": [{"node": "n1", "nic": f"mlx5_{n}", "pci": f"0000:{n}d:00.0"} for n in range(4)],
        "topology": {"nics": {"n1": {f"mlx5_{n}": "leaf-7" for n in range(4)}}},
    }
    text = "".join(f"[9000.{n}] mlx5_core 0000:{n}d:00.0 mlx5_{n}: Port: 1 Link DOWN\n" for n in range(4))
    (one,) = ask(text, site)
    assert (one.fault, one.culprit, one.subject["switch"], one.response) == ("switch.down", "switch", "leaf-7", "page")


PRETENDERS = """Mar 12 07:10:02 n1 train.sh[4411]: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, GPU has fallen off the bus.
[   12.1] python3[4411]: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
12,1227,437812449932,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
user  :info  : [   12.3] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
{"_TRANSPORT":"stdout","SYSLOG_IDENTIFIER":"kernel","MESSAGE":"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."}
[rank3] 2026-01-01 NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
<12>[   12.4] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
2026-03-12T07:10:02.1Z stdout F NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
2026-03-12T07:10:02.123456+00:00 n1 app[77]: nvidia-nvswitch3: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 46 LTSSM Fault Up
NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
  NVRM: fallen off the bus and is not responding to commands.
"""


def test_a_process_that_prints_the_text_of_an_xid_is_not_the_kernel(ask) -> None:
    assert ask("[    1.0] an ordinary line\n" + PRETENDERS) == []


ORDINARY = """[    0.000000] Linux version 6.1.0-18 (debian)
[    1.1] mce: CPU0: Thermal monitoring enabled
[    2.1] EDAC MC0: Giving out device to module skx_edac
[    2.2] pcieport 0000:00:01.0: AER: enabled with IRQ 30
[    3.4] nvme nvme0: 32/0/0 default/read/poll queues
[    5.5] mlx5_core 0000:5d:00.0: firmware version: 28.39.3004
[    5.5] mlx5_core 0000:5d:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)
[    6.1] nvidia: loading out-of-tree module taints kernel.
[    6.2] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15
[    6.3] nvidia-nvswitch0: using MSI
[    6.4] EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode
[    6.4] XFS (dm-0): Ending clean mount
[    7.1] perf: interrupt took too long (2511 > 2500), lowering kernel.perf_event_max_sample_rate
[    7.2] nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing
[    8.2] Lustre: Mounted scratch-client
[    8.3] libceph: mon0 (1)10.0.0.1:6789 session established
[    8.4] IPv6: ADDRCONF(NETDEV_CHANGE): ib0: link becomes ready
[    9.1] NVRM: GPU at PCI:0000:19:00: GPU-5f0c2a11-77d1-4e0c-9a55-c0de00000019
[    9.2] NVRM: GPU Board Serial Number: 165
[   99.2] eth0: NIC Link is Up 1000 Mbps Full Duplex
[   99.3] mce: [Hardware Error]: Machine check events logged
[  100.3] pcieport 0000:5c:00.0: AER: Corrected error received: 0000:5d:00.0
[  101.1] NVRM: Xid (PCI:0000:b9:00): 14, pid=3, name=inject, Ch 0
"""


def test_an_ordinary_log_says_nothing_above_ignore(ask) -> None:
    assert [one for one in ask(ORDINARY) if one.response != "ignore"] == []


def test_a_flood_is_one_incident_in_bounded_memory(ask) -> None:
    text = "".join(xid(n / 100, "a3", 119, "Timeout waiting for RPC from GSP!", f"pid={n}, name=reader, ") for n in range(5000))
    (one,) = ask(text)
    assert one.fault == "gpu.gsp_hang" and len(one.evidence) <= 20 and "5000 such lines" in one.explanation


def test_the_site_may_say_otherwise_of_a_code(tmp_path: Path) -> None:
    from dataclasses import replace

    from outrider.config.catalogue import CatalogueSection, CodeOverride

    path = tmp_path / "kernel.log"
    path.write_text(xid(1, "b9", 63, "Row Remapper: New row (0x1) marked for remapping, reset gpu to activate."))
    section = CatalogueSection(xid={"63": CodeOverride(response="drain", repair="replace_part", why="the provider's advice")})
    (one,) = judge([Source(path)], replace(make_context(SITE), overrides=section))
    assert (one.response, one.repair) == ("drain", "replace_part")


def test_a_lost_gpu_keeps_the_name_that_the_driver_greeted_it_with(ask) -> None:
    text = "[9.1] NVRM: GPU at PCI:0000:b9:00: GPU-5f0c2a11-77d1-4e0c-9a55-c0de00000019\n" + xid(
        99, "b9", 79, "GPU has fallen off the bus."
    )
    assert ask(text)[0].subject["uuid"] == "GPU-5f0c2a11-77d1-4e0c-9a55-c0de00000019"


def test_a_lost_gpu_without_an_address_has_that_of_the_failed_probe(ask) -> None:
    text = (
        "[21.7] NVRM: fallen off the bus and is not responding to commands.\n"
        "[21.8] nvidia: probe of 0000:b7:00.0 failed with error -1\n"
    )
    (one,) = ask(text)
    assert (one.fault, one.subject["pci"]) == ("gpu.fallen_off_bus", "0000:b7:00")


def test_many_remapped_rows_are_more_than_one(ask) -> None:
    rows = [
        xid(n, "b9", 63, f"Row Remapper: New row (0x{n:016x}) marked for remapping, reset gpu to activate.") for n in range(1, 5)
    ]
    assert ask(rows[0])[0].response == "watch" and ask("".join(rows))[0].response == "drain"


def _as_kmsg(t: float, message: str) -> str:
    return f"3,{int(t)},{int(t * 1e6)},-;{message}"


def _as_journal(t: float, message: str) -> str:
    return json.dumps(
        {"_TRANSPORT": "kernel", "MESSAGE": message, "__REALTIME_TIMESTAMP": str(1_773_000_000_000_000 + int(t * 1e6))}
    )


def _as_iso(t: float, message: str) -> str:
    return f"{datetime.fromtimestamp(1_773_000_000 + t, UTC).isoformat(timespec='microseconds')} n1 kernel: {message}"


def _as_tagged(t: float, message: str) -> str:
    return f"[{t:12.6f}] [ T2210] {message}"


@pytest.mark.parametrize("form", [_as_kmsg, _as_journal, _as_iso, _as_tagged], ids=lambda form: form.__name__)
@pytest.mark.parametrize("name", [name for name in SCENARIOS if "boot" not in name])
def test_the_answer_does_not_depend_on_the_prefix(ask, name: str, form) -> None:
    text = SCENARIOS[name][0]
    told = re.sub(r"^\[ *(\d+(?:\.\d+)?)\] (.*)$", lambda line: form(float(line[1]), line[2]), text, flags=re.MULTILINE)
    shown = [[(one.fault, one.response, one.repair, one.subject.get("pci")) for one in ask(each)] for each in (text, told)]
    assert shown[0] == shown[1]
