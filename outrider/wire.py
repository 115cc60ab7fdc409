"""What agents and witnesses say to each other: signed heartbeats, the probe's nonce, and orders.

A heartbeat is one UDP datagram: a MessagePack array and 16 bytes of keyed BLAKE2s behind it (about 60 bytes). An
order is one JSON object in the answer to an agent's long poll. Needs msgspec (extra `cli`); nothing here does I/O.
"""

import hmac
from hashlib import blake2s
from typing import Final, Literal

import msgspec

#: First element of every heartbeat; another number is another format and is refused.
HEARTBEAT_VERSION: Final = 1
#: Bytes of the tag behind a heartbeat: 128 bits, so a forger's chance is 2**-128 a try.
TAG_BYTES: Final = 16
#: A longer datagram is never a heartbeat: name and boot id take up to 128 bytes each, the numbers under 40.
HEARTBEAT_BYTES_MAX: Final = 512

PROBE_QUESTION: Final = b"OUTRIDER?"
PROBE_ANSWER: Final = b"OUTRIDER!"
NONCE_BYTES: Final = 16

#: HTTP header of a signal batch: the agent's monotonic clock when it was sent, so a signal's age is `sent - t`.
SENT_HEADER: Final = "Outrider-Sent"
#: HTTP header of every request of an agent: the name of its node.
NODE_HEADER: Final = "Outrider-Node"
#: HTTP header of a signal batch: the boot id that the clock of `SENT_HEADER` belongs to.
BOOT_HEADER: Final = "Outrider-Boot"
#: What reading the bytes of others may raise. A text that is nested a thousand deep ends in RecursionError, in fields that nobody
#: wants too.
UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class WireError(ValueError):
    """A datagram that is not what it should be. `reason` is a bounded word for a metric's label."""

    def __init__(self, reason: Literal["size", "signature", "format", "version"]) -> None:
        super().__init__(reason)
        self.reason = reason


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """One sign of life, ordered by (boot, start, seq).

    `version` is HEARTBEAT_VERSION; `start` grows by one with each start of the agent on this node; `seq` counts from
    1 within a start; `sent_s` is the agent's monotonic clock; `lag_s` is how late this beat is against its own
    schedule (>= 0).
    """

    version: int
    node: str
    boot: str
    start: int
    seq: int
    sent_s: float
    lag_s: float


OrderName = Literal["probe", "copy", "publish", "drop", "stop"]


class Order(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a witness asks of one node's agent.

    `number` is the witness's running number, which never goes back, not even over its restart: the agent asks for
    those after the last it saw. `id` is the order's own name, the same at every witness that tells it: the agent
    obeys an `id` once. `fence` (0: none) is the cluster's fencing number; an agent drops an order whose fence is
    below the highest it has seen for that job. `ranks` empty means all ranks of `job` on the node; `job` None means
    all jobs. `attempt` None means any.
    """

    number: int
    id: str
    order: OrderName
    node: str | None = None
    address: str | None = None
    port: int | None = None
    closed_port: int | None = None
    job: str | None = None
    ranks: tuple[int, ...] = ()
    attempt: int | None = None
    step: int | None = None
    fence: int = 0
    incident: str | None = None
    deadline_s: float | None = None
    reason: str | None = None


_beat_encoder = msgspec.msgpack.Encoder()
_beat_decoder = msgspec.msgpack.Decoder(Heartbeat)
_order_encoder = msgspec.json.Encoder()
_order_decoder = msgspec.json.Decoder(list[Order])


def pack_heartbeat(beat: Heartbeat, keys: tuple[bytes, ...]) -> bytes:
    """The datagram for `beat`, signed with the first of `keys` (16 to 32 bytes each)."""
    body = _beat_encoder.encode(beat)
    return body + blake2s(body, key=keys[0], digest_size=TAG_BYTES).digest()


def unpack_heartbeat(datagram: bytes, keys: tuple[bytes, ...]) -> Heartbeat:
    """Checks and reads one datagram; any of `keys` may have signed it, so that keys can be changed without a gap.

    Raises:
        WireError: wrong size, no key signed it, or it is not a heartbeat of this version.
    """
    if not TAG_BYTES < len(datagram) <= HEARTBEAT_BYTES_MAX:
        raise WireError("size")
    body, tag = datagram[:-TAG_BYTES], datagram[-TAG_BYTES:]
    for key in keys:
        if hmac.compare_digest(blake2s(body, key=key, digest_size=TAG_BYTES).digest(), tag):
            break
    else:
        raise WireError("signature")
    try:
        beat = _beat_decoder.decode(body)
    except UNREADABLE:
        raise WireError("format") from None
    if beat.version != HEARTBEAT_VERSION:
        raise WireError("version")
    return beat


def probe_question(nonce: bytes) -> bytes:
    """The datagram that asks an agent's port for a sign of life; `nonce` is NONCE_BYTES long."""
    return PROBE_QUESTION + nonce


def probe_answer(datagram: bytes) -> bytes | None:
    """The right answer to `datagram`, or None where it is no question. As long as the question, so it amplifies
    nothing."""
    if len(datagram) != len(PROBE_QUESTION) + NONCE_BYTES or not datagram.startswith(PROBE_QUESTION):
        return None
    return PROBE_ANSWER + datagram[len(PROBE_QUESTION) :]


def encode_orders(orders: list[Order]) -> bytes:
    """The body of an answer to `GET /v1/orders`."""
    return _order_encoder.encode(orders)


def decode_orders(body: bytes) -> list[Order]:
    """Reads what `encode_orders` wrote. Unknown fields are passed over: an older agent may serve a newer witness.

    Raises:
        msgspec.MsgspecError: the body is not a list of orders.
    """
    return _order_decoder.decode(body)


def signal_id(node: str, boot: str, start: int, number: int) -> str:
    """The name of a signal for deduplication; `number` grows over the agent's restarts."""
    return f"{node}/{boot}/{start}/{number}"


def signal_number(identity: str | None) -> int | None:
    """The number in a name made by `signal_id`, or None where it is none."""
    tail = (identity or "").rpartition("/")[2]
    return int(tail) if tail.isdecimal() else None


def encode_acknowledgement(last: str | None) -> bytes:
    """The body of an answer to `POST /v1/signals`: the name of the last signal that is safe at the witness."""
    return msgspec.json.encode({"last": last})


def decode_acknowledgement(body: bytes) -> str | None:
    """Reads what `encode_acknowledgement` wrote. Raises msgspec.MsgspecError."""
    last: str | None = msgspec.json.decode(body, type=dict[str, str | None]).get("last")
    return last
