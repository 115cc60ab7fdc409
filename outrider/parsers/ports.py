"""What the port, disk, memory and boot series of node_exporter and of Outrider's agent mean: one word for one measure.

A driver's statistics mean the same on both pages. `raw_lane` are errors before correction: normal on a fast link.
Sources: node_exporter's collectors `infiniband`, `ethtool`, `netdev`, `netclass`, `pcidevice`, `edac`, `filesystem`, `vmstat`,
`boottime`; Linux `Documentation/ABI/stable/sysfs-class-infiniband`; mlx5 ethtool counters; `outrider.agent_metrics`.
"""

import re
from typing import Final

#: Kernel's name of a port counter -> measure. Physical-layer errors of the port itself are told from what it only suffers.
_COUNTERS: Final[dict[str, str]] = {
    "symbol_error": "symbol",
    "link_error_recovery": "recovery",
    "local_link_integrity_errors": "integrity",
    "excessive_buffer_overrun_errors": "overrun",
    "port_rcv_errors": "receive_errors",
    "port_errors_received": "receive_errors",
    "port_rcv_remote_physical_errors": "remote_errors",
    "port_receive_remote_physical_errors": "remote_errors",
    "link_downed": "downed",
    "port_xmit_discards": "discards",
    "port_discards_transmitted": "discards",
    "port_xmit_wait": "wait",
    "port_transmit_wait": "wait",
    "port_xmit_data": "sent",
    "port_data_transmitted_bytes": "sent",
    "port_rcv_data": "received",
    "port_data_received_bytes": "received",
    "local_ack_timeout_err": "ack_timeouts",
    "packet_seq_err": "sequence_errors",
    "out_of_sequence": "sequence_errors",
    "np_cnp_packets_sent": "cnp_sent",
    "rp_cnp_handled": "cnp_handled",
    "carrier_changes": "carrier_changes",
}
_IB_GAUGES: Final[dict[str, str]] = {
    "node_infiniband_state_id": "state",
    "node_infiniband_physical_state_id": "physical_state",
    "node_infiniband_rate_bytes_per_second": "rate_bytes",
}
#: A driver's own statistics, as it names them (`rx_`, `tx_`) or as node_exporter does (`received_`, `transmitted_`).
_ETHTOOL: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"(?:transmitted|tx)_(?:(?:prio\d+_)?(?:global_)?pause|pause_ctrl_phy)$"), "pause_sent"),
    (re.compile(r"(?:received|rx)_(?:(?:prio\d+_)?(?:global_)?pause|pause_ctrl_phy)$"), "pause_received"),
    (re.compile(r"(?:received|rx)_discards_phy$"), "receive_discards"),
    (re.compile(r"(?:received|rx)_(?:symbol_err|pcs_symbol_err)_phy$"), "symbol"),
    (re.compile(r"(?:received|rx)_crc_errors_phy$"), "crc"),
    (re.compile(r"(?:received_|rx_)?(?:\w+_)?fec_uncorrect\w*_blocks?$"), "uncorrectable"),
    (re.compile(r"(?:received|rx)_err_lane_\d+_phy$"), "raw_lane"),
    (re.compile(r"(?:link_down_events|link_down_events_phy)$"), "downed"),
    (re.compile(r"(?:received|rx)_out_of_buffer$|out_of_buffer$"), "out_of_buffer"),
)
_NETWORK: Final[dict[str, str]] = {
    "node_network_carrier_down_changes_total": "downed",
    "node_network_carrier": "carrier",
    "node_network_receive_errs_total": "receive_errors",
    "node_network_speed_bytes": "rate_bytes",
    "outrider_port_up": "up",
    "outrider_port_rate_bytes_per_second": "rate_bytes",
    "outrider_port_carrier_changes_total": "carrier_changes",
    "outrider_module_flag": "flag",
}
_PCI: Final[dict[str, str]] = {
    "node_pcidevice_current_link_width": "pci_width",
    "node_pcidevice_max_link_width": "pci_width_max",
    "node_pcidevice_current_link_transfers_per_second": "pci_speed",
    "node_pcidevice_max_link_transfers_per_second": "pci_speed_max",
}
_HOST: Final[dict[str, str]] = {
    "node_edac_correctable_errors_total": "memory_corrected",
    "node_edac_uncorrectable_errors_total": "memory_uncorrected",
    "node_filesystem_avail_bytes": "disk_free",
    "node_filesystem_size_bytes": "disk_size",
    "node_filesystem_files_free": "inodes_free",
    "node_filesystem_files": "inodes",
    "node_filesystem_readonly": "disk_readonly",
    "node_vmstat_oom_kill": "oom_kills",
    "node_boot_time_seconds": "boot_time",
    "outrider_host_oom_kills_total": "oom_kills",
    "outrider_host_disk_free_ratio": "disk_free_ratio",
    "outrider_storage_probe_ok": "storage_ok",
    "outrider_gpus": "gpus",
    "outrider_gpus_expected": "gpus_expected",
    "up": "scrape_up",
}
#: Network interfaces that no training traffic takes.
_VIRTUAL: Final = re.compile(r"(?:lo|docker|veth|cali|cilium|flannel|cni|virbr|tunl|kube|br-|dummy|tap|ovs)")
#: File systems that are full, or read-only, by their nature.
_NO_DISK: Final = frozenset(
    {
        "tmpfs",
        "squashfs",
        "overlay",
        "ramfs",
        "devtmpfs",
        "iso9660",
        "proc",
        "sysfs",
        "fuse.lxcfs",
        "nsfs",
        "cgroup",
        "cgroup2",
        "efivarfs",
    }
)


def port_measure(name: str, labels: dict[str, str]) -> str | None:
    """The measure of a series about a network port (labels `device`, perhaps `port`), or None."""
    if measure := _IB_GAUGES.get(name):
        return measure
    if name.startswith("node_infiniband_"):
        return _COUNTERS.get(name.removeprefix("node_infiniband_").removesuffix("_total"))
    if name.startswith("node_ethtool_"):
        return _statistic(name.removeprefix("node_ethtool_").removesuffix("_total"))
    if name == "outrider_port_events_total":
        counter = labels.get("counter", "")
        return _COUNTERS.get(counter) or _statistic(counter)
    if name == "outrider_port_fec_events_total":
        return "uncorrectable_lane" if labels.get("kind") == "uncorrectable_blocks" else None
    if name in _NETWORK:
        device = labels.get("device") or labels.get("nic") or ""
        return None if _VIRTUAL.match(device) else _NETWORK[name]
    return None


def port_part(name: str, labels: dict[str, str]) -> str:
    """What tells series of one port's measure apart: a module's flag, else the source (name, counter), with the lane last."""
    return labels.get("flag") or name + labels.get("counter", "") + labels.get("lane", "")


def _statistic(name: str) -> str | None:
    return next((measure for pattern, measure in _ETHTOOL if pattern.match(name)), None)


def pci_measure(name: str) -> str | None:
    """The measure of a series about a PCIe device (labels `segment`, `bus`, `device`, `function`), or None."""
    return _PCI.get(name)


def pci_address(labels: dict[str, str]) -> str:
    """`dddd:bb:dd.f` from node_exporter's four labels."""
    return f"{labels.get('segment', '0000')}:{labels.get('bus', '00')}:{labels.get('device', '00')}.{labels.get('function', '0')}"


def host_measure(name: str, labels: dict[str, str]) -> tuple[str, str] | None:
    """(measure, part) of a series about the machine itself; `part` is a memory controller, a mount, a scraped job."""
    measure = _HOST.get(name)
    if measure is None:
        if name == "outrider_host_edac_errors_total":
            return f"memory_{labels.get('kind', '')}", labels.get("controller", "")
        return None
    if measure.startswith(("disk", "inodes")) and labels.get("fstype") in _NO_DISK:
        return None
    if measure == "scrape_up":
        return measure, f"{labels.get('job', '')} {labels.get('instance', '')}".strip()
    return measure, labels.get("mountpoint") or labels.get("mount") or labels.get("controller") or ""
