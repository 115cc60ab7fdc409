"""The leader's transaction on SQLite: everything that one decision means, or nothing."""

import sqlite3

import msgspec

from detectors.witness import ledger_sqlite_outbox as outbox
from detectors.witness import ledger_sqlite_tables as tables
from detectors.witness.ledger import Commit, ConflictError, VerdictWrite
from outrider.config.ledger import LedgerSection

_encode = msgspec.json.encode

#: Lines of history kept of one incident: a flapping fault must not fill the disk.
HISTORY_MAX = 500


def write(database: sqlite3.Connection, commit: Commit, now: float, bounds: LedgerSection, first_order: int | None = None) -> None:
    """Runs inside the caller's transaction, who has made sure that the writer leads.

    Raises:
        ConflictError: the caller must roll back.
    """
    _raise_fence(database, commit)
    for verdict in commit.verdicts:
        _swap_verdict(database, verdict)
    for spare in commit.releases:
        database.execute("DELETE FROM claims WHERE spare = ?", (spare,))
    for spare, incident in commit.claims:
        _claim(database, spare, incident)
    for change in commit.incidents:
        picture, line = _encode(change.picture), _encode(change.line)
        database.execute(
            "INSERT OR REPLACE INTO incidents (incident, state, picture) VALUES (?, ?, ?)", (change.incident, change.state, picture)
        )
        database.execute("INSERT INTO history (incident, line) VALUES (?, ?)", (change.incident, line))
        database.execute(
            "DELETE FROM history WHERE incident = ?1 AND seq <= (SELECT seq FROM history WHERE incident = ?1"
            " ORDER BY seq DESC LIMIT 1 OFFSET ?2)",
            (change.incident, HISTORY_MAX),
        )
    for row in commit.outbox:
        outbox.insert(database, row, now)
    for node in commit.orders_cleared:
        database.execute("DELETE FROM orders WHERE node = ? AND kind = 'stop'", (node,))
    tables.put_orders(database, commit.orders, now, first_order)
    tables.put_audit(database, list(commit.audit))
    for number in commit.controls_done:
        database.execute("DELETE FROM controls WHERE number = ?", (number,))
    for decision, detail in commit.effects:
        outbox.effect(database, decision, detail)
    for decision in commit.told:
        database.execute("UPDATE outbox SET told = 1 WHERE decision_id = ?", (decision,))
    if commit.council is not None:
        database.execute("INSERT OR REPLACE INTO meta VALUES ('council', ?)", (commit.council.decode(),))
    trim(database, now, bounds)


def trim(database: sqlite3.Connection, now: float, bounds: LedgerSection) -> None:
    """Keeps every table within its bound. An order that stands (`stop`) is not let go for many that pass, nor an open incident."""
    database.execute("DELETE FROM orders WHERE until < ?", (now,))
    for kind in ("until IS NOT NULL", "until IS NULL"):
        # Counted, not reckoned from the numbers: on etcd there is a large step between those of two entries.
        database.execute(
            f"DELETE FROM orders WHERE {kind} AND number <="  # noqa: S608 - fixed texts
            f" (SELECT number FROM orders WHERE {kind} ORDER BY number DESC LIMIT 1 OFFSET ?)",
            (bounds.orders_max,),
        )
    for table in ("incidents", "history", "audit", "verdicts"):
        over = " AND state IN ('resolved', 'refuted')" if table == "incidents" else ""
        database.execute(
            f"DELETE FROM {table} WHERE seq <= (SELECT MAX(seq) FROM {table}) - ?{over}",  # noqa: S608 - fixed names
            (bounds.rows_max,),
        )
    outbox.trim(database, bounds.rows_max)


def check_lease(database: sqlite3.Connection, commit: Commit, holder: str, now: float) -> None:
    """Raises ConflictError unless `holder` leads in the commit's term."""
    found = database.execute("SELECT holder, term, until FROM leases WHERE name = 'leader'").fetchone()
    if found is None or found[0] != holder or found[1] != commit.term or found[2] <= now:
        raise ConflictError("lease", f"{holder} no longer leads (term {commit.term})")


def _raise_fence(database: sqlite3.Connection, commit: Commit) -> None:
    stored = int(database.execute("SELECT value FROM meta WHERE name = 'fence'").fetchone()[0])
    if stored != commit.fence_before or commit.fence < stored:
        raise ConflictError("fence", f"the fence is {stored}, not {commit.fence_before}")
    if commit.fence > stored:
        database.execute("UPDATE meta SET value = ? WHERE name = 'fence'", (str(commit.fence),))


def _swap_verdict(database: sqlite3.Connection, verdict: VerdictWrite) -> None:
    place = (verdict.subject, verdict.incarnation)
    found = database.execute("SELECT version FROM verdicts WHERE subject = ? AND incarnation = ?", place).fetchone()
    version = found[0] if found else 0
    if version != verdict.version_before:
        raise ConflictError("verdict", f"{verdict.subject} ({verdict.incarnation}) is at version {version}")
    database.execute(
        "INSERT OR REPLACE INTO verdicts (subject, incarnation, version, incident, fault, state) VALUES (?, ?, ?, ?, ?, ?)",
        (*place, version + 1, verdict.incident, verdict.fault, verdict.state),
    )


def _claim(database: sqlite3.Connection, spare: str, incident: str) -> None:
    database.execute("INSERT OR IGNORE INTO claims VALUES (?, ?)", (spare, incident))
    owner = database.execute("SELECT incident FROM claims WHERE spare = ?", (spare,)).fetchone()[0]
    if owner != incident:
        raise ConflictError("claim", f"spare {spare} belongs to incident {owner}")
