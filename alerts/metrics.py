"""The deliverer's Prometheus page: attempts, breakers, and the outbox by state."""

import contextlib
import hmac
import ipaddress
from collections.abc import AsyncIterator, Iterator

import structlog
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from detectors.witness.ledger import Ledger, LedgerError
from detectors.witness.outbox import RowState
from outrider import __version__
from outrider.config.alerts import AlertsConfig
from outrider.errors import InputError
from outrider.metrics import METRICS
from outrider.tls import RenewedContext, readings, server_context

log = structlog.get_logger()

#: States that a person looks after; what is done is no news.
STATES: tuple[RowState, ...] = ("pending", "sent", "failed", "dead")
#: Rows counted of one state; more shows as this.
COUNT_MAX = 10_000


class DelivererMetrics:
    """Counters of one deliverer, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._attempts = Counter(*_named("outrider_deliveries_total"), registry=self.registry)
        self._seconds = Histogram(
            *_named("outrider_delivery_seconds"), buckets=METRICS["outrider_delivery_seconds"].buckets, registry=self.registry
        )
        self._breaker = Gauge(*_named("outrider_target_breaker_open"), registry=self.registry)
        self._rows = Gauge(*_named("outrider_outbox_rows"), registry=self.registry)
        Gauge(*_named("outrider_build_info"), registry=self.registry).labels(__version__, "deliverer").set(1)
        self._tls = _Tls()
        self.registry.register(self._tls)

    def attempt(self, target: str, outcome: str, seconds: float) -> None:
        self._attempts.labels(target, outcome).inc()
        self._seconds.labels(target).observe(seconds)

    def breaker(self, target: str, is_open: bool) -> None:
        self._breaker.labels(target).set(is_open)

    async def text(self, ledger: Ledger) -> bytes:
        """The page. A ledger that cannot be asked has no `outbox_rows`: unknown is not zero."""
        try:
            for state in STATES:
                self._rows.labels(state).set(len(await ledger.list_rows(state=state, limit=COUNT_MAX)))
        except LedgerError:
            self._rows.clear()
        return generate_latest(self.registry)

    @contextlib.asynccontextmanager
    async def page(self, settings: AlertsConfig, ledger: Ledger, tokens: tuple[str, ...] = ()) -> AsyncIterator[None]:
        """Serves `/metrics` while it lasts, where a port is set: to anybody on loopback, else to those with a viewer's token.

        Raises:
            InputError: not loopback and no token, a certificate that does not serve, or the port is taken.
        """
        if not settings.metrics_port:
            yield
            return
        if not tokens and not _is_loopback(settings.metrics_address):
            raise InputError("is not loopback: set security.viewer_token_file", key="alerts.metrics_address")
        if settings.metrics_tls_cert:
            self._tls.context = server_context(settings.metrics_tls_cert, settings.metrics_tls_key, log)
        allowed = [f"Bearer {token}".encode() for token in tokens]

        async def answer(request: web.Request) -> web.Response:
            given = request.headers.get("Authorization", "").encode()
            if allowed and not any([hmac.compare_digest(given, one) for one in allowed]):  # noqa: C419 - all are compared
                return web.Response(status=401, text="a viewer's token is needed\n", headers={"WWW-Authenticate": "Bearer"})
            return web.Response(body=await self.text(ledger), headers={"Content-Type": CONTENT_TYPE_LATEST})

        application = web.Application()
        application.router.add_get("/metrics", answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            try:
                place = (settings.metrics_address, settings.metrics_port)
                await web.TCPSite(runner, *place, ssl_context=self._tls.context).start()
            except OSError as error:
                raise InputError(f"port {settings.metrics_port}: {error.strerror}", key="alerts.metrics_port") from None
            yield
        finally:
            await runner.cleanup()


class _Tls(Collector):
    """What the page says of certificates. `context`: of its own listener; None: clear text."""

    context: RenewedContext | None = None

    def describe(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        return []

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        for name, labels, value in readings("deliverer", self.context):
            plain, words, names = _named(name)
            family = (GaugeMetricFamily if METRICS[name].type == "gauge" else CounterMetricFamily)(plain, words, labels=names)
            family.add_metric(labels, value)
            yield family


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _named(name: str) -> tuple[str, str, tuple[str, ...]]:
    entry = METRICS[name]
    return name.removesuffix("_total"), entry.help, entry.labels
