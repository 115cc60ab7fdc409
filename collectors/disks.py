"""Local disks: how full their file systems are, and what NVMe devices say of their own health.

In a child that may hang, for both questions can on a dying disk. Witnesses: `storage.full`. Cost: one call a mount, one command a
device, each minute. Rights: root for NVMe health. Source of the meaning: statvfs(3); NVM Express base specification, log page 02h
(SMART / health information), read by the ioctl of linux/nvme_ioctl.h.
"""

import ctypes
import fcntl
import os
import re
import struct
from pathlib import Path
from typing import ClassVar

from collectors.frame.changes import Changes
from collectors.frame.files import list_folder, read_text
from collectors.frame.types import Collector, Note, NotSupported, Outcome, Place, Readings, Sample
from outrider.signals import Signal

#: File systems of local disks; network ones are the storage collector's, memory ones are nobody's.
_LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs"})
#: Free share below which a file system counts as full, and above which it is well again.
FULL_RATIO, WELL_RATIO = 0.01, 0.03
MOUNTS_MAX = 64
_NVME = re.compile(r"nvme\d+$")
#: struct nvme_admin_cmd, 72 bytes, and the ioctl that sends it.
_COMMAND = struct.Struct("<BBHIIIQQIIIIIIIIII")
_IOCTL_ADMIN = 0xC0484E41
_GET_LOG, _HEALTH_LOG, _HEALTH_BYTES = 0x02, 0x02, 512


def parse_mounts(text: str) -> dict[str, str]:
    """Mount point -> device, for local file systems that can be written to, from /proc/mounts; each device once."""
    found: dict[str, str] = {}
    devices = set()
    for line in text.splitlines():
        words = line.split(" ")
        if len(words) < 4 or words[2] not in _LOCAL or words[0] in devices or "ro" in words[3].split(","):
            continue
        devices.add(words[0])
        mount = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), words[1])
        found[mount] = words[0]
        if len(found) >= MOUNTS_MAX:
            break
    return found


def parse_health(log: bytes) -> tuple[int, int]:
    """(critical warning bits, percentage used) of a health log page."""
    return log[0], log[5]


class Disks(Collector):
    """See the module."""

    name: ClassVar[str] = "disks"
    group: ClassVar[str] = "services"
    interval_seconds: ClassVar[float] = 60.0

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        self._proc, self._sys = Path(place.section.proc_root), Path(place.section.sysfs_root)
        self._changes = Changes(refresh_seconds=600.0)
        self._full: set[str] = set()

    def supported(self) -> NotSupported | None:
        if self._mounts() or self._devices():
            return None
        return NotSupported("no local file system that can be written to, no NVMe device")

    def read(self, now: float) -> Outcome:
        signals: list[Signal] = []
        samples: list[Sample] = []
        for mount in self._mounts():
            self.note("statvfs", mount=mount)
            try:
                status = os.statvfs(mount)
            except OSError:
                continue
            if status.f_blocks:
                ratio = min(status.f_bavail / status.f_blocks, (status.f_favail / status.f_files) if status.f_files else 1.0)
                samples.append(Sample("outrider_host_disk_free_ratio", ratio, {"mount": mount}))
                signals += self._tell_room(mount, ratio, now)
        for device in self._devices():
            self.note("NVMe health", mount=device)
            health = read_health(f"/dev/{device}")
            if health is not None:
                critical, used = health
                samples.append(Sample("outrider_host_nvme_critical", float(critical), {"device": device}))
                samples.append(Sample("outrider_host_nvme_wear_ratio", used / 100, {"device": device}))
                if critical and self._changes.due(device, critical, now):
                    data = {"operation": "health", "ok": False, "error": f"critical warning 0x{critical:02x}", "disk": device}
                    signals.append(self.signal(now, "storage", data=data))
        return Readings(signals=signals, samples=samples)

    def _tell_room(self, mount: str, ratio: float, now: float) -> list[Signal]:
        """A file system that is full, and one that has room again; between the two shares nothing changes."""
        if ratio < FULL_RATIO:
            self._full.add(mount)
        elif ratio > WELL_RATIO:
            self._full.discard(mount)
        full = mount in self._full
        if not self._changes.due(("room", mount), full, now):
            return []
        data = {"operation": "space", "ok": not full, "error": "ENOSPC" if full else None, "free_ratio": round(ratio, 4)}
        return [self.signal(now, "storage", mount=mount, data=data)]

    def _mounts(self) -> dict[str, str]:
        return parse_mounts(read_text(self._proc / "mounts") or "")

    def _devices(self) -> list[str]:
        return [name for name in list_folder(self._sys / "class/nvme") if _NVME.fullmatch(name)]


def read_health(device: str) -> tuple[int, int] | None:
    """The health log of an NVMe device; None without the right, or where the device does not answer it."""
    log = ctypes.create_string_buffer(_HEALTH_BYTES)
    words = _HEALTH_BYTES // 4 - 1
    command = _COMMAND.pack(
        _GET_LOG, 0, 0, 0xFFFFFFFF, 0, 0, 0, ctypes.addressof(log), 0, _HEALTH_BYTES, _HEALTH_LOG | words << 16, 0, 0, 0, 0, 0, 0, 0
    )
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.ioctl(descriptor, _IOCTL_ADMIN, command)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return parse_health(log.raw)
