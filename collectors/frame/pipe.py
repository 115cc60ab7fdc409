"""Messages between agent, nursery and children: MessagePack behind a length, over a Unix socket pair."""

import array
import socket
import struct
from typing import Any

import msgspec

from collectors.frame.types import Outcome, Place
from outrider.errors import OutriderError
from outrider.wire import UNREADABLE

#: Longest message: a thousand signals with their texts.
MESSAGE_BYTES_MAX = 4 << 20
_LENGTH = struct.Struct("<I")


class Read(msgspec.Struct, frozen=True, kw_only=True, tag="read"):
    """A reading is over. `error`: what went wrong, then there is no outcome. `seconds`: how long it took.

    `same`: it said what the last one said, which is not sent again: hundreds of samples cost the agent more than all that it does
    meanwhile."""

    collector: str
    seconds: float
    now: float
    outcome: Outcome | None = None
    error: str | None = None
    same: bool = False


class Spawn(msgspec.Struct, frozen=True, kw_only=True, tag="spawn"):
    """To the nursery: a child for these collectors (name -> `module:class`); its socket and its board come with the message."""

    child: int
    collectors: dict[str, str]
    place: Place


class Spawned(msgspec.Struct, frozen=True, kw_only=True, tag="spawned"):
    """From the nursery: the child's process."""

    child: int
    pid: int


class Exited(msgspec.Struct, frozen=True, kw_only=True, tag="exited"):
    """From the nursery: a child has ended; `code` < 0: minus the signal."""

    child: int
    code: int


FromNursery = Spawned | Exited


class PipeError(OutriderError):
    """The other side is gone or speaks nonsense."""


class Pipe:
    """One end of a stream of messages of the given type."""

    def __init__(self, channel: socket.socket, incoming: Any) -> None:
        self.channel = channel
        self._decoder = msgspec.msgpack.Decoder(incoming)
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray()

    def fileno(self) -> int:
        return self.channel.fileno()

    def send(self, message: Any, descriptors: list[int] | None = None) -> None:
        """Sends a whole message, waiting if the channel is a blocking one. Raises PipeError."""
        body = self._encoder.encode(message)
        blob = _LENGTH.pack(len(body)) + body
        try:
            if descriptors:
                rights = array.array("i", descriptors)
                sent = self.channel.sendmsg([blob], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
                blob = blob[sent:]
            self.channel.sendall(blob)
        except OSError as error:
            raise PipeError(f"cannot send: {error}") from None

    def receive(self) -> tuple[list[Any], list[int]]:
        """The whole messages that have come with one read, and descriptors. Raises PipeError at the end of the stream."""
        try:
            chunk, descriptors, _, _ = socket.recv_fds(self.channel, 1 << 18, 4)
        except BlockingIOError:
            return [], []
        except OSError as error:
            raise PipeError(f"cannot receive: {error}") from None
        if not chunk:
            raise PipeError("the other side is gone")
        self._buffer += chunk
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > MESSAGE_BYTES_MAX:
                raise PipeError("a message is too long")
            if len(self._buffer) < _LENGTH.size + size:
                break
            try:
                messages.append(self._decoder.decode(self._buffer[_LENGTH.size : _LENGTH.size + size]))
            except UNREADABLE as error:
                raise PipeError(f"a message makes no sense: {error}") from None
            del self._buffer[: _LENGTH.size + size]
        return messages, descriptors

    def close(self) -> None:
        self.channel.close()
