"""The ledger's port: votes, verdicts, the leader's lease, fence, spare claims, incidents, outbox, orders, audit.

One implementation is for one machine (SQLite), one for several (etcd); both pass the same contract tests. Times are
ages or
CLOCK_MONOTONIC of this machine, never wall clocks; wall time is kept beside them for people to read.
"""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from detectors.core.types import Vote
from detectors.witness.outbox import Outbox, OutboxRow
from outrider.config.ledger import LedgerSection
from outrider.errors import OutriderError
from outrider.wire import Order


class LedgerError(OutriderError):
    """The ledger cannot be reached or used now; a retry makes sense."""


class ConflictError(OutriderError):
    """A commit was refused as a whole: the lease is lost, or somebody else wrote the same verdict, fence or claim.

    `reason_code`: `lease`, `verdict`, `fence` or `claim`.
    """

    def __init__(self, reason_code: str, message: str) -> None:
        super().__init__(message)
        self.reason_code = reason_code


class LedgerClock:
    """The clock of everything that is judged: this machine's monotonic clock, moved so that it goes on where the ledger's stood.

    So what the council remembers keeps its age over a reboot, and over a change of leader between machines. `offset` is 0 on a
    machine's first boot, and set when the ledger is opened.
    """

    def __init__(self) -> None:
        self.offset = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.offset

    def wall(self) -> float:
        return time.time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A held lease. `term` grows by one with each change of holder and never falls back."""

    term: int
    seconds_left: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderTo:
    """An order and the node whose agent shall obey it. `keep_seconds`: how long it is told; None: until it is
    cleared."""

    to: str
    order: Order
    keep_seconds: float | None = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictWrite:
    """Compare-and-swap on (subject, incarnation): `version_before` 0 means that none may be there yet."""

    subject: str
    incarnation: str
    version_before: int
    incident: str
    fault: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentWrite:
    """The newest picture of an incident (JSON-able) and the line of its history that this change adds."""

    incident: str
    state: str
    picture: dict[str, Any]
    line: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What one decision of the leader writes, whole or not at all.

    `fence_before` is the fence the council reckoned with; `fence` the highest it used now (>= fence_before).
    `council` is the
    council's memory, for the next leader. `told` are decision ids whose results the council has heard.
    `orders_cleared` are
    nodes whose standing `stop` orders end; `effects` decision ids whose effect was seen, with what was seen;
    `controls_done` numbers of people's orders that were carried out.
    """

    term: int
    fence_before: int
    fence: int
    verdicts: tuple[VerdictWrite, ...] = ()
    incidents: tuple[IncidentWrite, ...] = ()
    claims: tuple[tuple[str, str], ...] = ()
    releases: tuple[str, ...] = ()
    outbox: tuple[OutboxRow, ...] = ()
    orders: tuple[OrderTo, ...] = ()
    orders_cleared: tuple[str, ...] = ()
    audit: tuple[dict[str, Any], ...] = ()
    told: tuple[str, ...] = ()
    effects: tuple[tuple[str, dict[str, Any]], ...] = ()
    controls_done: tuple[int, ...] = ()
    council: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderState:
    """What a new leader starts from."""

    fence: int
    council: bytes | None
    verdicts: dict[tuple[str, str], int]
    claims: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The end of an action, as the rows of the outbox tell it. `timed_out`: its deadline passed first."""

    decision_id: str
    outcome: Literal["done", "failed", "timed_out"]
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A person's standing order: `kind` is `maintenance`, `pause`, `ack`, `approve`, ..; `key` whom it concerns."""

    kind: str
    key: str
    body: dict[str, Any]
    seconds_left: float | None = None
    number: int = 0


class Ledger(Outbox, Protocol):
    """The whole ledger. Methods raise `LedgerError` when it cannot be reached. `clock` tells the ledger's time once it is open."""

    clock: LedgerClock

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def acquire(self, name: str, holder: str) -> Lease | None:
        """Takes or renews the lease `name` for `holder`; None: somebody else holds it. Names: `leader`, `deliverer`."""
        ...

    async def resign(self, name: str, holder: str) -> None:
        """Gives a lease back at once."""
        ...

    async def holder(self, name: str) -> str | None:
        """Who holds a lease now."""
        ...

    async def put_votes(self, votes: list[Vote]) -> None:
        """Writes votes; a later vote of one witness on one key replaces the former."""
        ...

    async def read_votes(self, after: int) -> tuple[int, list[Vote]]:
        """Live votes written after the place `after` (0: all), times on this reader's clock, `expires_seconds` what is left of
        their life, and the new place."""
        ...

    async def leader_state(self) -> LeaderState: ...

    async def commit(self, commit: Commit, holder: str) -> None:
        """Writes a decision in one transaction.

        Raises:
            ConflictError: nothing was written.
        """
        ...

    async def put_orders(self, orders: list[OrderTo]) -> None:
        """Orders that need no quorum (probe, copy); one `id` is kept once for each node. `number` is given by the
        ledger."""
        ...

    async def read_orders(self, node: str, after: int, limit: int = 100) -> list[Order]:
        """Live orders for `node` with a number above `after`, in order."""
        ...

    async def new_orders(self, after: int) -> tuple[int, set[str]]:
        """Nodes that were given orders after the place `after`, and the new place."""
        ...

    async def results(self) -> list[Result]:
        """Ends of actions that the council has not yet heard of."""
        ...

    async def put_control(self, control: Control) -> None:
        """Sets a person's standing order, or with `seconds_left` 0 takes it back."""
        ...

    async def controls(self, jobs_after: int = 0) -> list[Control]:
        """Standing orders that hold now, by number; of the jobs only those after a number, for a job of many ranks is large."""
        ...

    async def incidents(self, limit: int = 200) -> list[dict[str, Any]]:
        """Newest pictures, last changed first."""
        ...

    async def incident(self, incident: str) -> dict[str, Any] | None:
        """One picture with its `history`, its `actions` (outbox rows) and `audit`; a unique beginning of the id is
        enough."""
        ...

    async def put_audit(self, entries: list[dict[str, Any]]) -> None: ...

    async def audit(self, limit: int = 200, incident: str | None = None) -> list[dict[str, Any]]:
        """Audit entries, newest first."""
        ...


def make_ledger(section: LedgerSection) -> Ledger:
    """The ledger that the configuration names; `open` it before use."""
    if section.backend == "etcd":
        from detectors.witness.ledger_etcd import EtcdLedger

        return EtcdLedger(section)
    from detectors.witness.ledger_sqlite import SqliteLedger

    return SqliteLedger(section)


async def changed_within(event: asyncio.Event, timeout_seconds: float) -> bool:
    """Waits for `event` and takes it back; False: it did not come in time."""
    try:
        async with asyncio.timeout(timeout_seconds):  # wait_for of 3.11 may swallow a cancellation
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
