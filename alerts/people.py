"""What people do with the outbox: see it, send dead letters again, try the targets."""

import contextlib
import getpass
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from alerts.audit import entry
from alerts.delivery import Attempt
from alerts.gone import gone_targets
from alerts.senders import Sender, make_senders
from detectors.witness.ledger import Ledger, make_ledger
from detectors.witness.outbox import OutboxRow, RowState
from detectors.witness.tables import plain
from outrider.cli.options import DEFAULT_CONFIG
from outrider.config.alerts import AlertsConfig
from outrider.config.ledger import LedgerSection
from outrider.config.site import SiteSection, read_config
from outrider.errors import InputError

T = TypeVar("T")
#: Dead letters that one call sends again.
RETRY_MAX = 10_000


async def with_ledger(config: Path | None, work: Callable[[Ledger], Awaitable[T]]) -> T:
    """Opens the site's ledger for one piece of work.

    Raises:
        InputError: there is none; one that a question made would be empty, and its answer untrue.
    """
    section = read_config(config).get(LedgerSection)
    if not _is_there(section):
        why = "no ledger is here" + (f", and no {DEFAULT_CONFIG}" if config is None else "")
        raise InputError(f"{why}: the witnesses make one; name the settings with which they run (--config FILE)", file=section.path)
    ledger = make_ledger(section)
    await ledger.open()
    try:
        return await work(ledger)
    finally:
        await ledger.close()


def _is_there(section: LedgerSection) -> bool:
    """Whether a ledger of one machine was ever made; etcd answers for itself."""
    return section.backend != "sqlite" or Path(section.path).exists()


async def look(
    ledger: Ledger, state: RowState | None, incident: str | None, limit: int
) -> tuple[list[OutboxRow], list[dict[str, Any]]]:
    """Rows of the outbox, and the targets that are gone. Of an incident the beginning of the name is enough.

    Raises:
        InputError: no incident, or more than one, has a name that begins so.
    """
    rows = await ledger.list_rows(state, incident, limit)
    if not rows and incident is not None:
        rows = await ledger.list_rows(state, (await known_incident(ledger, incident))["incident"], limit)
    return rows, await gone_targets(ledger)


async def known_incident(ledger: Ledger, name: str) -> dict[str, Any]:
    """The incident whose name begins so, whole. Raises InputError: there is none, or more than one."""
    found = await ledger.incident(name)
    if found is None:
        raise InputError(f"no incident, or more than one, has a name that begins with {name!r}")
    return found


def listed(row: OutboxRow) -> dict[str, Any]:
    """A row as JSON shows it: its times are of another process's clock and say nothing."""
    shown: dict[str, Any] = msgspec.to_builtins(row)
    for name in ("next_try", "deadline"):
        shown.pop(name)
    shown["body"] = json.loads(row.body)
    return shown


async def requeue(ledger: Ledger, row_id: str | None, reason: str) -> list[str]:
    """Makes one dead letter (None: all) pending again and says who did it. Returns their ids."""
    names = [row_id] if row_id else [row.id for row in await ledger.list_rows(state="dead", limit=RETRY_MAX)]
    sent = [name for name in names if await ledger.requeue(name)]
    if sent:
        who = getpass.getuser()
        await ledger.put_audit([entry(who, "requeue", reason, webhook_id=name) for name in sent])
    return sent


def test_row(site: str, now_wall: float) -> OutboxRow:
    """A message of type `test`, about nothing."""
    name = f"test-{int(now_wall * 1000):x}"
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_wall))
    data = {"incident": name, "fault": None, "explanation": f"A test from Outrider of {site}. Nothing happened.", "fence": 0,
            "dry_run": True}  # fmt: skip
    body = json.dumps({"type": "test", "timestamp": moment, "data": data})
    return OutboxRow(
        id=name, decision_id=name, incident=name, action="test", type="test", body=body, fence=0, deadline_seconds=60.0
    )


async def try_targets(config: Path | None, name: str | None) -> list[tuple[str, Attempt]]:
    """One attempt at each target (or the one called `name`), without the outbox.

    Raises:
        InputError: no target is called so.
    """
    read = read_config(config)
    settings, site, section = read.get(AlertsConfig), read.get(SiteSection).name, read.get(LedgerSection)
    with contextlib.ExitStack() as stack:
        if not _is_there(section):  # targets may be tried before anything runs; a message about nothing asks nothing of the ledger
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            section = msgspec.structs.replace(section, path=f"{folder}/ledger.db")
        return await _try_all(make_ledger(section), settings, site, name, str(config or ""))


async def _try_all(ledger: Ledger, settings: AlertsConfig, site: str, name: str | None, file: str) -> list[tuple[str, Attempt]]:
    await ledger.open()
    try:
        senders = [sender for sender in make_senders(settings, ledger, site) if name in (None, sender.name)]
        if name is not None and not senders:
            raise InputError(f"no target is called {name!r}", file=file, key="alerts")
        row = test_row(site, time.time())
        return [(sender.name, await _attempt(sender, row)) for sender in senders]
    finally:
        await ledger.close()


async def _attempt(sender: Sender, row: OutboxRow) -> Attempt:
    await sender.open()
    try:
        return await sender.send(row, time.time())
    finally:
        await sender.close()


def print_rows(rows: list[OutboxRow], chosen: bool) -> None:
    """A table for people; `chosen`: a state or an incident was asked for, so that no row is no empty outbox."""
    table = Table(box=None, pad_edge=False)
    for title in ("row", "incident", "type", "target", "state", "tries", "what the other side said"):
        table.add_column(title, overflow="fold", no_wrap=title == "row")
    for row in rows:
        said = str(row.error or row.detail.get("said") or row.detail.get("note") or row.detail.get("effect") or "")
        state = "dry run" if row.dry_run and row.state == "done" else row.state
        words = (row.id, row.incident, row.type, row.target or "-", state, str(row.attempts), said)
        table.add_row(*(Text(plain(word)) for word in words))
    Console().print(table if rows else f"{'No such row in the outbox' if chosen else 'The outbox is empty'}.")


def print_gone(gone: list[dict[str, Any]]) -> None:
    """A line for each target that is left alone."""
    for one in gone:
        words = f"target {one['target']} is gone since {one['since']} ({one['reason']}): `outrider outbox enable {one['target']}`"
        Console().print(Text(plain(words)))


def print_attempts(attempts: list[tuple[str, Attempt]]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in ("target", "outcome", "what it said"):
        table.add_column(title, overflow="fold")
    for name, attempt in attempts:
        table.add_row(*(Text(plain(word)) for word in (name, attempt.outcome, attempt.reason)))
    Console().print(table if attempts else Text("[alerts] names no target."))
