"""The console's routes, added to every witness by the entry point `console` of the group `outrider.http`."""

import asyncio
import gzip
import hashlib
import ipaddress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from dashboards.console.feed import Feed, event, slim
from dashboards.console.reports import list_reports, read_report
from dashboards.console.shell import Shell, content_policy
from detectors.witness.access import Role
from detectors.witness.course import Course
from detectors.witness.http import Pages, Refusal, answer, number
from outrider.catalogue import FAULTS
from outrider.config.console import ConsoleSection
from outrider.config.witness import WitnessSection
from outrider.fleet import Fleet

#: Jobs' members that one answer names; a page shows them by node.
SLOTS_MAX: Final = 200_000


def add_console(pages: Pages) -> None:
    """Adds the page and what it asks for."""
    section = pages.config.get(ConsoleSection)
    if not section.on:
        return
    shell = Shell()
    others = [member.url for member in pages.config.get(WitnessSection).members]
    policy = content_policy(others)

    async def home(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": "/console/"})

    async def index(request: web.Request) -> web.StreamResponse:
        return shell.index(request, policy)

    async def file(request: web.Request) -> web.StreamResponse:
        return shell.file(request)

    pages.add("GET", "/", home, Role.ANYONE)
    pages.add("GET", "/console", home, Role.ANYONE)
    pages.add("GET", "/console/", index, Role.ANYONE)
    pages.add("GET", "/console/static/{build}/{name:.+}", file, Role.ANYONE)
    _admit_others(pages, _origins(others))
    _add_stream(pages, Feed(pages, section.streams_max), shell.build, others)
    _add_facts(pages)
    _add_jobs_and_nodes(pages)
    _add_reports(pages, Path(section.reports_dir))


def _admit_others(pages: Pages, origins: frozenset[str]) -> None:
    """A page that another witness of this site served may ask here when that one died. The token is its proof, not a cookie."""

    async def preflight(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Origin") not in origins:
            raise Refusal(403, "origin", "no page of that origin may ask here")
        return web.Response(status=204)

    async def allow(request: web.Request, response: web.StreamResponse) -> None:
        origin = request.headers.get("Origin")
        if origin in origins:
            response.headers["Access-Control-Allow-Origin"] = str(origin)
            response.headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type"
            response.headers["Access-Control-Allow-Methods"] = "GET, POST"
            response.headers["Vary"] = "Origin"

    pages.before_answer.append(allow)
    pages.add("OPTIONS", "/{any:.*}", preflight, Role.ANYONE)


def _add_stream(pages: Pages, feed: Feed, build: str, others: list[str]) -> None:
    fleet = _Fleet(pages.sight.fleet)

    async def stream(request: web.Request) -> web.StreamResponse:
        if feed.full:
            raise Refusal(503, "streams", "too many pages are open at this witness", {"Retry-After": "10"})
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        role = "operator" if Role.OPERATOR in pages.roles(request) else "viewer"
        hello = {"build": build, "role": role, "witnesses": others, "fleet": fleet.digest}
        watching = feed.watch()
        first = await anext(watching)
        await response.prepare(request)
        try:
            await response.write(event({"hello": hello, **first}))
            async for message in watching:
                await response.write(event(message))
        except (ConnectionError, asyncio.CancelledError):
            return response
        finally:
            await watching.aclose()  # type: ignore[attr-defined]  # it is a generator
        return response

    async def geometry(request: web.Request) -> web.StreamResponse:
        return fleet.send(request)

    pages.add("GET", "/console/api/stream", stream, Role.VIEWER)
    pages.add("GET", "/console/api/fleet", geometry, Role.VIEWER)


class _Fleet:
    """Who is where, as columns: it does not change while a witness lives, so it is made once."""

    def __init__(self, fleet: Fleet) -> None:
        racks = sorted({node.rack or "" for node in fleet.nodes})
        leaves = {node.node: sorted({node.switch, *node.nics.values()} - {None, ""}, key=str) for node in fleet.nodes}
        switches = sorted({str(name) for names in leaves.values() for name in names})
        rack_at = {name: place for place, name in enumerate(racks)}
        switch_at: dict[Any, int] = {name: place for place, name in enumerate(switches)}
        told = {
            "nodes": [node.node for node in fleet.nodes], "racks": racks, "switches": switches,
            "rack": [rack_at[node.rack or ""] for node in fleet.nodes],
            "switch": [[switch_at[name] for name in leaves[node.node]] for node in fleet.nodes],
        }  # fmt: skip
        self._body = msgspec.json.encode(told)
        self._zipped = gzip.compress(self._body, 6, mtime=0)
        self.digest = hashlib.sha256(self._body).hexdigest()[:16]

    def send(self, request: web.Request) -> web.Response:
        headers = {"ETag": f'"{self.digest}"', "Cache-Control": "private, no-cache", "Content-Type": "application/json"}
        if request.headers.get("If-None-Match") == f'"{self.digest}"':
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=self._zipped, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=self._body, headers=headers)


def _add_facts(pages: Pages) -> None:
    catalogue = {
        key: {name: value for name, value in asdict(fault).items() if name not in ("key", "source", "witnesses")}
        for key, fault in FAULTS.items()
    }

    async def faults(_request: web.Request) -> web.StreamResponse:
        return answer(catalogue)

    async def incidents(request: web.Request) -> web.StreamResponse:
        found = await pages.ledger.incidents(int(number(request, "limit", 500, 1, 10_000)))
        return answer([slim(picture) for picture in found])

    pages.add("GET", "/console/api/faults", faults, Role.VIEWER)
    pages.add("GET", "/console/api/incidents", incidents, Role.VIEWER)


def _add_jobs_and_nodes(pages: Pages) -> None:
    sight = pages.sight

    async def jobs(_request: web.Request) -> web.StreamResponse:
        return answer([_line(course) for course in sight.listed()])

    async def job(request: web.Request) -> web.StreamResponse:
        course = sight.jobs.get(request.query.get("name", ""))
        if course is None:
            raise Refusal(404, "unknown", "this witness has heard of no such job")
        after = int(number(request, "after", 0, 0, 2**53))
        begin = max(0, after - course.shed)
        points = course.points[begin:]
        return answer(
            _line(course)
            | {"slots": course.slots[:SLOTS_MAX], "marks": list(course.marks), "shed": course.shed}
            | {"next": course.shed + len(course.points), "points": [[p.wall, p.step, p.loss, p.step_s] for p in points]}
        )

    async def node(request: web.Request) -> web.StreamResponse:
        name = request.query.get("name", "")
        known = next((one for one in sight.fleet.nodes if one.node == name), None)
        if known is None:
            raise Refusal(404, "unknown", "the configuration names no such node")
        heard = sight.heard.get(name)
        members = {
            course.job: [rank for rank, slot in enumerate(course.slots) if slot[0] == name] for course in sight.jobs.values()
        }
        return answer({
            "node": msgspec.to_builtins(known), "spare": name in sight.fleet.spares,
            "heard_s": None if heard is None else sight.now() - heard,
            "jobs": {job: ranks for job, ranks in members.items() if ranks},
            "readings": [_told(wall, signal) for wall, signal in sight.watch(name)],
            "events": [_told(wall, signal) for wall, signal in sight.events(name)],
        })  # fmt: skip

    pages.add("GET", "/console/api/jobs", jobs, Role.VIEWER)
    pages.add("GET", "/console/api/job", job, Role.VIEWER)
    pages.add("GET", "/console/api/node", node, Role.VIEWER)


def _add_reports(pages: Pages, root: Path) -> None:
    async def reports(_request: web.Request) -> web.StreamResponse:
        return answer(await asyncio.to_thread(list_reports, root))

    async def report(request: web.Request) -> web.StreamResponse:
        found = await asyncio.to_thread(read_report, root, request.query.get("name", ""))
        if found is None:
            raise Refusal(404, "unknown", "there is no such report")
        return answer(found)

    pages.add("GET", "/console/api/drills", reports, Role.VIEWER)
    pages.add("GET", "/console/api/drill", report, Role.VIEWER)


def _line(course: Course) -> dict[str, Any]:
    last = course.points[-1] if course.points else None
    return {
        "job": course.job, "attempt": course.attempt, "phase": course.phase if course.state == "running" else course.state,
        "step": course.step if course.step >= 0 else None,
        "ranks": len(course.slots), "nodes": len({node for node, _ in course.slots}),
        "loss": last.loss if last else None, "step_s": last.step_s if last else None, "wall": last.wall if last else None,
    }  # fmt: skip


def _told(wall: float, signal: Any) -> dict[str, Any]:
    return {
        "wall": wall, "kind": signal.kind, "subject": signal.subject(), "value": signal.value, "data": signal.data,
        "text": signal.text, "source": signal.source,
    }  # fmt: skip


def _origins(urls: list[str]) -> frozenset[str]:
    """Where pages of this site's witnesses come from; a loopback address is also called localhost."""
    found = set(urls)
    for url in urls:
        parts = urlsplit(url)
        try:
            loopback = ipaddress.ip_address(parts.hostname or "").is_loopback
        except ValueError:
            loopback = False
        if loopback:
            found.add(f"{parts.scheme}://localhost:{parts.port}")
    return frozenset(found)
