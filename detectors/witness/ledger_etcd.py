"""The ledger of several machines: a log in etcd that every process applies to a replica of its own.

What must be decided once goes through the log (see `ledger_etcd_replica`): etcd gives the order, a comparison with the leader's
lease keeps a former leader out, and each replica judges a commit's verdicts, fence and claims alike. Votes are keys that expire.
Leases are etcd leases. Reading costs no call: the replica is at hand, and it says so when it has lost touch.
"""

import contextlib
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
from detectors.witness.ledger_etcd_client import VALUE_BYTES_MAX, Etcd, delete, has_value, is_absent, put
from detectors.witness.ledger_etcd_follower import PARTS, Follower
from detectors.witness.ledger_etcd_replica import Entry
from detectors.witness.outbox import OutboxRow, RowState
from outrider.config.ledger import LedgerSection
from outrider.wire import Order

log = structlog.get_logger()

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
        self.clock = LedgerClock()
        self._follower = Follower(section, self._etcd, self.clock)
        self._key = self._follower.key
        self._compacted = time.monotonic()
        self._leases: dict[str, tuple[str, int]] = {}
        self._vote_lease: tuple[str, float, float] = ("", 0.0, 0.0)

    async def open(self) -> None:
        await self._etcd.open()
        try:
            await self._follower.start()
        except LedgerError:
            await self._etcd.close()
            raise

    async def close(self) -> None:
        await self._follower.stop()
        with contextlib.suppress(LedgerError):
            for lease, _ in self._leases.values():
                await self._etcd.revoke(lease)
        await self._etcd.close()
        self._follower.replica.close()

    async def changed(self, timeout_seconds: float) -> bool:
        return await self._follower.changed(timeout_seconds)

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
        if self._follower.holders.get(name) is not None:
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
        await self._follower.reach(revision)
        return Lease(term=term, seconds_left=self._section.lease_seconds)

    async def resign(self, name: str, holder: str) -> None:
        held = self._leases.pop(name, None)
        if held is not None:
            await self._follower.reach(await self._etcd.revoke(held[0]))

    async def holder(self, name: str) -> str | None:
        self._follower.database()  # raises when it has lost touch
        return self._follower.holders.get(name)

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
            await self._follower.reach(revision)

    async def _lease_for_votes(self, seconds: float, now: float) -> str:
        """One etcd lease serves all votes of a second: a lease a vote would cost etcd more than the vote."""
        lease, granted, length = self._vote_lease
        if not lease or now - granted > 1.0 or length < seconds:
            lease = await self._etcd.grant(seconds + 1.0)
            self._vote_lease = (lease, now, seconds)
        return lease

    async def read_votes(self, after: int) -> tuple[int, list[Vote]]:
        return tables.read_votes(self._follower.database(), after, time.monotonic())

    # What goes through the log

    async def commit(self, commit: Commit, holder: str) -> None:
        lease = has_value(self._key("lease", "leader"), _lease_value(holder, commit.term))
        await self._append(log_entries.CommitEntry(commit), [lease])
        if self._follower.replica.entries >= FOLD_ENTRIES:
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
        return tables.leader_state(self._follower.database())

    async def read_orders(self, node: str, after: int, limit: int = 100) -> list[Order]:
        return tables.read_orders(self._follower.database(), node, after, limit, time.monotonic())

    async def new_orders(self, after: int) -> tuple[int, set[str]]:
        return tables.new_orders(self._follower.database(), after)

    async def due(self, now: float, limit: int = 100) -> list[OutboxRow]:
        return outbox.due(self._follower.database(), now, limit)

    async def list_rows(self, state: RowState | None = None, incident: str | None = None, limit: int = 200) -> list[OutboxRow]:
        return outbox.listed(self._follower.database(), state, incident, limit)

    async def results(self) -> list[Result]:
        return outbox.results(self._follower.database(), time.monotonic())

    async def controls(self, jobs_after: int = 0) -> list[Control]:
        return tables.controls(self._follower.database(), time.monotonic(), jobs_after)

    async def incidents(self, limit: int = 200) -> list[dict[str, Any]]:
        return tables.incidents(self._follower.database(), limit)

    async def incident(self, incident: str) -> dict[str, Any] | None:
        return tables.incident(self._follower.database(), incident)

    async def audit(self, limit: int = 200, incident: str | None = None) -> list[dict[str, Any]]:
        return tables.audit(self._follower.database(), limit, incident)

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
        await self._follower.reach(revision)
        return self._follower.replica.outcome(key)

    async def _put_parts(self, name: str, value: bytes) -> bytes:
        """An entry larger than etcd takes goes ahead in parts, which mean nothing until the entry names them."""
        parts = [value[start : start + VALUE_BYTES_MAX] for start in range(0, len(value), VALUE_BYTES_MAX)]
        for index, part in enumerate(parts):
            await self._etcd.transact([], [put(self._key("part", f"{name}/{index:06}"), part)])
        return PARTS + str(len(parts)).encode()

    async def _fold(self, leads: dict[str, Any]) -> None:
        """Writes the replica as the new base, and only when that stands deletes what it replaces."""
        revision, whole = self._follower.replica.revision, self._follower.replica.dump()
        self._follower.replica.entries = 0
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
        await self._etcd.call("/v3/kv/compaction", {"revision": str(max(1, self._follower.replica.revision - REVISIONS_KEPT))})


def _lease_value(holder: str, term: int) -> bytes:
    return msgspec.json.encode({"holder": holder, "term": term})
