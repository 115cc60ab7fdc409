"""Receivers over TLS: the site's own authority is accepted; an expired or unknown certificate is said and tried again."""

import os
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from alerts_doubles import row
from tls_files import authority, signed

from alerts.redact import Redactor
from alerts.senders import WebhookSender
from outrider.config.targets import Target
from outrider.errors import InputError

pytestmark = pytest.mark.real


@pytest.fixture
async def serve_tls() -> AsyncIterator[Callable]:
    runners = []

    async def start(cert: Path) -> str:
        async def take(_: web.Request) -> web.Response:
            return web.Response()

        application = web.Application()
        application.router.add_post("/hook", take)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(cert, cert.with_suffix(".key"))
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        runners.append(runner)
        return f"https://127.0.0.1:{runner.addresses[0][1]}/hook"

    yield start
    for runner in runners:
        await runner.cleanup()


async def send(url: str, authority: Path | None, secret_file: str) -> tuple[str, str]:
    target = Target(name="t", url=url, secret_files=(secret_file,), ca_file=str(authority) if authority else "")
    sender = WebhookSender(target, Redactor())
    await sender.open()
    try:
        attempt = await sender.send(row("r"), 0.0)
    finally:
        await sender.close()
    return attempt.outcome, attempt.reason_code


async def test_certificate_of_the_sites_own_authority_is_accepted(tmp_path: Path, serve_tls, secret_file: str) -> None:
    ca = authority(tmp_path, "ours")
    assert await send(await serve_tls(signed(tmp_path, ca)[0]), ca, secret_file) == ("accepted", "accepted")


async def test_unknown_certificate_is_said_and_tried_again(tmp_path: Path, serve_tls, secret_file: str) -> None:
    cert, _ = signed(tmp_path, authority(tmp_path, "ours"))
    assert await send(await serve_tls(cert), None, secret_file) == ("retry", "certificate")


async def test_expired_certificate_is_said_and_tried_again(tmp_path: Path, serve_tls, secret_file: str) -> None:
    ca = authority(tmp_path, "ours")
    cert, _ = signed(tmp_path, ca, starts_days=-2, days=1)
    assert await send(await serve_tls(cert), ca, secret_file) == ("retry", "certificate")


async def test_a_receivers_new_authority_is_followed_without_a_restart(tmp_path: Path, serve_tls, secret_file: str) -> None:
    ca, other = authority(tmp_path, "ours"), authority(tmp_path, "other")
    url = await serve_tls(signed(tmp_path, other)[0])
    sender = WebhookSender(Target(name="t", url=url, secret_files=(secret_file,), ca_file=str(ca)), Redactor())
    await sender.open()
    try:
        assert (await sender.send(row("r"), 0.0)).outcome == "retry"
        os.replace(shutil.copy(other, tmp_path / "next"), ca)
        assert (await sender.send(row("r"), 0.0)).outcome == "accepted"
    finally:
        await sender.close()


async def test_file_that_is_no_certificate_is_a_mistake_of_the_configuration(tmp_path: Path, secret_file: str) -> None:
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(InputError, match=r"junk\.pem"):
        await send("https://127.0.0.1:9/", tmp_path / "junk.pem", secret_file)
