"""JSON objects, one a line, over a stream socket: how launchers, nursery and scheduler talk."""

import json
import socket
from typing import Any

#: A line longer than this is not ours: the longest real one (a job's description) is a few kilobytes.
LINE_BYTES_MAX = 1 << 20


class LineSocket:
    """A stream socket that is read without blocking and written whole.

    `lines()` returns what has arrived; `closed` turns true at the end of the stream.
    """

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._stream.setblocking(False)
        self._buffer = b""
        self.closed = False

    def fileno(self) -> int:
        return self._stream.fileno()

    def lines(self) -> list[dict[str, Any]]:
        """All whole lines that have arrived."""
        while not self.closed:
            try:
                chunk = self._stream.recv(65536)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            if not chunk or len(self._buffer) > LINE_BYTES_MAX:
                self.closed = True
                break
            self._buffer += chunk
        *whole, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in whole if line.strip()]

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message; marks the stream closed where the peer is gone. Waits 1 s at most for a full pipe."""
        try:
            self._stream.settimeout(1.0)
            self._stream.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.closed = True
        finally:
            if self._stream.fileno() >= 0:
                self._stream.setblocking(False)

    def close(self) -> None:
        self.closed = True
        self._stream.close()
