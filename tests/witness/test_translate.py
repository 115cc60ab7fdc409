"""Decisions become the webhooks and orders that the contracts promise."""

import json
from typing import Any

import pytest
from witness_doubles import FLEET

from detectors.core.types import Action, ActionName, IncidentChange
from detectors.witness import translate

JOBS = {job.job: job for job in FLEET.jobs}


def an_action(name: ActionName, **target: Any) -> Action:
    return Action(t=1.0, decision_id="d1", incident="i1", action=name, target=target, fence=7, deadline_seconds=5.0, reason="why")


def a_change(event: Any = "confirmed", **extra: Any) -> IncidentChange:
    return IncidentChange(
        t=1.0, event=event, incident="i1", fault="node.lost", culprit="node", subject={"node": "n2"}, response="restart",
        repair="investigate", layers=("hardware",), votes={"w1": "faulty"}, evidence=(), explanation="silent", extra=extra,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("snapshot", "job.snapshot.requested"),
        ("quarantine", "node.quarantine.requested"),
        ("drain", "node.drain.requested"),
        ("restart", "job.restart.requested"),
        ("agent_restart", "agent.restart.requested"),
        ("release", "node.release.requested"),
        ("page", "incident.confirmed"),
    ],
)
def test_each_action_has_its_webhook(name: ActionName, kind: str) -> None:
    picture = translate.incident_write(a_change(), 0.0, None).picture
    replace = [{"slot": 1, "from": "n2", "to": "n3"}]
    row = translate.outbox_row(
        an_action(name, job="j1", node="n2", replace=replace, resume={"step": 4, "manifest": "m"}), picture, 0.0
    )
    body = json.loads(row.body)
    assert (row.type, body["type"], body["timestamp"]) == (kind, kind, "1970-01-01T00:00:00.000Z")
    data = body["data"]
    assert (data["incident"], data["fault"], data["job"], data["node"]) == ("i1", "node.lost", "j1", "n2")
    assert (data["replace"], data["resume"], data["fence"], data["dry_run"]) == (replace, {"step": 4, "manifest": "m"}, 7, False)
    assert row.awaits_effect == (name == "snapshot")


def test_a_restart_carries_the_rank_map_of_the_next_attempt_and_nothing_else_does() -> None:
    picture = translate.incident_write(a_change(), 0.0, None).picture
    job = JOBS["j1"]
    replace = [{"slot": 1, "from": job.slots[1][0], "to": "n9"}, {"slot": 99, "from": "n1", "to": "n9"}]
    slots = {}
    for name in ("restart", "snapshot", "quarantine"):
        row = translate.outbox_row(an_action(name, job="j1", node="n2", replace=replace), picture, 0.0, job)
        slots[name] = json.loads(row.body)["data"].get("slots")
    wanted = [node for node, _ in job.slots]
    wanted[1] = "n9"
    assert slots == {"restart": wanted, "snapshot": None, "quarantine": None}
    assert translate.slots_after({"replace": [{"slot": 0, "from": "n1", "to": None}]}, job)[0] is None


def test_a_snapshot_is_published_by_the_nodes_of_the_named_ranks() -> None:
    (item,) = translate.action_orders(an_action("snapshot", job="j1", ranks=[0], attempt=1, step=None), JOBS)
    assert (item.to, item.order.order, item.order.ranks, item.order.fence, item.order.deadline_s) == ("n1", "publish", (0,), 7, 5.0)


def test_a_node_in_quarantine_is_told_to_stop_until_it_is_released() -> None:
    (item,) = translate.action_orders(an_action("quarantine", node="n2"), JOBS)
    assert (item.to, item.order.order, item.order.fence, item.keep_seconds) == ("n2", "stop", 7, None)


def test_a_refused_action_and_a_dry_run_move_nobody() -> None:
    for extra in ({"refused": "paused"}, {"dry_run": True}):
        action = Action(
            t=1.0,
            decision_id="d1",
            incident="i1",
            action="quarantine",
            target={"node": "n2"},
            fence=7,
            deadline_seconds=5.0,
            **extra,
        )
        assert translate.action_orders(action, JOBS) == []


def test_a_rank_beyond_the_job_orders_nobody() -> None:
    assert translate.action_orders(an_action("snapshot", job="j1", ranks=[9]), JOBS) == []
    assert translate.action_orders(an_action("snapshot", job="unknown"), JOBS) == []


def test_an_incident_keeps_when_each_thing_happened() -> None:
    first = translate.incident_write(a_change("suspected", state="suspected"), 0.0, None)
    second = translate.incident_write(a_change("confirmed", state="confirmed"), 10.0, first.picture)
    acting = translate.action_write(an_action("restart", job="j1"), 11.0, second.picture)
    assert (first.state, second.state, acting.state) == ("suspected", "confirmed", "acting")
    assert set(acting.picture["times"]) == {"suspected", "confirmed", "restart"}
    assert acting.picture["opened"] == "1970-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("name", "state"), [("release", "confirmed"), ("page", "confirmed"), ("quarantine", "acting"), ("restart", "acting")]
)
def test_an_incident_is_acting_once_something_is_done_about_it(name: ActionName, state: str) -> None:
    """A node that a person gives back, in mode `observe` too, is no action on the incident that names it."""
    before = translate.incident_write(a_change("confirmed", state="confirmed"), 1.0, None)
    assert translate.action_write(an_action(name, job="j1", node="n2"), 2.0, before.picture).state == state
