"""A rank is frozen (SIGSTOP) at the worst moments of writing, wakes when the next attempt runs, and can harm nothing."""

import os
import signal
import subprocess
import sys
import time

import pytest

from outrider.snapshots import newest_step, raise_fence, usable_sets
from outrider.snapshots.restore import damage

PROGRAM = """
import os, signal, sys
from pathlib import Path
from outrider.snapshots import SnapshotError
from outrider.snapshots.digest import digest
from outrider.snapshots.layout import shard_name
from outrider.snapshots.publish import Order, try_complete, write_shard

root, fence, step, freeze_at = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
body = b"state of a rank" * 1000
link = os.link
def frozen_link(source, target):
    if freeze_at != "-" and str(target).endswith(freeze_at):
        os.kill(os.getpid(), signal.SIGSTOP)
    link(source, target)
os.link = frozen_link
entry = {
    "format": 1, "job": "j", "attempt": 1, "step": step, "fence": fence, "cause": "periodic", "incident": "", "world_size": 1,
    "slot": 0, "rank": 0, "threads": 1, "layout": {"shards": 1}, "file": shard_name(0, fence), "bytes": len(body),
    "digest": digest(memoryview(body)), "checksums": {}, "data": None, "sampler_epoch": None, "rng": {"mode": "reseed", "seed": 1},
    "rng_kinds": [], "scheduler_step": None, "scaler": False, "wall_time": 1.0,
}
order = Order(root=root, job="j", fence=fence, world=1, shards=1, named=frozenset([0]), step=step)
try:
    write_shard(order, entry, memoryview(body))
    try_complete(order, patience_over=False)
except SnapshotError as error:
    print(error)
    sys.exit(3)
"""


def _writer(root, fence, step, freeze_at="-"):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(root), str(fence), str(step), freeze_at], stdout=subprocess.PIPE, text=True
    )


def _run(root, fence, step):
    with _writer(root, fence, step) as process:
        return process.wait(20)


def _until_stopped(process):
    deadline = time.monotonic() + 20
    while True:
        pid, status = os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)
        if pid and os.WIFSTOPPED(status):
            return
        assert time.monotonic() < deadline, "the writer never came to the point where it freezes"
        time.sleep(0.005)


@pytest.mark.real
@pytest.mark.parametrize(
    ("freeze_at", "code"), [(".safetensors", 3), ("f1.json", 3), ("MANIFEST.json", 0)], ids=["shard", "entry", "manifest"]
)
def test_a_writer_that_wakes_in_the_next_attempt_harms_nothing(tmp_path, freeze_at, code):
    raise_fence(tmp_path, "j", 1)
    assert _run(tmp_path, 1, 10) == 0
    frozen = _writer(tmp_path, 1, 20, freeze_at)
    try:
        _until_stopped(frozen)
        raise_fence(tmp_path, "j", 2)
        assert newest_step(tmp_path, "j") == 10
        os.kill(frozen.pid, signal.SIGCONT)
        assert frozen.wait(20) == code
    finally:
        frozen.kill()
        frozen.wait(20)
        frozen.stdout.close()
    assert newest_step(tmp_path, "j") == 10, "what the sleeper linked is not trusted"
    assert _run(tmp_path, 2, 20) == 0, "the new attempt comes to step 20 as well and saves it"
    newest = usable_sets(tmp_path, "j").sets[0]
    assert (newest.step, newest.fence, damage(newest, [0])) == (20, 2, None)


@pytest.mark.real
def test_a_sleeper_that_links_after_the_new_attempts_set_stands_changes_nothing(tmp_path):
    raise_fence(tmp_path, "j", 1)
    frozen = _writer(tmp_path, 1, 20, "MANIFEST.json")
    try:
        _until_stopped(frozen)
        raise_fence(tmp_path, "j", 2)
        assert _run(tmp_path, 2, 20) == 0
        before = (tmp_path / "j/step-00000020/MANIFEST.json").read_bytes()
        os.kill(frozen.pid, signal.SIGCONT)
        assert frozen.wait(20) == 3
    finally:
        frozen.kill()
        frozen.wait(20)
        frozen.stdout.close()
    assert (tmp_path / "j/step-00000020/MANIFEST.json").read_bytes() == before


@pytest.mark.real
@pytest.mark.parametrize("freeze_at", [".safetensors", "MANIFEST.json"])
def test_a_writer_that_is_killed_in_the_middle_leaves_no_half_snapshot(tmp_path, freeze_at):
    assert _run(tmp_path, 1, 10) == 0
    frozen = _writer(tmp_path, 1, 20, freeze_at)
    _until_stopped(frozen)
    frozen.kill()
    frozen.wait(20)
    frozen.stdout.close()
    assert newest_step(tmp_path, "j") == 10
    assert _run(tmp_path, 1, 20) == 0
    assert newest_step(tmp_path, "j") == 20
