"""The HTTP interface: roles, bounds, refusals told in one line, orders by long poll, people's orders in the ledger."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from witness_doubles import FLEET

from detectors.witness import routes_agents, routes_people
from detectors.witness.access import Access, Role
from detectors.witness.http import Pages
from detectors.witness.intake import Intake
from detectors.witness.ledger import OrderTo
from detectors.witness.ledger_sqlite import SqliteLedger
from detectors.witness.metrics import Histograms, Metrics
from outrider.clock import SystemClock
from outrider.config.policy import Policy
from outrider.config.site import Config
from outrider.signals import Signal, encode_batch
from outrider.wire import Order, signal_id

AGENT, VIEWER, OPERATOR = ({"Authorization": f"Bearer {word}"} for word in ("a" * 32, "v" * 32, "o" * 32))
RATE = 1000
POLICY = Policy(mode="advise")


class Site:
    """One witness's interface with a list in place of the judge."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self.ledger, self.taken = ledger, list[Signal]()
        access = Access({Role.AGENT: ("a" * 32,), Role.VIEWER: ("v" * 32,), Role.OPERATOR: ("o" * 32,)})
        self.pages = Pages(access, Config({}, None), ledger, self._status)
        self.board = routes_agents.OrderBoard(ledger)
        routes_agents.add_routes(self.pages, Intake(10), self.taken.append, self.board, SystemClock(), RATE)
        routes_people.add_routes(self.pages, Metrics(lambda: [("outrider_witness_leader", (), 1.0)], Histograms()), FLEET, POLICY)

    async def _status(self) -> dict[str, Any]:
        return {"leader": "w1"}

    def application(self) -> web.Application:
        return self.pages.application(10_000)


@pytest.fixture
def site(ledger: SqliteLedger) -> Site:
    return Site(ledger)


@pytest.fixture
async def client(site: Site) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    async with TestClient(TestServer(site.application())) as made:
        yield made


Client = TestClient[web.Request, web.Application]


def batch(count: int = 1, first: int = 1) -> bytes:
    return encode_batch([Signal(t=1.0, kind="xid", node="n1", id=signal_id("n1", "b", 1, first + index)) for index in range(count)])


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/healthz", {}, 200),
        ("GET", "/v1/status", {}, 401),
        ("GET", "/v1/status", {"Authorization": "Basic abc"}, 401),
        ("GET", "/v1/status", {"Authorization": "Bearer wrong"}, 401),
        ("GET", "/v1/status", AGENT, 403),
        ("GET", "/v1/status", VIEWER, 200),
        ("GET", "/v1/status", OPERATOR, 200),
        ("GET", "/metrics", VIEWER, 200),
        ("POST", "/v1/pause", VIEWER, 403),
        ("POST", "/v1/signals", OPERATOR, 403),
        ("GET", "/v1/orders?node=n1", VIEWER, 403),
        ("GET", "/v1/incidents/x", VIEWER, 404),
        ("GET", "/v1/incidents?limit=many", VIEWER, 400),
        ("GET", "/v1/incidents?limit=0", VIEWER, 400),
        ("GET", "/nowhere", VIEWER, 404),
        ("DELETE", "/v1/status", VIEWER, 405),
        ("GET", "/v1/orders", AGENT, 400),
        ("GET", "/v1/orders?node=n1&after=-1", AGENT, 400),
        ("GET", "/v1/orders?node=n1&wait=nan", AGENT, 400),
    ],
)
async def test_who_may_ask_what(client: Client, method: str, path: str, headers: dict[str, str], status: int) -> None:
    async with client.request(method, path, headers=headers) as answer:
        assert answer.status == status
        if status >= 400:
            assert set(await answer.json()) == {"error"}


async def test_signals_are_acknowledged_by_the_last_name_and_taken_once(client: Client, site: Site) -> None:
    for _ in range(2):
        async with client.post("/v1/signals", data=batch(3), headers=AGENT) as answer:
            assert await answer.json() == {"last": "n1/b/1/3"}
    assert len(site.taken) == 3


#: Taken for our own error (500), an agent would send it again for ever and nothing behind it.
NESTED = b"\x91\x83\xa1t\x01\xa4kind\xa4step\xa4data\x81\xa1a" + b"\x91" * 3000 + b"\x01"


@pytest.mark.parametrize(("body", "status"), [(b"junk", 400), (b"", 400), (b"\x00" * 20_000, 413), (NESTED, 400)])
async def test_bad_batches_are_refused_and_counted(client: Client, site: Site, body: bytes, status: int) -> None:
    async with client.post("/v1/signals", data=body, headers=AGENT) as answer:
        assert answer.status == status
    assert site.taken == []
    assert sum(site.pages.refused.values()) == 1


async def test_too_many_signals_are_put_off_and_not_lost(client: Client, site: Site) -> None:
    async with client.post("/v1/signals", data=batch(200), headers=AGENT) as answer:
        assert answer.status == 200
    site.taken.clear()
    sent = 200
    while True:
        async with client.post("/v1/signals", data=batch(200, sent + 1), headers=AGENT) as answer:
            if answer.status == 503:
                break
        sent += 200
    assert len(site.taken) == sent - 200
    assert site.pages.refused["rate"] == 1


async def test_a_long_poll_ends_when_the_node_is_given_an_order(client: Client, site: Site, ledger: SqliteLedger) -> None:
    asked = asyncio.create_task(client.get("/v1/orders?node=n2&after=0&wait=30", headers=AGENT))
    while "n2" not in site.board._waiting:
        await asyncio.sleep(0)
    await ledger.put_orders([OrderTo(to="n2", order=Order(number=0, id="p", order="probe", node="n1"))])
    await site.board.refresh()
    orders = await (await asked).json()
    assert [(order["id"], order["order"], order["node"]) for order in orders] == [("p", "probe", "n1")]
    async with client.get(f"/v1/orders?node=n2&after={orders[0]['number']}", headers=AGENT) as answer:
        assert await answer.json() == []
    assert site.board._waiting == {}


@pytest.mark.parametrize(
    ("path", "body", "control"),
    [
        ("/v1/maintenance", {"node": "n1", "seconds": 60}, ("maintenance", "n1")),
        ("/v1/maintenance", {"job": "j1", "who": "anna"}, ("maintenance", "j1")),
        ("/v1/pause", {}, ("pause", "*")),
        ("/v1/release", {"node": "n1"}, ("release", "n1")),
        ("/v1/reset_brake", {}, ("reset_brake", "*")),
    ],
)
async def test_peoples_orders_stand_in_the_ledger(
    client: Client, ledger: SqliteLedger, path: str, body: dict[str, Any], control: tuple[str, str]
) -> None:
    async with client.post(path, json=body, headers=OPERATOR) as answer:
        assert answer.status == 200
    assert [(found.kind, found.key) for found in await ledger.controls()] == [control]


@pytest.mark.parametrize(
    ("path", "body", "end"),
    [("/v1/maintenance", {"node": "n1"}, ("maintenance_off", "n1", "bob")), ("/v1/pause", {}, ("resume", "*", "bob"))],
)
async def test_who_ends_a_standing_order_is_left_for_the_leader(
    client: Client, ledger: SqliteLedger, path: str, body: dict[str, Any], end: tuple[str, str, str]
) -> None:
    for said in ({"who": "ann"}, {"who": "bob", "on": False}):
        async with client.post(path, json={**body, **said}, headers=OPERATOR) as answer:
            assert answer.status == 200
    assert [(found.kind, found.key, found.body["who"]) for found in await ledger.controls()] == [end]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/maintenance", {}),
        ("/v1/maintenance", {"node": 5}),
        ("/v1/maintenance", {"node": "n1", "seconds": 1e9}),
        ("/v1/maintenance", {"node": "n1", "seconds": True}),
        ("/v1/maintenance", {"node": "n1", "on": "yes"}),
        ("/v1/maintenance", {"node": "n" * 1000}),
        ("/v1/pause", {"on": 1}),
        ("/v1/pause", [1]),
        ("/v1/ack", {}),
    ],
)
async def test_an_order_that_makes_no_sense_is_refused(client: Client, ledger: SqliteLedger, path: str, body: Any) -> None:
    async with client.post(path, json=body, headers=OPERATOR) as answer:
        assert answer.status == 400
    assert await ledger.controls() == []


async def test_a_room_that_fails_costs_nobody_else(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name = "broken"

        def load(self) -> Any:
            raise ImportError("no such room")

    monkeypatch.setattr("detectors.witness.http.entry_points", lambda group: [Point()])
    site.pages.add_rooms()
    assert site.application().router.routes()
