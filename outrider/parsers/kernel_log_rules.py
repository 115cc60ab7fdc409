"""The table of kernel lines that are not NVIDIA's: a literal, looked for first, and the reader of the lines that hold it.

A plain search costs a twentieth of a pattern, and most lines hold no literal at all.
"""

from typing import Final

from outrider.parsers import kernel_log_devices as devices
from outrider.parsers import kernel_log_host as host
from outrider.parsers import kernel_log_storage as storage
from outrider.parsers.kernel_log_signal import Reader, kernel_signal


def _event(event: str) -> Reader:
    """A line whose literal says all."""
    return lambda text: kernel_signal(event, text)


#: Literal -> reader. The first literal that a message holds and whose reader answers wins.
RULES: Final[tuple[tuple[str, Reader], ...]] = (
    ("mlx5_", devices.read_nic),
    ("available PCIe bandwidth", devices.read_bandwidth),
    ("ink is ", devices.read_netdev_link),
    ("): link status ", devices.read_netdev_link),
    ("NETDEV WATCHDOG", devices.read_tx_watchdog),
    ("EDAC MC", host.read_edac),
    ("[Hardware Error]", host.read_hardware_error),
    ("Machine Check Exception", host.read_hardware_error),
    ("Uncorrected hardware memory", host.read_hardware_error),
    ("Memory failure: ", host.read_memory_failure),
    ("of memory: Kill", host.read_oom),
    ("oom-kill:constraint", host.read_oom),
    (" blocked for more than ", host.read_hung_task),
    ("soft lockup - CPU#", host.read_lockup),
    ("hard LOCKUP", _event("hard_lockup")),
    ("Kernel panic - not syncing", _event("panic")),
    ("BUG: unable to handle", _event("oops")),
    ("BUG: kernel NULL pointer", _event("oops")),
    ("Oops: ", _event("oops")),
    ("general protection fault", host.read_trap),
    ("segfault at ", host.read_segfault),
    (" stall", host.read_stall),
    ("critical temperature reached", _event("thermal_shutdown")),
    ("Linux version ", _event("boot")),
    ("reboot: ", _event("shutdown")),
    ("systemd-shutdown", _event("shutdown")),
    ("nvme ", storage.read_nvme),
    ("I/O error", storage.read_disk_error),
    ("critical medium error", storage.read_disk_error),
    ("EXT4-fs error", storage.read_file_system),
    ("Remounting filesystem read-only", storage.read_file_system),
    ("XFS (", storage.read_file_system),
    ("nfs: server ", storage.read_nfs),
    ("Lustre", storage.read_lustre),
    ("ceph: ", storage.read_ceph),
    ("AER: ", devices.read_aer),
    ("PCIe Bus Error: ", devices.read_aer),
    (": DPC: containment", devices.read_dpc),
    ("pciehp: Slot", devices.read_dpc),
    ("+0x", host.read_frame),
)
