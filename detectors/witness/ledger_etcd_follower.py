"""How a process follows the ledger in etcd: each change goes into its replica in etcd's order, from a base and then as it comes.

After a break it goes on from where it stood; where etcd has let go of that history, from the newest base. It says so when it has
lost touch for too long to be believed.
"""

import asyncio
import contextlib
import sqlite3
import time

import msgspec
import structlog

from detectors.witness.ledger import LedgerClock, LedgerError, changed_within
from detectors.witness.ledger_etcd_client import CompactedError, Etcd, Pair
from detectors.witness.ledger_etcd_replica import Replica
from outrider.config.ledger import LedgerSection

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


class Follower:
    """A replica that stands, a few milliseconds later, where etcd stands.

    Attributes:
        replica: what the log has made of the ledger so far.
        holders: lease -> who holds it.
        task: what follows; None before `start`.
    """

    def __init__(self, section: LedgerSection, etcd: Etcd, clock: LedgerClock) -> None:
        self.replica = Replica(section, clock)
        self.holders: dict[str, str] = {}
        self.task: asyncio.Task[None] | None = None
        self._section, self._etcd, self._clock = section, etcd, clock
        self._prefix = section.prefix.rstrip("/") + "/"
        self._changed = asyncio.Event()
        self._moved = asyncio.Condition()
        self._broken_since: float | None = None
        self._parts: dict[str, bytes] = {}

    async def start(self) -> None:
        """Reads all there is, then follows. Raises LedgerError if etcd cannot be reached."""
        await self._load(set_clock=True)
        self.task = asyncio.create_task(self.follow())

    async def stop(self) -> None:
        """Follows no longer; the replica stays as it is."""
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task

    def key(self, kind: str, name: str) -> str:
        """Where something of a kind stands in etcd."""
        return f"{self._prefix}{kind}/{name}"

    async def changed(self, timeout_seconds: float) -> bool:
        """Waits until anything changes; False: nothing did."""
        return await changed_within(self._changed, timeout_seconds)

    def database(self) -> sqlite3.Connection:
        """The replica's tables. Raises LedgerError when it has lost touch for too long to be believed."""
        if self._broken_since is not None and time.monotonic() - self._broken_since > STALE_SECONDS:
            raise LedgerError("etcd: no touch with the cluster; what this process knows may be old")
        if self.task is not None and self.task.done():  # a bug of ours, and better told than hidden
            raise LedgerError("etcd: the replica no longer follows; the log tells why")
        return self.replica.database

    async def reach(self, revision: int) -> None:
        """Waits until the replica stands at `revision`."""
        try:
            async with asyncio.timeout(APPLY_SECONDS), self._moved:
                await self._moved.wait_for(lambda: self.replica.revision >= revision)
        except TimeoutError:
            raise LedgerError(f"etcd: revision {revision} did not arrive within {APPLY_SECONDS:g} s") from None

    async def follow(self) -> None:
        """Applies changes as they come; after a break it goes on from where it stood, or from the base."""
        while True:
            try:
                async for pairs in self._etcd.watch(self._prefix, self.replica.revision + 1):
                    for pair in pairs:
                        self._take(pair)
                    await self._stand_at(max((pair.revision for pair in pairs), default=self.replica.revision))
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
            self.replica.close()
            self.replica = Replica(self._section, self._clock)
            await self._load()
            self._changed.set()
        except LedgerError as error:
            log.warning("ledger_unreachable", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _load(self, *, set_clock: bool = False) -> None:
        """The base, every entry of the log since, then votes and leases, all as of one revision."""
        pairs, revision = await self._etcd.read(self._prefix)
        held = {pair.key: pair for pair in pairs}
        kept = held.get(self.key("clock", ""))
        if set_clock and kept is not None:  # first of all: the votes' times are moved to this clock
            # The ledger's time as the last leader kept it: at most a third of a lease old, if one leads now.
            self._clock.offset = float(kept.value) - time.monotonic()
        head = held.get(self.key("base-head", ""))
        folded = 0
        if head is not None:
            told = msgspec.json.decode(head.value)
            folded = int(told["revision"])
            keys = [self.key("base", f"{folded}/{index:06}") for index in range(told["chunks"])]
            self.replica.load(b"".join(held[key].value for key in keys))
        for pair in pairs:
            if pair.revision > folded or not pair.key.startswith(self.key("log", "")):
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
                self.replica.apply(pair.key, self._whole(name, pair.value), pair.revision)
            case "vote" if not pair.deleted:
                self.replica.vote(pair.value)
            case "base-head":
                self.replica.entries = 0
            case "lease" if pair.deleted:
                self.holders.pop(name, None)
            case "lease":
                self.holders[name] = msgspec.json.decode(pair.value)["holder"]
            case _:
                pass

    def _whole(self, name: str, value: bytes) -> bytes:
        """An entry's bytes, put together if they went ahead in parts."""
        if not value.startswith(PARTS):
            return value
        return b"".join(self._parts.pop(f"{name}/{index:06}", b"") for index in range(int(value.removeprefix(PARTS))))

    async def _stand_at(self, revision: int) -> None:
        self._broken_since = None
        async with self._moved:
            self.replica.revision = revision
            self._moved.notify_all()
