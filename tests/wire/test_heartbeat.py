"""A heartbeat comes through unchanged or not at all."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider import wire

KEY = b"k" * 32
OTHER = b"o" * 32
BEAT = wire.Heartbeat(1, "n7", "0a1b2c3d", 4, 99, 123.5, 0.002)


def test_a_heartbeat_comes_back_as_it_was_sent() -> None:
    datagram = wire.pack_heartbeat(BEAT, (KEY,))
    assert wire.unpack_heartbeat(datagram, (KEY,)) == BEAT
    assert len(datagram) < 80


def test_the_form_is_the_contracts() -> None:
    """Other programs rely on it: a MessagePack array, then 16 bytes."""
    body = wire.pack_heartbeat(BEAT, (KEY,))[:-16]
    assert msgspec.msgpack.decode(body) == [1, "n7", "0a1b2c3d", 4, 99, 123.5, 0.002]


def test_a_new_key_is_taken_up_while_the_old_one_still_holds() -> None:
    datagram = wire.pack_heartbeat(BEAT, (OTHER,))
    assert wire.unpack_heartbeat(datagram, (KEY, OTHER)) == BEAT


@settings(deadline=None)
@given(position=st.integers(0, 200), flip=st.integers(1, 255))
def test_one_changed_byte_is_refused(position: int, flip: int) -> None:
    datagram = bytearray(wire.pack_heartbeat(BEAT, (KEY,)))
    datagram[position % len(datagram)] ^= flip
    with pytest.raises(wire.WireError, match="signature"):
        wire.unpack_heartbeat(bytes(datagram), (KEY,))


@settings(deadline=None)
@given(st.binary(max_size=600))
def test_junk_is_refused_with_a_bounded_reason(junk: bytes) -> None:
    with pytest.raises(wire.WireError) as caught:
        wire.unpack_heartbeat(junk, (KEY,))
    assert caught.value.reason in ("size", "signature")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\xc1", "format"),
        (msgspec.msgpack.encode([1, "n7"]), "format"),
        (msgspec.msgpack.encode({"node": "n7"}), "format"),
        (msgspec.msgpack.encode([2, "n7", "b", 1, 1, 1.0, 0.0]), "version"),
    ],
    ids=["no messagepack", "too short", "a map", "another version"],
)
def test_signed_but_wrong_is_refused(body: bytes, reason: str) -> None:
    tag = wire.blake2s(body, key=KEY, digest_size=16).digest()
    with pytest.raises(wire.WireError, match=reason):
        wire.unpack_heartbeat(body + tag, (KEY,))


def test_a_probe_is_answered_with_its_own_nonce_and_nothing_else_is() -> None:
    nonce = bytes(range(16))
    assert wire.probe_answer(wire.probe_question(nonce)) == b"OUTRIDER!" + nonce
    for wrong in (b"", b"OUTRIDER?", b"OUTRIDER?" + nonce[:15], b"OUTRIDER?" + nonce + b"x", b"OUTRIDER!" + nonce):
        assert wire.probe_answer(wrong) is None


def test_orders_and_acknowledgements_come_back_as_sent() -> None:
    orders = [
        wire.Order(number=3, id="a", order="probe", node="n2", address="10.0.0.2", port=9471, closed_port=9479),
        wire.Order(number=4, id="b", order="publish", job="j", ranks=(0, 2), fence=7, incident="i", deadline_s=5.0),
    ]
    assert wire.decode_orders(wire.encode_orders(orders)) == orders
    assert wire.decode_acknowledgement(wire.encode_acknowledgement("n/b/1/9")) == "n/b/1/9"
    assert wire.decode_acknowledgement(wire.encode_acknowledgement(None)) is None


def test_a_signals_name_holds_its_number() -> None:
    assert wire.signal_number(wire.signal_id("n", "b", 1, 17)) == 17
    assert wire.signal_number(None) is None
    assert wire.signal_number("n/b/1/x") is None
