"""The ledger of one machine: a SQLite file in WAL mode, one worker thread, one transaction = one function.

`synchronous` is FULL for what must survive a power cut (verdicts, fence, claims, outbox, a new leader's term,
people's orders) and
NORMAL for votes, renewals and probes, which expire in seconds. A watcher thread looks at `PRAGMA data_version` each
`poll_seconds`: it costs a few microseconds and tells of every other process's commit.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

from detectors.core.types import Vote
from detectors.witness import ledger_sqlite_commit as committing
from detectors.witness import ledger_sqlite_outbox as outbox
from detectors.witness import ledger_sqlite_tables as tables
from detectors.witness.ledger import (
    Commit,
    Control,
    LeaderState,
    Lease,
    LedgerClock,
    LedgerError,
    OrderTo,
    Result,
    changed_within,
)
from detectors.witness.ledger_sqlite_schema import keep_time, prepare
from detectors.witness.outbox import OutboxRow, RowState
from outrider.config.ledger import LedgerSection
from outrider.wire import Order

T = TypeVar("T")


#: Longest wait for another process's transaction, seconds; ours last milliseconds.
BUSY_SECONDS = 5.0


class SqliteLedger:
    """See `detectors.witness.ledger.Ledger`."""

    def __init__(self, section: LedgerSection) -> None:
        self._section = section
        self._path = Path(section.path)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ledger")
        #: Leases are renewed by a thread and connection of their own: a renewal that waits behind our own writes comes too late.
        self._lease_pool = ThreadPoolExecutor(1, thread_name_prefix="ledger-lease")
        self._database: sqlite3.Connection | None = None
        self._lease_database: sqlite3.Connection | None = None
        self._watch_stop = threading.Event()
        self._watcher: threading.Thread | None = None
        self._changed = asyncio.Event()
        self.clock = LedgerClock()

    async def open(self) -> None:
        await self._run(self._open)
        self._watcher = threading.Thread(target=self._watch, args=(asyncio.get_running_loop(),), name="ledger-watch", daemon=True)
        self._watcher.start()

    async def close(self) -> None:
        self._watch_stop.set()
        if self._watcher is not None:
            await asyncio.to_thread(self._watcher.join)
        for pool, database in ((self._lease_pool, self._lease_database), (self._pool, self._database)):
            if database is not None:
                await asyncio.get_running_loop().run_in_executor(pool, database.close)
            pool.shutdown()

    async def changed(self, timeout_seconds: float) -> bool:
        return await changed_within(self._changed, timeout_seconds)

    # Leases

    async def acquire(self, name: str, holder: str) -> Lease | None:
        def renew(database: sqlite3.Connection) -> Lease | None:
            now = time.monotonic()
            until = now + self._section.lease_seconds
            held = "UPDATE leases SET until = ? WHERE name = ? AND holder = ? AND until > ? RETURNING term"
            row = database.execute(held, (until, name, holder, now)).fetchone()
            if row and name == "leader":
                keep_time(database, self.clock.monotonic())
            return Lease(term=row[0], seconds_left=self._section.lease_seconds) if row else None

        def take(database: sqlite3.Connection) -> Lease | None:
            now = time.monotonic()
            row = database.execute("SELECT term, until FROM leases WHERE name = ?", (name,)).fetchone()
            term, until = row or (0, 0.0)
            if until > now:
                return None
            database.execute(
                "INSERT OR REPLACE INTO leases VALUES (?, ?, ?, ?)", (name, holder, term + 1, now + self._section.lease_seconds)
            )
            return Lease(term=term + 1, seconds_left=self._section.lease_seconds)

        return await self._write(renew, "NORMAL", lease=True) or await self._write(take, "FULL", lease=True)

    async def resign(self, name: str, holder: str) -> None:
        await self._write(
            lambda database: database.execute("UPDATE leases SET until = 0 WHERE name = ? AND holder = ?", (name, holder)), "FULL"
        )

    async def holder(self, name: str) -> str | None:
        query = "SELECT holder FROM leases WHERE name = ? AND until > ?"
        row = await self._read(lambda database: database.execute(query, (name, time.monotonic())).fetchone())
        return row[0] if row else None

    # Votes

    async def put_votes(self, votes: list[Vote]) -> None:
        await self._write(lambda database: tables.put_votes(database, votes, time.monotonic(), self._section.votes_max), "NORMAL")

    async def read_votes(self, after: int) -> tuple[int, list[Vote]]:
        return await self._read(lambda database: tables.read_votes(database, after, time.monotonic()))

    # The leader's transaction

    async def leader_state(self) -> LeaderState:
        return await self._read(tables.leader_state)

    async def commit(self, commit: Commit, holder: str) -> None:
        def write(database: sqlite3.Connection) -> None:
            now = time.monotonic()
            committing.check_lease(database, commit, holder, now)
            committing.write(database, commit, now, self._section)

        await self._write(write, "FULL")

    # Orders

    async def put_orders(self, orders: list[OrderTo]) -> None:
        await self._write(lambda database: tables.put_orders(database, orders, time.monotonic()), "NORMAL")

    async def read_orders(self, node: str, after: int, limit: int = 100) -> list[Order]:
        return await self._read(lambda database: tables.read_orders(database, node, after, limit, time.monotonic()))

    async def new_orders(self, after: int) -> tuple[int, set[str]]:
        return await self._read(lambda database: tables.new_orders(database, after))

    # Outbox

    async def due(self, now: float, limit: int = 100) -> list[OutboxRow]:
        return await self._read(lambda database: outbox.due(database, now, limit))

    async def fan_out(self, row_id: str, targets: list[str]) -> list[OutboxRow]:
        return await self._write(lambda database: outbox.fan_out(database, row_id, targets, time.monotonic()), "FULL")

    async def mark_sent(self, row_id: str, detail: dict[str, Any] | None = None) -> None:
        await self._write(lambda database: outbox.mark(database, row_id, "sent", detail), "FULL")

    async def mark_done(self, row_id: str, detail: dict[str, Any] | None = None) -> None:
        await self._write(lambda database: outbox.mark(database, row_id, "done", detail), "FULL")

    async def mark_failed(self, row_id: str, error: str, retry_seconds: float) -> None:
        await self._write(lambda database: outbox.mark_failed(database, row_id, error, time.monotonic() + retry_seconds), "FULL")

    async def mark_dead(self, row_id: str, error: str, detail: dict[str, Any] | None = None) -> None:
        await self._write(lambda database: outbox.mark_dead(database, row_id, error, detail), "FULL")

    async def requeue(self, row_id: str) -> bool:
        return await self._write(lambda database: outbox.requeue(database, row_id, time.monotonic()), "FULL")

    async def list_rows(self, state: RowState | None = None, incident: str | None = None, limit: int = 200) -> list[OutboxRow]:
        return await self._read(lambda database: outbox.listed(database, state, incident, limit))

    async def results(self) -> list[Result]:
        return await self._read(lambda database: outbox.results(database, time.monotonic()))

    # People

    async def put_control(self, control: Control) -> None:
        await self._write(lambda database: tables.put_control(database, control, time.monotonic()), "FULL")

    async def controls(self, jobs_after: int = 0) -> list[Control]:
        return await self._read(lambda database: tables.controls(database, time.monotonic(), jobs_after))

    async def incidents(self, limit: int = 200) -> list[dict[str, Any]]:
        return await self._read(lambda database: tables.incidents(database, limit))

    async def incident(self, incident: str) -> dict[str, Any] | None:
        return await self._read(lambda database: tables.incident(database, incident))

    async def put_audit(self, entries: list[dict[str, Any]]) -> None:
        await self._write(lambda database: tables.put_audit(database, entries), "FULL")

    async def audit(self, limit: int = 200, incident: str | None = None) -> list[dict[str, Any]]:
        return await self._read(lambda database: tables.audit(database, limit, incident))

    # The worker thread

    def _open(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
            self._path.chmod(0o600)
            self.clock.offset = prepare(self._database)
            self._lease_database = sqlite3.connect(
                self._path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        except (sqlite3.Error, OSError) as error:
            raise LedgerError(f"{self._path}: cannot be opened as a ledger: {error}") from None

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        database = sqlite3.connect(self._path, timeout=BUSY_SECONDS, isolation_level=None)
        version = None
        while not self._watch_stop.wait(self._section.poll_seconds):
            try:
                now = database.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error:
                continue  # a busy moment; the next look tells
            if now != version:
                version = now
                loop.call_soon_threadsafe(self._changed.set)
        database.close()

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    async def _read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        def work() -> T:
            try:
                return function(self._connection(self._database))
            except sqlite3.Error as error:
                raise LedgerError(f"{self._path}: {error}") from None

        return await self._run(work)

    async def _write(
        self, function: Callable[[sqlite3.Connection], T], synchronous: Literal["FULL", "NORMAL"], *, lease: bool = False
    ) -> T:
        def work() -> T:
            database = self._connection(self._lease_database if lease else self._database)
            try:
                database.execute(f"PRAGMA synchronous={synchronous}")
                database.execute("BEGIN IMMEDIATE")
                try:
                    value = function(database)
                    database.execute("COMMIT")
                except BaseException:
                    if database.in_transaction:  # a full disk has ended it already, and that is what must be told
                        database.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise LedgerError(f"{self._path}: {error}") from None
            return value

        return await asyncio.get_running_loop().run_in_executor(self._lease_pool if lease else self._pool, work)

    def _connection(self, database: sqlite3.Connection | None) -> sqlite3.Connection:
        if database is None:
            raise LedgerError(f"{self._path}: the ledger is not open")
        return database
