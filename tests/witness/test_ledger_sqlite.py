"""The one-machine ledger: what a reboot means, and files that are no ledger."""

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest
from test_ledger_contract import a_row, a_vote

from detectors.witness import ledger_sqlite_schema
from detectors.witness.ledger import Commit, Control, IncidentWrite, LedgerError, OrderTo
from detectors.witness.ledger_sqlite import SqliteLedger
from outrider.config.ledger import LedgerSection
from outrider.wire import Order


async def opened(path: Path) -> SqliteLedger:
    ledger = SqliteLedger(LedgerSection(path=str(path)))
    await ledger.open()
    return ledger


async def test_after_a_reboot_the_work_is_there_with_its_whole_time_and_the_rest_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    before = await opened(path)
    assert before.clock.offset == 0.0
    before.clock.offset = 50_000.0  # as if the machine had been up for long
    lease = await before.acquire("leader", "w1")
    assert lease is not None
    await before.acquire("leader", "w1")
    stop = OrderTo(to="n1", order=Order(number=0, id="s", order="stop"), keep_seconds=None)
    await before.commit(Commit(term=1, fence_before=0, fence=4, outbox=(a_row("d", deadline=60.0),), orders=(stop,)), "w1")
    await before.mark_failed("d", "500", retry_seconds=3600.0)
    await before.put_votes([a_vote()])
    await before.put_control(Control(kind="maintenance", key="n1", body={}, seconds_left=100.0))
    stood_at = before.clock.monotonic()
    await before.close()
    monkeypatch.setattr(ledger_sqlite_schema, "boot_id", lambda: "another-boot")
    after = await opened(path)
    assert after.clock.monotonic() >= stood_at - 1.0
    assert (await after.leader_state()).fence == 4
    assert (await after.read_votes(0))[1] == []
    (row,) = await after.due(time.monotonic())
    assert row.deadline - time.monotonic() > 55.0
    assert [order.order for order in await after.read_orders("n1", 0)] == ["stop"]
    assert [control.key for control in await after.controls()] == ["n1"]
    lease = await after.acquire("leader", "w2")
    assert lease is not None
    assert lease.term == 2
    await after.close()


@pytest.mark.parametrize("content", [b"this is no database at all, but a text file of some length\n" * 20, None])
async def test_what_is_no_ledger_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ledger.db"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(LedgerError, match="cannot be opened as a ledger") as caught:
        await opened(path)
    assert "\n" not in str(caught.value)


async def test_a_ledger_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.db"
    await (await opened(path)).close()
    monkeypatch.setattr(ledger_sqlite_schema, "VERSION", 2)
    with pytest.raises(LedgerError, match="of version 1, this program writes version 2"):
        await opened(path)


async def test_tables_stay_within_their_bounds(tmp_path: Path) -> None:
    ledger = SqliteLedger(LedgerSection(path=str(tmp_path / "ledger.db"), votes_max=5, orders_max=5, rows_max=5))
    await ledger.open()
    try:
        open_one = IncidentWrite(incident="open", state="acting", picture={"incident": "open"}, line={})
        stop = OrderTo(to="n1", order=Order(number=0, id="stop", order="stop"), keep_seconds=None)
        assert await ledger.acquire("leader", "w1") is not None
        await ledger.commit(Commit(term=1, fence_before=0, fence=0, incidents=(open_one,), orders=(stop,)), "w1")
        for index in range(20):
            await ledger.put_votes([a_vote(key=f"k{index}")])
            lease = await ledger.acquire("leader", "w1")
            assert lease is not None
            row = a_row(f"d{index}")
            order = OrderTo(to="n1", order=Order(number=0, id=f"o{index}", order="copy"))
            over = IncidentWrite(incident=f"i{index}", state="resolved", picture={"incident": f"i{index}"}, line={})
            await ledger.commit(
                Commit(
                    term=1, fence_before=0, fence=0, outbox=(row,), orders=(order,), audit=({"what": "x"},), incidents=(over,),
                    told=(f"d{index - 1}",),
                ),
                "w1",
            )  # fmt: skip
            await ledger.mark_done(row.id)
        assert len((await ledger.read_votes(0))[1]) == 5
        assert [order.id for order in await ledger.read_orders("n1", 0)] == ["stop", *(f"o{index}" for index in range(15, 20))]
        assert [one["incident"] for one in await ledger.incidents()] == [*(f"i{index}" for index in range(19, 14, -1)), "open"]
        assert len(await ledger.audit()) == 5
        assert len(await ledger.list_rows()) <= 7
    finally:
        await ledger.close()


async def test_a_full_disk_is_named_writes_nothing_half_and_is_over_when_there_is_room(tmp_path: Path) -> None:
    ledger = await opened(tmp_path / "ledger.db")
    assert await ledger.acquire("leader", "w1") is not None
    commit = Commit(term=1, fence_before=0, fence=4, outbox=tuple(a_row(f"d{number}") for number in range(2000)))
    database = ledger._database
    assert database is not None

    def pages(number: int) -> None:
        database.execute(f"PRAGMA max_page_count={number}")

    loop = asyncio.get_running_loop()
    await loop.run_in_executor(ledger._pool, pages, 1)  # as many as there are
    with pytest.raises(LedgerError, match="full"):
        await ledger.commit(commit, "w1")
    assert await ledger.list_rows() == []
    assert (await ledger.leader_state()).fence == 0

    def ended(database: sqlite3.Connection) -> None:
        """What SQLite does when the file system is full: the transaction is over before the error is told."""
        database.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")

    with pytest.raises(LedgerError, match="disk is full"):
        await ledger._write(ended, "FULL")
    await loop.run_in_executor(ledger._pool, pages, 1 << 20)
    await ledger.commit(commit, "w1")
    assert len(await ledger.list_rows(limit=5000)) == 2000
    await ledger.close()
