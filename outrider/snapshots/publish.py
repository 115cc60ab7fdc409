"""Writes a rank's copy to the shared folder and completes the set: the part after which a snapshot exists.

Each rank writes its shard and then, beside it, the entry. Whoever finds that all entries are there links the MANIFEST.
Nobody talks to anybody: the folder is the meeting place. Survivors may stand at step k and k-1; then each step's folder has
a part of the entries, and the newest folder that covers every shard is completed. Steps are never mixed.
"""

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from outrider.snapshots import files
from outrider.snapshots.entry import Entry, build_manifest, covering, read_entry, to_json
from outrider.snapshots.errors import SnapshotError
from outrider.snapshots.fence import check_fence
from outrider.snapshots.layout import MANIFEST, entries, entry_name, job_folder, step_folders, step_name

#: Step folders that are searched for the entries of one set: survivors differ by one step, two is refused, the rest is margin.
_FOLDERS_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Which set is written.

    `named`: slots whose shards are waited for; `shards`: how many different ones there are; `step` None: the newest that the
    named can complete, which needs a fence of its own (an emergency); a periodic set, whose fence is the attempt's, names it.
    """

    root: Path
    job: str
    fence: int
    world: int
    shards: int
    named: frozenset[int]
    step: int | None = None

    @property
    def folder(self) -> Path:
        return job_folder(self.root, self.job)


def write_shard(order: Order, entry: Entry, data: memoryview) -> None:
    """Writes one shard and its entry; what is there already, from the same writer and step, stays.

    Raises:
        StaleFenceError: a newer attempt has begun. OSError: full, read-only, unreachable.
    """
    folder = order.folder / step_name(entry["step"])
    check_fence(order.root, order.job, order.fence)
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        files.write_new(folder / entry["file"], [data])
    check_fence(order.root, order.job, order.fence)
    with contextlib.suppress(FileExistsError):
        files.write_new(folder / entry_name(entry["slot"], order.fence), [to_json(entry)])


def try_complete(order: Order, *, patience_over: bool) -> Path | None:
    """Links the MANIFEST if the set is complete.

    Args:
        order: the set.
        patience_over: do not wait any longer for named slots that are missing, if the others cover every shard.

    Returns:
        The MANIFEST of this fence (linked now or found), or None: not yet.

    Raises:
        StaleFenceError: a newer attempt has begun. SnapshotError: the set is refused, or linking lost to a newer fence.
    """
    found = _gather(order)
    if not found:
        return None
    for step in found:
        if (path := order.folder / step_name(step) / MANIFEST).exists() and _fence_of(path) == order.fence:
            return path
    if max(found) - min(found) >= 2:
        raise SnapshotError(f"survivors stand at steps {sorted(found)}: two or more apart is not one snapshot")
    present = {slot for slots in found.values() for slot in slots}
    if not (order.named <= present or patience_over):
        return None
    for step in sorted(found, reverse=True):
        slots = found[step]
        if covering(set(slots), order.world, order.shards):
            return _link(order, step, {slot: read_entry(path) for slot, path in slots.items()})
    return None


def prune(order: Order, step: int, keep: int) -> None:
    """Removes what is older than the newest `keep` snapshots that are not newer than `step`. Best effort."""
    check_fence(order.root, order.job, order.fence)
    committed = [at for at, folder in step_folders(order.folder) if at <= step and (folder / MANIFEST).exists()]
    if len(committed) < keep:
        return
    for at, folder in step_folders(order.folder):
        if at < committed[keep - 1]:
            (folder / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)


def _gather(order: Order) -> dict[int, dict[int, Path]]:
    """step -> slot -> entry file, of this order."""
    found = {}
    folders = step_folders(order.folder)[:_FOLDERS_MAX]
    if order.step is not None:
        folders = [(order.step, order.folder / step_name(order.step))]
    for step, folder in folders:
        with contextlib.suppress(FileNotFoundError):
            if slots := entries(folder, order.fence):
                found[step] = slots
    return found


def _link(order: Order, step: int, found: dict[int, Entry]) -> Path:
    path = order.folder / step_name(step) / MANIFEST
    body = to_json(build_manifest(found))
    for _ in range(3):
        check_fence(order.root, order.job, order.fence)
        with contextlib.suppress(FileExistsError):
            files.write_new(path, [body])
            return path
        stands = _fence_of(path)
        if stands == order.fence:
            return path
        if stands is not None and stands > order.fence:
            raise SnapshotError(f"{path}: a set of fence {stands} stands there already")
        _move_aside(path, order.fence)
    raise SnapshotError(f"{path}: could not be linked: it keeps changing")


def _move_aside(path: Path, fence: int) -> None:
    """Takes an older fence's MANIFEST away: this attempt came to the step again, so that set was not used.

    If a newer one took its place in the very moment, it is put back.
    """
    with contextlib.suppress(FileNotFoundError):
        descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=".MANIFEST.", suffix=".stale")
        os.close(descriptor)
        path.rename(aside)
        if (moved := _fence_of(Path(aside))) is not None and moved >= fence:
            with contextlib.suppress(FileExistsError):
                os.link(aside, path)


def _fence_of(path: Path) -> int | None:
    """The fence of a MANIFEST; None if it is gone or makes no sense."""
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["fence"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
