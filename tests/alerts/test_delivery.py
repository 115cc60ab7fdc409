"""What an answer means: each kind has its own clear state, none is an endless loop."""

import asyncio
import contextlib
import time

import aiohttp
import pytest

from alerts.delivery import RETRY_AFTER_MAX, judge, post
from outrider.config.targets import Target


@pytest.mark.parametrize(
    ("status", "outcome", "code"),
    [
        (200, "accepted", "accepted"), (202, "accepted", "accepted"), (204, "accepted", "accepted"),
        (301, "refused", "redirect"), (307, "refused", "redirect"),
        (400, "refused", "refused"), (413, "refused", "refused"), (422, "refused", "refused"),
        (401, "retry", "unauthorised"), (403, "retry", "unauthorised"), (404, "retry", "not_found"),
        (408, "retry", "error"), (429, "retry", "error"), (500, "retry", "error"), (503, "retry", "error"),
        (410, "gone", "gone"),
    ],
)  # fmt: skip
def test_each_status_has_one_meaning(status: int, outcome: str, code: str) -> None:
    attempt = judge(status, None, "http://elsewhere/", "", 0.0)
    assert (attempt.outcome, attempt.reason_code) == (outcome, code)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("-3", 0.0),
        ("999999999", RETRY_AFTER_MAX),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0),
        ("soon", None),
        ("nan", None),
        ("inf", RETRY_AFTER_MAX),
        ("-inf", 0.0),
        ("1e999", RETRY_AFTER_MAX),
        ("Mon, 99999999999999999999 Jan 2020 00:00:00 GMT", None),
        (None, None),
    ],
)
def test_retry_after_is_obeyed_within_bounds(header: str | None, seconds: float | None) -> None:
    assert judge(503, header, None, "", 60.0).retry_seconds == seconds


@pytest.mark.parametrize("ending", ["stalls", "breaks", "never ends"])
@pytest.mark.parametrize(("status", "outcome"), [(200, "accepted"), (503, "retry"), (410, "gone"), (422, "refused")])
async def test_status_stands_whatever_becomes_of_the_body(ending: str, status: int, outcome: str) -> None:
    """A receiver that said yes has it: it is not asked again because its last words did not come."""
    over = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 999999999\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            while ending == "never ends" and not over.is_set():
                writer.write(b"x" * 65536)
                await writer.drain()
            if ending == "stalls":
                await over.wait()
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    target = Target(name="t", url=url, secret_files=("unused",), timeout_seconds=0.5)
    async with aiohttp.ClientSession() as session:
        attempt = await post(session, target, ("a2V5a2V5a2V5a2V5a2V5a2V5",), "id", "{}", time.time())
    assert (attempt.outcome, attempt.status) == (outcome, status)
    over.set()
    server.close()
