"""The deliverer's Prometheus page: attempts, breakers, and the outbox by state."""

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from detectors.witness.ledger import Ledger, LedgerError
from detectors.witness.outbox import RowState
from outrider import __version__
from outrider.config.alerts import AlertsConfig
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
    async def page(self, settings: AlertsConfig, ledger: Ledger) -> AsyncIterator[None]:
        """Serves `/metrics` while it lasts, where a port is set."""
        if not settings.metrics_port:
            yield
            return

        async def answer(_: web.Request) -> web.Response:
            return web.Response(body=await self.text(ledger), headers={"Content-Type": CONTENT_TYPE_LATEST})

        application = web.Application()
        application.router.add_get("/metrics", answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, settings.metrics_address, settings.metrics_port).start()
            yield
        finally:
            await runner.cleanup()


def _named(name: str) -> tuple[str, str, tuple[str, ...]]:
    entry = METRICS[name]
    return name.removesuffix("_total"), entry.help, entry.labels
