"""What is told of one shard (the entry beside it) and of a whole snapshot (the MANIFEST made from the entries)."""

import json
from pathlib import Path
from typing import Any, Final, TypedDict

from outrider.snapshots.errors import SnapshotError
from outrider.snapshots.layout import FORMAT_VERSION


class Entry(TypedDict):
    """One slot's shard.

    `layout`: {"shards": n}: slot s holds shard s modulo n; n = 1 where every rank holds everything. `rng`: {"mode", "seed"}:
    `reseed` (derived from seed, slot and step, so a dead slot's is known) or `saved` (in the shard). `data`: where the data
    stood. `threads`: torch's, for sums depend on it. `checksums`: digest of each tensor of model and optimizer.
    """

    format: int
    job: str
    attempt: int
    step: int
    fence: int
    cause: str
    incident: str
    world_size: int
    slot: int
    rank: int
    threads: int
    layout: dict[str, int]
    file: str
    bytes: int
    digest: str
    checksums: dict[str, str]
    data: Any
    sampler_epoch: int | None
    rng: dict[str, Any]
    rng_kinds: list[str]
    scheduler_step: int | None
    scaler: bool
    wall_time: float


#: What all shards of one set must have in common.
COMMON: Final = (
    "format", "job", "step", "fence", "world_size", "threads", "layout", "sampler_epoch", "rng", "scheduler_step", "scaler",
)  # fmt: skip


def read_entry(path: Path) -> Entry:
    """Raises SnapshotError if the file is not a whole entry."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SnapshotError(f"{path}: cannot be read: {error}") from None
    missing = Entry.__required_keys__ - table.keys() if isinstance(table, dict) else {"everything"}
    if missing or table["format"] != FORMAT_VERSION:
        raise SnapshotError(f"{path}: is not an entry of format {FORMAT_VERSION} (missing: {', '.join(sorted(missing))})")
    return table  # type: ignore[no-any-return]


def covering(slots: set[int], world: int, shards: int) -> bool:
    """Whether these slots hold every shard there is."""
    return {slot % shards for slot in slots} == set(range(min(shards, world)))


def build_manifest(found: dict[int, Entry]) -> dict[str, Any]:
    """The MANIFEST of a set: slots without a shard of their own are served by a replica.

    Args:
        found: slot -> entry; must cover every shard.

    Raises:
        SnapshotError: the shards do not belong together.
    """
    first: dict[str, Any] = dict(found[min(found)])
    for slot, entry in found.items():
        here: dict[str, Any] = dict(entry)
        for key in COMMON:
            if here[key] != first[key]:
                what = f"{here[key]!r} in slot {slot}, {first[key]!r} in slot {first['slot']}"
                raise SnapshotError(f"step {first['step']}: the shards do not belong together: {key} is {what}")
    world, shards = first["world_size"], first["layout"]["shards"]
    owners = {slot % shards: slot for slot in sorted(found, reverse=True)}
    ranks = [found[slot]["rank"] if slot in found else slot for slot in range(world)]
    manifest: dict[str, Any] = {key: first[key] for key in COMMON}
    for key in ("attempt", "cause", "incident", "wall_time", "data"):
        manifest[key] = first[key]
    manifest["rng_kinds"] = sorted({kind for entry in found.values() for kind in entry["rng_kinds"]})
    manifest["ranks"] = ranks
    manifest["replicas_agree"] = _agree(found, shards)
    manifest["shards"] = [_shard(slot, found, owners[slot % shards]) for slot in range(world)]
    return manifest


def to_json(table: Any) -> bytes:
    """Compact, stable JSON; a NaN is written as JavaScript and Python write it."""
    return (json.dumps(table, sort_keys=True, separators=(",", ":")) + "\n").encode()


def _shard(slot: int, found: dict[int, Entry], owner: int) -> dict[str, Any]:
    entry = found.get(slot) or found[owner]
    shard: dict[str, Any] = {"slot": slot, "file": entry["file"], "bytes": entry["bytes"], "digest": entry["digest"]}
    if slot in found:
        return shard | {"state": "own", "checksums": entry["checksums"]}
    return shard | {"state": "replica_of", "replica_of": owner}


def _agree(found: dict[int, Entry], shards: int) -> bool:
    """Whether replicas of one shard hold the same bits, tensor by tensor."""
    seen: dict[int, dict[str, str]] = {}
    return all(seen.setdefault(slot % shards, entry["checksums"]) == entry["checksums"] for slot, entry in found.items())
