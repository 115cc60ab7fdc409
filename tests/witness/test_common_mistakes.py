"""What a person gets wrong at first is told where he looks: another heartbeat key, a port that somebody has."""

import socket

import pytest

from detectors.witness import up
from detectors.witness.heartbeats import HeartbeatReceiver
from detectors.witness.service import FORGED_SECONDS, Witness
from outrider.clock import ManualClock
from outrider.config.security import SecuritySection
from outrider.config.site import Config
from outrider.config.witness import Member, WitnessSection
from outrider.errors import InputError
from outrider.wire import Heartbeat, pack_heartbeat

KEY, OTHER = b"k" * 32, b"x" * 32
SECURITY = SecuritySection()


def test_heartbeats_of_another_key_are_told_while_they_come(witness: Witness, clock: ManualClock) -> None:
    """Such a node is silent for ever; a counter alone would leave a person to guess."""
    witness.clock = clock
    witness.receiver = receiver = HeartbeatReceiver("127.0.0.1", 0, (KEY,), lambda signal: None, clock)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        told = []
        for key in (KEY, OTHER):
            sender.sendto(pack_heartbeat(Heartbeat(1, "n1", "b1", 1, 1, 5.0, 0.25), (key,)), ("127.0.0.1", receiver.port))
            receiver.read(256)
            told.append([line for line in witness.warnings("w1") if "heartbeat_key_file" in line])
    receiver.close()
    assert [len(lines) for lines in told] == [0, 1]
    clock.advance(FORGED_SECONDS)
    assert not [line for line in witness.warnings("w1") if "heartbeat_key_file" in line]


@pytest.mark.parametrize(("key", "kind"), [("http_port", socket.SOCK_STREAM), ("heartbeat_port", socket.SOCK_DGRAM)])
def test_a_port_that_somebody_has_is_told_before_anything_is_started(key: str, kind: socket.SocketKind) -> None:
    """The witnesses of another `outrider up` answer there: they would be taken for ours."""
    with socket.socket(socket.AF_INET, kind) as squatter, socket.socket() as free, socket.socket(type=socket.SOCK_DGRAM) as quiet:
        for one in (squatter, free, quiet):
            one.bind(("127.0.0.1", 0))
        if kind is socket.SOCK_STREAM:
            squatter.listen()
        port = squatter.getsockname()[1]
        ports = {"http_port": free.getsockname()[1], "heartbeat_port": quiet.getsockname()[1], key: port}
        (free if key == "heartbeat_port" else quiet).close()
        config = Config({"witness": WitnessSection(members=(Member(name="w1", **ports),)), "security": SECURITY}, None)
        with pytest.raises(InputError, match=rf"witness.members\[0\].{key}: port {port} at 127.0.0.1: Address already in use"):
            up.check(config)


def test_two_witnesses_on_one_port_are_told() -> None:
    with socket.socket() as one, socket.socket(type=socket.SOCK_DGRAM) as two, socket.socket(type=socket.SOCK_DGRAM) as three:
        for each in (one, two, three):
            each.bind(("127.0.0.1", 0))
        http, beats = one.getsockname()[1], [each.getsockname()[1] for each in (two, three)]
    members = tuple(Member(name=f"w{place}", http_port=http, heartbeat_port=beat) for place, beat in enumerate(beats))
    config = Config({"witness": WitnessSection(members=members), "security": SECURITY}, None)
    with pytest.raises(InputError, match=rf"members\[1\].http_port: port {http}"):
        up.check(config)
