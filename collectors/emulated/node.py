"""A whole emulated GPU node in a folder: GPUs, RDMA ports and modules, kernel log, dcgm-exporter. For tests, drills and benches.

The agent reads it like a real one: `settings()` goes into `[collectors]`, `environment()` into the agent's environment.
"""

import json
import time
from pathlib import Path

from collectors.emulated.cards import EmulatedCard
from collectors.emulated.dcgm import FakeExporter
from collectors.emulated.nvml import FakeGpus, build_library

#: Names of an InfiniBand port's counters (the kernel's sysfs-class-infiniband) and of mlx5's own.
COUNTERS = (
    "VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery", "local_link_integrity_errors",
    "multicast_rcv_packets", "multicast_xmit_packets", "port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors",
    "port_rcv_packets", "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors", "port_xmit_constraint_errors",
    "port_xmit_data", "port_xmit_discards", "port_xmit_packets", "port_xmit_wait", "symbol_error", "unicast_rcv_packets",
    "unicast_xmit_packets",
)  # fmt: skip
HW_COUNTERS = (
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "np_cnp_sent", "np_ecn_marked_roce_packets",
    "out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error", "req_remote_access_errors", "resp_cqe_error",
    "resp_remote_access_errors", "rnr_nak_retry_err", "roce_adp_retrans", "roce_slow_restart", "rp_cnp_handled",
    "rx_atomic_requests", "rx_read_requests", "rx_write_requests",
)  # fmt: skip


class EmulatedNode:
    """The node's parts, and words to break them.

    Args:
        folder: where its files are made.
        gpus, ports: how many; 8 and 8 as in the machines of today.
        exporter: whether a dcgm-exporter imitation runs.
        number: stands in the GPUs' uuids; nodes of one fleet need different ones.
    """

    def __init__(self, folder: Path, *, gpus: int = 8, ports: int = 8, exporter: bool = False, number: int = 0) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.library = build_library(folder)
        self.gpus = FakeGpus(folder / "gpus", gpus, number)
        self.sysfs, self.kmsg = folder / "sys", folder / "kmsg"
        self._records = 0
        self.kmsg.touch()
        #: Cards by RDMA device: their error correction and modules.
        self.cards: dict[str, EmulatedCard] = {}
        for port in range(ports):
            self._make_port(f"mlx5_{port}", f"ens{port}")
        self.memory_errors(corrected=0, uncorrected=0)
        self.exporter = FakeExporter(gpus, number) if exporter else None

    def settings(self) -> dict[str, str]:
        """Fields of `[collectors]`."""
        found = {"sysfs_root": str(self.sysfs), "kmsg_path": str(self.kmsg), "nvml_library": str(self.library), "journalctl": ""}
        return found | ({"dcgm_url": self.exporter.url} if self.exporter else {})

    def toml(self) -> str:
        """The lines of `[collectors]`, without its head."""
        return "".join(f"{name} = {json.dumps(value)}\n" for name, value in self.settings().items())

    def environment(self) -> dict[str, str]:
        """What the agent's environment needs."""
        return {"OUTRIDER_FAKE_NVML": str(self.gpus.path)}

    def kernel(self, text: str) -> None:
        """The kernel writes a line."""
        self._records += 1
        with open(self.kmsg, "a", encoding="utf-8") as file:
            file.write(f"3,{self._records},{time.monotonic_ns() // 1000},-;{text}\n")

    def xid(self, gpu: int, code: int) -> None:
        """The driver reports an XID: in the kernel log and as an event."""
        self.kernel(f"NVRM: Xid (PCI:0000:{0x1B + 0x10 * gpu:02x}:00): {code}, pid=4242, name=python, an emulated fault")
        self.gpus.xid(gpu, code)

    def link(self, nic: str, *, up: bool) -> None:
        """A port goes up or down."""
        self._write(self._port(nic) / "state", "4: ACTIVE" if up else "1: DOWN")
        self._write(self._port(nic) / "phys_state", "5: LinkUp" if up else "2: Polling")

    def count(self, nic: str, **values: int) -> None:
        """Sets counters of a port."""
        for name, value in values.items():
            folder = "counters" if name in COUNTERS else "hw_counters"
            self._write(self._port(nic) / folder / name, str(value))

    def flaps(self, nic: str, changes: int) -> None:
        """The carrier of the port's interface has changed so often."""
        (interface,) = (self.sysfs / "class/infiniband" / nic / "device/net").iterdir()
        folder = self.sysfs / "class/net" / interface.name
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder / "carrier_changes", str(changes))

    def memory_errors(self, *, corrected: int, uncorrected: int) -> None:
        """Sets the counts of the memory controller."""
        folder = self.sysfs / "devices/system/edac/mc/mc0"
        folder.mkdir(parents=True, exist_ok=True)
        self._write(folder / "ce_count", str(corrected))
        self._write(folder / "ue_count", str(uncorrected))

    def close(self) -> None:
        """Ends what serves."""
        if self.exporter is not None:
            self.exporter.close()

    def _port(self, nic: str) -> Path:
        return self.sysfs / "class/infiniband" / nic / "ports/1"

    def _make_port(self, nic: str, interface: str) -> None:
        (self.sysfs / "class/infiniband" / nic / "device/net" / interface).mkdir(parents=True, exist_ok=True)
        self.cards[nic] = EmulatedCard(self.sysfs, interface)
        for folder in ("counters", "hw_counters"):
            (self._port(nic) / folder).mkdir(parents=True, exist_ok=True)
        self._write(self._port(nic) / "rate", "400 Gb/sec (4X NDR)")
        self._write(self._port(nic) / "link_layer", "InfiniBand")
        self.link(nic, up=True)
        self.count(nic, **dict.fromkeys(COUNTERS + HW_COUNTERS, 0))

    @staticmethod
    def _write(path: Path, text: str) -> None:
        temporary = path.with_name(f".{path.name}")
        temporary.write_text(text + "\n")
        temporary.replace(path)
