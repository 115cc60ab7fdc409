"""What a witness keeps for people to look at: true to what was told, and bounded."""

from typing import Any

import pytest
from witness_doubles import FLEET

from detectors.witness import sight as module
from detectors.witness.sight import Sight
from outrider.clock import ManualClock
from outrider.signals import Signal


@pytest.fixture
def sight(clock: ManualClock) -> Sight:
    return Sight(FLEET, clock)


def step(value: int, job: str = "j1", **data: Any) -> Signal:
    return Signal(t=1.0, kind="step", job=job, value=value, data=data)


def test_one_point_a_step_however_many_ranks_tell_of_it(sight: Sight) -> None:
    for value in (0, 1):
        sight.signal(step(value, step_s=2.0))
        sight.signal(step(value, loss=0.5))
        sight.signal(step(value, loss=0.7))
    assert [(point.step, point.loss, point.step_s) for point in sight.jobs["j1"].points] == [(0, 0.5, 2.0), (1, 0.5, 2.0)]


def test_a_new_attempt_begins_below_and_is_marked_and_the_old_one_is_not_heard(sight: Sight) -> None:
    sight.signal(step(9, attempt=1))
    sight.signal(step(7, attempt=2))
    sight.signal(step(10, attempt=1))
    course = sight.jobs["j1"]
    assert [point.step for point in course.points] == [9, 7]
    assert [(mark["kind"], mark["text"]) for mark in course.marks] == [("attempt", "2")]


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), None, "high", True])
def test_a_loss_that_is_no_number_is_unknown(sight: Sight, loss: Any) -> None:
    sight.signal(step(1, loss=loss))
    assert sight.jobs["j1"].points[0].loss is None


def test_a_long_course_is_thinned_out_and_says_so(sight: Sight, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POINTS_MAX", 100)
    for value in range(1000):
        sight.signal(step(value))
    course = sight.jobs["j1"]
    assert len(course.points) <= 100 and course.shed + len(course.points) == 1000
    assert course.points[0].step == 0 and course.points[-1].step == 999


def test_what_many_ranks_say_of_one_snapshot_is_one_mark(sight: Sight) -> None:
    for rank in range(64):
        sight.signal(Signal(t=1.0, kind="snapshot", job="j1", rank=rank, value=5, data={"state": "committed", "cause": "periodic"}))
    (mark,) = sight.jobs["j1"].marks
    assert (mark["count"], mark["step"], mark["cause"]) == (64, 5, "periodic")


def test_jobs_events_and_readings_are_bounded(sight: Sight, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "JOBS_MAX", 5)
    monkeypatch.setattr(module, "READINGS_MAX", 3)
    for number in range(50):
        sight.signal(step(1, job=f"job{number}"))
        sight.signal(Signal(t=1.0, kind="gpu_state", node="n1", gpu=number))
        sight.signal(Signal(t=1.0, kind="gpu_state", node=f"stranger{number}", gpu=0))
        sight.signal(Signal(t=1.0, kind="heartbeat", node=f"stranger{number}"))
        sight.beat(Signal(t=1.0, kind="heartbeat", node=f"stranger{number}"))
    assert len(sight.jobs) == 5 and len(sight.watch("n1")) == 3 and sight.heard == {}


def test_a_node_that_is_looked_at_gets_its_readings_even_where_room_is_short(sight: Sight, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READINGS_MAX", 0)
    reading = Signal(t=1.0, kind="gpu_state", node="n2", gpu=0)
    sight.signal(reading)
    assert sight.watch("n2") == []
    sight.signal(reading)
    assert [signal for _, signal in sight.watch("n2")] == [reading]


def test_events_of_a_node_come_newest_first(sight: Sight) -> None:
    for number in range(60):
        sight.signal(Signal(t=1.0, kind="xid", node=f"n{number % 2 + 1}", value=number))
    assert [signal.value for _, signal in sight.events("n1", 3)] == [58, 56, 54]


@pytest.mark.parametrize(
    "signal",
    [
        Signal(t=1.0, kind="job", job="j1", value=2, data={"slots": "none"}),
        Signal(t=1.0, kind="job", job="j1", value=2, data={"slots": [["n1"], 3, ["n2", "x"]]}),
        Signal(t=1.0, kind="step", job="j1", value="many"),
        Signal(t=1.0, kind="step", value=3),
        Signal(t=1.0, kind="snapshot", job="j1", data={"attempt": "x"}),
        Signal(t=1.0, kind="phase", job="j1"),
    ],
)
def test_a_malformed_signal_breaks_nothing(sight: Sight, signal: Signal) -> None:
    sight.signal(signal)
    sight.signal(step(1, attempt=3))
    assert sight.jobs["j1"].step == 1
