"""Section `[ledger]`: where votes, verdicts and outbox are kept."""

from typing import Literal

from msgspec import Struct

from outrider.config.paths import SitePath


class LedgerSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the ledger is, and its bounds.

    backend: `sqlite` for one machine, `etcd` for witnesses on several.
    path: the SQLite file; its folder is made.
    endpoints, prefix: etcd's client addresses, tried in turn, and the keys' common beginning, one a site.
    compact: the leader compacts etcd's history. False where an etcd is shared or compacts by itself.
    lease_seconds: how long a leader or deliverer that says nothing keeps its place, 0.5 to 60; renewed each third of it. Shorter
        is a quicker change after its death, longer bears longer stalls.
    poll_seconds: how often a process looks for others' changes (SQLite), 0.005 to 1. A look costs microseconds.
    votes_max, orders_max, rows_max: bounds of the tables; the oldest go first, of the outbox only what is over.
    """

    backend: Literal["sqlite", "etcd"] = "sqlite"
    path: SitePath = "outrider-state/ledger.db"
    endpoints: tuple[str, ...] = ("http://127.0.0.1:2379",)
    prefix: str = "/outrider/"
    compact: bool = True
    lease_seconds: float = 3.0
    poll_seconds: float = 0.02
    votes_max: int = 200_000
    orders_max: int = 20_000
    rows_max: int = 50_000

    def __post_init__(self) -> None:
        if not 0.5 <= self.lease_seconds <= 60:
            raise ValueError("lease_seconds must be 0.5..60")
        if not 0.005 <= self.poll_seconds <= 1:
            raise ValueError("poll_seconds must be 0.005..1")
        if self.backend == "etcd" and not self.endpoints:
            raise ValueError("endpoints: etcd needs at least one address")
        if self.backend == "etcd" and not self.prefix.strip("/ "):
            raise ValueError("prefix must be a name of this site's own: without one its ledger would be the whole of etcd")
