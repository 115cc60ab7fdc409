"""Datagrams become heartbeat signals; what is not signed, or no heartbeat, is counted and nothing more."""

import socket
from collections.abc import Iterator

import pytest

from detectors.witness.heartbeats import HeartbeatReceiver
from outrider.clock import ManualClock
from outrider.errors import OutriderError
from outrider.signals import Signal
from outrider.wire import Heartbeat, pack_heartbeat

KEY = b"k" * 32


class Pair:
    """A receiver and a socket that sends to it."""

    def __init__(self, clock: ManualClock) -> None:
        self.signals: list[Signal] = []
        self.receiver = HeartbeatReceiver("127.0.0.1", 0, (KEY,), self.signals.append, clock)
        self.sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sender.connect(("127.0.0.1", self.receiver.port))

    def send(self, seq: int, key: bytes = KEY) -> None:
        self.sender.send(pack_heartbeat(Heartbeat(1, "n1", "b1", 1, seq, 5.0, 0.25), (key,)))


@pytest.fixture
def pair(clock: ManualClock) -> Iterator[Pair]:
    made = Pair(clock)
    yield made
    made.sender.close()
    made.receiver.close()


def test_a_good_beat_becomes_a_signal(pair: Pair) -> None:
    pair.send(7)
    assert pair.receiver.read(256) == 1
    (signal,) = pair.signals
    assert (signal.kind, signal.node, signal.t) == ("heartbeat", "n1", 100.0)
    assert signal.data == {"seq": 7, "start": 1, "boot": "b1", "sent_s": 5.0, "lag_s": 0.25}


def test_a_beat_signed_with_another_key_is_refused(pair: Pair) -> None:
    pair.send(1, key=b"x" * 32)
    pair.sender.send(b"")
    pair.sender.send(b"z" * 600)
    pair.receiver.read(256)
    assert pair.signals == []
    assert pair.receiver.refused == {"signature": 1, "size": 2}


def test_a_turn_reads_no_more_than_its_limit_and_a_drain_reads_all(pair: Pair) -> None:
    for seq in range(20):
        pair.send(seq)
    assert pair.receiver.read(5) == 5
    assert pair.receiver.drain() == 15
    assert [signal.data["seq"] for signal in pair.signals] == list(range(20))


def test_a_busy_port_is_one_line(pair: Pair) -> None:
    with pytest.raises(OutriderError, match=rf"127\.0\.0\.1:{pair.receiver.port}/udp: Address already in use"):
        HeartbeatReceiver("127.0.0.1", pair.receiver.port, (KEY,), lambda _: None, ManualClock())
