"""What people and their programs ask of a witness: state, incidents, audit; their orders reach the leader by the ledger."""

from dataclasses import replace
from typing import Any

from aiohttp import web

from detectors.core.incident import State
from detectors.witness.access import Role
from detectors.witness.http import Pages, Refusal, answer, number, small_body
from detectors.witness.ledger import Control, Ledger
from detectors.witness.metrics import Metrics
from detectors.witness.orders_check import check_approval, check_job, check_node, known_incident
from detectors.witness.waiting import told
from detectors.witness.words import STANDING
from outrider.config.policy import Policy
from outrider.fleet import Fleet

#: Longest window of maintenance, seconds: a day, so that a forgotten one ends.
MAINTENANCE_SECONDS_MAX = 86_400.0
#: Longest text that a person may give with an order.
TEXT_MAX = 500
#: States of an incident that may be asked for.
STATES = tuple(State)
#: How long an order that is carried out once waits for a leader, seconds.
ONCE_SECONDS = 3600.0


def add_routes(pages: Pages, metrics: Metrics, fleet: Fleet, policy: Policy) -> None:
    """Adds all of them. `fleet` and `policy` are what the witness judges by."""
    ledger = pages.ledger

    async def healthy(_request: web.Request) -> web.Response:
        return answer({"ok": True})

    async def page(_request: web.Request) -> web.Response:
        body, kind = metrics.page()
        return web.Response(body=body, headers={"Content-Type": kind})

    async def status(_request: web.Request) -> web.Response:
        return answer(await pages.status())

    async def incidents(request: web.Request) -> web.Response:
        wanted = request.query.get("state")
        if wanted is not None and wanted not in STATES:
            raise Refusal(400, "format", f"state: {wanted!r} is none of {', '.join(STATES)}")
        found = await ledger.incidents(int(number(request, "limit", 200, 1, 10_000)))
        return answer([told(picture, policy) for picture in found if wanted is None or picture.get("state") == wanted])

    async def incident(request: web.Request) -> web.Response:
        return answer(told(await known_incident(ledger, request.match_info["incident"]), policy))

    async def audit(request: web.Request) -> web.Response:
        limit, name = int(number(request, "limit", 200, 1, 10_000)), request.query.get("incident")
        entries = await ledger.audit(limit, name)
        if not entries and name is not None:  # the beginning of a name, as lists show it; or one that nothing is known of
            entries = await ledger.audit(limit, (await known_incident(ledger, name))["incident"])
        return answer(entries)

    pages.add("GET", "/healthz", healthy, Role.ANYONE)
    pages.add("GET", "/metrics", page, Role.VIEWER)
    pages.add("GET", "/v1/status", status, Role.VIEWER)
    pages.add("GET", "/v1/incidents", incidents, Role.VIEWER)
    pages.add("GET", "/v1/incidents/{incident}", incident, Role.VIEWER)
    pages.add("GET", "/v1/audit", audit, Role.VIEWER)
    _add_orders(pages, fleet, policy)


def _add_orders(pages: Pages, fleet: Fleet, policy: Policy) -> None:
    for kind, key in (
        ("ack", "incident"),
        ("approve", "incident"),
        ("false_alarm", "incident"),
        ("release", "node"),
        ("reset_brake", ""),
    ):
        _add_once(pages, fleet, policy, kind, key)
    _add_lasting(pages, fleet)


def _add_once(pages: Pages, fleet: Fleet, policy: Policy, kind: str, key: str) -> None:
    """An order that is carried out once; `key` names its target in the body."""
    ledger = pages.ledger

    async def take(request: web.Request) -> web.Response:
        body = await small_body(request)
        target = _text(body, key) if key else "*"
        if key == "incident":
            found = await known_incident(ledger, target)
            target = found["incident"]
            if kind == "approve":
                check_approval(found, policy)
        elif key == "node":
            await check_node(ledger, fleet, target)
        await ledger.put_control(Control(kind=kind, key=target, body=_said(body), seconds_left=ONCE_SECONDS))
        return answer({"ok": True, "order": kind, "target": target})

    pages.add("POST", f"/v1/{kind}", take, Role.OPERATOR)


def _add_lasting(pages: Pages, fleet: Fleet) -> None:
    """Orders that stand until they end or are taken back: maintenance, and the pause of all actions."""
    ledger = pages.ledger

    async def maintenance(request: web.Request) -> web.Response:
        body = await small_body(request)
        target = _text(body, "job" if "job" in body else "node")
        on = body.get("on", True)
        seconds = body.get("seconds", 3600.0)
        if not isinstance(on, bool) or isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise Refusal(400, "format", "on must be true or false, seconds a number")
        if not 0 < seconds <= MAINTENANCE_SECONDS_MAX:
            raise Refusal(400, "format", f"seconds must be above 0 and at most {MAINTENANCE_SECONDS_MAX:g}")
        what = "job" if "job" in body else "node"
        await (check_job if what == "job" else check_node)(ledger, fleet, target)
        said = Control(kind="maintenance", key=target, body={**_said(body), "what": what}, seconds_left=float(seconds))
        await (ledger.put_control(said) if on else _end(ledger, said))
        return answer({"ok": True, "order": "maintenance", what: target, "on": on, "seconds": seconds if on else 0})

    async def pause(request: web.Request) -> web.Response:
        body = await small_body(request)
        on = body.get("on", True)
        if not isinstance(on, bool):
            raise Refusal(400, "format", "on must be true or false")
        said = Control(kind="pause", key="*", body=_said(body))
        await (ledger.put_control(said) if on else _end(ledger, said))
        return answer({"ok": True, "order": "pause", "on": on})

    pages.add("POST", "/v1/maintenance", maintenance, Role.OPERATOR)
    pages.add("POST", "/v1/pause", pause, Role.OPERATOR)


async def _end(ledger: Ledger, order: Control) -> None:
    """Ends a standing order. Who ends it is written first: the leader that finds the order gone must find the name."""
    await ledger.put_control(replace(order, kind=STANDING[order.kind][1], seconds_left=ONCE_SECONDS))
    await ledger.put_control(replace(order, seconds_left=0))


def _text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_MAX:
        raise Refusal(400, "format", f"{name} is missing or no text of 1..{TEXT_MAX} characters")
    return value


def _said(body: dict[str, Any]) -> dict[str, Any]:
    """Who said it and why, for the auditor."""
    return {name: str(body.get(name, ""))[:TEXT_MAX] for name in ("who", "reason")}
