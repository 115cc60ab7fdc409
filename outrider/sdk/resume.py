"""Loads the newest good snapshot: every rank the same one, and each checks what it reads before it uses it."""

import time
from typing import TYPE_CHECKING, Any

from outrider.sdk.keeper import Boundary
from outrider.sdk.log import tell, warn_once
from outrider.snapshots.errors import RestoreError, SnapshotError, StaleFenceError
from outrider.snapshots.fence import check_fence
from outrider.snapshots.restore import SnapshotSet, check_fit, damage, usable_sets
from outrider.snapshots.shard import read_tree

if TYPE_CHECKING:
    from outrider.sdk.run import Run


def restore(run: "Run") -> int | None:
    """See `Run.restore`."""
    place = run.place
    if run.finished >= 0:
        raise RestoreError("restore comes before the first step")
    if place.root is None:
        warn_once("root", "OUTRIDER_SNAPSHOTS is not set: nothing to restore")
        return None
    began = time.monotonic()
    try:
        check_fence(place.root, place.job, place.fence)
        found = usable_sets(place.root, place.job)
    except StaleFenceError:
        raise
    except SnapshotError as error:
        raise RestoreError(str(error)) from None
    for reason in (*found.damaged, *found.untrusted):
        warn_once(reason, f"passed over: {reason}")
    chosen = _choose(run, list(found.sets), list(found.damaged))
    if chosen is None:
        return None
    verified = time.monotonic()
    tree = read_tree(chosen.folder / chosen.shard(place.slot)["file"])
    run._subject.load(tree, tree.get("data"), chosen.manifest["sampler_epoch"])
    if tree.get("rng"):
        run._randomness.load(tree["rng"])
    run._resumed(chosen.step, Boundary(chosen.step, tree.get("data"), chosen.manifest["sampler_epoch"], tree.get("rng")))
    loaded = time.monotonic()
    run._side.snapshot_event(
        "restored", chosen.step, fence=chosen.fence, cause=chosen.manifest["cause"], manifest=str(chosen.manifest_path),
        verify_s=round(verified - began, 4), load_s=round(loaded - verified, 4),
    )  # fmt: skip
    tell(f"restored step {chosen.step} from {chosen.folder}")
    return chosen.step


def _choose(run: "Run", sets: list[SnapshotSet], bad: list[str]) -> SnapshotSet | None:
    """The newest set whose shards are whole; all ranks take the same. `bad`: what is damaged."""
    place = run.place
    together = _distributed(place.world)
    slots = [place.slot] if together else list(range(place.world))
    limit: int | None = None
    while True:
        mine = _newest_whole(run, [s for s in sets if limit is None or s.step <= limit], slots, bad)
        low, high = _extremes(-1 if mine is None else mine.step) if together else (0, 0)
        if low == high:
            break
        limit = low
    if mine is None and bad:
        raise RestoreError("no snapshot is whole: " + "; ".join(bad))
    return mine


def _newest_whole(run: "Run", sets: list[SnapshotSet], slots: list[int], bad: list[str]) -> SnapshotSet | None:
    """The first that fits and whose shards of these slots are whole. Raises RestoreError if one does not fit."""
    here = run._facts()
    kinds = {"python", "torch", "numpy", *here["rng_kinds"]}
    for snapshot in sets:
        check_fit(snapshot, here, slot=run.place.slot, rng_kinds=kinds)
        why = damage(snapshot, slots)
        if why is None:
            return snapshot
        if why not in bad:
            bad.append(why)
            warn_once(why, f"damaged: {why}")
            run._side.snapshot_event("failed", snapshot.step, why, cause="restore")
    return None


def _distributed(world: int) -> Any:
    import torch.distributed as dist

    return world > 1 and dist.is_available() and dist.is_initialized()


def _extremes(step: int) -> tuple[int, int]:
    """The lowest and highest of all ranks' steps."""
    import torch
    import torch.distributed as dist

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    pair = torch.tensor([step, -step], dtype=torch.int64, device=device)
    dist.all_reduce(pair, op=dist.ReduceOp.MIN)
    return int(pair[0]), -int(pair[1])
