"""What a child is doing right now, in shared memory: the agent looks at it twice a second, and no message is needed.

A sequence number that is odd while the board is being written; one writer, one reader.
"""

import mmap
import os
import struct
from typing import Any

import msgspec

from outrider.wire import UNREADABLE

BOARD_BYTES = 4096
_HEAD = struct.Struct("<QI")
_SEQ = struct.Struct("<Q")


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a collector began; `subject` are signal keys. `now`: monotonic seconds."""

    collector: str
    call: str
    now: float
    subject: dict[str, Any] = {}


class Board:
    """One side of a board. Args: descriptor of its memory (see `make_board`); it is not closed here."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, BOARD_BYTES)
        self._sequence = 0
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Begun)

    def write(self, begun: Begun | None) -> None:
        """A call begins; None: the child rests."""
        body = self._encoder.encode(begun) if begun is not None else b""
        body = body if len(body) <= BOARD_BYTES - _HEAD.size else b""
        _SEQ.pack_into(self._memory, 0, self._sequence + 1)
        self._memory[_HEAD.size : _HEAD.size + len(body)] = body
        self._sequence += 2
        _HEAD.pack_into(self._memory, 0, self._sequence, len(body))

    def read(self) -> Begun | None:
        """The call that goes on now; None if the child rests, or is just writing (then no call is old)."""
        sequence, size = _HEAD.unpack_from(self._memory, 0)
        body = self._memory[_HEAD.size : _HEAD.size + min(size, BOARD_BYTES)]
        if sequence & 1 or not size or _SEQ.unpack_from(self._memory, 0)[0] != sequence:
            return None
        try:
            return self._decoder.decode(body)
        except UNREADABLE:
            return None

    def close(self) -> None:
        """Gives the memory back; no write or read may follow."""
        self._memory.close()


def make_board() -> int:
    """A descriptor of fresh memory for a board."""
    descriptor = os.memfd_create("outrider-board", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, BOARD_BYTES)
    return descriptor
