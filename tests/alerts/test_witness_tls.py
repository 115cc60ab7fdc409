"""Witnesses over TLS: agent, commands, doctor and deliverer speak it, check the certificate, and never fall back to clear text."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from alerts_doubles import until
from tls_files import authority, openssl, signed

from alerts.witnesses import Witnesses
from collectors.agent.spool import Spool
from collectors.agent.transport import WitnessLink
from detectors.witness import http
from detectors.witness.client import Client
from detectors.witness.doctor import _ask
from outrider.config.security import SecuritySection, write_secret
from outrider.config.site import Config, read_config
from outrider.config.witness import Member, WitnessSection
from outrider.errors import InputError, OutriderError
from outrider.signals import Signal, decode_batch
from outrider.tls import client_context, server_context
from outrider.wire import encode_acknowledgement, encode_orders

pytestmark = pytest.mark.real


class Answering:
    """As much of a witness as its clients ask for."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/status", self._status)
        app.router.add_get("/v1/orders", self._orders)
        app.router.add_post("/v1/signals", self._take)
        return app

    async def _status(self, request: web.Request) -> web.Response:
        return web.json_response({"scheme": request.scheme})

    async def _orders(self, _: web.Request) -> web.Response:
        return web.Response(body=encode_orders([]))

    async def _take(self, request: web.Request) -> web.Response:
        signals = decode_batch(await request.read())
        self.signals += signals
        return web.Response(body=encode_acknowledgement(signals[-1].id))


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Callable]:
    """Starts one behind a certificate of the authority `ours`; returns it and the member as clients know it."""
    runners = []

    async def start(trusted: str = "ours", *, port_wanted: int = 0) -> tuple[Answering, Config]:
        ours = authority(tmp_path, "ours")
        cert, key = signed(tmp_path, ours)
        ca = ours if trusted == "ours" else authority(tmp_path, trusted)
        for before in runners:  # one at a time; connections end with it
            await before.cleanup()
        witness = Answering()
        runners.append(await http.serve(witness.application(), "127.0.0.1", port_wanted, server_context(str(cert), str(key))))
        port = runners[-1].addresses[0][1]
        for name in ("agent", "viewer"):
            write_secret(tmp_path / name)
        site = tmp_path / "site.toml"
        site.write_text(
            f'[[witness.members]]\nname = "w1"\nhttp_port = {port}\nheartbeat_port = 9\ntls_cert = "{cert}"\ntls_key = "{key}"\n'
            f'tls_ca = "{ca}"\n[security]\nagent_token_file = "{tmp_path}/agent"\nviewer_token_file = "{tmp_path}/viewer"\n'
        )
        return witness, read_config(str(site))

    yield start
    for runner in runners:
        await runner.cleanup()


def link_of(config: Config, folder: Path) -> tuple[WitnessLink, Spool]:
    (member,) = config.get(WitnessSection).members
    spool = Spool(folder / "spool", ("w1",), node="n1", boot="b", start=1, bytes_max=1 << 20)
    return WitnessLink(
        node="n1", boot="b", member=member, token="t", spool=spool, wait_seconds=0.2, on_orders=lambda *_: None
    ), spool  # fmt: skip


async def end(link: WitnessLink) -> None:
    """Its threads are gone before the server goes: none is in the middle of a handshake then."""
    link.stop()
    for thread in link._threads:
        await asyncio.to_thread(thread.join, 10.0)


async def asked(config: Config) -> Any:
    return await asyncio.to_thread(Client(config).get, "/v1/status")


async def test_every_client_speaks_tls_with_a_witness_whose_authority_it_trusts(serve, tmp_path: Path) -> None:
    witness, config = await serve()
    (member,) = config.get(WitnessSection).members
    assert member.url.startswith("https://")
    assert await asked(config) == {"scheme": "https"}
    assert await Witnesses(config.get(WitnessSection), config.get(SecuritySection)).tell([Signal(t=1.0, kind="step", id="a/b/0/1")])
    assert (await asyncio.to_thread(_ask, member, "t", "n1")).state in ("ok", "warn")
    link, spool = link_of(config, tmp_path)
    link.begin()
    try:
        spool.add(Signal(t=2.0, kind="step", value=7))
        await until(lambda: [signal.value for signal in witness.signals] == [None, 7])
        assert link.errors == 0
    finally:
        await end(link)


async def test_clients_that_live_long_follow_a_new_authority(serve, tmp_path: Path) -> None:
    witness, config = await serve()
    (member,) = config.get(WitnessSection).members
    client, (link, spool) = Client(config), link_of(config, tmp_path)
    link.begin()
    try:
        assert await asyncio.to_thread(client.get, "/v1/status") == {"scheme": "https"}
        spool.add(Signal(t=1.0, kind="step", value=7))
        await until(lambda: len(witness.signals) == 1)
        before = (tmp_path / "ours.pem").read_bytes()
        witness, _ = await serve(port_wanted=member.http_port)  # with another key of the authority, under the same names
        assert (tmp_path / "ours.pem").read_bytes() != before
        assert await asyncio.to_thread(client.get, "/v1/status") == {"scheme": "https"}
        spool.add(Signal(t=2.0, kind="step", value=8))
        await until(lambda: [signal.value for signal in witness.signals] == [8])
    finally:
        await end(link)


async def test_no_client_tells_a_witness_of_an_unknown_authority_anything(serve, tmp_path: Path) -> None:
    witness, config = await serve("strange")
    (member,) = config.get(WitnessSection).members
    with pytest.raises(OutriderError, match="certificate verify failed"):
        await asked(config)
    assert not await Witnesses(config.get(WitnessSection), config.get(SecuritySection)).tell([Signal(t=1.0, kind="step")])
    finding = await asyncio.to_thread(_ask, member, "t", "n1")
    assert (finding.state, "certificate verify failed" in finding.text) == ("fail", True)
    link, spool = link_of(config, tmp_path)
    link.begin()
    try:
        spool.add(Signal(t=2.0, kind="step", value=7))
        await until(lambda: link.errors >= 2)
        assert (link.up, link.sent) == (False, 0)
    finally:
        await end(link)
    assert witness.signals == []


def test_files_that_do_not_serve_are_one_line(tmp_path: Path) -> None:
    ours = authority(tmp_path, "ours")
    cert, key = signed(tmp_path, ours)
    with pytest.raises(InputError, match="cannot be used as certificate"):
        server_context(str(cert), str(ours.with_suffix(".key").rename(tmp_path / "other.key")))
    key.chmod(0o604)
    with pytest.raises(InputError, match="open to everybody"):
        server_context(str(cert), str(key))
    with pytest.raises(InputError, match="holds no certificate"):
        client_context(str(key))
    locked = tmp_path / "locked.key"
    openssl("pkey", "-aes256", "-passout", "pass:word", "-in", tmp_path / "other.key", "-out", locked)
    locked.chmod(0o600)
    with pytest.raises(InputError, match="without a pass phrase"):
        server_context(str(ours), str(locked))
    with pytest.raises(msgspec.ValidationError, match="tls_ca needs tls_cert"):  # a token in clear text, although TLS was meant
        msgspec.convert({"name": "w1", "http_port": 1, "heartbeat_port": 2, "tls_ca": "x"}, Member)
    with pytest.raises(msgspec.ValidationError, match="belong together"):
        msgspec.convert({"name": "w1", "http_port": 1, "heartbeat_port": 2, "tls_cert": "x"}, Member)


async def test_no_token_goes_to_a_proxy_or_along_a_redirect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    async def strange(request: web.Request) -> web.Response:
        heard.append(request.headers.get("Authorization", ""))
        return web.json_response({"error": "x"}, status=502)

    async def elsewhere(_: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": f"http://127.0.0.1:{stranger.addresses[0][1]}/v1/status"})

    app, away = web.Application(), web.Application()
    app.router.add_route("*", "/{tail:.*}", strange)
    away.router.add_get("/v1/status", elsewhere)
    away.router.add_get("/v1/orders", elsewhere)
    stranger = await http.serve(app, "127.0.0.1", 0)
    witness = await http.serve(away, "127.0.0.1", 0)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{stranger.addresses[0][1]}")
    monkeypatch.delenv("no_proxy", raising=False)
    write_secret(tmp_path / "viewer")
    site = tmp_path / "site.toml"
    port = witness.addresses[0][1]
    site.write_text(
        f'[[witness.members]]\nname = "w1"\nhttp_port = {port}\nheartbeat_port = 9\n'
        f'[security]\nviewer_token_file = "{tmp_path}/viewer"\n'
    )
    config = read_config(str(site))
    (member,) = config.get(WitnessSection).members
    try:
        with pytest.raises(OutriderError):
            await asked(config)
        assert (await asyncio.to_thread(_ask, member, "t", "n1")).state == "fail"
        assert heard == []
    finally:
        await witness.cleanup()
        await stranger.cleanup()


@pytest.mark.parametrize("witness_speaks_tls", [True, False])
async def test_a_client_that_expects_the_other_is_one_line_and_no_crash(serve, tmp_path: Path, witness_speaks_tls: bool) -> None:
    witness, config = await serve()
    (member,) = config.get(WitnessSection).members
    text = (tmp_path / "site.toml").read_text()
    plain = await http.serve(witness.application(), "127.0.0.1", 0)
    try:
        if witness_speaks_tls:
            lines = [line for line in text.splitlines() if not line.startswith("tls_")]
        else:
            lines = [line.replace(str(member.http_port), str(plain.addresses[0][1])) for line in text.splitlines()]
        (tmp_path / "other.toml").write_text("\n".join(lines))
        other = read_config(str(tmp_path / "other.toml"))
        with pytest.raises(OutriderError, match="no witness answers") as caught:
            await asked(other)
        assert "\n" not in str(caught.value)
        assert not await Witnesses(other.get(WitnessSection), other.get(SecuritySection)).tell([Signal(t=1.0, kind="step")])
    finally:
        await plain.cleanup()
