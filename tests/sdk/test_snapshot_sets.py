"""Snapshots on disk: when a set is complete, who may link it, what is refused, and whom the fence keeps out."""

import json
import os
import threading

import pytest

from outrider.snapshots import SnapshotError, StaleFenceError, fence, newest_step, raise_fence, read_fence, usable_sets
from outrider.snapshots.digest import digest
from outrider.snapshots.layout import MANIFEST, shard_name
from outrider.snapshots.publish import Order, prune, try_complete, write_shard
from outrider.snapshots.restore import damage

WORLD = 4
BODY = b"state"


def order(root, fence=7, *, named=(0, 1, 3), step=None, shards=1, world=WORLD):
    return Order(root=root, job="j", fence=fence, world=world, shards=shards, named=frozenset(named), step=step)


def entry(slot, step=20, fence=7, body=BODY, **changes):
    return {
        "format": 1, "job": "j", "attempt": 1, "step": step, "fence": fence, "cause": "emergency", "incident": "i",
        "world_size": WORLD, "slot": slot, "rank": slot, "threads": 1, "layout": {"shards": 1}, "file": shard_name(slot, fence),
        "bytes": len(body), "digest": digest(memoryview(body)), "checksums": {"model/x": "a"}, "data": {"next": 3},
        "sampler_epoch": 0, "rng": {"mode": "reseed", "seed": 1}, "rng_kinds": ["torch"], "scheduler_step": step, "scaler": False,
        "wall_time": 1.0,
    } | changes  # fmt: skip


def write(to, slot, step=20, body=BODY, **changes):
    write_shard(to, entry(slot, step, to.fence, body, **changes), memoryview(body))


def manifest(root, step=20):
    return json.loads((root / "j" / f"step-{step:08d}" / MANIFEST).read_text())


def test_the_set_is_complete_when_all_named_ranks_have_written(tmp_path):
    to = order(tmp_path)
    for slot in (0, 1):
        write(to, slot)
        assert try_complete(to, patience_over=False) is None
    write(to, 3)
    assert try_complete(to, patience_over=False) == tmp_path / "j/step-00000020/MANIFEST.json"
    states = [(shard["slot"], shard["state"], shard.get("replica_of")) for shard in manifest(tmp_path)["shards"]]
    assert states == [(0, "own", None), (1, "own", None), (2, "replica_of", 0), (3, "own", None)]
    assert manifest(tmp_path)["replicas_agree"]


def test_one_replica_serves_all_when_patience_is_over(tmp_path):
    to = order(tmp_path)
    write(to, 3)
    assert try_complete(to, patience_over=False) is None
    assert try_complete(to, patience_over=True)
    assert {shard["file"] for shard in manifest(tmp_path)["shards"]} == {"slot-00003.f7.safetensors"}
    assert manifest(tmp_path)["ranks"] == [0, 1, 2, 3]


def test_sharded_state_needs_every_shard(tmp_path):
    to = order(tmp_path, named=(0, 1, 2), shards=2)
    layout = {"layout": {"shards": 2}}
    write(to, 0, **layout)
    write(to, 2, **layout)
    assert try_complete(to, patience_over=True) is None
    write(to, 1, **layout)
    assert try_complete(to, patience_over=False)
    assert manifest(tmp_path)["shards"][3]["replica_of"] == 1


def test_survivors_one_step_apart_give_the_newer_step_and_no_mixture(tmp_path):
    to = order(tmp_path)
    write(to, 0, step=19)
    write(to, 1, step=20)
    assert try_complete(to, patience_over=False) is None
    write(to, 3, step=19)
    assert try_complete(to, patience_over=False).parent.name == "step-00000020"
    assert {shard["file"] for shard in manifest(tmp_path)["shards"]} == {"slot-00001.f7.safetensors"}
    assert newest_step(tmp_path, "j") == 20


def test_survivors_two_steps_apart_are_refused(tmp_path):
    to = order(tmp_path)
    for slot, step in ((0, 18), (1, 20), (3, 20)):
        write(to, slot, step=step)
    with pytest.raises(SnapshotError, match="two or more apart"):
        try_complete(to, patience_over=True)
    assert newest_step(tmp_path, "j") is None


def test_shards_that_do_not_belong_together_are_refused(tmp_path):
    to = order(tmp_path)
    write(to, 0)
    write(to, 1, threads=2)
    with pytest.raises(SnapshotError, match="threads is"):
        try_complete(to, patience_over=True)


def test_replicas_that_disagree_are_told_of(tmp_path):
    to = order(tmp_path, named=(0, 1))
    write(to, 0)
    write(to, 1, checksums={"model/x": "b"})
    try_complete(to, patience_over=False)
    assert not manifest(tmp_path)["replicas_agree"]


def test_of_many_that_complete_a_set_exactly_one_links_it(tmp_path):
    to = order(tmp_path, named=range(WORLD))
    for slot in range(WORLD):
        write(to, slot)
    start, found = threading.Barrier(8), []

    def race() -> None:
        start.wait()
        found.append(try_complete(to, patience_over=False))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert found[0] is not None
    assert not list((tmp_path / "j/step-00000020").glob(".*"))


def test_a_shard_is_never_overwritten(tmp_path):
    to = order(tmp_path)
    write(to, 0)
    write(to, 0, body=b"other")
    assert (tmp_path / "j/step-00000020/slot-00000.f7.safetensors").read_bytes() == BODY


def test_the_fence_only_grows(tmp_path):
    assert raise_fence(tmp_path, "j", 5).fence == 5
    assert raise_fence(tmp_path, "j", 5).fence == 5
    with pytest.raises(StaleFenceError):
        raise_fence(tmp_path, "j", 4)
    assert read_fence(tmp_path, "j").fence == 5


def test_a_fence_file_that_makes_no_sense_stops_writers_and_restorers(tmp_path):
    raise_fence(tmp_path, "j", 5)
    (tmp_path / "j/FENCE").write_text("six")
    with pytest.raises(SnapshotError, match="not a fence file"):
        read_fence(tmp_path, "j")
    with pytest.raises(SnapshotError):
        write(order(tmp_path, 9), 0)


def test_an_old_writer_writes_nothing(tmp_path):
    write(order(tmp_path, 7), 0)
    raise_fence(tmp_path, "j", 8)
    with pytest.raises(StaleFenceError):
        write(order(tmp_path, 7), 1)
    with pytest.raises(StaleFenceError):
        try_complete(order(tmp_path, 7, named=[0]), patience_over=True)
    assert not list(tmp_path.glob("j/*/slot-00001*"))


def test_a_set_that_was_linked_after_the_new_attempt_began_is_not_trusted(tmp_path, monkeypatch):
    """The writer is frozen between its last look at the fence and the link, and wakes when the next attempt runs."""
    good, late = order(tmp_path, 6, named=[0]), order(tmp_path, 7, named=[0])
    write(good, 0, step=18)
    try_complete(good, patience_over=False)
    write(late, 0, step=20)
    link = os.link

    def slow_link(source, target):
        if str(target).endswith(MANIFEST):
            raise_fence(tmp_path, "j", 8)
        link(source, target)

    monkeypatch.setattr(os, "link", slow_link)
    try_complete(late, patience_over=False)
    found = usable_sets(tmp_path, "j")
    assert [snapshot.step for snapshot in found.sets] == [18]
    assert "not trusted" in found.untrusted[0]


def test_the_new_attempt_takes_the_place_of_an_old_ones_set_at_the_same_step(tmp_path):
    old, new = order(tmp_path, 7, named=[0], step=20), order(tmp_path, 9, named=[0], step=20)
    write(old, 0)
    try_complete(old, patience_over=False)
    raise_fence(tmp_path, "j", 9)
    write(new, 0)
    assert try_complete(new, patience_over=False)
    assert manifest(tmp_path)["fence"] == 9
    assert manifest(tmp_path)["shards"][0]["file"] == "slot-00000.f9.safetensors"


def test_an_old_completer_leaves_a_newer_manifest_alone(tmp_path, monkeypatch):
    old, new = order(tmp_path, 7, named=[0], step=20), order(tmp_path, 9, named=[0], step=20)
    write(old, 0)
    write(new, 0)
    try_complete(new, patience_over=False)
    with pytest.raises(SnapshotError, match="fence 9 stands there"):
        try_complete(old, patience_over=False)
    assert manifest(tmp_path)["fence"] == 9


def test_periodic_sets_of_one_fence_do_not_disturb_each_other(tmp_path):
    for step in (10, 20, 30):
        to = order(tmp_path, 7, named=[0], step=step)
        write(to, 0, step=step, cause="periodic")
        assert try_complete(to, patience_over=False).parent.name == f"step-{step:08d}"


def test_old_sets_are_pruned_and_unfinished_newer_ones_stay(tmp_path):
    for step in (10, 20, 30, 40):
        to = order(tmp_path, 7, named=[0], step=step)
        write(to, 0, step=step)
        if step != 20:
            try_complete(to, patience_over=False)
    write(order(tmp_path, 7, step=50), 1, step=50)
    prune(order(tmp_path, 7, named=[0], step=40), 40, keep=2)
    assert sorted(path.name for path in (tmp_path / "j").glob("step-*")) == [f"step-000000{step}" for step in (30, 40, 50)]


def test_torn_and_damaged_shards_are_seen(tmp_path):
    to = order(tmp_path, named=[0])
    write(to, 0)
    try_complete(to, patience_over=False)
    snapshot = usable_sets(tmp_path, "j").sets[0]
    assert damage(snapshot, [0, 2]) is None
    path = tmp_path / "j/step-00000020/slot-00000.f7.safetensors"
    path.write_bytes(b"stats")
    assert "digest" in damage(snapshot, [0])
    path.write_bytes(b"sta")
    assert "has 3 bytes" in damage(snapshot, [2])
    path.unlink()
    assert "cannot be read" in damage(snapshot, [0])


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"format": 2}', '{"format": 1, "step": 21, "fence": 7, "world_size": 1, "shards": [], "ranks": []}'],
    ids=["torn", "a-list", "format", "contradicts-itself"],
)  # fmt: skip
def test_a_manifest_that_makes_no_sense_is_passed_over(tmp_path, text):
    folder = tmp_path / "j/step-00000020"
    folder.mkdir(parents=True)
    (folder / MANIFEST).write_text(text)
    found = usable_sets(tmp_path, "j")
    assert (len(found.sets), len(found.damaged)) == (0, 1)


def test_a_manifest_may_not_point_outside_its_folder(tmp_path):
    to = order(tmp_path, named=[0])
    write(to, 0)
    path = try_complete(to, patience_over=False)
    path.write_text(path.read_text().replace("slot-00000.f7.safetensors", "../../x"))
    assert "outside" in usable_sets(tmp_path, "j").damaged[0]


def test_the_list_of_trusted_sets_is_made_before_the_fence_is_raised(tmp_path, monkeypatch):
    to = order(tmp_path, 6, named=[0])
    write(to, 0, step=18)
    try_complete(to, patience_over=False)
    replaced = fence.files.replace

    def replace_late(path, content):
        late = order(tmp_path, 6, named=[0], step=20)
        write(late, 0, step=20)
        try_complete(late, patience_over=False)
        replaced(path, content)

    monkeypatch.setattr(fence.files, "replace", replace_late)
    raise_fence(tmp_path, "j", 8)
    assert [snapshot.step for snapshot in usable_sets(tmp_path, "j").sets] == [18]


def test_a_chain_of_attempts_keeps_what_each_trusted(tmp_path):
    for fence_, step in ((1, 10), (5, 20), (9, 30)):
        raise_fence(tmp_path, "j", fence_)
        to = order(tmp_path, fence_, named=[0], step=step)
        write(to, 0, step=step)
        try_complete(to, patience_over=False)
    raise_fence(tmp_path, "j", 12)
    assert [(one.step, one.fence) for one in usable_sets(tmp_path, "j").sets] == [(30, 9), (20, 5), (10, 1)]
