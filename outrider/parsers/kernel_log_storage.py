"""Kernel lines about disks, local file systems and the clients of remote ones.

Source: Linux `drivers/nvme/host`, `block/blk-core.c`, `fs/ext4`, `fs/xfs`, `net/sunrpc/clnt.c`, `net/ceph`; Lustre
`ptlrpc/import.c`.
"""

import re
from typing import Any, Final

from outrider.parsers.kernel_log_signal import make_signal
from outrider.signals import Signal

_NVME: Final = re.compile(r"nvme (?P<pci>[0-9a-f:]{10,}\.[0-7] )?(?P<name>nvme\d+)?(?:n\d+)?:? ?(?P<rest>.*)")
_NVME_GONE: Final = re.compile(
    r"Removing after probe failure|Device not ready|controller is down; will reset|Disabling device|resetting failed"
    r"|Device unusable|failed to (?:mark controller|reset)|Abort(?:ing)? .*failed|critical.*warning"
)
_DISK: Final = re.compile(r"(?:dev|device|block device|on dev) \(?(?P<name>(?:nvme|sd|vd|md|dm-)[\w-]+)")
_NFS: Final = re.compile(r"nfs: server (?P<server>\S+) (?P<what>not responding|OK|timed out)")
_LUSTRE_LOST: Final = re.compile(r"(?P<target>[\w.-]{1,40}-(?:OST|MDT)[0-9a-f]{4})[\w-]{0,60}: Connection to .*? was lost")
_LUSTRE_BACK: Final = re.compile(r"(?P<target>[\w.-]{1,40}-(?:OST|MDT)[0-9a-f]{4})[\w-]{0,60}: Connection restored")
_LUSTRE_EVICTED: Final = re.compile(r"(?P<target>[\w.-]{1,40}-(?:OST|MDT)[0-9a-f]{4})[\w-]{0,60}: This client was evicted")
_CEPH: Final = re.compile(
    r"(?:libceph|ceph): (?P<server>(?:mds|osd|mon)\d+).*?"
    r"(?P<what>hung|down|socket closed|recover|came back|session (?:lost|established))"
)


def _storage(text: str, ok: bool, **keys: Any) -> Signal:
    data = {"ok": ok} | {key: keys.pop(key) for key in ("error", "disk", "gone", "operation") if key in keys}
    return make_signal("storage", text, data=data, **keys)


def read_nvme(text: str) -> Signal | None:
    match = _NVME.match(text)
    if not match or not ("timeout" in text or _NVME_GONE.search(text)):
        return None
    gone = bool(_NVME_GONE.search(text))
    return _storage(text, False, disk=match["name"] or (match["pci"] or "").strip(), error="gone" if gone else "timeout", gone=gone)


def read_disk_error(text: str) -> Signal | None:
    disk = _DISK.search(text)
    return _storage(text, False, disk=disk["name"] if disk else "unknown", error="i/o")


_FS_DISK: Final = re.compile(r"(?:EXT4-fs(?: error| warning)? ?\(device (\S+?)\)|XFS \(([^)]+)\)|EXT4-fs \(([^)]+)\))")
_XFS_BAD: Final = re.compile(r"[Cc]orruption|[Ss]hut(?:ting )?down|metadata I/O error|log I/O error")


def read_file_system(text: str) -> Signal | None:
    """A local file system that found damage, or went read-only."""
    read_only = "Remounting filesystem read-only" in text
    if text.startswith("XFS (") and not _XFS_BAD.search(text):
        return None
    place = _FS_DISK.search(text)
    disk = next((part for part in place.groups() if part), "unknown") if place else "unknown"
    return _storage(text, False, disk=disk, error="read_only" if read_only else "file_system", gone=read_only)


def read_nfs(text: str) -> Signal | None:
    match = _NFS.search(text)
    return match and _storage(text, match["what"] == "OK", server=match["server"], error=match["what"])


def read_lustre(text: str) -> Signal | None:
    if lost := _LUSTRE_LOST.search(text):
        return _storage(text, False, server=lost["target"], error="connection lost")
    if evicted := _LUSTRE_EVICTED.search(text):
        return _storage(text, False, server=evicted["target"], error="evicted")
    if back := _LUSTRE_BACK.search(text):
        return _storage(text, True, server=back["target"], error="restored")
    return None


def read_ceph(text: str) -> Signal | None:
    match = _CEPH.search(text)
    if not match:
        return None
    ok = match["what"] in ("recover", "came back", "session established")
    return _storage(text, ok, server=match["server"], error=match["what"])
