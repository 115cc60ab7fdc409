"""A person's order is checked before it is written down: its target is known, a yes does something; what waits for one is told."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import click
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from click.testing import CliRunner
from test_translate import a_change, an_action
from witness_doubles import FLEET

from detectors import commands_people
from detectors.core.types import OperatorEvent
from detectors.witness import routes_people, tables, translate, waiting
from detectors.witness.access import Access, Role
from detectors.witness.client import RefusedError
from detectors.witness.http import Pages, Refusal
from detectors.witness.ledger import Commit, Control, IncidentWrite
from detectors.witness.ledger_sqlite import SqliteLedger
from detectors.witness.metrics import Histograms, Metrics
from detectors.witness.orders_check import check_approval
from outrider.config.policy import Policy, ScopeRule
from outrider.config.site import Config

OPERATOR = {"Authorization": f"Bearer {'o' * 32}"}
ADVISE, OBSERVE = Policy(mode="advise"), Policy(mode="observe")
Client = TestClient[web.Request, web.Application]


def held(why: str, name: Any = "restart", **target: Any) -> Any:
    """An action that was held back."""
    return replace(an_action(name, **(target or {"job": "j1"})), refused=why)


def story(*actions: Any) -> dict[str, Any]:
    """A confirmed incident after these actions, as the ledger tells it whole."""
    writes = [translate.incident_write(a_change("confirmed", state="confirmed"), 0.0, None)]
    for action in actions:
        writes.append(translate.action_write(action, 60.0, writes[-1].picture))
    return {**writes[-1].picture, "history": [write.line for write in writes]}


async def write(ledger: SqliteLedger, *names: str) -> None:
    lease = await ledger.acquire("leader", "w1-1")
    assert lease is not None
    picture = story(held("mode observe: recorded only"))
    writes = tuple(
        IncidentWrite(incident=name, state="confirmed", picture={**picture, "incident": name}, line=picture["history"][-1])
        for name in names
    )
    await ledger.commit(Commit(term=lease.term, fence_before=0, fence=0, incidents=writes), "w1-1")


def pages(ledger: SqliteLedger, policy: Policy) -> Pages:
    async def status() -> dict[str, Any]:
        return {}

    made = Pages(Access({Role.OPERATOR: ("o" * 32,), Role.VIEWER: ("o" * 32,)}), Config({}, None), ledger, status)
    routes_people.add_routes(made, Metrics(list, Histograms()), FLEET, policy)
    return made


@pytest.fixture
async def client(ledger: SqliteLedger) -> AsyncIterator[Client]:
    async with TestClient(TestServer(pages(ledger, OBSERVE).application(10_000))) as made:
        yield made


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("release", {"node": "nosuch"}, "no node is called 'nosuch' (nodes: n1, n2, n3)"),
        ("release", {"node": "n12"}, "no node is called 'n12' (nearest: n2, n1"),
        ("maintenance", {"node": "nosuch"}, "no node is called 'nosuch'"),
        ("maintenance", {"job": "j2"}, "no job is called 'j2' (nearest: j1)"),
        ("ack", {"incident": "nosuch"}, "no incident's name begins with 'nosuch' (incidents: 0123abcd, 0123ffff)"),
        ("approve", {"incident": "0123abce"}, "no incident's name begins with '0123abce' (nearest: 0123abcd"),
        ("false_alarm", {"incident": "0123"}, "2 incidents' names begin with '0123': 0123abcd99, 0123ffff99"),
    ],
)  # fmt: skip
async def test_an_order_about_nobody_is_refused_with_the_nearest_names(
    client: Client, ledger: SqliteLedger, path: str, body: dict[str, Any], said: str
) -> None:
    await write(ledger, "0123abcd99", "0123ffff99")
    async with client.post(f"/v1/{path}", json=body, headers=OPERATOR) as answer:
        told = (await answer.json())["error"]
    assert (answer.status, told[: len(said)], "\n" in told) == (404, said, False)
    assert await ledger.controls() == []


async def test_what_still_stands_of_a_node_that_left_the_fleet_can_be_ended(client: Client, ledger: SqliteLedger) -> None:
    await ledger.put_control(Control(kind="maintenance", key="n9", body={"what": "node"}, seconds_left=60.0))
    for path, body in (("maintenance", {"node": "n9", "on": False}), ("maintenance", {"node": "n1"})):
        async with client.post(f"/v1/{path}", json=body, headers=OPERATOR) as answer:
            assert answer.status == 200
    assert [control.key for control in await ledger.controls() if control.kind == "maintenance"] == ["n1"]


async def test_the_audit_of_an_incident_is_found_by_the_beginning_of_its_name(client: Client, ledger: SqliteLedger) -> None:
    """ "Nothing was done" would be untrue where the name was not found."""
    await write(ledger, "0123abcd99", "0123ffff99")
    await ledger.put_audit([{"incident": "0123abcd99", "what": "ack"}])
    for name, status in (("0123abcd99", 200), ("0123a", 200), ("0123", 404), ("nosuch", 404)):
        async with client.get(f"/v1/audit?incident={name}", headers=OPERATOR) as answer:
            told = await answer.json()
        assert answer.status == status and (status == 404 or [entry["what"] for entry in told] == ["ack"])


async def test_a_state_that_no_incident_can_have_is_refused(client: Client, ledger: SqliteLedger) -> None:
    await write(ledger, "0123abcd99")
    for state, status in (("confirmed", 200), ("refuted", 200), ("confrmed", 400)):
        async with client.get(f"/v1/incidents?state={state}", headers=OPERATOR) as answer:
            told = await answer.json()
        assert answer.status == status
    assert told["error"].startswith("state: 'confrmed' is none of suspected, confirmed")


async def test_a_yes_in_mode_observe_is_no_success_and_leaves_nothing_behind(client: Client, ledger: SqliteLedger) -> None:
    await write(ledger, "0123abcd99")
    async with client.post("/v1/approve", json={"incident": "0123"}, headers=OPERATOR) as answer:
        assert answer.status == 409
        assert (await answer.json())["error"] == "incident 0123abcd: the mode is observe: it only records, and nothing was done"
    assert await ledger.controls() == []


@pytest.mark.parametrize(
    ("policy", "incident", "why"),
    [
        (ADVISE, story(held("mode advise: a person decides")), None),
        (ADVISE, story(held("mode observe: recorded only")), None),  # the mode was raised since
        (ADVISE, story(), None),
        (OBSERVE, story(), "the mode is observe"),
        (Policy(mode="act"), story(held("brake: 3 nodes within a minute")), None),
        (Policy(mode="act", jobs={"j1": ScopeRule(mode="observe")}), story(held("mode observe")), "the mode is observe"),
        (ADVISE, story(held("approval: nobody answered in time")), "the time to approve is over"),
        (ADVISE, story(held("mode advise: a person decides"), held("approval: nobody answered in time")), "the time to approve"),
        (ADVISE, {**story(), "state": "resolved"}, "is resolved: nothing was done"),
    ],
)  # fmt: skip
def test_whether_a_yes_can_do_anything(policy: Policy, incident: dict[str, Any], why: str | None) -> None:
    if why is None:
        check_approval(incident, policy)
        return
    with pytest.raises(Refusal, match=why):
        check_approval(incident, policy)


@pytest.mark.parametrize(("status", "ends"), [(409, 1), (404, None)])
def test_a_yes_that_does_nothing_is_told_and_ends_with_1(status: int, ends: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    class Witness:
        def post(self, *_: Any) -> Any:
            raise RefusedError("w1 refuses: nothing was done", status)

    monkeypatch.setattr(commands_people, "_client", lambda config: Witness())
    done = CliRunner().invoke(commands_people.approve, ["0123"], standalone_mode=False)
    assert (done.return_value, isinstance(done.exception, RefusedError)) == (ends, ends is None)
    assert ("nothing was done" in click.unstyle(done.output)) == (ends == 1)


def test_what_waits_for_a_yes_is_told_with_its_end_and_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    why = "mode advise: a person decides"
    picture = story(held(why, "quarantine", node="n2", job="j1"), held(why), an_action("page"))
    told = waiting.told(picture, Policy(mode="advise", approval_seconds=1800.0))
    assert told["approval"] == {
        "for": ["quarantine of node n2", "restart of job j1"], "since": "1970-01-01T00:01:00.000Z",
        "until": "1970-01-01T00:31:00Z", "default": "refuse",
    }  # fmt: skip
    tables.print_incidents([told])
    shown = " ".join(capsys.readouterr().out.split())
    assert "waits for approval of quarantine of node n2, restart of job j1, until 01-01 00:31:00 UTC, then nothing is done" in shown
    assert "outrider approve i1" in shown
    acts = waiting.told(picture, Policy(mode="advise", approval_default="act"))
    assert "then it acts" in tables.incident_text(acts).plain
    assert "without end" in tables.incident_text(waiting.told(picture, Policy(mode="advise", approval_seconds=0.0))).plain


@pytest.mark.parametrize(
    "after",
    [
        [an_action("restart", job="j1")],
        [held("approval: nobody answered in time")],
        [held("paused: a person has stopped all actions")],
    ],
    ids=["done", "too late", "held back by something else"],
)
def test_what_was_done_or_is_held_back_by_something_else_waits_no_more(after: list[Any]) -> None:
    assert "approval" not in waiting.told(story(held("mode advise: a person decides"), *after), ADVISE)


def test_a_persons_yes_and_the_end_of_an_incident_end_the_wait() -> None:
    waits = story(held("mode advise: a person decides"))
    assert "approval" in waiting.told(waits, ADVISE)
    event = OperatorEvent(kind="approve", target="i1", who="ann", reason="")
    assert "approval" not in waiting.told(translate.word_write(event, 2.0, 61.0, waits).picture, ADVISE)
    assert "approval" not in waiting.told({**waits, "state": "resolved"}, ADVISE)


async def test_lists_and_single_incidents_tell_what_waits(ledger: SqliteLedger) -> None:
    lease = await ledger.acquire("leader", "w1-1")
    assert lease is not None
    picture = story(held("mode advise: a person decides"))
    one = IncidentWrite(incident="i1", state="confirmed", picture=picture, line=picture["history"][-1])
    await ledger.commit(Commit(term=lease.term, fence_before=0, fence=0, incidents=(one,)), "w1-1")
    async with TestClient(TestServer(pages(ledger, ADVISE).application(10_000))) as client:
        async with client.get("/v1/incidents", headers=OPERATOR) as answer:
            (listed,) = await answer.json()
        async with client.get("/v1/incidents/i1", headers=OPERATOR) as answer:
            whole = await answer.json()
    assert listed["approval"]["for"] == whole["approval"]["for"] == ["restart of job j1"]


def test_the_audit_names_an_incident_once_and_times_say_their_zone(capsys: pytest.CaptureFixture[str]) -> None:
    name = "0123abcd4567"
    wall = "2026-05-17T09:08:07Z"
    tables.print_audit([{"wall": wall, "who": "ann", "what": "ack", "incident": name, "target": name, "why": "mine"}])
    assert capsys.readouterr().out.count("0123abcd") == 1
    assert "05-17 09:08:07 UTC" in tables.incident_text({"incident": name, "opened": "2026-05-17T09:08:07Z"}).plain
