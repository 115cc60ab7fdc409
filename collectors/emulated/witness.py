"""Stand-ins for those whom the agent talks to: a witness, and a rank or launcher on the Unix socket. For tests and benches."""

import contextlib
import http.server
import json
import socket
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from outrider import wire
from outrider.signals import Signal, decode_batch
from outrider.wire import UNREADABLE


class FakeWitness:
    """Takes signals and heartbeats, gives orders. `refuse` answers that status instead of taking signals."""

    def __init__(self, keys: tuple[bytes, ...], token: str) -> None:
        self.keys, self.token = keys, token
        self.signals: list[Signal] = []
        self.beats: list[wire.Heartbeat] = []
        self.headers: dict[str, str] = {}
        self.refuse = 0
        self.bytes_taken = 0
        self.changed = threading.Condition()
        self._orders: list[wire.Order] = []
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", 0))
        #: Connections that are open, to be cut when the witness goes away.
        self.callers: set[socket.socket] = set()
        self.http_port, self.heartbeat_port = 0, self._udp.getsockname()[1]
        self.come_back()
        threading.Thread(target=self._hear, daemon=True).start()

    def come_back(self) -> None:
        """Listens, on the port that it had."""
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.http_port), _handler(self))
        self.server.daemon_threads, self.server.block_on_close = True, False
        self.http_port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def go_away(self) -> None:
        """Ends as a process would: nobody listens, and every connection is cut. Heartbeats are heard all the same."""
        self.server.shutdown()
        self.server.server_close()
        for caller in list(self.callers):
            with contextlib.suppress(OSError):
                caller.shutdown(socket.SHUT_RDWR)

    def order(self, **fields: Any) -> None:
        """Gives an order (fields of `outrider.wire.Order`) to all who ask for those after an earlier number, as a witness does."""
        with self.changed:
            self._orders.append(wire.Order(**fields))
            self.changed.notify_all()

    def wait(self, condition: Any, seconds: float = 20.0) -> Any:
        """Waits until `condition(self)` is true; returns its value."""
        until, found = time.monotonic() + seconds, None
        with self.changed:
            while not (found := condition(self)) and (left := until - time.monotonic()) > 0:
                self.changed.wait(min(left, 0.05))  # also sees what changes elsewhere
        if not found:
            raise TimeoutError(f"never came; heard {[(s.kind, s.value) for s in self.signals]}")
        return found

    def first(self, kind: str, seconds: float = 20.0, **fields: Any) -> Signal:
        """The first signal of that kind with those fields."""

        def find(_: object) -> Signal | None:
            for signal in self.signals:
                if signal.kind == kind and all(getattr(signal, key) == value for key, value in fields.items()):
                    return signal
            return None

        found: Signal = self.wait(find, seconds)
        return found

    def close(self) -> None:
        """Ends serving."""
        self.server.shutdown()
        self.server.server_close()
        self._udp.close()

    def _hear(self) -> None:
        while True:
            try:
                datagram = self._udp.recv(2048)
            except OSError:
                return
            with self.changed:
                self.beats.append(wire.unpack_heartbeat(datagram, self.keys))
                self.changed.notify_all()

    def _take(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        if headers.get("Authorization") != f"Bearer {self.token}":
            return 401, b""
        if self.refuse:
            return self.refuse, b""
        try:
            batch = decode_batch(body)
        except UNREADABLE:
            return 400, b""  # half a body: the connection was cut
        with self.changed:
            self.headers = headers
            self.bytes_taken += len(body) + sum(len(name) + len(value) + 4 for name, value in headers.items())
            self.signals += batch
            self.changed.notify_all()
        return 200, wire.encode_acknowledgement(batch[-1].id)

    def _next_orders(self, after: int, wait: float) -> bytes:
        with self.changed:
            self.changed.wait_for(lambda: any(order.number > after for order in self._orders), max(0.01, wait))
            return wire.encode_orders([order for order in self._orders if order.number > after])


def _handler(witness: FakeWitness) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one write an answer, as a real server does

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._reply(*witness._take(body, dict(self.headers)))

        def do_GET(self) -> None:
            asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            self._reply(200, witness._next_orders(int(asked["after"]), float(asked["wait"])))

        def _reply(self, status: int, body: bytes) -> None:
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def handle(self) -> None:
            witness.callers.add(self.connection)
            with contextlib.suppress(OSError):
                super().handle()
            witness.callers.discard(self.connection)

        def finish(self) -> None:
            with contextlib.suppress(OSError):  # an answer whose asker has gone, or been cut off
                super().finish()

    return Handler


class Caller:
    """A rank or launcher on the agent's socket."""

    def __init__(self, path: Path, seconds: float = 20.0) -> None:
        until = time.monotonic() + seconds
        while True:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(seconds)
            try:
                self._socket.connect(str(path))
                break
            except OSError:
                self._socket.close()
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
        self._file = self._socket.makefile("rb")

    def say(self, message: dict[str, Any]) -> None:
        """Sends one line."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """Reads one line."""
        line: dict[str, Any] = json.loads(self._file.readline())
        return line

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Sends one line and reads the answer."""
        self.say(message)
        return self.hear()

    def close(self) -> None:
        """Hangs up."""
        self._file.close()
        self._socket.close()
