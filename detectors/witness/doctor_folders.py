"""The doctor's look at folders: where copies of the state go in memory, and where snapshots lie."""

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from detectors.witness.findings import Finding, Patient, State
from outrider.config.agent import AgentSection
from outrider.config.snapshots import SnapshotsSection

#: Free room that a snapshot folder should have, bytes: below it the first snapshot of any real model fails.
FREE_BYTES_MIN: Final = 1 << 30
#: Magic number of tmpfs in statfs(2) is not reachable from Python's standard library; /proc/mounts names the type.
MEMORY_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs", "hugetlbfs"})


def memory_folder(patient: Patient) -> Iterator[Finding]:
    """Whether the agent's folder lies in memory and can be written."""
    folder = Path(patient.config.get(AgentSection).run_dir)
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    kind = _file_system(there)
    if kind not in MEMORY_FILE_SYSTEMS:
        yield Finding(
            check="run_dir",
            state="warn",
            text=f"{folder} lies on {kind or 'an unknown file system'}: copies of the state go to a disk",
        )
    free = os.statvfs(there)
    yield Finding(
        check="run_dir",
        state="ok" if os.access(there, os.W_OK) else "fail",
        text=f"{folder}: {_size(free.f_bavail * free.f_frsize)} free",
    )


def snapshot_folder(patient: Patient) -> Iterator[Finding]:
    """Whether a snapshot could be written, synced and linked in its folder, and has room."""
    root = patient.config.get(SnapshotsSection).root
    if not root:
        yield Finding(check="snapshots", state="warn", text="[snapshots] root is not set: a restart begins at the job's beginning")
        return
    folder = Path(root)
    if not folder.is_dir():
        yield Finding(check="snapshots", state="fail", text=f"{root} is no folder here")
        return
    mine = folder / f".outrider-doctor-{secrets.token_hex(8)}"
    began = time.monotonic()
    try:
        with mine.open("xb") as file:
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
        mine.with_suffix(".link").hardlink_to(mine)
        with contextlib.suppress(FileExistsError):
            mine.with_suffix(".link").hardlink_to(mine)
            yield Finding(
                check="snapshots", state="fail", text=f"{root}: a link replaced a file that was there; MANIFESTs would not be safe"
            )
    except OSError as error:
        yield Finding(check="snapshots", state="fail", text=f"{root}: cannot write, sync and link there: {error.strerror}")
        return
    finally:
        for path in (mine, mine.with_suffix(".link")):
            path.unlink(missing_ok=True)
    free = os.statvfs(folder)
    room = free.f_bavail * free.f_frsize
    state: State = "ok" if room >= FREE_BYTES_MIN else "warn"
    yield Finding(
        check="snapshots",
        state=state,
        text=f"{root}: written, synced and linked in {(time.monotonic() - began) * 1000:.0f} ms, {_size(room)} free",
    )


def _file_system(path: Path) -> str:
    """The type of the file system that `path` lies on, from the longest mount point that contains it; empty if unknown."""
    device = path.stat().st_dev
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        before, _, behind = line.partition(" - ")
        major, _, minor = before.split()[2].partition(":")
        if os.makedev(int(major), int(minor)) == device:
            return behind.split()[0]
    return "a folder" if stat.S_ISDIR(path.stat().st_mode) else ""


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
