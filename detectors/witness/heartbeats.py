"""Receives heartbeats: one non-blocking UDP socket, read until it is empty, a few microseconds a beat.

asyncio's datagram protocol is not used: it costs ten times as much a datagram and loses most of them at 40,000 a second.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable

from outrider.clock import Clock
from outrider.errors import OutriderError
from outrider.signals import Signal
from outrider.wire import HEARTBEAT_BYTES_MAX, WireError, unpack_heartbeat

#: Datagrams read before other work of the loop gets its turn (about 2 ms).
TURN_MAX = 256
#: Kernel buffer that we ask for: two seconds of 12,500 nodes' beats; the kernel may grant less.
BUFFER_BYTES = 8 << 20
#: Most datagrams read at once after a stall: what the buffer can hold, so that draining ends.
DRAIN_MAX = 1 << 17


class HeartbeatReceiver:
    """Turns datagrams into `heartbeat` signals for `sink`.

    `received` counts beats that were good, `refused` the others by reason; `forged_t` is when the last one came whose signature is
    of another key (monotonic seconds; minus infinity: none). It never blocks, and never raises for what it is sent.
    """

    def __init__(self, address: str, port: int, keys: tuple[bytes, ...], sink: Callable[[Signal], None], clock: Clock) -> None:
        self._keys, self._sink, self._clock = keys, sink, clock
        self.received = 0
        self.refused: Counter[str] = Counter()
        self.forged_t = float("-inf")
        self._loop: asyncio.AbstractEventLoop | None = None
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        try:
            self._socket.bind((address, port))
        except OSError as error:
            self._socket.close()
            raise OutriderError(f"heartbeats cannot be received on {address}:{port}/udp: {error.strerror}") from None

    @property
    def port(self) -> int:
        """The UDP port it listens on."""
        number: int = self._socket.getsockname()[1]
        return number

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.add_reader(self._socket.fileno(), self.read, TURN_MAX)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def drain(self) -> int:
        """Reads all that waits; after a stall this comes before any look at a clock. Returns how many datagrams."""
        return self.read(DRAIN_MAX)

    def read(self, limit: int) -> int:
        """Reads at most `limit` datagrams. Returns how many."""
        receive, sink, keys = self._socket.recv, self._sink, self._keys
        now = self._clock.monotonic()
        for count in range(limit):
            try:
                datagram = receive(HEARTBEAT_BYTES_MAX + 1)
            except BlockingIOError:
                return count
            except OSError as error:  # an ICMP answer to nobody's question, or a full kernel table: the next read goes on
                self.refused[f"os_{error.errno}"] += 1
                continue
            try:
                beat = unpack_heartbeat(datagram, keys)
            except WireError as error:
                self.refused[error.reason] += 1
                self.forged_t = now if error.reason == "signature" else self.forged_t
                continue
            self.received += 1
            data = {"seq": beat.seq, "start": beat.start, "boot": beat.boot, "sent_s": beat.sent_s, "lag_s": beat.lag_s}
            sink(Signal(t=now, kind="heartbeat", node=beat.node, data=data))
        return limit
