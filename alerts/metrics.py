"""The deliverer's Prometheus page: attempts, breakers, and the outbox by state."""

import contextlib
import hmac
import ipaddress
from collections.abc import AsyncIterator

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from detectors.witness.ledger import Ledger, LedgerError
from detectors.witness.outbox import RowState
from outrider import __version__
from outrider.config.alerts import AlertsConfig
from outrider.errors import InputError
from outrider.metrics import METRICS

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
            InputError: not loopback and no token, or the port is taken.
        """
        if not settings.metrics_port:
            yield
            return
        if not tokens and not _is_loopback(settings.metrics_address):
            raise InputError("is not loopback: set security.viewer_token_file", key="alerts.metrics_address")
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
                await web.TCPSite(runner, settings.metrics_address, settings.metrics_port).start()
            except OSError as error:
                raise InputError(f"port {settings.metrics_port}: {error.strerror}", key="alerts.metrics_port") from None
            yield
        finally:
            await runner.cleanup()


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _named(name: str) -> tuple[str, str, tuple[str, ...]]:
    entry = METRICS[name]
    return name.removesuffix("_total"), entry.help, entry.labels
