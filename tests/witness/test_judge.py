"""The judge: signals to the engine, its decisions to the ledger and journal, and no bug of the core ends it."""

import asyncio
import contextlib
import gzip
import json
import secrets
from pathlib import Path

import pytest
from witness_doubles import FLEET, FakeEngine

from detectors.core.types import CopyRequest, ProbeRequest, Verdict, Vote
from detectors.witness.journal import Journal, Ring
from detectors.witness.judge import Judge
from detectors.witness.ledger_sqlite import SqliteLedger
from outrider.clock import ManualClock
from outrider.signals import Signal


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def judge(engine: FakeEngine, ledger: SqliteLedger, journal: Journal, clock: ManualClock) -> Judge:
    return Judge(engine, FLEET, ledger, journal, clock, (9471, 9479))


def vote(reason: str) -> Vote:
    return Vote(
        key="k", witness="w1", verdict=Verdict.FAULTY, fault="node.lost", culprit="node", subject={"node": "n1"}, incarnation="b",
        response="restart", repair="none", layers=(), evidence=(), reason=reason, reason_code="r", t=1.0,
    )  # fmt: skip


async def settle(judge: Judge, ledger: SqliteLedger) -> None:
    """Runs the judge's writer until the ledger has changed."""
    task = asyncio.create_task(judge.run())
    await ledger.changed(5.0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_requests_become_orders_for_those_who_can_obey(judge: Judge, engine: FakeEngine, ledger: SqliteLedger) -> None:
    await ledger.changed(0.1)
    engine.answers = [
        ProbeRequest(decision_id="p", node="n2", probers=("n1", "n3"), reason="silent"),
        CopyRequest(decision_id="c", job="j1", reason="silent"),
    ]
    judge.observe(Signal(t=1.0, kind="xid", node="n1"))
    await settle(judge, ledger)
    orders = {node: await ledger.read_orders(node, 0) for node in ("n1", "n2", "n3")}
    assert [order.order for order in orders["n1"]] == ["probe", "copy"]
    assert [order.order for order in orders["n2"]] == ["copy"]
    assert (orders["n3"][0].node, orders["n3"][0].address, orders["n3"][0].closed_port) == ("n2", "10.0.0.2", 9479)


async def test_only_the_last_opinion_on_a_suspicion_is_written(judge: Judge, engine: FakeEngine, ledger: SqliteLedger) -> None:
    await ledger.changed(0.1)
    for reason in ("first", "second"):
        engine.answers = [vote(reason)]
        judge.advance()
    await settle(judge, ledger)
    assert [found.reason for found in (await ledger.read_votes(0))[1]] == ["second"]


def test_a_bug_of_the_core_is_counted_and_life_goes_on(judge: Judge, engine: FakeEngine) -> None:
    judge.observe(Signal(t=1.0, kind="kernel", node="n1"))
    judge.observe(Signal(t=1.0, kind="xid", node="n1"))
    assert judge.errors == 1
    assert len(engine.heard) == 2


def test_an_unknown_kind_takes_one_place_among_the_counters(judge: Judge) -> None:
    for index in range(100):
        judge.observe(Signal(t=1.0, kind=f"made-up-{index}"))
    assert judge.signals == {"unknown": 100}


@pytest.mark.parametrize("slots", [None, "text", [1, 2], [["n1"]], [["n1", 0], "x"]])
def test_a_job_that_tells_nonsense_of_its_slots_is_borne(judge: Judge, slots: object) -> None:
    judge.observe(Signal(t=1.0, kind="job", job="j2", value=1, data={"slots": slots}))
    assert judge.jobs.get("j2") is None or all(len(slot) == 2 for slot in judge.jobs["j2"].slots)


def test_an_older_attempt_does_not_replace_a_newer_one(judge: Judge) -> None:
    judge.observe(Signal(t=1.0, kind="job", job="j1", value=3, data={"slots": [["n3", 0]]}))
    judge.observe(Signal(t=1.0, kind="job", job="j1", value=2, data={"slots": [["n1", 0]]}))
    assert (judge.jobs["j1"].attempt, judge.jobs["j1"].slots) == (3, (("n3", 0),))


async def test_the_journal_is_a_trace(judge: Judge, journal: Journal, tmp_path: Path) -> None:
    judge.observe(Signal(t=1.5, kind="xid", node="n1", value=79))
    await journal.close()
    header, line = (json.loads(text) for text in gzip.decompress((tmp_path / "journal/signals.jsonl.gz").read_bytes()).splitlines())
    assert header["kind"] == "fleet"
    assert [node["node"] for node in header["nodes"]] == ["n1", "n2", "n3"]
    assert line == {"t": 1.5, "kind": "xid", "node": "n1", "value": 79, "to": ["w1"]}


async def test_a_full_journal_starts_anew_and_keeps_one_older_file(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "x.jsonl.gz", 300, b"header\n")
    for _ in range(50):
        ring.add(secrets.token_hex(20).encode() + b"\n")
        await ring.flush()
    ring.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.1.jsonl.gz", "x.jsonl.gz"]
    assert gzip.decompress((tmp_path / "x.jsonl.gz").read_bytes()).startswith(b"header\n")
    assert all(path.stat().st_size <= 400 for path in tmp_path.iterdir())


async def test_a_disk_that_fails_costs_the_journal_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ring = Ring(tmp_path / "file" / "x.jsonl.gz", 100, b"")
    ring.add(b"line\n")
    await ring.flush()
    assert ring.dropped == 1
    assert "x.jsonl" in ring.error
