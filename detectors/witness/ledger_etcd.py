"""The ledger of several machines: a log in etcd that every process applies to a replica of its own.

What must be decided once goes through the log (see `ledger_etcd_replica`): etcd gives the order, a comparison with the leader's
lease keeps a former leader out, and each replica judges a commit's verdicts, fence and claims alike. Votes are keys that expire.
Leases are etcd leases. Reading costs no call: the replica is at hand, and it says so when it has lost touch.
"""

import asyncio
import contextlib
import sqlite3
import time
import uuid
from typing import Any

import msgspec
import structlog

from detectors.core.types import Vote
from detectors.witness import ledger_etcd_replica as log_entries
from detectors.witness import ledger_sqlite_outbox as outbox
from detectors.witness import ledger_sqlite_tables as tables
from detectors.witness.ledger import Commit, ConflictError, Control, LeaderState, Lease, LedgerClock, LedgerError, OrderTo, Result
from detectors.witness.ledger_etcd_client import VALUE_BYTES_MAX, CompactedError, Etcd, Pair, delete, has_value, is_absent, put
from detectors.witness.ledger_etcd_replica import Entry, Replica
from detectors.witness.outbox import OutboxRow, RowState
from outrider.config.ledger import LedgerSection
from outrider.wire import Order

log = structlog.get_logger()

#: How an entry begins that went ahead in parts (no compressed entry begins so), and how many parts wait for their entry.
PARTS = b"parts:"
PARTS_MAX = 64
#: How long an entry may take from etcd's yes to this replica, seconds; usually 2-3 ms.
APPLY_SECONDS = 5.0
#: A replica out of touch for longer says that it cannot be reached, seconds.
STALE_SECONDS = 3.0
#: Wait before a broken watch is tried again, seconds.
RETRY_SECONDS = 0.2
#: Operations of one transaction; etcd's default limit is 128.
OPERATIONS = 100
#: Superseded revisions of etcd are let go each so many seconds, the newest so many excepted (for watches that are a little behind).
COMPACT_SECONDS = 300.0
REVISIONS_KEPT = 10_000
#: The log is folded into a base after so many entries: what a new process must read stays small.
FOLD_ENTRIES = 2_000


class EtcdLedger:
    """See `detectors.witness.ledger.Ledger`."""

    def __init__(self, section: LedgerSection) -> None:
        self._section = section
        self._etcd = Etcd(section.endpoints)
        self._prefix = section.prefix.rstrip("/") + "/"
        self.clock = LedgerClock()
        self._replica = Replica(section, self.clock)
        self._changed = asyncio.Event()
        self._moved = asyncio.Condition()
        self._follower: asyncio.Task[None] | None = None
        self._broken_since: float | None = None
        self._compacted = time.monotonic()
        self._leases: dict[str, tuple[str, int]] = {}
        self._holders: dict[str, str] = {}
        self._parts: dict[str, bytes] = {}
        self._vote_lease: tuple[str, float, float] = ("", 0.0, 0.0)

    async def open(self) -> None:
        await self._etcd.open()
        try:
            await self._load(set_clock=True)
        except LedgerError:
            await self._etcd.close()
            raise
        self._follower = asyncio.create_task(self._follow())

    async def close(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._follower
        with contextlib.suppress(LedgerError):
            for lease, _ in self._leases.values():
                await self._etcd.revoke(lease)
        await self._etcd.close()
        self._replica.close()

    async def changed(self, timeout_seconds: float) -> bool:
        try:
            async with asyncio.timeout(timeout_seconds):  # wait_for of 3.11 may swallow a cancellation
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    # Leases

    async def acquire(self, name: str, holder: str) -> Lease | None:
        key, held = self._key("lease", name), self._leases.get(name)
        if held is not None:
            lease, term = held
            if await self._etcd.keep_alive(lease):
                if name == "leader":
                    await self._compact()
                    await self._etcd.transact([], [put(self._key("clock", ""), repr(self.clock.monotonic()).encode())])
                return Lease(term=term, seconds_left=self._section.lease_seconds)
            del self._leases[name]
        if self._holders.get(name) is not None:
            return None
        terms, _ = await self._etcd.read(self._key("term", name))
        before = next((pair for pair in terms if pair.key == self._key("term", name)), None)
        term = int(before.value) + 1 if before else 1
        lease = await self._etcd.grant(self._section.lease_seconds)
        same_term = has_value(before.key, before.value) if before else is_absent(self._key("term", name))
        value = _lease_value(holder, term)
        won, revision = await self._etcd.transact(
            [is_absent(key), same_term], [put(key, value, lease), put(self._key("term", name), str(term).encode())]
        )
        if not won:
            await self._etcd.revoke(lease)
            return None
        self._leases[name] = (lease, term)
        await self._reach(revision)
        return Lease(term=term, seconds_left=self._section.lease_seconds)

    async def resign(self, name: str, holder: str) -> None:
        held = self._leases.pop(name, None)
        if held is not None:
            await self._reach(await self._etcd.revoke(held[0]))

    async def holder(self, name: str) -> str | None:
        self._in_touch()
        return self._holders.get(name)

    # Votes

    async def put_votes(self, votes: list[Vote]) -> None:
        for start in range(0, len(votes), OPERATIONS):
            some = votes[start : start + OPERATIONS]
            lease = await self._lease_for_votes(max(vote.expires_seconds for vote in some), time.monotonic())
            wrote = self.clock.monotonic()
            puts = [
                put(self._key("vote", f"{vote.witness}/{vote.key}"), log_entries.pack_vote(vote, wrote), lease) for vote in some
            ]
            _, revision = await self._etcd.transact([], puts)
            await self._reach(revision)

    async def _lease_for_votes(self, seconds: float, now: float) -> str:
        """One etcd lease serves all votes of a second: a lease a vote would cost etcd more than the vote."""
        lease, granted, length = self._vote_lease
        if not lease or now - granted > 1.0 or length < seconds:
            lease = await self._etcd.grant(seconds + 1.0)
            self._vote_lease = (lease, now, seconds)
        return lease

    async def read_votes(self, after: int) -> tuple[int, list[Vote]]:
        return tables.read_votes(self._in_touch(), after, time.monotonic())

    # What goes through the log

    async def commit(self, commit: Commit, holder: str) -> None:
        lease = has_value(self._key("lease", "leader"), _lease_value(holder, commit.term))
        await self._append(log_entries.CommitEntry(commit), [lease])
        if self._replica.entries >= FOLD_ENTRIES:
            await self._fold(lease)

    async def put_orders(self, orders: list[OrderTo]) -> None:
        await self._append(log_entries.OrdersEntry(orders))

    async def fan_out(self, row_id: str, targets: list[str]) -> list[OutboxRow]:
        rows: list[OutboxRow] = await self._append(log_entries.FanOutEntry(row_id, targets))
        return rows

    async def mark_sent(self, row_id: str, detail: dict[str, Any] | None = None) -> None:
        await self._append(log_entries.MarkEntry(row_id, "sent", detail or {}))

    async def mark_done(self, row_id: str, detail: dict[str, Any] | None = None) -> None:
        await self._append(log_entries.MarkEntry(row_id, "done", detail or {}))

    async def mark_failed(self, row_id: str, error: str, retry_seconds: float) -> None:
        await self._append(log_entries.FailedEntry(row_id, error, retry_seconds))

    async def mark_dead(self, row_id: str, error: str, detail: dict[str, Any] | None = None) -> None:
        await self._append(log_entries.DeadEntry(row_id, error, detail or {}))

    async def requeue(self, row_id: str) -> bool:
        return bool(await self._append(log_entries.RequeueEntry(row_id)))

    async def put_control(self, control: Control) -> None:
        await self._append(log_entries.ControlEntry(control))

    async def put_audit(self, entries: list[dict[str, Any]]) -> None:
        await self._append(log_entries.AuditEntry(entries))

    # What the replica answers

    async def leader_state(self) -> LeaderState:
        return tables.leader_state(self._in_touch())

    async def read_orders(self, node: str, after: int, limit: int = 100) -> list[Order]:
        return tables.read_orders(self._in_touch(), node, after, limit, time.monotonic())

    async def new_orders(self, after: int) -> tuple[int, set[str]]:
        return tables.new_orders(self._in_touch(), after)

    async def due(self, now: float, limit: int = 100) -> list[OutboxRow]:
        return outbox.due(self._in_touch(), now, limit)

    async def list_rows(self, state: RowState | None = None, incident: str | None = None, limit: int = 200) -> list[OutboxRow]:
        return outbox.listed(self._in_touch(), state, incident, limit)

    async def results(self) -> list[Result]:
        return outbox.results(self._in_touch(), time.monotonic())

    async def controls(self, jobs_after: int = 0) -> list[Control]:
        return tables.controls(self._in_touch(), time.monotonic(), jobs_after)

    async def incidents(self, limit: int = 200) -> list[dict[str, Any]]:
        return tables.incidents(self._in_touch(), limit)

    async def incident(self, incident: str) -> dict[str, Any] | None:
        return tables.incident(self._in_touch(), incident)

    async def audit(self, limit: int = 200, incident: str | None = None) -> list[dict[str, Any]]:
        return tables.audit(self._in_touch(), limit, incident)

    # The log

    async def _append(self, entry: Entry, compare: list[dict[str, Any]] | None = None) -> Any:
        """Writes an entry and waits until this replica has applied it. Returns its outcome."""
        name, value = uuid.uuid4().hex, log_entries.pack(entry)
        key = self._key("log", name)
        if len(value) > VALUE_BYTES_MAX:
            value = await self._put_parts(name, value)
        won, revision = await self._etcd.transact(compare or [], [put(key, value)])
        if not won:
            raise ConflictError("lease", "this witness no longer leads")
        await self._reach(revision)
        return self._replica.outcome(key)

    async def _put_parts(self, name: str, value: bytes) -> bytes:
        """An entry larger than etcd takes goes ahead in parts, which mean nothing until the entry names them."""
        parts = [value[start : start + VALUE_BYTES_MAX] for start in range(0, len(value), VALUE_BYTES_MAX)]
        for index, part in enumerate(parts):
            await self._etcd.transact([], [put(self._key("part", f"{name}/{index:06}"), part)])
        return PARTS + str(len(parts)).encode()

    def _whole(self, name: str, value: bytes) -> bytes:
        """An entry's bytes, put together if they went ahead in parts."""
        if not value.startswith(PARTS):
            return value
        return b"".join(self._parts.pop(f"{name}/{index:06}", b"") for index in range(int(value.removeprefix(PARTS))))

    async def _reach(self, revision: int) -> None:
        """Waits until the replica stands at `revision`."""
        try:
            async with asyncio.timeout(APPLY_SECONDS), self._moved:
                await self._moved.wait_for(lambda: self._replica.revision >= revision)
        except TimeoutError:
            raise LedgerError(f"etcd: revision {revision} did not arrive within {APPLY_SECONDS:g} s") from None

    async def _follow(self) -> None:
        """Applies changes as they come; after a break it goes on from where it stood, or from the base."""
        while True:
            try:
                async for pairs in self._etcd.watch(self._prefix, self._replica.revision + 1):
                    for pair in pairs:
                        self._take(pair)
                    await self._stand_at(max((pair.revision for pair in pairs), default=self._replica.revision))
                    if pairs:
                        self._changed.set()
            except LedgerError as error:
                self._broken_since = self._broken_since or time.monotonic()
                log.warning("ledger_unreachable", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            except CompactedError:
                await self._reload()

    async def _reload(self) -> None:
        try:
            self._replica.close()
            self._replica = Replica(self._section, self.clock)
            await self._load()
            self._changed.set()
        except LedgerError as error:
            log.warning("ledger_unreachable", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _load(self, *, set_clock: bool = False) -> None:
        """The base, every entry of the log since, then votes and leases, all as of one revision."""
        pairs, revision = await self._etcd.read(self._prefix)
        held = {pair.key: pair for pair in pairs}
        kept = held.get(self._key("clock", ""))
        if set_clock and kept is not None:  # first of all: the votes' times are moved to this clock
            # The ledger's time as the last leader kept it: at most a third of a lease old, if one leads now.
            self.clock.offset = float(kept.value) - time.monotonic()
        head = held.get(self._key("base-head", ""))
        folded = 0
        if head is not None:
            told = msgspec.json.decode(head.value)
            folded = int(told["revision"])
            keys = [self._key("base", f"{folded}/{index:06}") for index in range(told["chunks"])]
            self._replica.load(b"".join(held[key].value for key in keys))
        for pair in pairs:
            if pair.revision > folded or not pair.key.startswith(self._key("log", "")):
                self._take(pair)
        await self._stand_at(revision)

    def _take(self, pair: Pair) -> None:
        kind, _, name = pair.key.removeprefix(self._prefix).partition("/")
        match kind:
            case "part" if not pair.deleted:
                self._parts[name] = pair.value
                while len(self._parts) > PARTS_MAX:
                    self._parts.pop(next(iter(self._parts)))
            case "log" if not pair.deleted:
                self._replica.apply(pair.key, self._whole(name, pair.value), pair.revision)
            case "vote" if not pair.deleted:
                self._replica.vote(pair.value)
            case "base-head":
                self._replica.entries = 0
            case "lease" if pair.deleted:
                self._holders.pop(name, None)
            case "lease":
                self._holders[name] = msgspec.json.decode(pair.value)["holder"]
            case _:
                pass

    async def _stand_at(self, revision: int) -> None:
        self._broken_since = None
        async with self._moved:
            self._replica.revision = revision
            self._moved.notify_all()

    async def _fold(self, leads: dict[str, Any]) -> None:
        """Writes the replica as the new base, and only when that stands deletes what it replaces."""
        revision, whole = self._replica.revision, self._replica.dump()
        self._replica.entries = 0
        chunks = [whole[start : start + VALUE_BYTES_MAX // 2] for start in range(0, len(whole), VALUE_BYTES_MAX // 2)]
        for index, chunk in enumerate(chunks):
            await self._etcd.transact([leads], [put(self._key("base", f"{revision}/{index:06}"), chunk)])
        head = msgspec.json.encode({"revision": revision, "chunks": len(chunks)})
        won, _ = await self._etcd.transact([leads], [put(self._key("base-head", ""), head)])
        if not won:
            return
        old, _ = await self._etcd.read(self._key("base", ""), keys_only=True)
        gone = [pair.key for pair in old if not pair.key.startswith(self._key("base", f"{revision}/"))]
        entries, _ = await self._etcd.read(self._key("log", ""), keys_only=True)
        entries += (await self._etcd.read(self._key("part", ""), keys_only=True))[0]
        gone += [pair.key for pair in entries if pair.revision <= revision]
        for start in range(0, len(gone), OPERATIONS):
            await self._etcd.transact([leads], [delete(key) for key in gone[start : start + OPERATIONS]])
        log.info("ledger_folded", revision=revision, bytes=len(whole), entries=len(gone))

    async def _compact(self) -> None:
        """Lets etcd forget superseded revisions: votes alone make several a second."""
        now = time.monotonic()
        if not self._section.compact or now - self._compacted < COMPACT_SECONDS:
            return
        self._compacted = now
        await self._etcd.call("/v3/kv/compaction", {"revision": str(max(1, self._replica.revision - REVISIONS_KEPT))})

    def _in_touch(self) -> sqlite3.Connection:
        """The replica's database. Raises LedgerError when it has lost touch for too long to be believed."""
        if self._broken_since is not None and time.monotonic() - self._broken_since > STALE_SECONDS:
            raise LedgerError("etcd: no touch with the cluster; what this process knows may be old")
        if self._follower is not None and self._follower.done():  # a bug of ours, and better told than hidden
            raise LedgerError("etcd: the replica no longer follows; the log tells why")
        return self._replica.database

    def _key(self, kind: str, name: str) -> str:
        return f"{self._prefix}{kind}/{name}"


def _lease_value(holder: str, term: int) -> bytes:
    return msgspec.json.encode({"holder": holder, "term": term})
