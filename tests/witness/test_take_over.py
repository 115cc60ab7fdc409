"""What a leader that takes over hears, and does not hear again."""

from dataclasses import replace
from typing import Any

import pytest
from witness_doubles import FLEET, FakeCouncil, Office, action, change, vote

from detectors.core.council import Council
from detectors.core.types import ActionResult, OperatorEvent, Verdict, Vote
from detectors.witness.ledger import Control
from detectors.witness.memory import standing_orders
from outrider.config.policy import Policy
from outrider.signals import Signal

SNAPSHOT = action("snapshot", "s", job="j1", attempt=1, ranks=[0])
RESTART = action("restart", "r", job="j1", attempt=1, replace=[{"slot": 1, "from": "n2", "to": "n3"}])


def said(office: Office) -> list[tuple[str, str]]:
    return [(event.kind, event.target) for event in office.council.heard if isinstance(event, OperatorEvent)]


def results(office: Office) -> list[tuple[str, str]]:
    return [(event.decision_id, event.outcome) for event in office.council.heard if isinstance(event, ActionResult)]


@pytest.mark.parametrize(("kind", "key", "ends"), [("pause", "*", "resume"), ("maintenance", "n2", "maintenance_off")])
async def test_a_standing_order_that_ends_while_nobody_leads_ends(office: Office, kind: str, key: str, ends: str) -> None:
    """Or all actions would stay stopped for ever."""
    await office.ledger.put_control(Control(kind=kind, key=key, body={"who": "ann"}))
    await office.turn()
    await office.ledger.put_control(Control(kind=ends, key=key, body={"who": "bob"}, seconds_left=60.0))
    await office.ledger.put_control(Control(kind=kind, key=key, body={}, seconds_left=0))
    await office.begin()
    await office.turn()
    assert said(office) == [(ends, key)]
    assert [entry["who"] for entry in await office.ledger.audit()] == ["bob", "ann"]


async def test_a_standing_order_that_goes_on_is_said_and_audited_once(office: Office) -> None:
    await office.ledger.put_control(Control(kind="pause", key="*", body={"who": "ann"}))
    await office.turn()
    await office.begin()
    await office.turn()
    assert said(office) == [] and len(await office.ledger.audit()) == 1


async def test_an_order_that_was_carried_out_while_nobody_led_is_on_record(office: Office) -> None:
    await office.turn(change(), RESTART)
    await office.ledger.mark_done("r", {"status": 200})
    await office.begin()
    await office.turn()
    found = await office.ledger.incident("i1")
    assert found is not None and found["state"] == "recovering" and "restart_done" in found["times"]
    await office.begin()
    await office.turn()
    assert results(office) == [], "and it is heard once"


async def test_an_order_that_was_dead_and_is_tried_anew_is_on_record(office: Office) -> None:
    await office.turn(change(), RESTART)
    await office.ledger.mark_dead("r", "nobody there")
    await office.turn()
    assert await office.ledger.requeue("r")
    await office.ledger.mark_done("r")
    await office.turn()
    found = await office.ledger.incident("i1")
    assert found is not None
    assert [line["outcome"] for line in found["history"] if line["event"] == "action_result"] == ["failed", "done"]


async def test_a_snapshot_that_was_committed_before_the_change_is_done(office: Office) -> None:
    """Every witness hears of it; the leader that heard it too was dropped before it wrote it down."""
    await office.turn(change(), SNAPSHOT)
    office.leader._step_down()
    for fence, step in ((1, 12), (0, 13)):
        office.leader.signal(Signal(t=1.0, kind="snapshot", job="j1", value=step, data={"state": "committed", "fence": fence}))
    await office.begin()
    await office.turn()
    assert results(office) == [("s", "done")]
    over = {"t": 1.0, "kind": "job", "job": "j1", "value": 1, "data": {"over": True}}
    await office.ledger.put_control(Control(kind="job", key="j1", body=over))
    await office.turn()
    await office.begin()
    assert office.leader._signals == [], "of a job that is over nothing is kept"


async def test_the_rank_map_is_that_of_the_attempt_that_the_ledger_knows(office: Office) -> None:
    """This witness was cut off when the job began its second attempt; the leader before was not."""
    job = {"t": 1.0, "kind": "job", "job": "j1", "value": 2, "data": {"slots": [["n3", 0], ["n2", 0]]}}
    await office.ledger.put_control(Control(kind="job", key="j1", body=job))
    await office.turn(change(), action("restart", "r", job="j1", attempt=2, replace=[{"slot": 1, "from": "n2", "to": "n1"}]))
    [row] = [row for row in await office.ledger.list_rows() if row.id == "r"]
    assert '"slots":["n3","n1"]' in row.body


async def test_the_votes_on_one_thing_are_counted_together(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader reads them all at once: the first of them alone, a minority's no, would end the incident."""
    witnesses, policy = ("w1", "w2", "w3"), Policy(mode="act")
    monkeypatch.setattr(office.leader, "_make_council", lambda fence: Council(FLEET, policy, witnesses, fence=fence))
    await office.begin()
    doubt = replace(vote(), key="node.memory|node=n2|b", fault="node.memory", response="page", decisive=True, extra={"sure": True})
    doubts = [replace(doubt, witness=witness) for witness in witnesses]
    await office.ledger.put_votes(doubts)
    await office.turn()
    await office.ledger.put_votes([replace(doubt, verdict=Verdict.CLEAR, witness="w1"), *doubts[1:]])
    await office.begin()
    await office.turn()
    [picture] = await office.ledger.incidents()
    assert picture["state"] not in ("resolved", "refuted")
    assert sorted(row.type for row in await office.ledger.list_rows()) == ["incident.confirmed"]


async def test_what_no_decision_tells_of_is_kept_too(office: Office) -> None:
    office.council.unsaved = True
    await office.turn()
    assert (office.leader.commits, office.council.unsaved) == (1, False)
    await office.turn()
    assert office.leader.commits == 1


async def test_pictures_that_are_let_go_are_the_oldest(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that a new leader has read; of what it does not know any more, people would be told again."""
    monkeypatch.setattr("detectors.witness.leader.PICTURES_MAX", 2)
    for name in ("i1", "i2"):
        await office.turn(change("resolved", incident=name))
    await office.begin()
    await office.turn(change("resolved", incident="i3"))
    assert list(office.leader._pictures) == ["i2", "i3"]


async def test_votes_that_the_council_fails_on_are_told_once(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read again they have less of their life left, and others on the same thing may stand beside them; they are the same votes."""
    whole = FakeCouncil.observe

    def fails(self: FakeCouncil, event: Any, now: float) -> Any:
        if isinstance(event, Vote) and event.witness == "w1":
            raise ValueError("a bug of our own")
        return whole(self, event, now)

    monkeypatch.setattr(FakeCouncil, "observe", fails)
    await office.ledger.put_votes([vote(), replace(vote(), key="other")])
    with pytest.raises(ValueError, match="a bug of our own"):
        await office.turn()
    await office.ledger.put_votes([replace(vote(), witness="w2")])
    with pytest.raises(ValueError, match="a bug of our own"):
        await office.begin()
        await office.turn()
    await office.begin()
    await office.turn()
    assert [(event.key, event.witness) for event in office.council.heard if isinstance(event, Vote)] == [("k", "w2")]


def test_a_memory_that_an_earlier_version_kept_is_read() -> None:
    council = Council(FLEET, Policy(mode="act"), ("w1", "w2", "w3"))
    memory = council.snapshot()
    for name in ("past", "doubted", "shown", "odd"):
        del memory[name]
    del memory["recovery"]["actions"]
    council.restore(memory)
    assert council.advance(100.0) == [] and standing_orders(memory) == {}


def test_a_fake_council_keeps_the_contract() -> None:
    """The double has what the leader asks for, and nothing that the real one lacks."""
    names: list[Any] = [name for name in vars(FakeCouncil) if not name.startswith("_")]
    assert [name for name in names if not hasattr(Council, name)] == []
