"""The ledger of several machines on a real etcd: who starts late, who loses touch, and what a dead leader leaves."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_ledger_contract import a_row, a_vote

from detectors.witness import ledger_etcd
from detectors.witness.ledger import Commit, Control, IncidentWrite, LedgerError, OrderTo
from detectors.witness.ledger_etcd import EtcdLedger
from detectors.witness.ledger_etcd_client import Etcd, Pair
from outrider.config.ledger import LedgerSection
from outrider.wire import Order

pytestmark = pytest.mark.real


@pytest.fixture
def section(etcd: str, tmp_path: Path) -> LedgerSection:
    return LedgerSection(backend="etcd", endpoints=(etcd,), prefix=f"/{tmp_path.name}/", lease_seconds=2.0)


@pytest.fixture
async def ledger(section: LedgerSection) -> AsyncIterator[EtcdLedger]:
    made = EtcdLedger(section)
    await made.open()
    yield made
    await made.close()


async def commit(ledger: EtcdLedger, index: int, **parts: Any) -> None:
    lease = await ledger.acquire("leader", "w1")
    assert lease is not None
    picture = IncidentWrite(incident=f"i{index}", state="confirmed", picture={"incident": f"i{index}"}, line={"event": "confirmed"})
    fence = (await ledger.leader_state()).fence
    await ledger.commit(Commit(term=lease.term, fence_before=fence, fence=fence + 1, incidents=(picture,), **parts), "w1")


async def test_who_starts_after_the_log_was_folded_knows_all_and_each_thing_once(
    ledger: EtcdLedger, section: LedgerSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_etcd, "FOLD_ENTRIES", 5)
    for index in range(7):
        await commit(ledger, index, outbox=(a_row(f"d{index}"),), audit=({"incident": f"i{index}", "what": "x"},))
    await ledger.put_control(Control(kind="pause", key="*", body={}))
    await ledger.mark_done("d3")
    entries, _ = await ledger._etcd.read(ledger._key("log", ""))
    assert len(entries) < 7
    late = EtcdLedger(section)
    await late.open()
    try:
        assert (await late.leader_state()).fence == 7
        assert [row.id for row in await late.due(time.monotonic())] == ["d0", "d1", "d2", "d4", "d5", "d6"]
        assert len(await late.audit()) == 7
        assert len(await late.incidents()) == 7
        assert [control.kind for control in await late.controls()] == ["pause"]
        found = await late.incident("i1")
        assert found is not None
        assert len(found["history"]) == 1
        # Both go on alike from there.
        await commit(ledger, 8, outbox=(a_row("d8"),))
        await late._follower.reach(ledger._follower.replica.revision)
        assert (await late.leader_state()).fence == 8
    finally:
        await late.close()


async def test_a_dead_leaders_place_is_free_after_its_lease(section: LedgerSection, ledger: EtcdLedger) -> None:
    dead = EtcdLedger(section)
    await dead.open()
    lease = await dead.acquire("leader", "w1")
    assert lease is not None
    dead._leases.clear()  # it is gone and gives nothing back
    await dead.close()
    await ledger._follower.reach(dead._follower.replica.revision)
    assert await ledger.acquire("leader", "w2") is None
    async with asyncio.timeout(10):
        while (new := await ledger.acquire("leader", "w2")) is None:
            await ledger.changed(1.0)
    assert new.term == lease.term + 1


async def test_a_vote_leaves_etcd_by_itself(ledger: EtcdLedger) -> None:
    await ledger.put_votes([a_vote(expires=1.0)])
    pairs, _ = await ledger._etcd.read(ledger._key("vote", ""))
    assert len(pairs) == 1
    async with asyncio.timeout(15):
        while pairs:
            await ledger.changed(1.0)
            pairs, _ = await ledger._etcd.read(ledger._key("vote", ""))


async def test_a_broken_watch_goes_on_where_it_stood(ledger: EtcdLedger, section: LedgerSection) -> None:
    other = EtcdLedger(section)
    whole = other._etcd.watch
    breaks = iter([True, True, False])

    async def fragile(prefix: str, revision: int) -> AsyncIterator[list[Pair]]:
        if next(breaks, False):
            raise LedgerError("the watch broke")
        async for pairs in whole(prefix, revision):
            yield pairs

    other._etcd.watch = fragile  # type: ignore[method-assign]
    await other.open()
    try:
        await commit(ledger, 1)
        await other._follower.reach(ledger._follower.replica.revision)
        assert len(await other.incidents()) == 1
    finally:
        await other.close()


async def test_history_that_was_compacted_away_is_read_anew(ledger: EtcdLedger, section: LedgerSection) -> None:
    other = EtcdLedger(section)
    await other.open()
    try:
        assert other._follower.task is not None
        other._follower.task.cancel()
        for index in range(3):
            await commit(ledger, index)
        await ledger._etcd.call("/v3/kv/compaction", {"revision": str(ledger._follower.replica.revision)})
        other._follower.task = asyncio.create_task(other._follower.follow())
        await other._follower.reach(ledger._follower.replica.revision)
        assert len(await other.incidents()) == 3
    finally:
        await other.close()


async def test_an_etcd_that_is_not_there_is_one_line() -> None:
    ledger = EtcdLedger(LedgerSection(backend="etcd", endpoints=("http://127.0.0.1:9", "http://127.0.0.1:10")))
    with pytest.raises(LedgerError, match=r"etcd cannot be reached: http://127\.0\.0\.1:9: .*; http://127\.0\.0\.1:10: "):
        await ledger.open()


async def test_what_is_no_entry_of_ours_is_passed_over(ledger: EtcdLedger) -> None:
    from detectors.witness.ledger_etcd_client import put

    await ledger._etcd.transact([], [put(ledger._key("log", "junk"), b"junk"), put(ledger._key("vote", "junk"), b"{}")])
    await commit(ledger, 1)
    assert ledger._follower.replica.refused_entries == 2
    assert len(await ledger.incidents()) == 1


async def test_another_endpoint_serves_when_the_first_does_not(etcd: str) -> None:
    client = Etcd(("http://127.0.0.1:9", etcd))
    await client.open()
    try:
        _, revision = await client.read("/none/")
        assert revision > 0
    finally:
        await client.close()


async def test_a_decision_larger_than_etcd_takes_goes_ahead_in_parts(
    ledger: EtcdLedger, section: LedgerSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_etcd, "VALUE_BYTES_MAX", 2000)
    rows = tuple(a_row(secrets.token_hex(16)) for _ in range(300))
    await commit(ledger, 1, outbox=rows)
    assert len(await ledger.list_rows(limit=1000)) == 300
    late = EtcdLedger(section)
    await late.open()
    try:
        assert len(await late.list_rows(limit=1000)) == 300
        assert late._follower._parts == {}
    finally:
        await late.close()
    monkeypatch.setattr(ledger_etcd, "FOLD_ENTRIES", 1)
    await commit(ledger, 2)
    assert await ledger._etcd.read(ledger._key("part", ""), keys_only=True) == ([], ledger._follower.replica.revision)


async def test_votes_that_a_late_starter_reads_have_the_ledgers_times(ledger: EtcdLedger, section: LedgerSection) -> None:
    """The first leader's machine was up for months: taken for its own, such a time would be newer than all that is over."""
    ledger.clock.offset += 90 * 86_400.0
    for _ in range(2):
        assert await ledger.acquire("leader", "w1") is not None
    now = ledger.clock.monotonic()
    await ledger.put_votes([replace(a_vote(), t=now, extra={"since": now - 1.0})])
    late = EtcdLedger(section)
    await late.open()
    try:
        _, [vote] = await late.read_votes(0)
        assert vote.t == pytest.approx(late.clock.monotonic(), abs=30.0)
        assert vote.t - vote.extra["since"] == pytest.approx(1.0)
    finally:
        await late.close()


async def test_orders_outlive_those_of_later_entries(ledger: EtcdLedger) -> None:
    """A node that is taken out is told to stop whenever it comes back, whatever was ordered since."""
    stop = OrderTo(to="n1", order=Order(number=0, id="s", order="stop"), keep_seconds=None)
    copies = [OrderTo(to="n1", order=Order(number=0, id=name, order="copy")) for name in ("c1", "c2")]
    for index, order in enumerate((stop, *copies)):
        await commit(ledger, index, orders=(order,))
    assert [order.id for order in await ledger.read_orders("n1", 0)] == ["s", "c1", "c2"]
