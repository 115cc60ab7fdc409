"""What agents ask of a witness: `POST /v1/signals` and `GET /v1/orders` (docs/contracts.md, "Agent to witness")."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from detectors.witness.access import Role
from detectors.witness.http import Pages, Refusal, number
from detectors.witness.intake import Intake
from detectors.witness.ledger import Ledger
from outrider.clock import Clock
from outrider.signals import Signal
from outrider.wire import BOOT_HEADER, SENT_HEADER, UNREADABLE, encode_acknowledgement, encode_orders

#: Longest long poll, seconds: below the idle limits of common proxies.
WAIT_MAX = 60.0
#: Node names are short; a longer one is a mistake.
NAME_MAX = 256


class OrderBoard:
    """Wakes the long polls of nodes that were given orders."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._place = 0
        self._waiting: dict[str, set[asyncio.Event]] = {}

    async def refresh(self) -> None:
        """Looks for new orders; called when the ledger changed."""
        self._place, nodes = await self._ledger.new_orders(self._place)
        for node in nodes:
            for event in self._waiting.get(node, ()):
                event.set()

    async def wait(self, node: str, seconds: float) -> None:
        """Returns when `node` was given an order, or after `seconds`."""
        event = asyncio.Event()
        self._waiting.setdefault(node, set()).add(event)
        try:
            async with asyncio.timeout(seconds):  # wait_for of 3.11 may swallow a cancellation
                await event.wait()
        except TimeoutError:
            return
        finally:
            self._waiting[node].discard(event)
            if not self._waiting[node]:
                del self._waiting[node]


class Gate:
    """Lets at most `rate` signals a second pass, with a burst of one second; the clock is an argument."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate, self._left, self._at = rate, rate, now

    def passes(self, count: int, now: float) -> bool:
        self._left = min(self._rate, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left <= 0:
            return False
        self._left -= count
        return True


def add_routes(
    pages: Pages, intake: Intake, sink: Callable[[Signal], None], board: OrderBoard, clock: Clock, rate_max: int
) -> None:
    """Adds the two routes."""
    gate = Gate(float(rate_max), clock.monotonic())

    async def take_signals(request: web.Request) -> web.Response:
        body = await request.read()
        now = clock.monotonic()
        try:
            sent = float(request.headers[SENT_HEADER]) if SENT_HEADER in request.headers else None
            signals, last = intake.take(body, now, sent, request.headers.get(BOOT_HEADER))
        except (ValueError, *UNREADABLE) as error:
            raise Refusal(400, "format", f"not a batch of signals: {error}") from None
        if not gate.passes(len(signals), now):
            intake.forget(signals)
            raise Refusal(503, "rate", f"more than {rate_max} signals a second", {"Retry-After": "1"})
        for signal in signals:
            sink(signal)
        return web.Response(body=encode_acknowledgement(last), content_type="application/json")

    async def give_orders(request: web.Request) -> web.Response:
        node = request.query.get("node", "")
        if not 0 < len(node) <= NAME_MAX:
            raise Refusal(400, "query", "node is missing or too long")
        after = int(number(request, "after", 0, 0, 2**53))
        wait = number(request, "wait", 0.0, 0.0, WAIT_MAX)
        orders = await pages.ledger.read_orders(node, after)
        until = clock.monotonic() + wait
        while not orders and (left := until - clock.monotonic()) > 0:
            await board.wait(node, left)
            orders = await pages.ledger.read_orders(node, after)
        return web.Response(body=encode_orders(orders), content_type="application/json")

    pages.add("POST", "/v1/signals", take_signals, Role.AGENT)
    pages.add("GET", "/v1/orders", give_orders, Role.AGENT)
