"""The outbox: what must leave, durable before it is tried. The leader fills it, the deliverer (room `alerts`) drains
it.

A row's life: `pending` -> `sent` (the receiver has it, the effect is awaited: snapshots) -> `done`; or `failed` (will
be tried
again at `next_try`) -> .. -> `dead` (given up; a person may `requeue` it). A row is due only when every action in its
`after` is
done or dead, or past its deadline. The deliverer calls `mark_done` when a receiver accepted a row, except for rows
whose
`awaits_effect` is true: there it calls `mark_sent`, and the leader marks them done when the effect is seen.
"""

from typing import Any, Literal, Protocol

import msgspec

RowState = Literal["pending", "sent", "done", "failed", "dead"]

#: The one type whose effect comes back as a signal (a `snapshot` signal, state `committed`).
SNAPSHOT_TYPE = "job.snapshot.requested"


class OutboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook to deliver.

    `id` is the `webhook-id`: never another body under the same id. `decision_id` names the action behind it; several
    rows share it
    after `fan_out`. `body` is the JSON text to POST as it is. `target` is a target's name, empty: every target that
    the deliverer's
    configuration routes this `type` to. `after` holds decision ids. `deadline` and `next_try` are monotonic seconds
    on the clock of
    the process that reads; `deadline_seconds` is what the leader gave.
    """

    id: str
    decision_id: str
    incident: str
    action: str
    type: str
    body: str
    fence: int
    deadline_seconds: float
    target: str = ""
    after: tuple[str, ...] = ()
    dry_run: bool = False
    state: RowState = "pending"
    attempts: int = 0
    next_try: float = 0.0
    deadline: float = 0.0
    error: str = ""
    detail: dict[str, Any] = {}
    #: The leader's council has heard of its end.
    told: bool = False

    @property
    def awaits_effect(self) -> bool:
        """Whether a receiver's yes is not yet the end of it."""
        return self.type == SNAPSHOT_TYPE and not self.dry_run


class Outbox(Protocol):
    """The deliverer's view of the ledger. Methods raise `LedgerError` when the ledger cannot be reached; try again
    later."""

    async def due(self, now: float, limit: int = 100) -> list[OutboxRow]:
        """Rows to try now, oldest first: `pending` or `failed`, `next_try` reached, nothing in `after` to wait for."""
        ...

    async def fan_out(self, row_id: str, targets: list[str]) -> list[OutboxRow]:
        """Puts one row for each target (id `<row_id>.<target>`) in the place of an unaddressed row, in one
        transaction."""
        ...

    async def mark_sent(self, row_id: str, detail: dict[str, Any] | None = None) -> None:
        """The receiver has it, its effect is awaited."""
        ...

    async def mark_done(self, row_id: str, detail: dict[str, Any] | None = None) -> None:
        """Finished."""
        ...

    async def mark_failed(self, row_id: str, error: str, retry_seconds: float) -> None:
        """One attempt failed; it is due again after `retry_seconds`. Counts the attempt."""
        ...

    async def mark_dead(self, row_id: str, error: str, detail: dict[str, Any] | None = None) -> None:
        """Given up: a dead letter that a person can `requeue`."""
        ...

    async def requeue(self, row_id: str) -> bool:
        """Makes a dead row pending again, attempts at zero. False: no such dead row."""
        ...

    async def list_rows(self, state: RowState | None = None, incident: str | None = None, limit: int = 200) -> list[OutboxRow]:
        """Rows, newest first, of one state or incident if named."""
        ...

    async def changed(self, timeout_seconds: float) -> bool:
        """Waits until the ledger changed since the last call (True) or the time is over (False)."""
        ...
