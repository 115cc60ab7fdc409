"""The ledger's contract: what every back end must keep, whatever happens to its users."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from witness_doubles import CaughtUp

from detectors.core.types import Verdict, Vote
from detectors.witness import ledger_etcd, ledger_sqlite
from detectors.witness.ledger import Commit, ConflictError, Control, IncidentWrite, Ledger, OrderTo, VerdictWrite
from detectors.witness.ledger_etcd import EtcdLedger
from detectors.witness.ledger_sqlite import SqliteLedger
from detectors.witness.outbox import OutboxRow
from outrider.config.ledger import LedgerSection
from outrider.wire import Order


def a_vote(witness: str = "w1", key: str = "node.lost|n1|b/1", expires: float = 10.0) -> Vote:
    return Vote(
        key=key, witness=witness, verdict=Verdict.FAULTY, fault="node.lost", culprit="node", subject={"node": "n1"},
        incarnation="b/1", response="restart", repair="investigate", layers=("hardware",), evidence=(), reason="silent",
        reason_code="silent", t=1.0, expires_seconds=expires,
    )  # fmt: skip


def a_row(decision: str, after: tuple[str, ...] = (), deadline: float = 60.0, kind: str = "job.restart.requested") -> OutboxRow:
    return OutboxRow(
        id=decision, decision_id=decision, incident="i1", action="restart", type=kind, body="{}", fence=1, after=after,
        deadline_seconds=deadline,
    )  # fmt: skip


@pytest.fixture(params=["sqlite", pytest.param("etcd", marks=pytest.mark.real)])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Ledger, Ledger]]:
    """Two users of one ledger, as two processes would be."""
    if request.param == "etcd":
        endpoint = request.getfixturevalue("etcd")
        section = LedgerSection(backend="etcd", endpoints=(endpoint,), prefix=f"/{tmp_path.name}/", lease_seconds=2.0)
        made = [EtcdLedger(section), EtcdLedger(section)]
        users: list[Any] = [CaughtUp(one, made) for one in made]
    else:
        section = LedgerSection(path=str(tmp_path / "ledger.db"), lease_seconds=2.0)
        made = users = [SqliteLedger(section), SqliteLedger(section)]  # type: ignore[assignment]
    for one in made:
        await one.open()
    yield users[0], users[1]
    for one in made:
        await one.close()


async def test_one_leader_at_a_time(pair: tuple[Ledger, Ledger]) -> None:
    first, second = pair
    lease = await first.acquire("leader", "w1")
    assert lease is not None
    assert lease.term == 1
    assert await second.acquire("leader", "w2") is None
    renewed = await first.acquire("leader", "w1")
    assert renewed is not None
    assert renewed.term == 1
    assert await second.holder("leader") == "w1"


async def test_a_new_leader_has_a_higher_term_and_the_former_cannot_commit(pair: tuple[Ledger, Ledger]) -> None:
    first, second = pair
    old = await first.acquire("leader", "w1")
    assert old is not None
    await first.resign("leader", "w1")
    new = await second.acquire("leader", "w2")
    assert new is not None
    assert new.term > old.term
    with pytest.raises(ConflictError) as caught:
        await first.commit(Commit(term=old.term, fence_before=0, fence=1), "w1")
    assert caught.value.reason_code == "lease"
    assert (await second.leader_state()).fence == 0


async def test_the_fence_only_grows(pair: tuple[Ledger, Ledger]) -> None:
    ledger, _ = pair
    lease = await ledger.acquire("leader", "w1")
    assert lease is not None
    await ledger.commit(Commit(term=lease.term, fence_before=0, fence=3), "w1")
    for before, after in ((0, 4), (3, 2)):
        with pytest.raises(ConflictError) as caught:
            await ledger.commit(Commit(term=lease.term, fence_before=before, fence=after), "w1")
        assert caught.value.reason_code == "fence"
    assert (await ledger.leader_state()).fence == 3


async def test_a_refused_commit_leaves_nothing_behind(pair: tuple[Ledger, Ledger]) -> None:
    ledger, other = pair
    lease = await ledger.acquire("leader", "w1")
    assert lease is not None
    verdict = VerdictWrite(subject="n1", incarnation="b/1", version_before=0, incident="i1", fault="node.lost", state="confirmed")
    await ledger.commit(Commit(term=lease.term, fence_before=0, fence=1, verdicts=(verdict,), claims=(("n9", "i1"),)), "w1")
    picture = IncidentWrite(incident="i2", state="confirmed", picture={"incident": "i2"}, line={})
    for clash in ({"verdicts": (verdict,)}, {"claims": (("n9", "i2"),)}):
        with pytest.raises(ConflictError):
            await ledger.commit(
                Commit(term=lease.term, fence_before=1, fence=2, incidents=(picture,), outbox=(a_row("d2"),), **clash), "w1"
            )
    state = await other.leader_state()
    assert (state.fence, state.verdicts, state.claims) == (1, {("n1", "b/1"): 1}, {"n9": "i1"})
    assert await other.incidents() == []
    assert await other.list_rows() == []


async def test_votes_are_read_on_from_a_place_and_the_newest_of_a_witness_counts(pair: tuple[Ledger, Ledger]) -> None:
    first, second = pair
    await first.put_votes([a_vote("w1"), a_vote("w2")])
    place, votes = await second.read_votes(0)
    assert [vote.witness for vote in votes] == ["w1", "w2"]
    await first.put_votes([a_vote("w1")])
    place, votes = await second.read_votes(place)
    assert [vote.witness for vote in votes] == ["w1"]
    _, everything = await second.read_votes(0)
    assert len(everything) == 2


async def test_a_vote_that_has_expired_is_not_read(pair: tuple[Ledger, Ledger]) -> None:
    ledger, _ = pair
    await ledger.put_votes([a_vote("w1", expires=-1.0)])
    assert (await ledger.read_votes(0))[1] == []


async def test_a_vote_that_is_read_late_lives_no_longer(pair: tuple[Ledger, Ledger], monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, _ = pair
    await ledger.put_votes([a_vote(expires=10.0)])
    for module in (ledger_etcd, ledger_sqlite):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 7.0))
    _, [read] = await ledger.read_votes(0)
    assert 0.0 < read.expires_seconds <= 3.0


async def test_a_row_says_whether_the_leader_has_heard_of_its_end(pair: tuple[Ledger, Ledger]) -> None:
    ledger, other = pair
    lease = await ledger.acquire("leader", "w1")
    assert lease is not None
    await ledger.commit(Commit(term=lease.term, fence_before=0, fence=0, outbox=(a_row("d1"), a_row("d2"))), "w1")
    await ledger.mark_done("d1")
    await ledger.commit(Commit(term=lease.term, fence_before=0, fence=0, told=("d1",)), "w1")
    assert {row.id: row.told for row in await other.list_rows()} == {"d1": True, "d2": False}


async def test_a_follower_hears_of_a_change(pair: tuple[Ledger, Ledger]) -> None:
    first, second = pair
    await second.changed(0.1)
    waiting = asyncio.create_task(second.changed(5.0))
    await first.put_votes([a_vote()])
    assert await waiting


async def commit_rows(ledger: Ledger, *rows: OutboxRow) -> None:
    lease = await ledger.acquire("leader", "w1")
    assert lease is not None
    fence = (await ledger.leader_state()).fence
    await ledger.commit(Commit(term=lease.term, fence_before=fence, fence=fence, outbox=rows), "w1")


async def test_a_row_waits_for_the_one_before_it(pair: tuple[Ledger, Ledger]) -> None:
    ledger, deliverer = pair
    await commit_rows(ledger, a_row("a"), a_row("b", after=("a",)))
    assert [row.id for row in await deliverer.due(time.monotonic())] == ["a"]
    await deliverer.mark_done("a")
    assert [row.id for row in await deliverer.due(time.monotonic())] == ["b"]


async def test_a_predecessor_past_its_deadline_holds_nothing_up(pair: tuple[Ledger, Ledger]) -> None:
    ledger, deliverer = pair
    await commit_rows(ledger, a_row("a", deadline=5.0), a_row("b", after=("a",)))
    assert [row.id for row in await deliverer.due(time.monotonic() + 6.0)] == ["a", "b"]


async def test_a_failed_row_comes_again_and_a_dead_one_when_asked(pair: tuple[Ledger, Ledger]) -> None:
    ledger, deliverer = pair
    await commit_rows(ledger, a_row("a"))
    await deliverer.mark_failed("a", "500", retry_seconds=30.0)
    assert await deliverer.due(time.monotonic()) == []
    assert [row.attempts for row in await deliverer.due(time.monotonic() + 31.0)] == [1]
    await deliverer.mark_dead("a", "gave up")
    assert await deliverer.due(time.monotonic() + 31.0) == []
    assert [result.outcome for result in await ledger.results()] == ["failed"]
    assert await deliverer.requeue("a")
    assert not await deliverer.requeue("a")
    assert [row.attempts for row in await deliverer.due(time.monotonic())] == [0]


async def test_a_row_sent_to_two_targets_is_done_when_both_are(pair: tuple[Ledger, Ledger]) -> None:
    ledger, deliverer = pair
    await commit_rows(ledger, a_row("a"), a_row("b", after=("a",)))
    rows = await deliverer.fan_out("a", ["slurm", "pager"])
    assert [row.id for row in rows] == ["a.slurm", "a.pager"]
    await deliverer.mark_done("a.slurm")
    assert await ledger.results() == []
    assert "b" not in [row.id for row in await deliverer.due(time.monotonic())]
    await deliverer.mark_done("a.pager")
    assert [(result.decision_id, result.outcome) for result in await ledger.results()] == [("a", "done")]


async def test_a_result_is_told_until_it_is_heard(pair: tuple[Ledger, Ledger]) -> None:
    ledger, _ = pair
    await commit_rows(ledger, a_row("a"))
    await ledger.mark_done("a", {"status": 200})
    assert [result.detail for result in await ledger.results()] == [{"status": 200}]
    lease = await ledger.acquire("leader", "w1")
    assert lease is not None
    await ledger.commit(Commit(term=lease.term, fence_before=0, fence=0, told=("a",)), "w1")
    assert await ledger.results() == []


async def test_an_order_is_told_once_to_each_node_and_in_order(pair: tuple[Ledger, Ledger]) -> None:
    first, second = pair
    probe = Order(number=0, id="p1", order="probe", node="n1")
    await first.put_orders([OrderTo(to="n2", order=probe), OrderTo(to="n3", order=probe)])
    await second.put_orders([OrderTo(to="n2", order=probe), OrderTo(to="n2", order=Order(number=0, id="c1", order="copy"))])
    orders = await second.read_orders("n2", 0)
    assert [order.id for order in orders] == ["p1", "c1"]
    assert await first.read_orders("n2", orders[-1].number) == []
    assert await first.read_orders("n1", 0) == []


async def test_a_stop_order_stands_until_the_node_is_released(pair: tuple[Ledger, Ledger]) -> None:
    ledger, _ = pair
    lease = await ledger.acquire("leader", "w1")
    assert lease is not None
    stop = OrderTo(to="n1", order=Order(number=0, id="s1", order="stop", fence=1), keep_seconds=None)
    await ledger.commit(Commit(term=lease.term, fence_before=0, fence=1, orders=(stop,)), "w1")
    assert [order.order for order in await ledger.read_orders("n1", 0)] == ["stop"]
    await ledger.commit(Commit(term=lease.term, fence_before=1, fence=1, orders_cleared=("n1",)), "w1")
    assert await ledger.read_orders("n1", 0) == []


async def test_controls_stand_until_taken_back(pair: tuple[Ledger, Ledger]) -> None:
    first, second = pair
    await first.put_control(Control(kind="maintenance", key="n1", body={"by": "anna"}, seconds_left=100.0))
    await first.put_control(Control(kind="pause", key="*", body={}))
    assert [(control.kind, control.key) for control in await second.controls()] == [("maintenance", "n1"), ("pause", "*")]
    await second.put_control(Control(kind="maintenance", key="n1", body={}, seconds_left=0))
    assert [control.kind for control in await first.controls()] == ["pause"]


async def test_a_job_that_is_known_is_not_read_again_until_it_changes(pair: tuple[Ledger, Ledger]) -> None:
    first, second = pair
    await first.put_control(Control(kind="job", key="j1", body={"value": 1}))
    await first.put_control(Control(kind="pause", key="*", body={}))
    place = (await second.controls())[0].number
    assert [control.kind for control in await second.controls(place)] == ["pause"]
    await first.put_control(Control(kind="job", key="j1", body={"value": 2}))
    assert [control.kind for control in await second.controls(place)] == ["pause", "job"]


async def test_an_incident_is_found_by_the_beginning_of_its_name_with_its_history(pair: tuple[Ledger, Ledger]) -> None:
    ledger, _ = pair
    lease = await ledger.acquire("leader", "w1")
    assert lease is not None
    for state in ("suspected", "confirmed"):
        picture = IncidentWrite(
            incident="abcdef", state=state, picture={"incident": "abcdef", "state": state}, line={"event": state}
        )
        await ledger.commit(
            Commit(term=lease.term, fence_before=0, fence=0, incidents=(picture,), audit=({"incident": "abcdef", "what": state},)),
            "w1",
        )
    found = await ledger.incident("abc")
    assert found is not None
    assert found["state"] == "confirmed"
    assert [line["event"] for line in found["history"]] == ["suspected", "confirmed"]
    assert len(await ledger.audit(incident="abcdef")) == 2
    assert await ledger.incident("x") is None


async def test_an_action_past_its_deadline_is_told_as_timed_out(pair: tuple[Ledger, Ledger]) -> None:
    ledger, _ = pair
    await commit_rows(ledger, a_row("a", deadline=-1.0), a_row("b"))
    assert [(result.decision_id, result.outcome) for result in await ledger.results()] == [("a", "timed_out")]


async def test_an_effect_ends_an_action_before_its_receiver_does(pair: tuple[Ledger, Ledger]) -> None:
    ledger, deliverer = pair
    await commit_rows(ledger, a_row("a", kind="job.snapshot.requested"), a_row("b", after=("a",)))
    await deliverer.mark_sent("a")
    assert [row.id for row in await deliverer.due(time.monotonic())] == []
    lease = await ledger.acquire("leader", "w1")
    assert lease is not None
    await ledger.commit(Commit(term=lease.term, fence_before=0, fence=0, effects=(("a", {"step": 7}),)), "w1")
    assert [row.id for row in await deliverer.due(time.monotonic())] == ["b"]
    assert [result.detail for result in await ledger.results()] == [{"step": 7}]


async def test_only_nodes_with_new_orders_are_woken(pair: tuple[Ledger, Ledger]) -> None:
    first, second = pair
    place, _ = await second.new_orders(0)
    await first.put_orders([OrderTo(to="n2", order=Order(number=0, id="p1", order="probe", node="n1"))])
    place, nodes = await second.new_orders(place)
    assert nodes == {"n2"}
    assert await second.new_orders(place) == (place, set())
