"""Signals are taken once, and their times are moved to the witness's clock."""

import msgspec
import pytest

from detectors.witness.intake import Intake
from detectors.witness.routes_agents import Gate
from outrider.signals import Signal, encode_batch
from outrider.wire import signal_id


def batch(*numbers: int, boot: str = "b1", t: float = 50.0) -> bytes:
    return encode_batch([Signal(t=t, kind="xid", node="n1", value=79, id=signal_id("n1", boot, 1, number)) for number in numbers])


def test_a_signal_told_twice_is_taken_once() -> None:
    intake = Intake(10)
    first, last = intake.take(batch(1, 2), 100.0, 50.0, "b1")
    again, last_again = intake.take(batch(1, 2, 3), 101.0, 51.0, "b1")
    assert (len(first), len(again)) == (2, 1)
    assert (last, last_again) == ("n1/b1/1/2", "n1/b1/1/3")
    assert intake.counts["duplicate"] == 2


def test_times_are_moved_to_our_clock_by_the_senders_age() -> None:
    signals, _ = Intake(10).take(batch(1, t=48.5), 100.0, 50.0, "b1")
    assert (signals[0].t, signals[0].data["observed_s"]) == (100.0, 98.5)


def test_a_signal_of_an_earlier_boot_is_older_than_everything() -> None:
    signals, _ = Intake(10).take(batch(1, boot="b0", t=90_000.0), 100.0, 50.0, "b1")
    assert signals[0].data["observed_s"] == 0.0


def test_a_senders_own_earlier_time_stays_earlier() -> None:
    body = encode_batch([Signal(t=49.0, kind="xid", node="n1", data={"observed_s": 20.0}, id=signal_id("n1", "b1", 1, 1))])
    signals, _ = Intake(10).take(body, 100.0, 50.0, "b1")
    assert signals[0].data["observed_s"] == 70.0


def test_a_clock_that_runs_ahead_makes_no_signal_of_the_future() -> None:
    signals, _ = Intake(10).take(batch(1, t=60.0), 100.0, 50.0, "b1")
    assert signals[0].data["observed_s"] == 100.0


def test_signals_that_were_turned_away_are_taken_when_they_come_again() -> None:
    intake = Intake(10)
    signals, _ = intake.take(batch(1, 2), 100.0, 50.0, "b1")
    intake.forget(signals)
    again, _ = intake.take(batch(1, 2), 100.0, 50.0, "b1")
    assert len(again) == 2


def test_the_memory_of_senders_is_bounded() -> None:
    intake = Intake(2)
    for boot in ("a", "b", "c"):
        intake.take(batch(1, boot=boot), 100.0, 50.0, boot)
    signals, _ = intake.take(batch(1, boot="c"), 100.0, 50.0, "c")
    assert signals == []
    signals, _ = intake.take(batch(1, boot="a"), 100.0, 50.0, "a")
    assert len(signals) == 1


@pytest.mark.parametrize(
    "body", [b"", b"\xc1", b"junk", msgspec.msgpack.encode([{"kind": "xid"}]), msgspec.msgpack.encode({"t": 1})]
)
def test_what_is_no_batch_is_an_error(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        Intake(10).take(body, 100.0, None, None)


def test_the_gate_lets_the_rate_through_and_no_more() -> None:
    gate = Gate(10.0, 0.0)
    assert gate.passes(10, 0.0)
    assert not gate.passes(1, 0.0)
    assert gate.passes(5, 0.5)
    assert not gate.passes(1, 0.5)
