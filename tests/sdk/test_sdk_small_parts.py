"""Stall, seeds, exceptions, place: the pure parts of the SDK."""

import logging
import random
from pathlib import Path

import pytest
import torch

from outrider.sdk import log
from outrider.sdk.faults import describe
from outrider.sdk.randomness import Randomness, derive
from outrider.sdk.settings import Place
from outrider.sdk.stall import StallWatch

MS = 1_000_000


def _watch(now_ms, *, training=True, step=10, median_ms=100, count=5):
    watch = StallWatch(3.0, 2.0)
    return watch.stalled(now_ns=now_ms * MS, training=training, step=step, since_ns=0, durations=[median_ms * MS] * count)


@pytest.mark.parametrize(
    ("case", "stalled"),
    [
        ({"now_ms": 1_999}, False),
        ({"now_ms": 2_001}, True),
        ({"now_ms": 2_001, "training": False}, False),
        ({"now_ms": 2_001, "count": 2}, False),
        ({"now_ms": 5_000, "median_ms": 2_000}, False),
        ({"now_ms": 6_001, "median_ms": 2_000}, True),
    ],
    ids=["below-floor", "above-floor", "not-training", "no-median-yet", "slow-steps", "three-slow-steps"],
)
def test_a_stall_is_three_median_steps_and_at_least_two_seconds(case, stalled):
    assert _watch(**case) is stalled


def test_seeds_differ_by_slot_step_and_place_and_are_the_same_everywhere():
    seeds = {derive(1, slot, step, place) for slot in range(20) for step in range(50) for place in (0, 1)}
    assert len(seeds) == 2000
    assert derive(1, 0, 0, 0) == 6396520470166291297
    assert all(0 <= seed < 2**63 for seed in seeds)


def _draw():
    numpy = pytest.importorskip("numpy")
    return random.getrandbits(64), float(torch.rand(1)), float(numpy.random.rand())


def test_a_reseeded_step_draws_the_same_numbers_again():
    one, two = Randomness(7, 3, reseed=True), Randomness(7, 3, reseed=True)
    one.seed_all(12)
    first = _draw()
    _draw()
    two.seed_all(12)
    assert _draw() == first
    two.seed_step(12)
    inside = float(torch.rand(1))
    torch.rand(5)
    two.seed_step(12)
    assert float(torch.rand(1)) == inside


def test_saved_random_state_is_put_back():
    generators = Randomness(7, 3, reseed=False)
    state = generators.save()
    first = _draw()
    _draw()
    generators.load(state)
    assert _draw() == first


RESET = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Read error [127.0.0.3]:40212: Connection reset by peer."
    " This is typically caused by a remote worker hanging or bugs in the application."
)


@pytest.mark.parametrize(
    ("error", "library", "peer"),
    [
        (RuntimeError(RESET), "gloo", "127.0.0.3"),
        (RuntimeError("[x/gloo/transport/tcp/pair.cc:1] Connection closed by peer [::ffff:10.0.0.7]:99"), "gloo", "10.0.0.7"),
        (RuntimeError("[x/gloo/y.cc:1] Timed out waiting 1800000ms for recv operation to complete"), "gloo", None),
        (RuntimeError("NCCL error in: unhandled system error"), "nccl", None),
        (OSError("sendBytes failed on SocketImpl: Broken pipe"), "c10d", None),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None, None),
        (ValueError("Connection reset by peer"), None, None),
    ],
    ids=["reset", "closed-v6", "timed-out", "nccl", "store", "shapes", "not-a-runtime-error"],
)
def test_an_exception_says_whether_the_network_failed_and_whom_it_blames(error, library, peer):
    fault = describe(error)
    assert (fault.library, fault.peer, fault.communication) == (library, peer, library is not None)


def test_the_place_comes_from_the_environment(tmp_path):
    env = {"RANK": "2", "WORLD_SIZE": "4", "OUTRIDER_JOB": "j1", "OUTRIDER_FENCE": "7", "OUTRIDER_SNAPSHOTS": str(tmp_path)}
    place = Place.of(env | {"OUTRIDER_ATTEMPT": "3", "OUTRIDER_AGENT": "/run/a.sock"})
    assert place == Place(
        job="j1", slot=2, rank=2, world=4, attempt=3, fence=7, agent="/run/a.sock", root=Path(tmp_path)
    )  # fmt: skip


def test_nonsense_in_the_environment_is_told_and_passed_over(caplog):
    log._TOLD.clear()
    with caplog.at_level(logging.WARNING, "outrider"):
        place = Place.of({"RANK": "two", "OUTRIDER_JOB": "../x", "OUTRIDER_SNAPSHOTS": "/tmp"})
    assert (place.rank, place.root) == (0, None)
    assert "RANK='two'" in caplog.text and "OUTRIDER_JOB" in caplog.text
