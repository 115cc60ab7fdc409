"""What the log of the etcd ledger means: entries, and the replica that every process builds by applying them in etcd's order.

The replica is a SQLite database in memory with the very tables of the one-machine ledger. An entry is applied everywhere in the
same order and judged everywhere alike (a commit that conflicts is refused by every replica), so all agree. Times in it are this
machine's: a deadline begins when this process first hears of it, which is never earlier than anybody meant.
"""

import sqlite3
import time
import zlib
from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final

import msgspec

from detectors.core.types import Vote
from detectors.witness import ledger_sqlite_commit as committing
from detectors.witness import ledger_sqlite_outbox as outbox
from detectors.witness import ledger_sqlite_tables as tables
from detectors.witness.ledger import Commit, ConflictError, Control, LedgerClock, OrderTo
from detectors.witness.ledger_sqlite_schema import prepare, start_boot
from detectors.witness.outbox import RowState
from outrider.config.ledger import LedgerSection
from outrider.wire import UNREADABLE

#: Numbers of orders: a revision has room for so many.
ORDERS_AN_ENTRY: Final = 100_000
#: Moments on the writer's clock among a vote's `extra`.
MOMENTS: Final = frozenset({"since", "silent_since"})
#: Outcomes of entries kept for those who wait for them.
OUTCOMES_MAX: Final = 10_000


class CommitEntry(msgspec.Struct, frozen=True, tag="commit"):
    commit: Commit


class MarkEntry(msgspec.Struct, frozen=True, tag="mark"):
    row: str
    state: RowState
    detail: dict[str, Any]


class FailedEntry(msgspec.Struct, frozen=True, tag="failed"):
    row: str
    error: str
    retry_seconds: float


class DeadEntry(msgspec.Struct, frozen=True, tag="dead"):
    row: str
    error: str
    detail: dict[str, Any]


class RequeueEntry(msgspec.Struct, frozen=True, tag="requeue"):
    row: str


class FanOutEntry(msgspec.Struct, frozen=True, tag="fan_out"):
    row: str
    targets: list[str]


class OrdersEntry(msgspec.Struct, frozen=True, tag="orders"):
    orders: list[OrderTo]


class ControlEntry(msgspec.Struct, frozen=True, tag="control"):
    control: Control


class AuditEntry(msgspec.Struct, frozen=True, tag="audit"):
    entries: list[dict[str, Any]]


Entry = CommitEntry | MarkEntry | FailedEntry | DeadEntry | RequeueEntry | FanOutEntry | OrdersEntry | ControlEntry | AuditEntry

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)
_vote_decoder = msgspec.json.Decoder(tuple[float, Vote])


def pack(entry: Entry) -> bytes:
    """An entry's bytes in etcd; compressed, for a commit carries the council's memory."""
    return zlib.compress(_encoder.encode(entry), 1)


def unpack(value: bytes) -> Entry:
    """Reads what `pack` wrote. Raises msgspec.MsgspecError or zlib.error."""
    return _decoder.decode(zlib.decompress(value))


def pack_vote(vote: Vote, now: float) -> bytes:
    """A vote with its writer's clock beside it, so that a reader can move its times to a clock of its own."""
    return _encoder.encode((now, vote))


def unpack_vote(value: bytes, now: float) -> Vote:
    """The vote with times on the reader's clock, as if it had been on its way for no time."""
    wrote, vote = _vote_decoder.decode(value)
    shift = now - wrote
    evidence = tuple(replace(piece, t=piece.t + shift) for piece in vote.evidence)
    extra = {
        name: value + shift if name in MOMENTS and isinstance(value, int | float) else value for name, value in vote.extra.items()
    }
    return replace(vote, t=vote.t + shift, evidence=evidence, extra=extra)


class Replica:
    """One process's copy of the ledger."""

    def __init__(self, section: LedgerSection, clock: LedgerClock) -> None:
        self._section, self._clock = section, clock
        self.database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        prepare(self.database)
        self.revision = 0
        self.entries = 0
        self.refused_entries = 0
        self._outcomes: OrderedDict[str, Any] = OrderedDict()

    def close(self) -> None:
        self.database.close()

    def apply(self, key: str, value: bytes, revision: int) -> None:
        """Applies one entry of the log; its outcome waits for whoever wrote it."""
        try:
            entry = unpack(value)
        except (zlib.error, *UNREADABLE):  # of another version, or not ours: every replica passes it over
            self.refused_entries += 1
            return
        self.entries += 1
        self.database.execute("BEGIN")
        outcome: Any
        try:
            outcome = self._run(entry, revision)
            self.database.execute("COMMIT")
        except ConflictError as error:
            self.database.execute("ROLLBACK")
            outcome = error
        except BaseException:
            self.database.execute("ROLLBACK")
            raise
        self._outcomes[key] = outcome
        while len(self._outcomes) > OUTCOMES_MAX:
            self._outcomes.popitem(last=False)

    def outcome(self, key: str) -> Any:
        """What an applied entry came to. Raises ConflictError if it was refused, KeyError if it was not applied here."""
        outcome = self._outcomes.pop(key)
        if isinstance(outcome, ConflictError):
            raise outcome
        return outcome

    def vote(self, value: bytes) -> None:
        """Takes a vote in."""
        try:
            vote = unpack_vote(value, self._clock.monotonic())
            tables.put_votes(self.database, [vote], time.monotonic(), self._section.votes_max)
        except UNREADABLE:
            self.refused_entries += 1

    def dump(self) -> bytes:
        """The whole replica, for those who start later."""
        return zlib.compress(self.database.serialize(), 6)

    def load(self, whole: bytes) -> None:
        """Takes another process's dump; what the other machine's clock said begins anew."""
        self.database.deserialize(zlib.decompress(whole))
        start_boot(self.database)

    def _run(self, entry: Entry, revision: int) -> Any:
        database, now, number = self.database, time.monotonic(), revision * ORDERS_AN_ENTRY
        match entry:
            case CommitEntry(commit):
                return committing.write(database, commit, now, self._section, number)
            case MarkEntry(row, state, detail):
                return outbox.mark(database, row, state, detail)
            case FailedEntry(row, error, retry_seconds):
                return outbox.mark_failed(database, row, error, now + retry_seconds)
            case DeadEntry(row, error, detail):
                return outbox.mark_dead(database, row, error, detail)
            case RequeueEntry(row):
                return outbox.requeue(database, row, now)
            case FanOutEntry(row, targets):
                return outbox.fan_out(database, row, targets, now)
            case OrdersEntry(orders):
                return tables.put_orders(database, orders, now, number)
            case ControlEntry(control):
                return tables.put_control(database, control, now, number)
            case AuditEntry(entries):
                return tables.put_audit(database, entries)
