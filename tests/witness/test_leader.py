"""The leader: what it hears, what it commits as one, and how it starts again from what is durable."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from witness_doubles import FLEET, FakeCouncil, Office, action, change, vote

from detectors.core.council import Council
from detectors.core.types import Action, ActionResult, OperatorEvent, Vote
from detectors.witness.ledger import ConflictError, Control
from detectors.witness.memory import CLOSED_KEPT, lasting
from outrider.config.policy import Policy
from outrider.signals import Signal

SNAPSHOT = action("snapshot", "s", job="j1", attempt=1, ranks=[0])
QUARANTINE = action("quarantine", "q", node="n2")
RESTART = action("restart", "r", job="j1", replace=[{"slot": 1, "from": "n2", "to": "n3"}])


async def test_one_decision_is_one_transaction(office: Office) -> None:
    await office.turn(change(), SNAPSHOT, QUARANTINE, RESTART)
    state = await office.ledger.leader_state()
    assert (state.fence, state.claims, state.verdicts) == (1, {"n3": "i1"}, {("node=n2", "b"): 1})
    assert {row.id for row in await office.ledger.list_rows()} == {"s", "q", "r", "i1.told"}
    assert [order.order for order in await office.ledger.read_orders("n1", 0)] == ["publish"]
    assert [order.order for order in await office.ledger.read_orders("n2", 0)] == ["stop"]
    found = await office.ledger.incident("i1")
    assert found is not None
    assert [line["event"] for line in found["history"]] == ["confirmed", "action", "action", "action", "told"]
    assert len(found["audit"]) == 3


@pytest.mark.parametrize(("why", "told"), [("paused", True), ("mode observe: recorded only", False)])
async def test_a_refusal_is_recorded_and_people_are_told_unless_we_only_observe(office: Office, why: str, told: bool) -> None:
    held = Action(
        t=1.0,
        decision_id="r",
        incident="i1",
        action="restart",
        target={"job": "j1"},
        fence=0,
        deadline_seconds=1.0,
        refused=why,
    )
    await office.turn(change(), held)
    assert [row.type for row in await office.ledger.list_rows()] == ["incident.confirmed"] * told
    found = await office.ledger.incident("i1")
    assert found is not None
    history = [(line["event"], line.get("refused")) for line in found["history"]]
    assert history == [("confirmed", None), ("refused", why)] + [("told", None)] * told


async def test_the_end_of_a_delivery_is_heard_once(office: Office) -> None:
    await office.turn(change(), RESTART)
    await office.ledger.mark_done("r", {"status": 200})
    await office.turn()
    await office.turn()
    assert office.council.heard.count(ActionResult(decision_id="r", outcome="done", detail={"status": 200})) == 1
    found = await office.ledger.incident("i1")
    assert found is not None
    assert found["state"] == "recovering"


async def test_a_snapshot_is_done_when_its_set_was_committed_under_its_fence(office: Office) -> None:
    await office.turn(change(), SNAPSHOT, RESTART)
    for fence in (0, 1):
        office.leader.signal(Signal(t=1.0, kind="snapshot", job="j1", value=12, data={"state": "committed", "fence": fence}))
    await office.turn()
    assert [event for event in office.council.heard if isinstance(event, ActionResult)] == [
        ActionResult(decision_id="s", outcome="done", detail={"step": 12})
    ]
    assert [row.id for row in await office.ledger.due(time.monotonic())] == ["r", "i1.told"]


async def test_another_leader_in_between_makes_the_commit_fail(office: Office) -> None:
    await office.ledger.resign("leader", "w1-1")
    assert await office.ledger.acquire("leader", "w2-1") is not None
    with pytest.raises(ConflictError):
        await office.turn(change(), RESTART)
    assert await office.ledger.list_rows() == []


async def test_a_new_leader_goes_on_from_what_was_committed(office: Office) -> None:
    job = {"t": 1.0, "kind": "job", "job": "j1", "value": 2, "data": {"slots": [["n1", 0], ["n3", 0]]}}
    await office.ledger.put_control(Control(kind="job", key="j1", body=job))
    await office.turn(change(), SNAPSHOT)
    await office.begin()
    await office.turn()
    assert office.council.fence == 1
    assert office.council.memory["heard"] == 2
    assert [type(event) for event in office.council.heard] == [Signal, Vote]
    office.leader.signal(Signal(t=1.0, kind="snapshot", job="j1", value=12, data={"state": "committed", "fence": 1}))
    await office.turn()
    assert any(isinstance(event, ActionResult) for event in office.council.heard)


async def test_an_approval_given_between_two_leaders_restarts_the_job(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new leader hears of it in its first turn, in which it also learns of all jobs."""
    policy = Policy(mode="advise")
    monkeypatch.setattr(office.leader, "_make_council", lambda fence: Council(FLEET, policy, ("w1", "w2", "w3"), fence=fence))
    job = {"t": 1.0, "kind": "job", "job": "llama", "node": "n1", "value": 1, "data": {"slots": [["n1", 0], ["n2", 0]]}}
    await office.ledger.put_control(Control(kind="job", key="llama", body=job))
    await office.begin()
    subject = {"job": "llama", "rank": 1, "node": "n2"}
    ended = replace(vote(), key="job.rank_exit|job=llama,rank=1|1", fault="job.rank_exit", subject=subject, decisive=True)
    ended = replace(ended, layers=("application",), extra={"attempt": 1, "dead_ranks": {"llama": [1]}, "sure": True})
    await office.ledger.put_votes([replace(ended, witness=witness, t=office.clock.monotonic()) for witness in ("w1", "w2")])
    await office.turn()
    (incident,) = await office.ledger.incidents(2)
    assert {row.type for row in await office.ledger.list_rows()} == {"incident.confirmed"}
    await office.ledger.put_control(Control(kind="approve", key=incident["incident"], body={"who": "ada"}, seconds_left=60.0))
    await office.begin()
    await office.turn()
    assert "job.restart.requested" in {row.type for row in await office.ledger.list_rows()}


async def test_the_end_of_an_incident_is_told_to_those_who_were_paged(office: Office) -> None:
    await office.turn(change(), action("page", "p"))
    await office.turn(change("resolved"))
    await office.turn(change(incident="i2"), change("resolved", incident="i2"))
    rows = await office.ledger.list_rows()
    assert [(row.incident, row.type) for row in rows] == [("i1", "incident.resolved"), ("i1", "incident.confirmed")]
    assert json.loads(rows[0].body)["data"]["explanation"] == "silent"


async def test_people_are_heard_once_and_standing_orders_end(office: Office) -> None:
    await office.turn(change())
    await office.ledger.put_control(Control(kind="ack", key="i1", body={"who": "anna"}, seconds_left=60.0))
    await office.ledger.put_control(Control(kind="pause", key="*", body={"who": "anna"}))
    await office.turn()
    await office.turn()
    await office.ledger.put_control(Control(kind="pause", key="*", body={}, seconds_left=0))
    await office.turn()
    said = [(event.kind, event.target) for event in office.council.heard if isinstance(event, OperatorEvent)]
    assert said == [("ack", "i1"), ("pause", "*"), ("resume", "*")]
    found = await office.ledger.incident("i1")
    assert found is not None
    assert found["acknowledged"] == "anna"


async def test_a_second_fault_amends_the_recovery_and_the_spare_stays_with_the_first(office: Office) -> None:
    """Its restart names all slots replaced so far: also those whose spare the incident before it holds."""
    await office.turn(change(), QUARANTINE, RESTART)
    both = [{"slot": 1, "from": "n2", "to": "n3"}, {"slot": 0, "from": "n1", "to": "n4"}]
    await office.turn(change(incident="i2"), action("restart", "r2", fence=2, incident="i2", job="j1", replace=both))
    assert (await office.ledger.leader_state()).claims == {"n3": "i1", "n4": "i2"}
    assert "r2" in {row.id for row in await office.ledger.list_rows(incident="i2")}


async def test_two_faults_decided_in_one_turn_are_written_together(office: Office) -> None:
    both = [{"slot": 1, "from": "n2", "to": "n3"}, {"slot": 0, "from": "n1", "to": "n4"}]
    second = action("restart", "r2", fence=2, incident="i2", job="j1", replace=both)
    await office.turn(change(), RESTART, change(incident="i2"), second)
    assert (await office.ledger.leader_state()).claims == {"n3": "i1", "n4": "i2"}


async def test_a_released_node_hears_no_more_stop_and_its_claim_ends(office: Office) -> None:
    await office.turn(change(), QUARANTINE, RESTART)
    await office.ledger.put_control(Control(kind="release", key="n2", body={}, seconds_left=60.0))
    await office.ledger.put_control(Control(kind="release", key="n3", body={}, seconds_left=60.0))
    await office.turn()
    assert await office.ledger.read_orders("n2", 0) == []
    assert (await office.ledger.leader_state()).claims == {}


async def test_a_recovery_leaves_its_marks_and_its_split(office: Office) -> None:
    await office.turn(change(), action("restart", "r", job="j1", attempt=1))
    office.leader.signal(Signal(t=101.0, kind="step", job="j1", data={"attempt": 1}))
    for t in (102.0, 103.0):
        office.leader.signal(Signal(t=t, kind="snapshot", job="j1", data={"attempt": 2, "state": "restored"}))
    for t in (104.0, 105.0):
        office.leader.signal(Signal(t=t, kind="step", job="j1", data={"attempt": 2}))
    await office.turn()
    found = await office.ledger.incident("i1")
    assert found is not None
    assert (found["times"]["restored"], found["times"]["first_step"]) == (103.0, 104.0)
    end = change("resolved")
    await office.turn(end)
    found = await office.ledger.incident("i1")
    assert found is not None
    assert set(found["recovery"]) == {"load", "rebuild", "verify", "total"}


async def test_what_the_council_fails_on_is_told_once(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = FakeCouncil.observe

    def fails_on_ack(self: FakeCouncil, event: Any, now: float) -> Any:
        if isinstance(event, OperatorEvent) and event.kind == "ack":
            raise ValueError("a bug of our own")
        return whole(self, event, now)

    monkeypatch.setattr(FakeCouncil, "observe", fails_on_ack)
    await office.ledger.put_control(Control(kind="ack", key="i1", body={}, seconds_left=60.0))
    await office.ledger.put_control(Control(kind="release", key="n2", body={}, seconds_left=60.0))
    with pytest.raises(ValueError, match="a bug of our own"):
        await office.turn()
    await office.begin()
    await office.turn()
    assert [event.kind for event in office.council.heard if isinstance(event, OperatorEvent)] == ["release"]
    assert await office.ledger.controls() == []


async def test_copies_are_let_go_when_the_suspicion_was_unfounded_and_no_other_stands(office: Office) -> None:
    await office.turn(change("suspected"), change("suspected", incident="i2"))
    await office.turn(change("refuted"))
    assert await office.ledger.read_orders("n1", 0) == []
    await office.turn(change("refuted", incident="i2"))
    assert [(order.order, order.job) for order in await office.ledger.read_orders("n1", 0)] == [("drop", "j1")]


def test_the_councils_memory_keeps_what_is_open_or_still_doubted_and_the_newest_past() -> None:
    past = [{"id": f"r{index}", "state": "resolved", "keys": [f"k{index}"]} for index in range(CLOSED_KEPT + 5)]
    actions = [["d0", "r0"], ["d1", "r1"], ["d2", "open"]]
    memory = {"incidents": [{"id": "open", "state": "acting"}, *past], "recovery": {"fence": 3, "actions": actions}}
    kept = lasting({**memory, "doubted": {"k1": 5.0}, "past": ["long ago"]}, {})
    assert [one["id"] for one in kept["incidents"]] == ["open", "r1", *(f"r{index}" for index in range(5, CLOSED_KEPT + 5))]
    assert kept["recovery"] == {"fence": 3, "actions": actions[1:]}
    assert kept["past"] == ["long ago", "r0", "r2", "r3", "r4"]
    assert lasting({"heard": 1}, {})["heard"] == 1


async def test_release_becomes_an_order_for_the_scheduler_also_where_no_incident_is_known(office: Office) -> None:
    await office.turn(change(), QUARANTINE)
    known = action("release", "x1", fence=2, node="n2")
    unknown = Action(
        t=1.0, decision_id="x2", incident="", action="release", target={"node": "n1"}, fence=3, deadline_seconds=60.0, reason="ann"
    )
    await office.turn(known, unknown)
    rows = {row.id: row for row in await office.ledger.list_rows()}
    assert [(rows[name].type, rows[name].fence, rows[name].dry_run) for name in ("x1", "x2")] == [
        ("node.release.requested", 2, False), ("node.release.requested", 3, False),
    ]  # fmt: skip
    assert [json.loads(rows[name].body)["data"]["node"] for name in ("x1", "x2")] == ["n2", "n1"]
    assert "" not in {picture["incident"] for picture in await office.ledger.incidents()}
