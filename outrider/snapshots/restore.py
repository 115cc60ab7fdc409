"""Finds the snapshots that may be restored, and checks that they are whole. Standard library only; `shard` reads tensors."""

import json
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outrider.snapshots.digest import matches
from outrider.snapshots.errors import RestoreError
from outrider.snapshots.fence import read_fence
from outrider.snapshots.layout import FORMAT_VERSION, MANIFEST, job_folder, step_folders


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSet:
    """One committed snapshot."""

    step: int
    fence: int
    folder: Path
    manifest: dict[str, Any]

    @property
    def manifest_path(self) -> Path:
        return self.folder / MANIFEST

    def shard(self, slot: int) -> dict[str, Any]:
        """The MANIFEST's entry of a slot."""
        shard: dict[str, Any] = self.manifest["shards"][slot]
        return shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What lies in a job's folder: `sets` may be restored, newest first; the others are passed over, with the reason."""

    sets: tuple[SnapshotSet, ...]
    damaged: tuple[str, ...] = ()
    untrusted: tuple[str, ...] = ()


def usable_sets(root: Path | str, job: str) -> Found:
    """The committed sets that the job's fence admits.

    Raises:
        SnapshotError: the fence file makes no sense.
    """
    record = read_fence(root, job)
    sets, damaged, untrusted = [], [], []
    for step, folder in step_folders(job_folder(root, job)):
        try:
            found = _read_set(step, folder)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            damaged.append(f"{folder / MANIFEST}: {error}")
            continue
        if record.admits(step, found.fence):
            sets.append(found)
        else:
            where, when = found.manifest_path, f"fence {record.fence} began"
            untrusted.append(f"{where}: was linked under fence {found.fence} after {when}: not trusted")
    return Found(sets=tuple(sets), damaged=tuple(damaged), untrusted=tuple(untrusted))


def newest_step(root: Path | str, job: str) -> int | None:
    """The step of the newest usable set, without looking into its shards; None if there is none."""
    sets = usable_sets(root, job).sets
    return sets[0].step if sets else None


def damage(snapshot: SnapshotSet, slots: list[int]) -> str | None:
    """What is wrong with the shards of these slots (size, digest), in one line; None if they are whole."""
    seen = set()
    for slot in slots:
        shard = snapshot.shard(slot)
        if shard["file"] in seen:
            continue
        seen.add(shard["file"])
        path = snapshot.folder / shard["file"]
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                if size != shard["bytes"]:
                    return f"{path}: has {size} bytes, the MANIFEST says {shard['bytes']}"
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory, memoryview(memory) as data:
                    if not matches(data, shard["digest"]):
                        return f"{path}: the digest does not match"
        except (OSError, ValueError) as error:
            return f"{path}: cannot be read: {error}"
    return None


def check_fit(snapshot: SnapshotSet, here: dict[str, Any], *, slot: int, rng_kinds: set[str]) -> None:
    """Whether this rank may load the set and go on bit for bit.

    Args:
        snapshot: the set.
        here: what the job is now: `world_size`, `threads`, `layout`, `rng` as in an entry, and `rank`.
        slot: of this rank.
        rng_kinds: the kinds of random state that this process can set.

    Raises:
        RestoreError: it was made by another shape of job; the line says what differs and how to mend it.
    """
    manifest, where = snapshot.manifest, snapshot.manifest_path
    for key, advice in _ADVICE.items():
        if manifest[key] != here[key]:
            raise RestoreError(f"{where}: {key} is {manifest[key]!r}, here {here[key]!r}: {advice}")
    if (there := manifest["ranks"][slot]) != here["rank"]:
        raise RestoreError(f"{where}: slot {slot} was rank {there}, here {here['rank']}: keep the order of the ranks")
    if missing := set(manifest["rng_kinds"]) - rng_kinds:
        raise RestoreError(f"{where}: the job drew random numbers of {', '.join(sorted(missing))}, not present here")


#: What must be equal, and what to do if it is not.
_ADVICE: Final = {
    "world_size": "start the job with as many ranks",
    "threads": "call torch.set_num_threads with the same number, or sums come out different",
    "layout": "attach with the same `shards`",
    "rng": "attach with the same `seed` and `reseed`",
}


def _read_set(step: int, folder: Path) -> SnapshotSet:
    table = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if table["format"] != FORMAT_VERSION:
        raise ValueError(f"format {table['format']} is not known here (only {FORMAT_VERSION})")
    fence, world = int(table["fence"]), int(table["world_size"])
    if table["step"] != step or len(table["shards"]) != world or len(table["ranks"]) != world:
        raise ValueError("does not agree with itself")
    if any(Path(shard["file"]).name != shard["file"] for shard in table["shards"]):
        raise ValueError("names a file outside its folder")
    return SnapshotSet(step=step, fence=fence, folder=folder, manifest=table)
