"""Snapshots on disk: shards, the MANIFEST that makes them a snapshot, and the fence that keeps old writers out.

    <root>/<job>/FENCE                          the fence under which the job runs now, and the sets that stood then
    <root>/<job>/step-00001200/
        slot-00000.f7.safetensors               one slot's shard; the writer's fence in the name; never overwritten
        slot-00000.f7.json                      what the MANIFEST will say of it, written after it
        MANIFEST.json                           linked last by whoever completes the set: no MANIFEST, no snapshot

Standard library only, but for `shard`, which meets tensors. Every shared file appears whole: temporary name, sync, link
(which fails if the name exists). The scheduler calls `raise_fence` before it starts an attempt.
"""

from outrider.snapshots.errors import RestoreError, SnapshotError, StaleFenceError
from outrider.snapshots.fence import FenceRecord, check_fence, raise_fence, read_fence
from outrider.snapshots.restore import newest_step, usable_sets

__all__ = [
    "FenceRecord",
    "RestoreError",
    "SnapshotError",
    "StaleFenceError",
    "check_fence",
    "newest_step",
    "raise_fence",
    "read_fence",
    "usable_sets",
]
