"""The deliverer on a real ledger and real receivers: at least once, in order, no endless loop."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from alerts_doubles import SECRET, Leader, row, until

from alerts.breaker import Breaker
from alerts.deliverer import Deliverer
from alerts.gone import enable, gone_targets
from alerts.senders import make_senders
from detectors.witness.ledger import Control, Lease, Ledger, make_ledger
from outrider.config.alerts import AlertsConfig
from outrider.config.targets import Target

QUICK = {"poll_seconds": 0.01, "backoff_seconds": 0.01, "backoff_seconds_max": 0.05, "breaker_seconds": 0.2}
#: What must hold on the ledger of one machine and on that of several.
on_both = pytest.mark.parametrize("leader", ["sqlite", pytest.param("etcd", marks=pytest.mark.real)], indirect=True)
SNAPSHOT, QUARANTINE, RESTART = "job.snapshot.requested", "node.quarantine.requested", "job.restart.requested"


@pytest.fixture
async def deliver(leader: Leader) -> AsyncIterator[Callable[..., Deliverer]]:
    """Starts a deliverer for some targets."""
    tasks: list[asyncio.Task[None]] = []

    def start(*targets: Target, holder: str = "d1", ledger: Ledger | None = None, **settings: float) -> Deliverer:
        ledger = ledger or leader.ledger
        config = AlertsConfig(targets=targets, **(QUICK | settings))
        deliverer = Deliverer(ledger, config, make_senders(config, ledger, "site"), holder, random.Random(7))
        deliverer.task = asyncio.create_task(deliverer.run())
        tasks.append(deliverer.task)
        return deliverer

    yield start
    for task in tasks:
        await end(task)


async def end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def stop(deliverer: Deliverer) -> None:
    """Ends one deliverer before the test does."""
    await end(deliverer.task)


def to(receiver, secret_file: str, name: str = "t1", **more: object) -> Target:
    return Target(name=name, url=receiver.url, secret_files=(secret_file,), **more)


async def state_is(leader: Leader, name: str, state: str) -> None:
    async def reached() -> bool:
        return (await leader.states()).get(name) == state

    await until(reached)


@on_both
async def test_row_reaches_every_target_that_wants_it_and_no_other(leader, deliver, serve, secret_file) -> None:
    all_, some, none = await serve(), await serve(), await serve()
    deliver(to(all_, secret_file), to(some, secret_file, "t2", types=(RESTART,)), to(none, secret_file, "t3", types=(SNAPSHOT,)))
    await leader.put(row("a"))
    await state_is(leader, "a.t2", "done")
    await state_is(leader, "a.t1", "done")
    assert (all_.ids, some.ids, none.ids) == (["a.t1"], ["a.t2"], [])


@on_both
async def test_snapshot_then_quarantine_then_restart_each_waits_for_the_one_before(leader, deliver, serve, secret_file) -> None:
    receiver = await serve(500, 500, 200)
    deliver(to(receiver, secret_file))
    await leader.put(row("c", RESTART, after=("b",)), row("b", QUARANTINE, after=("a",)), row("a", SNAPSHOT))
    await state_is(leader, "a.t1", "sent")
    assert receiver.ids == ["a.t1"] * 3
    await leader.see_snapshot("a.t1")
    await state_is(leader, "c.t1", "done")
    assert receiver.ids == ["a.t1"] * 3 + ["b.t1", "c.t1"]


@on_both
async def test_snapshot_that_never_comes_holds_the_restart_until_its_deadline_only(leader, deliver, serve, secret_file) -> None:
    receiver = await serve()
    deliver(to(receiver, secret_file))
    await leader.put(row("a", SNAPSHOT, deadline=0.3), row("b", RESTART, after=("a",)))
    await state_is(leader, "b.t1", "done")
    assert receiver.ids == ["a.t1", "b.t1"]


@pytest.mark.parametrize(
    ("answers", "state", "tries", "code"),
    [
        ((500, 503, 200), "done", 3, None),
        (((503, {"retry-after": "0"}), 200), "done", 2, None),
        ((401,), "dead", 4, "unauthorised"),
        (((302, {"location": "http://127.0.0.1:9/elsewhere"}),), "dead", 1, "redirect"),
        ((422,), "dead", 1, "refused"),
        ((410,), "dead", 1, "gone"),
    ],
    ids=["fails twice", "asks to wait", "wrong token", "redirects", "refuses", "gone"],
)
async def test_each_kind_of_answer_has_a_clear_end(leader, deliver, serve, secret_file, answers, state, tries, code) -> None:
    receiver = await serve(*answers)
    deliver(to(receiver, secret_file, attempts_max=4))
    await leader.put(row("a"))
    await state_is(leader, "a.t1", state)
    assert len(receiver.got) == tries
    (found,) = await leader.ledger.list_rows()
    assert found.detail.get("reason_code") == code


async def test_receiver_that_answers_after_the_time_out_gets_the_row_again_under_the_same_id(
    leader, deliver, serve, secret_file
) -> None:
    async def late(_) -> int:
        await asyncio.sleep(0.3)
        return 200

    receiver = await serve(late, 200)
    deliver(to(receiver, secret_file, timeout_seconds=0.1))
    await leader.put(row("a"))
    await state_is(leader, "a.t1", "done")
    assert receiver.ids == ["a.t1", "a.t1"]
    assert len(receiver.effects) == 1


async def test_hanging_receiver_holds_up_no_other_and_opens_its_breaker(leader, deliver, serve, secret_file) -> None:
    async def hang(_) -> int:
        await asyncio.sleep(5)
        return 200

    stuck, good = await serve(hang), await serve()
    deliverer = deliver(to(stuck, secret_file, "t1", timeout_seconds=0.1), to(good, secret_file, "t2"), breaker_seconds=30.0)
    await leader.put(*(row(f"a{n}", incident=f"i{n}") for n in range(60)))
    await until(lambda: len(good.effects) == 60)
    await until(lambda: deliverer.routes["t1"].breaker.closed_at > 0)
    assert len(stuck.got) <= 5 + 16, "after five failures it is left alone, but for what was under way"


async def test_gone_receiver_is_not_asked_again(leader, deliver, serve, secret_file) -> None:
    receiver = await serve(410, 200)
    deliver(to(receiver, secret_file))
    await leader.put(row("a"))
    await state_is(leader, "a.t1", "dead")
    await leader.put(row("b"))
    await state_is(leader, "b.t1", "dead")
    assert receiver.ids == ["a.t1"]


@on_both
async def test_gone_receiver_is_not_asked_by_the_next_deliverer_either_until_a_person_enables_it(
    leader, deliver, serve, secret_file
) -> None:
    receiver = await serve(410, 200)
    first = deliver(to(receiver, secret_file))
    await leader.put(row("a"))
    await state_is(leader, "a.t1", "dead")
    await stop(first)
    other = make_ledger(leader.section)
    await other.open()
    try:
        second = deliver(to(receiver, secret_file), holder="d2", ledger=other)
        await leader.put(row("b"))
        await state_is(leader, "b.t1", "dead")
        assert receiver.ids == ["a.t1"]
        (gone,) = await gone_targets(leader.ledger)
        assert (gone["target"], "410" in gone["reason"]) == ("t1", True)
        assert not await enable(leader.ledger, "t2", "no such")
        assert await enable(leader.ledger, "t1", "moved back")
        await until(lambda: not second.routes["t1"].breaker.gone)
        assert await leader.ledger.requeue("b.t1")
        await state_is(leader, "b.t1", "done")
        assert receiver.ids == ["a.t1", "b.t1"]
        said = [entry for entry in await leader.ledger.audit() if entry["what"] == "enable"]
        assert [(entry["target"], entry["why"]) for entry in said] == [("t1", "moved back")]
        await stop(second)
    finally:
        await other.close()


def test_yes_to_what_was_under_way_does_not_take_a_no_for_good_back() -> None:
    breaker = Breaker(5, 30.0)
    breaker.note("gone", 1.0)
    breaker.note("accepted", 1.1)
    assert breaker.is_open(1.2)


@on_both
async def test_deliverer_whose_lease_has_run_out_meanwhile_sends_nothing(
    leader, deliver, serve, secret_file, monkeypatch
) -> None:
    """It was stopped or starved between taking the lease and sending: by now another one may send."""
    receiver = await serve()
    deliverer = deliver(to(receiver, secret_file))
    await until(deliverer._leads.is_set)
    acquire, may = leader.ledger.acquire, asyncio.Event()

    async def late(name: str, holder: str) -> Lease | None:
        if name == "deliverer":
            await may.wait()
        return await acquire(name, holder)

    monkeypatch.setattr(leader.ledger, "acquire", late)
    await until(lambda: not deliverer._leads.is_set())  # two thirds of the lease are over
    message = row("a")
    await leader.put(message)
    await deliverer._deliver(msgspec.structs.replace(message, target="t1"), deliverer.routes["t1"])
    assert receiver.ids == []
    may.set()
    await state_is(leader, "a.t1", "done")
    assert receiver.ids == ["a.t1"]


@on_both
async def test_dead_letter_sent_again_by_a_person_is_delivered(leader, deliver, serve, secret_file) -> None:
    receiver = await serve(422, 200)
    deliver(to(receiver, secret_file))
    await leader.put(row("a"))
    await state_is(leader, "a.t1", "dead")
    assert await leader.ledger.requeue("a.t1")
    await state_is(leader, "a.t1", "done")


@on_both
async def test_dry_run_sends_nothing_and_shows_exactly_what_would_be_sent(leader, deliver, serve, secret_file) -> None:
    receiver = await serve()
    deliver(to(receiver, secret_file))
    message = row("a", dry_run=True, job="j1")
    await leader.put(message)
    await state_is(leader, "a", "done")
    (found,) = await leader.ledger.list_rows()
    assert receiver.got == []
    assert found.detail == {"dry_run": True, "would_send": message.body, "to": ["t1"]}


async def test_action_that_no_target_wants_fails_and_does_not_pass_for_done(leader, deliver) -> None:
    deliver()
    await leader.put(row("a", RESTART), row("b", "incident.confirmed"))
    await state_is(leader, "a", "dead")
    await state_is(leader, "b", "done")


@on_both
async def test_a_pause_holds_what_was_ordered_before_it_and_what_comes_too_late_is_a_dead_letter(
    leader, deliver, serve, secret_file
) -> None:
    receiver = await serve()
    await leader.ledger.put_control(Control(kind="pause", key="*", body={"who": "ann"}))
    chain = (row("q", QUARANTINE), row("r", RESTART, after=("q",)))
    late = (row("late", RESTART, incident="i2", deadline=0.2), row("news", "incident.confirmed", incident="i3"),
            row("back", "node.release.requested", incident="i4"))  # fmt: skip
    await leader.put(*chain, *late)
    deliver(to(receiver, secret_file))
    await state_is(leader, "late", "dead")
    await state_is(leader, "back.t1", "done")
    await state_is(leader, "news.t1", "done")
    assert sorted(receiver.ids) == ["back.t1", "news.t1"]
    (dead,) = await leader.ledger.list_rows(state="dead")
    assert (dead.detail["reason_code"], "stopped all actions" in dead.error) == ("paused", True)
    await leader.ledger.put_control(Control(kind="pause", key="*", body={}, seconds_left=0))
    await state_is(leader, "r.t1", "done")
    assert receiver.ids[2:] == ["q.t1", "r.t1"]


async def test_key_is_rotated_in_place_without_a_restart(leader, deliver, serve, secret_file) -> None:
    receiver = await serve()
    deliver(to(receiver, secret_file))
    with open(secret_file, "w", encoding="ascii") as file:
        file.write("whsec_" + "bmV3" * 8)
    await leader.put(row("a"))
    await asyncio.wait_for(receiver_refuses(leader), 5)
    with open(secret_file, "w", encoding="ascii") as file:
        file.write(SECRET + "\n")
    await state_is(leader, "a.t1", "done")


async def receiver_refuses(leader: Leader) -> None:
    await state_is(leader, "a.t1", "failed")


@on_both
async def test_one_deliverer_at_a_time_and_the_other_takes_over(leader, deliver, serve, secret_file) -> None:
    receiver = await serve()
    first = deliver(to(receiver, secret_file), holder="d1")

    async def held() -> bool:
        return await leader.ledger.holder("deliverer") == first.holder

    await until(held)
    other = make_ledger(leader.section)
    await other.open()
    try:
        second = deliver(to(receiver, secret_file), holder="d2", ledger=other)
        await leader.put(*(row(f"a{n}", incident=f"i{n}") for n in range(50)))

        async def all_done() -> bool:  # what is under way when a deliverer ends may come twice
            return list((await leader.states()).values()) == ["done"] * 50

        await until(all_done)
        await stop(first)

        async def taken_over() -> bool:
            return await leader.ledger.holder("deliverer") == second.holder

        await until(taken_over)
        await leader.put(row("b", incident="b"))
        await until(lambda: "b.t1" in receiver.effects)
        await stop(second)
    finally:
        await other.close()
    assert sorted(receiver.ids) == sorted(set(receiver.ids)), "no row was sent twice"


async def test_every_attempt_stands_in_the_audit(leader, deliver, serve, secret_file) -> None:
    receiver = await serve(500, 200)
    deliver(to(receiver, secret_file))
    await leader.put(row("a"))
    await state_is(leader, "a.t1", "done")

    async def audited() -> bool:
        return len(await leader.ledger.audit(incident="i1")) == 2

    await until(audited)
    entries = await leader.ledger.audit(incident="i1")
    assert [entry["outcome"] for entry in entries] == ["accepted", "retry"]
    assert all(entry["wall"].startswith("20") and entry["who"] == "deliverer" and entry["why"] for entry in entries)
