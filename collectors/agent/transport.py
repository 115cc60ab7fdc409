"""The way to one witness: a thread that sends signals in order, and one that waits for orders, each on a connection kept open.

Blocking sockets in threads of their own: a witness that is slow, gone or full of nonsense costs its own two threads and
nobody else. The standard library's HTTP client, for an agent must stay small.
"""

import http.client
import threading
import time
from collections.abc import Callable
from urllib.parse import quote, urlencode

import msgspec

from collectors.agent.spool import Entry, Spool
from outrider.config.witness import Member
from outrider.tls import Log
from outrider.wire import BOOT_HEADER, NODE_HEADER, SENT_HEADER, UNREADABLE, Order, decode_acknowledgement, decode_orders

#: A batch's bounds: the contract's.
BATCH_SIGNALS_MAX = 500
BATCH_BYTES_MAX = 1 << 20
#: A witness that does not answer within this is tried again on a new connection.
REPLY_SECONDS = 5.0
#: First and longest wait after a failure; short, for a witness restarts in about a second.
RETRY_SECONDS = (0.1, 2.0)
#: Longest answer that is read.
ANSWER_BYTES_MAX = 4 << 20


class WitnessLink:
    """Both threads towards one witness.

    `up`: the latest exchange went well. `errors`: failed exchanges. `refused`: signals that the witness will never take.

    Args:
        node, boot: who sends.
        member: the witness.
        token: bearer token of agents.
        spool: where signals come from.
        wait_seconds: how long the witness may hold a request for orders.
        on_orders: called with each list of orders, from the thread.
        log: hears of a replaced authority.

    Raises:
        InputError: the file of the witness's authority holds none.
    """

    def __init__(
        self,
        *,
        node: str,
        boot: str,
        member: Member,
        token: str,
        spool: Spool,
        wait_seconds: float,
        on_orders: Callable[[str, list[Order]], None],
        log: Log | None = None,
    ) -> None:
        self.member, self._trust = member, member.trust(log)
        self.up = False
        self.errors = self.refused = self.sent = self.sent_bytes = 0
        self._node, self._spool, self._wait_seconds, self._on_orders = node, spool, wait_seconds, on_orders
        self._headers = {"Authorization": f"Bearer {token}", NODE_HEADER: node, BOOT_HEADER: boot}
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._forever, args=(once, limit), name=f"{member.name}-{what}", daemon=True)
            for what, once, limit in (
                ("signals", self._send_once, REPLY_SECONDS),
                ("orders", self._fetch_once, wait_seconds + REPLY_SECONDS),
            )
        ]
        self._batch_max = BATCH_SIGNALS_MAX
        self._after = 0

    def begin(self) -> None:
        """Starts the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Asks the threads to end. A long poll ends with the process."""
        self._stopping.set()

    def _forever(self, once: Callable[[http.client.HTTPConnection], None], limit: float) -> None:
        delay = RETRY_SECONDS[0]
        where = (self.member.address, self.member.http_port)
        connection = (
            http.client.HTTPConnection(*where, timeout=limit)
            if self._trust is None
            else http.client.HTTPSConnection(*where, timeout=limit, context=self._trust)
        )
        while not self._stopping.is_set():
            try:
                once(connection)
                delay = RETRY_SECONDS[0]
            except (OSError, http.client.HTTPException, ValueError, *UNREADABLE):
                connection.close()
                self.up = False
                self.errors += 1
                self._stopping.wait(delay)
                delay = min(2 * delay, RETRY_SECONDS[1])
        connection.close()

    def _send_once(self, connection: http.client.HTTPConnection) -> None:
        batch = self._spool.take(self.member.name, count_max=self._batch_max, bytes_max=BATCH_BYTES_MAX, wait_seconds=1.0)
        if not batch:
            return
        body = msgspec.msgpack.encode([msgspec.Raw(entry.body) for entry in batch])
        headers = {**self._headers, "Content-Type": "application/msgpack", SENT_HEADER: f"{time.monotonic():.6f}"}
        status, answer = _exchange(connection, "POST", "/v1/signals", body, headers)
        if status in (400, 413):
            self._refused(batch)
            return
        if status != 200:
            raise http.client.HTTPException(f"status {status}")
        self._acknowledged(batch, decode_acknowledgement(answer))
        self._batch_max = BATCH_SIGNALS_MAX
        self.up = True
        self.sent += len(batch)
        self.sent_bytes += len(body)

    def _acknowledged(self, batch: list[Entry], last: str | None) -> None:
        names = [msgspec.msgpack.decode(entry.body, type=_Named).id for entry in reversed(batch)]
        if last not in names:
            raise ValueError("the witness acknowledged what was not sent")
        self._spool.acknowledge(self.member.name, batch[len(batch) - 1 - names.index(last)].number)

    def _refused(self, batch: list[Entry]) -> None:
        """The witness cannot read the batch: smaller ones find the signal that is to blame, and that one is given up."""
        if len(batch) > 1:
            self._batch_max = len(batch) // 2
            return
        self.refused += 1
        self._spool.acknowledge(self.member.name, batch[0].number)
        self._batch_max = BATCH_SIGNALS_MAX

    def _fetch_once(self, connection: http.client.HTTPConnection) -> None:
        query = urlencode({"node": self._node, "after": self._after, "wait": f"{self._wait_seconds:g}"}, quote_via=quote)
        began = time.monotonic()
        status, answer = _exchange(connection, "GET", f"/v1/orders?{query}", None, self._headers)
        if status != 200:
            raise http.client.HTTPException(f"status {status}")
        orders = decode_orders(answer)
        self.up = True
        if orders:
            self._after = max(self._after, *(order.number for order in orders))
            self._on_orders(self.member.name, orders)
        elif time.monotonic() - began < min(0.1, self._wait_seconds):
            self._stopping.wait(RETRY_SECONDS[0])  # a witness that does not hold the poll must not make us spin


class _Named(msgspec.Struct):
    id: str | None = None


def _exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> tuple[int, bytes]:
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    answer = response.read(ANSWER_BYTES_MAX + 1)
    if len(answer) > ANSWER_BYTES_MAX:
        raise http.client.HTTPException("the answer is too long")
    return response.status, answer
