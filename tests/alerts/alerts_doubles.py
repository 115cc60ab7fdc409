"""A leader that puts rows into an outbox, and receivers that misbehave on demand: shared by the tests of alerts and by bench/."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from alerts.webhooks import verify
from detectors.witness.ledger import Commit, ConflictError, Ledger
from detectors.witness.outbox import OutboxRow
from outrider.config.ledger import LedgerSection

SECRET = base64.b64encode(b"k" * 24).decode()


def body(kind: str, **data: object) -> str:
    return json.dumps({"type": kind, "timestamp": "2026-01-01T00:00:00Z", "data": data})


def row(
    name: str, kind: str = "job.restart.requested", *, incident: str = "i1", after: tuple[str, ...] = (), dry_run: bool = False,
    deadline: float = 60.0, **data: object,
) -> OutboxRow:  # fmt: skip
    return OutboxRow(
        id=name, decision_id=name, incident=incident, action=kind.split(".")[-1], type=kind, fence=1, dry_run=dry_run,
        body=body(kind, incident=incident, fence=1, dry_run=dry_run, **data), after=after, deadline_seconds=deadline,
    )  # fmt: skip


class Leader:
    """Writes rows as the leading witness does, and sees the effect of snapshots."""

    def __init__(self, ledger: Ledger, section: LedgerSection | None = None) -> None:
        self.ledger, self.section = ledger, section

    async def put(self, *rows: OutboxRow) -> None:
        await self.commit(outbox=rows)

    async def commit(self, **what: Any) -> None:
        """A decision, in a new term where the lease ran out before it was written (as a leader does)."""
        for last in (False, False, False, True):
            lease = await self.ledger.acquire("leader", "w1")
            assert lease is not None
            fence = (await self.ledger.leader_state()).fence
            try:
                await self.ledger.commit(Commit(term=lease.term, fence_before=fence, fence=fence, **what), "w1")
                return
            except ConflictError as error:
                if last or error.reason_code != "lease":
                    raise

    async def states(self) -> dict[str, str]:
        return {found.id: found.state for found in await self.ledger.list_rows(limit=10_000)}

    async def see_snapshot(self, row_id: str) -> None:
        await self.ledger.mark_done(row_id, {"effect": "committed"})


Answer = Callable[[int, web.Request], "web.StreamResponse | None"]


class Receiver:
    """A webhook receiver. `answers` are taken one by one, the last for ever: a status, or a coroutine function of the request."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers) or [200]
        self.got: list[tuple[str, dict]] = []
        self.effects: dict[str, dict] = {}
        self.url = ""
        self.news = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        verify((SECRET,), raw, request.headers)
        message = json.loads(raw)
        self.got.append((request.headers["webhook-id"], message))
        self.news.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            answer = await answer(request)
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        if status < 300:
            self.effects.setdefault(request.headers["webhook-id"], message)
        return web.Response(status=status, headers=headers, text="said")

    @property
    def ids(self) -> list[str]:
        return [name for name, _ in self.got]


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Waits for a condition of real processes, with a bound."""
    async with asyncio.timeout(seconds):
        while True:
            value = condition()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return
            await asyncio.sleep(0.005)
