"""The deliverer: drains the outbox of the ledger to the webhook targets.

At least once, in the order that each row's `after` demands, signed, with back-off and a breaker for each target. Only the holder of
the lease `deliverer` sends; another one waits. A row's `webhook-id` never changes, so a receiver can drop what it has seen.
"""

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import structlog

from alerts.delivery import Attempt, post
from alerts.webhooks import read_secrets
from detectors.witness.ledger import Ledger, LedgerError, make_ledger
from detectors.witness.outbox import OutboxRow
from outrider.config.alerts import AlertsConfig, Target
from outrider.config.ledger import LedgerSection
from outrider.config.site import Config, read_config

#: Deliveries under way at once: bounds memory and sockets; a quarantine of 750 nodes is 24 rounds of it.
PARALLEL = 32
log = structlog.get_logger()


@dataclass
class Breaker:
    """A target's recent luck. Open until `closed_at` (monotonic seconds); `gone` for good after a 410."""

    failures: int = 0
    closed_at: float = 0.0
    gone: bool = False


@dataclass
class Route:
    """One target with its secrets and its breaker."""

    target: Target
    secrets: tuple[str, ...]
    breaker: Breaker = field(default_factory=Breaker)

    def wants(self, kind: str) -> bool:
        return not self.target.types or kind in self.target.types


class Deliverer:
    """Drains one ledger. `run` goes on until cancelled; a ledger that cannot be reached is waited for."""

    def __init__(self, ledger: Ledger, settings: AlertsConfig, holder: str, chance: random.Random) -> None:
        self.ledger, self.settings, self.holder = ledger, settings, holder
        self.routes = {target.name: Route(target, read_secrets(target.secret_files)) for target in settings.targets}
        self._chance = chance
        self._under_way: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Drains until cancelled; gives the lease back when it ends."""
        async with aiohttp.ClientSession() as session:
            try:
                while True:
                    try:
                        lease = await self.ledger.acquire("deliverer", self.holder)
                        if lease is not None:
                            await self._drain(session)
                        await self.ledger.changed(self.settings.poll_seconds if lease else 0.5)
                    except LedgerError as error:
                        log.warning("ledger_unreachable", error=str(error))
                        await asyncio.sleep(1.0)
            finally:
                for task in self._tasks:
                    task.cancel()
                with contextlib.suppress(LedgerError):
                    await self.ledger.resign("deliverer", self.holder)

    async def _drain(self, session: aiohttp.ClientSession) -> None:
        """Starts a delivery for each row that is due, as far as there is room."""
        for row in await self.ledger.due(time.monotonic(), limit=1000):
            if len(self._tasks) >= PARALLEL:
                return
            if row.id in self._under_way or self._held_back(row):
                continue
            self._under_way.add(row.id)
            task = asyncio.create_task(self._deliver(session, row))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _held_back(self, row: OutboxRow) -> bool:
        route = self.routes.get(row.target)
        return route is not None and not route.breaker.gone and route.breaker.closed_at > time.monotonic()

    async def _deliver(self, session: aiohttp.ClientSession, row: OutboxRow) -> None:
        try:
            if row.dry_run:
                await self._finish(row, {"dry_run": True, "would_send": row.body})
            elif not row.target:
                await self._route(row)
            elif (route := self.routes.get(row.target)) is None:
                await self.ledger.mark_dead(row.id, f"no target is called {row.target!r} any more")
            elif route.breaker.gone:
                await self.ledger.mark_dead(row.id, "target is gone (410)")
            else:
                attempt = await post(session, route.target, route.secrets, row.id, row.body, time.time())
                await self._settle(row, route, attempt)
        except LedgerError as error:
            log.warning("ledger_unreachable", error=str(error), row=row.id)
        finally:
            self._under_way.discard(row.id)

    async def _route(self, row: OutboxRow) -> None:
        names = [name for name, route in self.routes.items() if route.wants(row.type)]
        if not names:
            await self._finish(row, {"note": f"no target wants {row.type}"})
        else:
            await self.ledger.fan_out(row.id, names)

    async def _finish(self, row: OutboxRow, detail: dict[str, Any]) -> None:
        """Accepted: done, or sent where the effect is awaited (a dry run has none)."""
        mark = self.ledger.mark_sent if row.awaits_effect else self.ledger.mark_done
        await mark(row.id, detail)

    async def _settle(self, row: OutboxRow, route: Route, attempt: Attempt) -> None:
        """Writes down what an attempt came to."""
        breaker, settings = route.breaker, self.settings
        breaker.failures = breaker.failures + 1 if attempt.outcome == "retry" else 0
        breaker.gone = attempt.outcome == "gone"
        if breaker.failures >= settings.breaker_failures:
            breaker.closed_at = time.monotonic() + settings.breaker_seconds
        await self.ledger.put_audit([audit_entry(row, attempt)])
        log.info("delivery", row=row.id, type=row.type, target=row.target, incident=row.incident, outcome=attempt.outcome,
                 status=attempt.status, reason=attempt.reason)  # fmt: skip
        match attempt.outcome:
            case "accepted":
                await self._finish(row, {"status": attempt.status})
            case "retry" if row.attempts + 1 < route.target.attempts_max:
                wait = attempt.retry_seconds if attempt.retry_seconds is not None else self._backoff(row.attempts)
                await self.ledger.mark_failed(row.id, attempt.reason, wait)
            case _:
                await self.ledger.mark_dead(row.id, attempt.reason, {"reason_code": attempt.reason_code})

    def _backoff(self, attempts: int) -> float:
        """Doubling wait with full jitter on its upper half, so that targets that came back are not stormed."""
        wait = min(self.settings.backoff_seconds * 2.0 ** min(attempts, 30), self.settings.backoff_seconds_max)
        return wait * self._chance.uniform(0.5, 1.0)


def audit_entry(row: OutboxRow, attempt: Attempt) -> dict[str, Any]:
    """One line of the audit trail about one attempt."""
    return {
        "who": "deliverer", "what": "delivery", "incident": row.incident, "decision_id": row.decision_id, "webhook_id": row.id,
        "type": row.type, "target": row.target, "outcome": attempt.outcome, "status": attempt.status, "why": attempt.reason,
    }  # fmt: skip


async def serve(config: Config) -> None:
    """Runs the deliverer of one site until it is cancelled."""
    ledger = make_ledger(config.get(LedgerSection))
    await ledger.open()
    try:
        await Deliverer(ledger, config.get(AlertsConfig), f"deliverer-{time.monotonic_ns():x}", random.Random()).run()  # noqa: S311
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
