"""The side thread's connection to the agent: hello, memory, events. It never waits, and it comes back by itself."""

import collections
import contextlib
import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from outrider.sdk.log import warn_once

#: Events kept while there is no agent; the oldest go first.
_EVENTS_MAX: Final = 500
_LINE_MAX: Final = 65536
#: An agent that does not answer a hello in this time is tried again; it reserves memory first, about 2 GB a second.
_ANSWER_SECONDS: Final = 10.0
_RESERVED_BYTES_PER_SECOND: Final = 0.5e9


@dataclass(frozen=True, slots=True)
class Memory:
    """What the agent answered: paths of the two files, and which files these are now (device, inode)."""

    progress: str
    copy: str
    identity: tuple[tuple[int, int], tuple[int, int]]


class AgentLink:
    """A line to the agent. All methods are for the side thread, but `tell`, which any thread may call.

    Args:
        path: the agent's socket.
        hello: makes the first line (without copy_bytes).
        pause: seconds between two attempts.
        welcome: called with the agent's memory, each time it is given.
    """

    def __init__(self, path: str, hello: Callable[[], dict[str, Any]], pause: float, welcome: Callable[[Memory], None]) -> None:
        self._path, self._hello, self._pause, self._welcome = path, hello, pause, welcome
        self._events: collections.deque[bytes] = collections.deque(maxlen=_EVENTS_MAX)
        self._socket: socket.socket | None = None
        self._received, self._unsent = b"", b""
        self._answer_by = self._next_try = 0.0
        self.connected = False
        self.lost = 0

    def tell(self, kind: str, value: float | int | str | None, text: str | None = None, **data: Any) -> None:
        """Queues one event. Values are plain JSON; what has no value is left out."""
        event: dict[str, Any] = {"kind": kind, "value": value, "data": {k: v for k, v in data.items() if v is not None}}
        if text:
            event["text"] = text
        self.lost += len(self._events) == _EVENTS_MAX
        self._events.append(json.dumps({"event": event}).encode() + b"\n")

    def hello_again(self) -> None:
        """Says hello on a new connection: the state turned out bigger than the area."""
        self._close()
        self._next_try = 0.0

    def tick(self, now: float) -> None:
        """Goes on with whatever can be done now. Args: now, monotonic seconds."""
        try:
            if self._socket is None:
                if now >= self._next_try:
                    self._next_try = now + self._pause
                    self._connect(now)
                return
            self._receive()
            if not self.connected and now > self._answer_by:
                raise OSError("does not answer")
            self._send()
        except (OSError, ValueError, KeyError, TypeError) as error:
            if not isinstance(error, BlockingIOError):
                warn_once("agent", f"agent at {self._path}: {error}; going on without, trying again")
                self._close()

    def flush(self, now: float) -> bool:
        """Sends what is queued; True when nothing is left to send, or nobody to send it to."""
        self.tick(now)
        return self._socket is None or not (self._events or self._unsent)

    def _connect(self, now: float) -> None:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.setblocking(False)
        self._socket, self._received, self.connected = line, b"", False
        line.connect(self._path)
        hello = self._hello()
        self._answer_by = now + _ANSWER_SECONDS + 2 * hello["copy_bytes"] / _RESERVED_BYTES_PER_SECOND
        self._unsent = json.dumps(hello).encode() + b"\n"
        self._push()

    def _receive(self) -> None:
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError):
            chunk = self._socket.recv(_LINE_MAX)
            if not chunk:
                raise OSError("the agent went away")
            self._received += chunk
        line, found, rest = self._received.partition(b"\n")
        if not found:
            if len(self._received) > _LINE_MAX:
                raise ValueError("the answer is too long")
            return
        self._received = rest
        answer = json.loads(line)
        if not answer.get("ok"):
            raise ValueError(str(answer.get("error", "the agent refused")))
        progress, copy = str(answer["progress"]), str(answer["copy"])
        self._welcome(Memory(progress, copy, (_identity(progress), _identity(copy))))
        self.connected = True

    def _send(self) -> None:
        """Events go out only after the answer: the agent knows then whose they are."""
        self._push()
        while self.connected and self._events and not self._unsent:
            self._unsent = self._events.popleft()
            self._push()

    def _push(self) -> None:
        assert self._socket is not None
        while self._unsent:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self.connected, self._unsent = None, False, b""


def _identity(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
