"""Where an incident's seconds went, from its times."""

from typing import Any

import pytest

from detectors.witness import split
from detectors.witness.metrics import Histograms, Metrics
from outrider.signals import Signal


def test_silence_is_heartbeat_and_timeout_and_quorum() -> None:
    picture = {"fault": "node.lost", "times": {"confirmed": 105.5}, "extra": {"since": 104.0, "silent_since": 100.0}}
    assert split.detection(picture, 1.0) == {"heartbeat": 1.0, "timeout": 3.0, "quorum": 1.5, "total": 5.5}


def test_a_clear_signal_needs_no_timeout() -> None:
    picture = {
        "fault": "gpu.fallen_off_bus", "times": {"confirmed": 10.5}, "extra": {"since": 10.0},
        "evidence": [{"t": 10.0, "effect": "confirm"}],
    }  # fmt: skip
    assert split.detection(picture, 1.0) == {"heartbeat": 0.0, "timeout": 0.0, "quorum": 0.5, "total": 0.5}


@pytest.mark.parametrize("picture", [{}, {"times": {"confirmed": 1.0}}, {"extra": {"since": 1.0}}])
def test_an_unknown_beginning_gives_no_split(picture: dict[str, Any]) -> None:
    assert split.detection(picture, 1.0) is None


@pytest.mark.parametrize(
    ("times", "parts"),
    [
        ({"restart_done": 10.0, "restored": 12.0, "first_step": 15.0, "resolved": 16.0}, (2.0, 3.0, 1.0)),
        ({"restart": 10.0, "restored": 12.0, "resolved": 16.0}, (2.0, 4.0, 0.0)),
        ({"restart_done": 10.0, "resolved": 16.0}, (0.0, 6.0, 0.0)),
        ({"restart_done": 10.0, "restored": 99.0, "first_step": 5.0, "resolved": 16.0}, (6.0, 0.0, 0.0)),
    ],
)
def test_a_recovery_is_load_and_rebuild_and_verify(times: dict[str, float], parts: tuple[float, float, float]) -> None:
    found = split.recovery({"times": times})
    assert found is not None
    assert (found["load"], found["rebuild"], found["verify"], found["total"]) == (*parts, sum(parts))


@pytest.mark.parametrize("times", [{}, {"resolved": 5.0}, {"restart_done": 5.0}])
def test_no_restart_or_no_end_gives_no_recovery(times: dict[str, float]) -> None:
    assert split.recovery({"times": times}) is None


@pytest.mark.parametrize(
    ("kind", "attempt", "data", "name"),
    [
        ("snapshot", 2, {"state": "restored"}, "restored"),
        ("snapshot", 2, {"state": "committed"}, None),
        ("step", 2, {}, "first_step"),
        ("step", 1, {}, None),
        ("step", None, {}, None),
    ],
)
def test_marks_belong_to_the_new_attempt(kind: str, attempt: int | None, data: dict[str, Any], name: str | None) -> None:
    signal = Signal(t=1.0, kind=kind, job="j1", data=data | ({"attempt": attempt} if attempt else {}))
    assert split.mark({"restarts": {"j1": 1}, "times": {}}, signal) == name
    assert split.mark({"restarts": {"j2": 1}, "times": {}}, signal) is None


def test_histograms_stand_on_the_page() -> None:
    histograms = Histograms()
    for seconds in (0.02, 4.0, 5000.0):
        histograms.add("outrider_detection_seconds", ("total",), seconds)
    page = Metrics(list, histograms).page()[0].decode()
    assert 'outrider_detection_seconds_bucket{le="0.025",part="total"} 1.0' in page
    assert 'outrider_detection_seconds_bucket{le="+Inf",part="total"} 3.0' in page
    assert 'outrider_detection_seconds_sum{part="total"} 5004.02' in page
