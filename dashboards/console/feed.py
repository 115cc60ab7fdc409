"""What keeps open pages up to date: a look at the ledger when it changed, and only what is new is sent. Nobody watches: no look."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
import structlog

from dashboards.console.states import read_memory, standing, state_letters
from detectors.witness.draft import OPEN_STATES
from detectors.witness.http import Pages
from detectors.witness.ledger import LedgerError

log = structlog.get_logger()

#: At least this often there is a look, seconds: heartbeats that stay away change no ledger, and a page knows that we live.
LOOK_SECONDS: Final = 1.0
#: After a look that cost the loop d seconds the next comes after this, at least, and 4 d: a fifth of its time at most.
PAUSE_SECONDS: Final = 0.1
PAUSE_LOOKS: Final = 4.0
#: Incidents that a page holds from the start besides all open ones; older ones are asked for.
INCIDENTS_MAX: Final = 500
#: How far back the first look goes for what is still open, and how much of that is kept.
ALL_MAX: Final = 10_000
OPEN_MAX: Final = 2_000
#: Messages that may wait for a page; one that is slower is let go and connects again.
QUEUE_MAX: Final = 30
#: What a list of incidents shows of each; the rest is asked for by its id.
SLIM: Final = (
    "incident", "fault", "culprit", "subject", "state", "response", "repair", "explanation", "opened", "wall", "layers", "votes",
    "acknowledged", "approved", "false_alarm", "restarts",
)  # fmt: skip


def slim(picture: dict[str, Any]) -> dict[str, Any]:
    """An incident as a line of a list."""
    return {key: picture[key] for key in SLIM if key in picture}


class Feed:
    """The watchers of one witness, at most `watchers_max`."""

    def __init__(self, pages: Pages, watchers_max: int) -> None:
        self._pages, self._watchers_max = pages, watchers_max
        self._watchers: set[asyncio.Queue[dict[str, Any] | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._incidents: dict[str, dict[str, Any]] = {}
        self._open: dict[str, dict[str, Any]] = {}
        self._letters = ""
        self._status: dict[str, Any] = {}

    @property
    def full(self) -> bool:
        return len(self._watchers) >= self._watchers_max

    async def watch(self) -> AsyncIterator[dict[str, Any]]:
        """First everything, then changes; at least one message a look. Ends when the reader is too slow.

        Raises:
            LedgerError: the first look failed.
        """
        async with self._starting:  # pages that come together start one look, not one each
            if self._task is None or self._task.done():
                self._incidents, self._open = {}, {}
                await self._look()
                self._task = asyncio.create_task(self._run())
            queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(QUEUE_MAX)
            self._watchers.add(queue)
        try:
            yield {"states": self._letters, "incidents": list(self._incidents.values()), "status": self._status}
            while (message := await queue.get()) is not None:
                yield message
        finally:
            self._watchers.discard(queue)

    async def _run(self) -> None:
        """Looks and tells until nobody watches."""
        took = 0.0
        while self._watchers:
            await asyncio.sleep(max(PAUSE_SECONDS, PAUSE_LOOKS * took))
            await self._news()
            began = time.thread_time()  # of this thread: a busy machine makes a look longer, not dearer
            try:
                message = await self._look()
            except LedgerError as error:
                message = {"trouble": str(error)}
            except Exception:  # our own bug: the pages are told, the witness lives on
                log.exception("console_error")
                message = {"trouble": "internal error; the witness's log tells more"}
            took = time.thread_time() - began
            for queue in list(self._watchers):
                if queue.qsize() >= QUEUE_MAX - 1:
                    self._watchers.discard(queue)
                    queue.put_nowait(None)
                else:
                    queue.put_nowait(message)

    async def _news(self) -> None:
        try:
            async with asyncio.timeout(LOOK_SECONDS):  # wait_for of 3.11 may swallow a cancellation
                await self._pages.news.wait()
        except TimeoutError:
            return
        self._pages.news.clear()

    async def _look(self) -> dict[str, Any]:
        """Takes the present in. Returns what is new since the last look."""
        ledger, sight, before = self._pages.ledger, self._pages.sight, self._open
        pictures = self._with_open(await ledger.incidents(INCIDENTS_MAX if self._incidents else ALL_MAX))
        state = await ledger.leader_state()
        memory, now = read_memory(state.council), ledger.clock.monotonic()
        status = await self._pages.status()
        status.pop("open", None)
        status |= {"fence": state.fence, **standing(memory, now)}
        letters = state_letters(sight.fleet, pictures, memory, sight.heard, sight.now())
        known = {str(one["incident"]): self._line(one, before) for one in pictures}
        fresh = [line for name, line in known.items() if (old := self._incidents.get(name)) is not line and old != line]
        changes = _changes(self._letters, letters)
        self._incidents, self._letters, self._status = known, letters, status
        return {"states": changes, "incidents": fresh, "status": status}

    def _line(self, picture: dict[str, Any], before: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """An incident's line; one that was not read again is the one that pages know."""
        name = str(picture["incident"])
        kept = self._incidents.get(name) if before.get(name) is picture else None
        return kept if kept is not None else slim(picture)

    def _with_open(self, pictures: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The newest incidents, and those still open that have not changed for so long that they are not among these."""
        newest = pictures[:INCIDENTS_MAX]
        seen = {picture["incident"] for picture in pictures}
        older = [picture for picture in pictures[INCIDENTS_MAX:] if picture.get("state") in OPEN_STATES]
        older += [picture for name, picture in self._open.items() if name not in seen]
        found = [*newest, *older[:OPEN_MAX]]
        self._open = {picture["incident"]: picture for picture in found if picture.get("state") in OPEN_STATES}
        return found


def _changes(before: str, after: str) -> list[tuple[int, str]]:
    """Places and new letters."""
    if before == after:
        return []
    if len(before) != len(after):
        return list(enumerate(after))
    return [(place, new) for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]


def event(message: dict[str, Any]) -> bytes:
    """A message as a server-sent event."""
    return b"data: " + msgspec.json.encode(message) + b"\n\n"
