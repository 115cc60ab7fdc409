"""`/metrics`: one page from an immutable picture, rendered at most once an interval and only when somebody asks.

Listens on loopback, or on another address for those with a viewer's token. Nothing is read from a device while a scrape waits.
"""

import hmac
import http.server
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from collectors.agent.loop import Loop
from outrider.errors import InputError
from outrider.metrics import METRICS
from outrider.tls import RenewedContext

#: Scrapes at a time; two Prometheus servers and a person are three.
SCRAPES_MAX = 8
#: A client that does not send its request within this is dropped.
REQUEST_SECONDS = 5.0


class Family(NamedTuple):
    """One metric: `name` without `_total` for a counter, unit last, and its samples (labels, value)."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: list[tuple[dict[str, str], float]]


def family(name: str, samples: list[tuple[dict[str, str], float]]) -> Family:
    """The family of a metric of `outrider.metrics`, with these samples."""
    entry = METRICS[name]
    if entry.type == "counter":
        return Family(name.removesuffix("_total"), "counter", entry.help, samples)
    return Family(name, "gauge", entry.help, samples)


class MetricsPage:
    """The page. `sources` are asked for families when it is rendered; one that fails is left out and counted.

    Args:
        seconds: at most one rendering in this time.
    """

    def __init__(self, seconds: float) -> None:
        self.sources: list[Callable[[], Iterable[Family]]] = []
        self.failures = 0
        self._seconds = seconds
        self._lock = threading.Lock()
        self._body, self._until = b"", 0.0
        self._rendered: dict[str, tuple[Family, bytes]] = {}

    def render(self) -> bytes:
        """The page's bytes. A family that says what it said is not rendered again: most counters stand still for hours."""
        with self._lock:
            now = time.monotonic()
            if now >= self._until:
                self._rendered = {one.name: (one, self._bytes_of(one)) for one in self._families()}
                self._body = b"".join(body for _, body in self._rendered.values())
                self._until = now + self._seconds
            return self._body

    def _families(self) -> list[Family]:
        """All families, those of one name together."""
        merged: dict[str, Family] = {}
        for source in self.sources:
            try:
                for one in source():
                    merged.setdefault(one.name, one._replace(samples=[])).samples.extend(one.samples)
            except Exception:
                self.failures += 1
        return list(merged.values())

    def _bytes_of(self, one: Family) -> bytes:
        before = self._rendered.get(one.name)
        if before is not None and before[0] == one:
            return before[1]
        metric = Metric(one.name, one.help, one.kind)
        try:
            for labels, value in one.samples:
                metric.add_sample(one.name + ("_total" if one.kind == "counter" else ""), labels, value)
            return generate_latest(_Single(metric))
        except Exception:
            self.failures += 1  # a sample that makes no sense costs its family, not the page
            return b""


class _Single(Collector):
    """One metric, as the official library wants to be given it."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return [self._metric]


class MetricsServer:
    """Serves the page, each scrape in a thread of its own.

    Args:
        page: what to serve.
        address, port: where.
        tokens: bearer tokens of viewers; empty is allowed on loopback only.
        tls: its certificate; None: clear text.

    Raises:
        InputError: not loopback and no token, or the port is taken.
    """

    def __init__(
        self, page: MetricsPage, address: str, port: int, tokens: tuple[str, ...], tls: RenewedContext | None = None
    ) -> None:
        if not tokens and not _is_loopback(address):
            raise InputError(f"is {address}, which is not loopback: set security.viewer_token_file", key="agent.metrics_address")
        try:
            self._server = _Server((address, port), _handler(page, tokens), tls)
        except OSError as error:
            raise InputError(f"port {port} at {address}: {error.strerror}", key="agent.metrics_port") from None
        self.port: int = self._server.server_address[1]

    def begin(self, loop: Loop) -> None:
        """Serves from now on: the loop sees who comes."""
        loop.watch(self._server, self._server.handle_request)

    def close(self, loop: Loop) -> None:
        """Ends serving."""
        loop.unwatch(self._server)
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    #: Whoever came may have gone again: the loop never waits for him.
    timeout = 0

    def __init__(
        self, place: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler], tls: RenewedContext | None
    ) -> None:
        self._tls = tls
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        self._free = threading.BoundedSemaphore(SCRAPES_MAX)
        super().__init__(place, handler)
        self.socket.setblocking(False)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be had
            self._free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the scrape's own thread: a client that never says hello holds up nobody else."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(REQUEST_SECONDS)
        with self._tls.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is no news."""


def _handler(page: MetricsPage, tokens: tuple[str, ...]) -> type[http.server.BaseHTTPRequestHandler]:
    allowed = [f"Bearer {token}".encode() for token in tokens]

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS
        server_version, sys_version = "outrider", ""

        def do_GET(self) -> None:
            given = self.headers.get("Authorization", "").encode()
            if allowed and not any(hmac.compare_digest(given, one) for one in allowed):
                self._reply(401, b"a viewer's token is needed\n", "text/plain")
            elif self.path.partition("?")[0] != "/metrics":
                self._reply(404, b"the page is /metrics\n", "text/plain")
            else:
                self._reply(200, page.render(), CONTENT_TYPE_LATEST)

        def _reply(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", "Bearer")
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """A scrape is no news."""

    return Handler


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
