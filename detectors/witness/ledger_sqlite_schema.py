"""Tables of the SQLite ledger, and what a new boot of the machine means for stored times."""

import sqlite3
import time
from pathlib import Path
from typing import Final

#: Changes with every change of the tables; a file of another version is refused, not guessed at.
VERSION: Final = 1

# Times are CLOCK_MONOTONIC of this machine; `wall` columns are for people only.
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, term INTEGER NOT NULL, until REAL NOT
NULL)
  WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS votes (seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, witness TEXT NOT NULL,
  body BLOB NOT NULL, until REAL NOT NULL, UNIQUE (key, witness));
CREATE TABLE IF NOT EXISTS verdicts (seq INTEGER PRIMARY KEY AUTOINCREMENT, subject TEXT NOT NULL, incarnation TEXT NOT NULL,
  version INTEGER NOT NULL, incident TEXT NOT NULL, fault TEXT NOT NULL, state TEXT NOT NULL, UNIQUE (subject, incarnation));
CREATE TABLE IF NOT EXISTS claims (spare TEXT PRIMARY KEY, incident TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS incidents (seq INTEGER PRIMARY KEY AUTOINCREMENT, incident TEXT NOT NULL UNIQUE, state TEXT
NOT NULL,
  picture BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS history (seq INTEGER PRIMARY KEY AUTOINCREMENT, incident TEXT NOT NULL, line BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS history_incident ON history (incident);
CREATE TABLE IF NOT EXISTS outbox (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, decision_id TEXT
NOT NULL,
  incident TEXT NOT NULL, action TEXT NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL, fence INTEGER NOT NULL,
  target TEXT NOT NULL, after TEXT NOT NULL, dry_run INTEGER NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL,
  next_try REAL NOT NULL, deadline REAL NOT NULL, deadline_seconds REAL NOT NULL, error TEXT NOT NULL, detail TEXT NOT
  NULL,
  told INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS outbox_open ON outbox (state, next_try);
CREATE INDEX IF NOT EXISTS outbox_decision ON outbox (decision_id);
CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY AUTOINCREMENT, node TEXT NOT NULL, id TEXT NOT NULL,
  kind TEXT NOT NULL, body BLOB NOT NULL, until REAL, UNIQUE (node, id));
CREATE TABLE IF NOT EXISTS controls (number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, key TEXT NOT NULL,
  body BLOB NOT NULL, until REAL, seconds REAL, UNIQUE (kind, key));
CREATE TABLE IF NOT EXISTS audit (seq INTEGER PRIMARY KEY AUTOINCREMENT, incident TEXT, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS audit_incident ON audit (incident);
"""


def boot_id() -> str:
    """Names this boot of the machine: CLOCK_MONOTONIC means something within one boot only."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def prepare(database: sqlite3.Connection) -> float:
    """Makes the tables and, after a reboot, lets go of what the old clock said. Returns the offset of the ledger's clock, seconds.

    Raises:
        sqlite3.DatabaseError: the file is no ledger, or one of another version.
    """
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("BEGIN IMMEDIATE")
    try:
        for statement in SCHEMA.split(";"):
            if statement.strip():
                database.execute(statement)
        version = _meta(database, "version")
        if version is None:
            database.execute("INSERT INTO meta VALUES ('version', ?), ('fence', '0')", (str(VERSION),))
        elif version != str(VERSION):
            raise sqlite3.DatabaseError(f"it is a ledger of version {version}, this program writes version {VERSION}")
        if _meta(database, "boot") != boot_id():
            start_boot(database)
        offset = float(_meta(database, "clock_offset") or 0.0)
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    return offset


def keep_time(database: sqlite3.Connection, now: float) -> None:
    """Remembers the ledger's time, so that a later boot goes on from there."""
    database.execute("INSERT OR REPLACE INTO meta VALUES ('clock_last', ?)", (repr(now),))


def _meta(database: sqlite3.Connection, name: str) -> str | None:
    row = database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def start_boot(database: sqlite3.Connection) -> None:
    """Votes and leases of the old boot are over; what is still to do gets its whole time again (never less).

    The ledger's clock goes on from the last time that was kept; how long the machine was off nobody knows.
    """
    now = time.monotonic()
    offset = max(0.0, float(_meta(database, "clock_last") or 0.0) - now)
    database.execute("INSERT OR REPLACE INTO meta VALUES ('clock_offset', ?)", (repr(offset),))
    database.execute("INSERT OR REPLACE INTO meta VALUES ('boot', ?)", (boot_id(),))
    database.execute("DELETE FROM votes")
    database.execute("DELETE FROM orders WHERE until IS NOT NULL")
    database.execute("UPDATE leases SET until = 0")
    database.execute("UPDATE outbox SET next_try = 0, deadline = ? + deadline_seconds", (now,))
    database.execute("UPDATE controls SET until = ? + seconds WHERE seconds IS NOT NULL", (now,))
