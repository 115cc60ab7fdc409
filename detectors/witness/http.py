"""The witness's HTTP interface: agents' signals and orders, people's questions, other rooms' pages.

A room adds routes by an entry point of the group `outrider.http`: a function `(pages: Pages) -> None` that calls `pages.add`.
Everything that comes in is bounded; bad input is answered 4xx with one line of JSON `{"error": ..}` and counted.
"""

import asyncio
import os
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from importlib.metadata import entry_points
from typing import Any

import msgspec
import structlog
from aiohttp import web

from detectors.witness.access import Access, Role
from detectors.witness.ledger import Ledger, LedgerError
from detectors.witness.sight import Sight
from outrider.config.site import Config
from outrider.errors import OutriderError
from outrider.fleet import Fleet
from outrider.wire import UNREADABLE

log = structlog.get_logger()

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Bodies other than signals are a few lines of JSON.
SMALL_BYTES_MAX = 64 << 10


class Refusal(Exception):
    """An answer other than 200. `status`: HTTP; `reason_code`: a bounded word for the counter."""

    def __init__(self, status: int, reason_code: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.reason_code, self.headers = status, reason_code, headers


class Pages:
    """The routes of one witness. Rooms above may use `config`, `ledger` (to read), `status`, `sight` and `roles`.

    What is put into `before_answer` sees every answer before its head is sent. `news` is set when the ledger changed; one reader
    waits for it and clears it.
    """

    def __init__(
        self,
        access: Access,
        config: Config,
        ledger: Ledger,
        status: Callable[[], Awaitable[dict[str, Any]]],
        sight: Sight | None = None,
    ) -> None:
        self.config, self.ledger, self.status = config, ledger, status
        self.sight = sight if sight is not None else Sight(Fleet(), ledger.clock)
        self.news = asyncio.Event()
        self.before_answer: list[Callable[[web.Request, web.StreamResponse], Awaitable[None]]] = []
        self._access = access
        self._routes: list[web.RouteDef] = []
        self.refused: Counter[str] = Counter()

    def add(self, method: str, path: str, handler: Handler, role: Role) -> None:
        """Adds a route that whoever has `role` may use."""

        async def guarded(request: web.Request) -> web.StreamResponse:
            try:
                self._require(request, role)
                return await handler(request)
            except Refusal as refusal:
                self.refused[refusal.reason_code] += 1
                return answer({"error": str(refusal)}, refusal.status, refusal.headers)
            except web.HTTPException as error:  # aiohttp's own: a body that is too long, mostly
                self.refused["size" if error.status == 413 else "http"] += 1
                return answer({"error": error.reason}, error.status)
            except LedgerError as error:
                self.refused["ledger"] += 1
                return answer({"error": str(error)}, 503, {"Retry-After": "1"})

        self._routes.append(web.route(method, path, guarded))

    def add_rooms(self) -> None:
        """Lets every installed room add its routes; one that fails is told and left out."""
        for point in entry_points(group="outrider.http"):
            try:
                point.load()(self)
            except Exception:  # another room's mistake must not cost the witness
                log.exception("room_failed", room=point.name)

    def application(self, bytes_max: int) -> web.Application:
        """The aiohttp application of all routes."""
        app = web.Application(client_max_size=bytes_max, middlewares=[_errors_as_json])
        app.add_routes(self._routes)
        app.on_response_prepare.extend(self.before_answer)
        return app

    def roles(self, request: web.Request) -> set[Role]:
        """Roles that a request proves."""
        return self._access.roles(request.headers.get("Authorization"))

    def _require(self, request: web.Request, role: Role) -> None:
        roles = self.roles(request)
        if role in roles:
            return
        if len(roles) > 1:
            raise Refusal(403, "role", f"this needs the role {role}")
        raise Refusal(401, "token", f"this needs a bearer token of the role {role}", {"WWW-Authenticate": "Bearer"})


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return answer({"error": error.reason}, error.status)
    except (asyncio.CancelledError, ConnectionError):
        raise
    except Exception:  # our own bug: told in the log, not to the caller
        log.exception("http_error", path=request.path)
        return answer({"error": "internal error; the witness's log tells more"}, 500)


async def serve(app: web.Application, address: str, port: int, tls: ssl.SSLContext | None = None) -> web.AppRunner:
    """Listens.

    Raises:
        OutriderError: the address or port cannot be had.
    """
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port, ssl_context=tls).start()
    except OSError as error:
        await runner.cleanup()
        said = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)  # without asyncio's own long words
        raise OutriderError(f"cannot listen on {address}:{port}: {said}") from None
    return runner


def answer(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """A JSON answer."""
    return web.Response(body=msgspec.json.encode(data), status=status, headers=headers, content_type="application/json")


async def small_body(request: web.Request) -> dict[str, Any]:
    """The JSON object of a request by a person.

    Raises:
        Refusal: too long, or no JSON object.
    """
    if (request.content_length or 0) > SMALL_BYTES_MAX:
        raise Refusal(413, "size", f"at most {SMALL_BYTES_MAX} bytes")
    try:
        body = msgspec.json.decode(await request.read())
    except UNREADABLE:
        raise Refusal(400, "format", "the body is not JSON") from None
    if not isinstance(body, dict):
        raise Refusal(400, "format", "the body is not a JSON object")
    return body


def number(request: web.Request, name: str, default: float, low: float, high: float) -> float:
    """A number of the query, held within its range.

    Raises:
        Refusal: it is no number.
    """
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        raise Refusal(400, "query", f"{name} is not a number") from None
    if not low <= value <= high:
        raise Refusal(400, "query", f"{name} must be {low:g}..{high:g}")
    return value
