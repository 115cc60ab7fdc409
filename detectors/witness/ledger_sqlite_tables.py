"""Statements on the ledger's tables besides the outbox and the leader's commit: plain functions on a connection.

`now` is CLOCK_MONOTONIC of this machine, seconds. Each function is one transaction of its caller.
"""

import sqlite3
from dataclasses import replace
from typing import Any

import msgspec

from detectors.core.types import Vote
from detectors.witness import ledger_sqlite_outbox as outbox
from detectors.witness.ledger import Control, LeaderState, OrderTo
from outrider.wire import Order

_encode = msgspec.json.encode
_decode = msgspec.json.decode
_vote_decoder = msgspec.json.Decoder(Vote)
_order_decoder = msgspec.json.Decoder(Order)


def put_votes(database: sqlite3.Connection, votes: list[Vote], now: float, votes_max: int) -> None:
    """A later vote of one witness on one key replaces the former; expired ones leave."""
    database.executemany(
        "INSERT OR REPLACE INTO votes (key, witness, body, until) VALUES (?, ?, ?, ?)",
        [(vote.key, vote.witness, _encode(vote), now + vote.expires_seconds) for vote in votes],
    )
    database.execute("DELETE FROM votes WHERE until < ? OR seq <= (SELECT MAX(seq) FROM votes) - ?", (now, votes_max))


def read_votes(database: sqlite3.Connection, after: int, now: float) -> tuple[int, list[Vote]]:
    """Each with what is left of its life: who reads it late must not let it live longer."""
    query = "SELECT seq, body, until FROM votes WHERE seq > ? AND until > ? ORDER BY seq"
    rows = database.execute(query, (after, now)).fetchall()
    votes = [replace(_vote_decoder.decode(body), expires_seconds=until - now) for _, body, until in rows]
    return (rows[-1][0] if rows else after), votes


def leader_state(database: sqlite3.Connection) -> LeaderState:
    meta = dict(database.execute("SELECT name, value FROM meta").fetchall())
    verdicts = database.execute("SELECT subject, incarnation, version FROM verdicts").fetchall()
    return LeaderState(
        fence=int(meta["fence"]),
        council=meta["council"].encode() if "council" in meta else None,
        verdicts={(subject, incarnation): version for subject, incarnation, version in verdicts},
        claims=dict(database.execute("SELECT spare, incident FROM claims").fetchall()),
    )


def put_orders(
    database: sqlite3.Connection, orders: tuple[OrderTo, ...] | list[OrderTo], now: float, first: int | None = None
) -> None:
    """Adds orders; an `id` that a node has already is not told again. `first`: number of the first one, where it is given."""
    for index, item in enumerate(orders):
        until = None if item.keep_seconds is None else now + item.keep_seconds
        database.execute(
            "INSERT OR IGNORE INTO orders (number, node, id, kind, body, until) VALUES (?, ?, ?, ?, ?, ?)",
            (None if first is None else first + index, item.to, item.order.id, item.order.order, _encode(item.order), until),
        )


def read_orders(database: sqlite3.Connection, node: str, after: int, limit: int, now: float) -> list[Order]:
    query = "SELECT number, body FROM orders WHERE node = ? AND number > ? AND (until IS NULL OR until > ?) ORDER BY number LIMIT ?"
    rows = database.execute(query, (node, after, now, limit)).fetchall()
    return [msgspec.structs.replace(_order_decoder.decode(body), number=number) for number, body in rows]


def new_orders(database: sqlite3.Connection, after: int) -> tuple[int, set[str]]:
    rows = database.execute("SELECT number, node FROM orders WHERE number > ? ORDER BY number", (after,)).fetchall()
    return (rows[-1][0] if rows else after), {node for _, node in rows}


def put_control(database: sqlite3.Connection, control: Control, now: float, number: int | None = None) -> None:
    """Sets a person's standing order; `seconds_left` 0 takes it back."""
    if control.seconds_left == 0:
        database.execute("DELETE FROM controls WHERE kind = ? AND key = ?", (control.kind, control.key))
        return
    left = control.seconds_left
    database.execute(
        "INSERT OR REPLACE INTO controls (number, kind, key, body, until, seconds) VALUES (?, ?, ?, ?, ?, ?)",
        (number, control.kind, control.key, _encode(control.body), None if left is None else now + left, left),
    )


def controls(database: sqlite3.Connection, now: float, jobs_after: int) -> list[Control]:
    query = (
        "SELECT number, kind, key, body, until FROM controls WHERE (until IS NULL OR until > ?) AND (kind != 'job' OR number > ?)"
        " ORDER BY number"
    )
    return [
        Control(number=number, kind=kind, key=key, body=_decode(body), seconds_left=None if until is None else until - now)
        for number, kind, key, body, until in database.execute(query, (now, jobs_after)).fetchall()
    ]


def incidents(database: sqlite3.Connection, limit: int) -> list[dict[str, Any]]:
    rows = database.execute("SELECT picture FROM incidents ORDER BY seq DESC LIMIT ?", (limit,)).fetchall()
    return [_decode(row[0]) for row in rows]


def incident(database: sqlite3.Connection, name: str) -> dict[str, Any] | None:
    query = "SELECT incident, picture FROM incidents WHERE substr(incident, 1, ?) = ? LIMIT 2"
    found = database.execute(query, (len(name), name)).fetchall()
    if len(found) != 1:
        return None
    whole, picture = found[0]
    lines = database.execute("SELECT line FROM history WHERE incident = ? ORDER BY seq", (whole,)).fetchall()
    entries = database.execute("SELECT body FROM audit WHERE incident = ? ORDER BY seq", (whole,)).fetchall()
    rows = outbox.listed(database, None, whole, 200)
    return {
        **_decode(picture),
        "history": [_decode(line[0]) for line in lines],
        "actions": [msgspec.to_builtins(row) for row in reversed(rows)],
        "audit": [_decode(entry[0]) for entry in entries],
    }


def put_audit(database: sqlite3.Connection, entries: list[dict[str, Any]]) -> None:
    database.executemany(
        "INSERT INTO audit (incident, body) VALUES (?, ?)", [(entry.get("incident"), _encode(entry)) for entry in entries]
    )


def audit(database: sqlite3.Connection, limit: int, name: str | None) -> list[dict[str, Any]]:
    query = "SELECT body FROM audit WHERE ?1 IS NULL OR incident = ?1 ORDER BY seq DESC LIMIT ?2"
    return [_decode(row[0]) for row in database.execute(query, (name, limit)).fetchall()]
