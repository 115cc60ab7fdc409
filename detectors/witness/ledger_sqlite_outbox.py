"""The outbox's statements on SQLite: plain functions on a connection, each one transaction of its caller."""

import json
import sqlite3
from typing import Any, Final

from detectors.witness.ledger import Result
from detectors.witness.outbox import OutboxRow, RowState

_COLUMNS: Final = (
    "id, decision_id, incident, action, type, body, fence, target, after, dry_run, state, attempts, next_try, deadline,"
    " deadline_seconds, error, detail, told"
)

# A predecessor holds a row up while it is open and its deadline has not come. One that nobody knows holds nothing up.
_DUE: Final = f"""
SELECT {_COLUMNS} FROM outbox AS row WHERE state IN ('pending', 'failed') AND next_try <= :now AND NOT EXISTS (
  SELECT 1 FROM outbox AS before WHERE before.incident = row.incident AND before.decision_id IN (SELECT value FROM
  json_each(row.after))
  AND before.state NOT IN ('done', 'dead') AND before.deadline > :now)
ORDER BY seq LIMIT :limit"""  # noqa: S608 - no outside text in it


def insert(database: sqlite3.Connection, row: OutboxRow, now: float) -> None:
    """Adds a row; one whose id is there already is left as it is (the same decision told twice)."""
    database.execute(
        f"INSERT OR IGNORE INTO outbox ({_COLUMNS}) VALUES (?{', ?' * 17})",  # noqa: S608
        (
            row.id, row.decision_id, row.incident, row.action, row.type, row.body, row.fence, row.target,
            json.dumps(row.after),
            int(row.dry_run), row.state, row.attempts, 0.0, now + row.deadline_seconds, row.deadline_seconds, row.error,
            json.dumps(row.detail), int(row.told),
        ),
    )  # fmt: skip


def due(database: sqlite3.Connection, now: float, limit: int) -> list[OutboxRow]:
    return [_row(found) for found in database.execute(_DUE, {"now": now, "limit": limit})]


def listed(database: sqlite3.Connection, state: RowState | None, incident: str | None, limit: int) -> list[OutboxRow]:
    found = database.execute(
        f"SELECT {_COLUMNS} FROM outbox WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR incident = ?2)"  # noqa: S608
        " ORDER BY seq DESC LIMIT ?3",
        (state, incident, limit),
    )
    return [_row(row) for row in found]


def fan_out(database: sqlite3.Connection, row_id: str, targets: list[str], now: float) -> list[OutboxRow]:
    found = database.execute(f"SELECT {_COLUMNS} FROM outbox WHERE id = ? AND target = ''", (row_id,)).fetchone()  # noqa: S608
    if found is None or not targets:
        return []
    row = _row(found)
    database.execute("DELETE FROM outbox WHERE id = ?", (row_id,))
    for target in targets:
        columns = {key: getattr(row, key) for key in row.__struct_fields__} | {"id": f"{row_id}.{target}", "target": target}
        insert(database, OutboxRow(**columns), now)
        database.execute("UPDATE outbox SET deadline = ? WHERE id = ?", (row.deadline, columns["id"]))
    placed = database.execute(
        f"SELECT {_COLUMNS} FROM outbox WHERE decision_id = ? ORDER BY seq",  # noqa: S608
        (row.decision_id,),
    )
    return [_row(other) for other in placed]


def mark(database: sqlite3.Connection, row_id: str, state: RowState, detail: dict[str, Any] | None) -> None:
    """A final or waiting state; a row that is done stays done (deliveries may be told twice, and late)."""
    database.execute(
        "UPDATE outbox SET state = ?, attempts = attempts + 1, error = '', detail = ? WHERE id = ? AND state != 'done'",
        (state, json.dumps(detail or {}), row_id),
    )


def mark_failed(database: sqlite3.Connection, row_id: str, error: str, next_try: float) -> None:
    database.execute(
        "UPDATE outbox SET state = 'failed', attempts = attempts + 1, error = ?, next_try = ?"
        " WHERE id = ? AND state IN ('pending', 'failed')",
        (error[:500], next_try, row_id),
    )


def mark_dead(database: sqlite3.Connection, row_id: str, error: str, detail: dict[str, Any] | None) -> None:
    database.execute(
        "UPDATE outbox SET state = 'dead', error = ?, detail = ? WHERE id = ? AND state != 'done'",
        (error[:500], json.dumps(detail or {}), row_id),
    )


def requeue(database: sqlite3.Connection, row_id: str, now: float) -> bool:
    return bool(
        database.execute(
            "UPDATE outbox SET state = 'pending', attempts = 0, next_try = 0, told = 0, deadline = ? + deadline_seconds"
            " WHERE id = ? AND state = 'dead'",
            (now, row_id),
        ).rowcount
    )


def results(database: sqlite3.Connection, now: float) -> list[Result]:
    """Decisions that ended, or whose deadline passed, and that the council has not heard of: failed if one row is dead."""
    found = database.execute(
        "SELECT decision_id, SUM(state = 'dead'), SUM(state IN ('done', 'dead')) = COUNT(*), MAX(error), MAX(detail) FROM outbox"
        " WHERE told = 0 GROUP BY decision_id HAVING SUM(state IN ('done', 'dead')) = COUNT(*) OR MIN(deadline) <= ?"
        " ORDER BY MIN(seq) LIMIT 500",
        (now,),
    )
    return [
        Result(
            decision_id=decision,
            outcome=("failed" if dead else "done") if ended else "timed_out",
            detail=json.loads(detail) | ({"error": error} if error else {}),
        )
        for decision, dead, ended, error, detail in found
    ]


def effect(database: sqlite3.Connection, decision_id: str, detail: dict[str, Any]) -> None:
    """The effect was seen: the action is done, whatever its receivers said."""
    database.execute(
        "UPDATE outbox SET state = 'done', error = '', detail = ? WHERE decision_id = ?", (json.dumps(detail), decision_id)
    )


def trim(database: sqlite3.Connection, rows_max: int) -> None:
    """Forgets the oldest rows that are over and heard of, so that the table stays within `rows_max`."""
    database.execute(
        "DELETE FROM outbox WHERE told = 1 AND state IN ('done', 'dead') AND seq <= (SELECT MAX(seq) FROM outbox) - ?", (rows_max,)
    )


def _row(found: tuple[Any, ...]) -> OutboxRow:
    (row_id, decision, incident, action, kind, body, fence, target, after, dry_run, state, attempts, next_try, deadline,
     deadline_seconds, error, detail, told) = found  # fmt: skip
    return OutboxRow(
        id=row_id, decision_id=decision, incident=incident, action=action, type=kind, body=body, fence=fence,
        target=target,
        after=tuple(json.loads(after)), dry_run=bool(dry_run), state=state, attempts=attempts, next_try=next_try,
        deadline=deadline, deadline_seconds=deadline_seconds, error=error, detail=json.loads(detail), told=bool(told),
    )  # fmt: skip
