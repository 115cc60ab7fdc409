"""The deliverer: drains the outbox of the ledger to the targets of `[alerts]`.

At least once, in the order that each row's `after` demands, with back-off and a breaker for each target. Only the holder of the
lease `deliverer` sends; another one waits. A row's id never changes, so a receiver can drop what it has seen.
"""

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field
from typing import Any

import structlog

from alerts.audit import delivery_entry
from alerts.breaker import Breaker, Route
from alerts.delivery import Attempt
from alerts.gone import GoneTargets
from alerts.metrics import DelivererMetrics
from alerts.pause import TOO_LATE, Pause
from alerts.senders import Sender, make_senders
from alerts.witnesses import listening
from detectors.witness.ledger import Ledger, LedgerError, make_ledger
from detectors.witness.outbox import OutboxRow
from outrider.config.alerts import AlertsConfig
from outrider.config.fleet import FleetSection
from outrider.config.ledger import LedgerSection
from outrider.config.security import SecuritySection
from outrider.config.site import Config, SiteSection, read_config
from outrider.fleet import leaf_of

#: Deliveries under way at once: bounds memory and sockets. 1,000 incidents are 16 rounds of it.
PARALLEL = 64
#: .. and to one target, so that a receiver that hangs holds up nobody else.
PARALLEL_TARGET = 16
#: Rows looked at in one turn; more only where a whole page belongs to targets that are held back (up to `PAGE_MAX`).
PAGE, PAGE_MAX = 256, 16384
#: How often a deliverer that stands by asks whether the lease is free.
STANDBY_SECONDS = 0.5
#: How far a replica of the ledger may lag behind what we wrote through it; milliseconds, in truth.
STALE_SECONDS = 1.0
log = structlog.get_logger()


@dataclass(eq=False)
class Deliverer:
    """Drains one ledger. `run` goes on until cancelled; a ledger that cannot be reached is waited for."""

    ledger: Ledger
    settings: AlertsConfig
    senders: list[Sender]
    holder: str
    chance: random.Random
    metrics: DelivererMetrics = field(default_factory=DelivererMetrics)

    def __post_init__(self) -> None:
        make = self.settings
        self.routes = {sender.name: Route(sender, Breaker(make.breaker_failures, make.breaker_seconds)) for sender in self.senders}
        self.gone = GoneTargets(self.ledger, {name: route.breaker for name, route in self.routes.items()})
        self.pause = Pause(self.ledger)
        self._under_way: set[str] = set()
        #: Rows whose attempt ended just now -> (how often they had been tried before it, until when that is remembered).
        self._lately: dict[str, tuple[int, float]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._page = PAGE
        #: Until when deliveries may begin (monotonic seconds); 0: the lease is not ours. `_leads` is set when it grows.
        self._send_until = 0.0
        self._leads = asyncio.Event()

    async def run(self) -> None:
        """Drains until cancelled; gives the lease back when it ends."""
        try:
            for sender in self.senders:
                await sender.open()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_lease())
                await self._forever()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for sender in self.senders:
                await sender.close()
            with contextlib.suppress(LedgerError):
                await self.ledger.resign("deliverer", self.holder)

    async def _forever(self) -> None:
        while True:
            try:
                if self._may_send():
                    await self._drain()
                    await self._wait(self.settings.poll_seconds)
                else:
                    self._leads.clear()
                    await self._leads.wait()
            except LedgerError as error:
                log.warning("ledger_unreachable", error=str(error))
                await asyncio.sleep(1.0)

    def _may_send(self) -> bool:
        return time.monotonic() < self._send_until

    async def _keep_lease(self) -> None:
        """Takes the lease, and renews it each third of its time, whatever else is going on: a deliverer that is busy keeps it."""
        leading = False
        while True:
            asked = time.monotonic()
            try:
                lease = await self.ledger.acquire("deliverer", self.holder)
                if lease is not None and not leading:
                    await self.gone.look(asked, afresh=True)
                    for name, route in self.routes.items():
                        self.metrics.breaker(name, route.breaker.is_open(asked))
            except LedgerError as error:
                log.warning("ledger_unreachable", error=str(error))
                leading = False
                await asyncio.sleep(1.0)
                continue
            leading = lease is not None
            if lease is None:
                self._send_until = 0.0
                await self.ledger.changed(STANDBY_SECONDS)
                continue
            # What is under way when it runs out may come twice: so nothing new begins in the last third.
            self._send_until = asked + lease.seconds_left * 2 / 3
            self._leads.set()
            await asyncio.sleep(max(asked + lease.seconds_left / 3 - time.monotonic(), 0.0))

    async def _wait(self, seconds: float) -> None:
        """Until the ledger changed, a delivery ended while rows were waiting for room, or the time is over."""
        if self._freed.is_set():
            self._freed.clear()
            return
        await self.ledger.changed(seconds)

    async def _drain(self) -> None:
        """Starts a delivery for each row that is due, as far as there is room."""
        now = time.monotonic()
        await self.gone.look(now)
        await self.pause.look()
        rows = await self.ledger.due(now, limit=self._page)
        started = 0
        for row in rows:
            if len(self._tasks) >= PARALLEL:
                break
            if row.id in self._under_way or self._is_stale(row, now) or not self._room(row, now) or self.pause.waits(row):
                continue
            started += 1
            self._start(row)
        if len(rows) == self._page and not started and len(self._tasks) < PARALLEL:
            self._page = min(self._page * 4, PAGE_MAX)
        elif started:
            self._page = PAGE

    def _is_stale(self, row: OutboxRow, now: float) -> bool:
        """Whether this is a picture from before our own last attempt: a replica of the ledger may lag a moment behind."""
        attempts, until = self._lately.get(row.id, (-1, 0.0))
        return now < until and row.attempts <= attempts

    def _remember(self, row: OutboxRow) -> None:
        now = time.monotonic()
        self._lately[row.id] = (row.attempts, now + STALE_SECONDS)
        while self._lately and (oldest := next(iter(self._lately))) and self._lately[oldest][1] <= now:
            del self._lately[oldest]

    def _room(self, row: OutboxRow, now: float) -> bool:
        route = self.routes.get(row.target)
        return route is None or row.dry_run or route.breaker.room(PARALLEL_TARGET, route.under_way, now) > 0

    def _start(self, row: OutboxRow) -> None:
        route = self.routes.get(row.target)
        self._under_way.add(row.id)
        if route is not None:
            route.under_way += 1
        task = asyncio.create_task(self._deliver(row, route))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._under_way.discard(row.id)
            self._remember(row)
            if route is not None:
                route.under_way -= 1
            self._freed.set()
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("delivery_bug", row=row.id, exc_info=error)

        task.add_done_callback(ended)

    async def _deliver(self, row: OutboxRow, route: Route | None) -> None:
        try:
            if row.dry_run:
                await self._end(row, {"dry_run": True, "would_send": row.body, "to": self._targets(row)})
            elif self.pause.holds(row):
                if not self.pause.waits(row):
                    await self.ledger.mark_dead(row.id, TOO_LATE, {"reason_code": "paused"})
            elif not row.target:
                await self._fan_out(row)
            elif route is None:
                await self.ledger.mark_dead(row.id, f"no target is called {row.target!r} any more", {"reason_code": "no_target"})
            elif route.breaker.gone:
                await self.ledger.mark_dead(row.id, "the target is gone (410): see outbox enable", {"reason_code": "gone"})
            elif self._may_send():
                began = time.monotonic()
                attempt = await self._send(route, row)
                self.metrics.attempt(row.target, attempt.outcome, time.monotonic() - began)
                await self._settle(row, route, attempt)
        except LedgerError as error:
            log.warning("ledger_unreachable", error=str(error), row=row.id)

    async def _send(self, route: Route, row: OutboxRow) -> Attempt:
        try:
            return await route.sender.send(row, time.time())
        except Exception as error:  # our own bug in one kind of target must not stop the others
            log.exception("sender_bug", target=row.target, row=row.id)
            return Attempt(outcome="retry", reason=f"our own error: {error!r}", reason_code="internal")

    def _targets(self, row: OutboxRow) -> list[str]:
        return [row.target] if row.target else [name for name, route in self.routes.items() if route.wants(row.type)]

    async def _fan_out(self, row: OutboxRow) -> None:
        names = self._targets(row)
        if names:
            # What was due stays due under its targets: it goes at once, not behind all that came meanwhile.
            for placed in await self.ledger.fan_out(row.id, names):
                fresh = placed.target and placed.state == "pending" and placed.id not in self._under_way
                if fresh and len(self._tasks) <= PARALLEL and self._room(placed, time.monotonic()):
                    self._start(placed)
        elif row.type in ("incident.confirmed", "incident.resolved", "job.snapshot.requested", "node.release.requested"):
            # Agents write snapshots, people may use the console alone, and who took no node out gives none back.
            await self._end(row, {"note": f"no target wants {row.type}"})
        else:
            await self.ledger.mark_dead(row.id, f"no target wants {row.type}", {"reason_code": "no_target"})

    async def _end(self, row: OutboxRow, detail: dict[str, Any]) -> None:
        """Accepted: done, or sent where the effect is awaited (a dry run has none)."""
        mark = self.ledger.mark_sent if row.awaits_effect else self.ledger.mark_done
        await mark(row.id, detail)

    async def _settle(self, row: OutboxRow, route: Route, attempt: Attempt) -> None:
        """Writes down what an attempt came to: the row first, so that a death in between repeats as little as can be."""
        now = time.monotonic()
        if attempt.outcome == "gone":
            await self.gone.note(row.target, attempt.reason)
        route.breaker.note(attempt.outcome, now)
        self.metrics.breaker(row.target, route.breaker.is_open(now))
        log.info("delivery", row=row.id, type=row.type, target=row.target, incident=row.incident, outcome=attempt.outcome,
                 status=attempt.status, reason=attempt.reason)  # fmt: skip
        match attempt.outcome:
            case "accepted":
                await self._end(row, {"status": attempt.status, "said": attempt.reason, **attempt.detail})
            case "retry" if row.attempts + 1 < route.sender.attempts_max:
                wait = attempt.retry_seconds if attempt.retry_seconds is not None else self._backoff(row.attempts)
                await self.ledger.mark_failed(row.id, attempt.reason, wait)
            case _:
                await self.ledger.mark_dead(row.id, attempt.reason, {"reason_code": attempt.reason_code, **attempt.detail})
        await self.ledger.put_audit([delivery_entry(row, attempt)])

    def _backoff(self, attempts: int) -> float:
        """Doubling wait with full jitter on its upper half, so that targets that came back are not stormed."""
        wait = min(self.settings.backoff_seconds * 2.0 ** min(attempts, 30), self.settings.backoff_seconds_max)
        return wait * self.chance.uniform(0.5, 1.0)


async def serve(config: Config) -> None:
    """Runs the deliverer of one site until it is cancelled."""
    settings = config.get(AlertsConfig)
    ledger = make_ledger(config.get(LedgerSection))
    await ledger.open()
    metrics = DelivererMetrics()
    try:
        leaves = {node.node: leaf_of(node) for node in config.get(FleetSection).nodes}
        senders = make_senders(settings, ledger, config.get(SiteSection).name, leaves)
        security = config.get(SecuritySection)
        tokens = security.viewer_tokens() if security.viewer_token_file else ()
        async with metrics.page(settings, ledger, tokens), listening(config):
            holder = f"deliverer-{time.monotonic_ns():x}"
            await Deliverer(ledger, settings, senders, holder, random.Random(), metrics).run()  # noqa: S311
    finally:
        await ledger.close()


def run(config_path: str | None) -> int:
    """The service `deliverer`: blocks until SIGTERM or SIGINT."""
    import signal

    config = read_config(config_path)

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await serve(config)

    asyncio.run(main())
    return 0
