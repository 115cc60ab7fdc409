"""Certificates that live: replaced files serve new connections, open ones go on, and files that do not serve change nothing."""

import asyncio
import contextlib
import os
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import structlog
from alerts_doubles import Leader
from tls_files import Caller, Heard, authority, serial_of, signed

from alerts.metrics import DelivererMetrics
from detectors.witness.service import Witness
from outrider import tls
from outrider.config.alerts import AlertsConfig
from outrider.config.security import read_secrets, write_secret
from outrider.config.site import read_config
from outrider.tls import client_context, server_context

pytestmark = pytest.mark.real


class Pairs:
    """An authority and two pairs of it, `old` and `new`; `use` puts one where the listener has its files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ca = folder, authority(folder, "ours")
        self.made = {name: signed(folder, self.ca, name, days=days) for name, days in (("old", 1), ("new", 30))}
        self.cert, self.key = folder / "live.pem", folder / "live.key"
        write_secret(folder / "viewer")
        (self.token,) = read_secrets(folder / "viewer")
        self.use("old")

    def use(self, name: str) -> None:
        """By a rename, as a careful program does."""
        for source, place in zip(self.made[name], (self.cert, self.key), strict=True):
            shutil.copy(source, self.folder / "next")
            os.replace(self.folder / "next", place)

    def use_new(self) -> None:
        self.use("new")

    def serial(self, name: str) -> str:
        return serial_of(self.made[name][0])


@pytest.fixture
def pairs(tmp_path: Path) -> Pairs:
    return Pairs(tmp_path)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def witness_listens(pairs: Pairs, port: int, _: Leader) -> AsyncIterator[None]:
    folder = pairs.folder
    for name in ("heartbeat", "agent"):
        write_secret(folder / name)
    path = folder / "site.toml"
    path.write_text(
        f'[witness]\nstate_dir = "{folder}/state"\n[[witness.members]]\nname = "w1"\nhttp_port = {port}\nheartbeat_port = {port}\n'
        f'tls_cert = "{pairs.cert}"\ntls_key = "{pairs.key}"\ntls_ca = "{pairs.ca}"\n[ledger]\npath = "{folder}/own.db"\n'
        f'[security]\nheartbeat_key_file = "{folder}/heartbeat"\nagent_token_file = "{folder}/agent"\n'
        f'viewer_token_file = "{folder}/viewer"\n'
    )
    ready = asyncio.Event()
    running = asyncio.create_task(Witness(read_config(path), "w1").run(ready.set))
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    try:
        assert ready.is_set(), running.exception()
        yield
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@contextlib.asynccontextmanager
async def deliverer_listens(pairs: Pairs, port: int, leader: Leader) -> AsyncIterator[None]:
    settings = AlertsConfig(metrics_port=port, metrics_tls_cert=str(pairs.cert), metrics_tls_key=str(pairs.key))
    async with DelivererMetrics().page(settings, leader.ledger):
        yield


@pytest.mark.parametrize("listens", [witness_listens, deliverer_listens])
async def test_every_listener_shows_a_renewed_certificate_and_ends_no_connection(
    listens: Callable, pairs: Pairs, leader: Leader
) -> None:
    port = free_port()
    async with listens(pairs, port, leader):
        before = await asyncio.to_thread(Caller, port, pairs.ca)
        assert before.serial == pairs.serial("old")
        pairs.use("new")
        after = await asyncio.to_thread(Caller, port, pairs.ca)
        assert after.serial == pairs.serial("new")
        for caller in (after, before):
            assert (await asyncio.to_thread(caller.get, "/metrics", pairs.token))[0] == 200
            caller.close()


@pytest.mark.parametrize("listens", [witness_listens, deliverer_listens])
async def test_its_page_tells_until_when_the_certificate_serves_and_what_was_refused(
    listens: Callable, pairs: Pairs, leader: Leader
) -> None:
    port, listener = free_port(), listens.__name__.partition("_")[0]

    async def page() -> dict[str, float]:
        caller = await asyncio.to_thread(Caller, port, pairs.ca)
        _, text = await asyncio.to_thread(caller.get, "/metrics", pairs.token)
        caller.close()
        words = [line.rpartition(" ") for line in text.splitlines() if line.startswith("outrider_tls")]
        return {series: float(value) for series, _, value in words}

    name = f'outrider_tls_not_after_timestamp_seconds{{listener="{listener}"}}'
    failed = 'outrider_tls_reload_failures_total{part="certificate"}'
    with structlog.testing.capture_logs() as lines:
        async with listens(pairs, port, leader):
            first = await page()
            assert first[name] == server_context(*map(str, pairs.made["old"])).life.not_after
            shutil.copy(pairs.made["new"][0], pairs.cert)
            refused = await page()
            assert (refused[name], refused[failed]) == (first[name], first[failed] + 1)
            pairs.use("new")
            assert (await page())[name] == server_context(*map(str, pairs.made["new"])).life.not_after > first[name]
    told = [line for line in lines if line["event"] == "tls_files_refused"]
    assert len(told) == 1 and str(pairs.cert) in told[0]["error"] and "KEY_VALUES_MISMATCH" in told[0]["error"]


class Live:
    """A listener without HTTP: shakes hands and hangs up. `handshakes` that went well are what counts."""

    def __init__(self, pairs: Pairs) -> None:
        self.log, self.pairs = Heard(), pairs
        self.context = server_context(str(pairs.cert), str(pairs.key), self.log)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                taken, _ = self._socket.accept()
            except OSError:
                return
            taken.settimeout(10)
            with contextlib.suppress(OSError), self.context.wrap_socket(taken, server_side=True) as wrapped:
                wrapped.recv(1)

    def shown(self) -> str:
        caller = Caller(self.port, self.pairs.ca)
        caller.close()
        return next(name for name in self.pairs.made if self.pairs.serial(name) == caller.serial)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


@pytest.fixture
def live(pairs: Pairs):
    made = Live(pairs)
    yield made
    made.close()


def swap_link(pairs: Pairs) -> None:
    """As Kubernetes replaces a mounted Secret: files are links into `..data`, which is a link that is replaced."""
    for name in ("old", "new"):
        (pairs.folder / f"..{name}").mkdir()
        for source, place in zip(pairs.made[name], (pairs.cert, pairs.key), strict=True):
            shutil.copy(source, pairs.folder / f"..{name}" / place.name)
    data = pairs.folder / "..data"
    data.symlink_to("..old")
    for place in (pairs.cert, pairs.key):
        place.unlink()
        place.symlink_to(f"..data/{place.name}")
    (pairs.folder / "..next").symlink_to("..new")
    os.replace(pairs.folder / "..next", data)


def in_place(pairs: Pairs) -> None:
    for source, place in zip(pairs.made["new"], (pairs.cert, pairs.key), strict=True):
        place.write_bytes(source.read_bytes())


@pytest.mark.parametrize("replace", [Pairs.use_new, in_place, swap_link])
def test_it_does_not_matter_how_files_are_replaced(replace: Callable, pairs: Pairs, live: Live) -> None:
    assert live.shown() == "old"
    replace(pairs)
    assert live.shown() == "new"
    assert [line.split()[0] for line in live.log.lines] == ["tls_files_read_anew"]


def cut(pairs: Pairs) -> None:
    pairs.use("new")
    pairs.cert.write_bytes(pairs.made["new"][0].read_bytes()[:200])


def opened(pairs: Pairs) -> None:
    pairs.use("new")
    pairs.key.chmod(0o644)


def unfit(pairs: Pairs) -> None:
    """Its authority's own word says that it is no certificate of a server."""
    cert, key = signed(pairs.folder, pairs.ca, "unfit", names="IP:127.0.0.1\nextendedKeyUsage=clientAuth")
    shutil.copy(cert, pairs.cert)
    shutil.copy(key, pairs.key)


BROKEN: dict[str, tuple[Callable[[Pairs], object], str]] = {
    "another key": (lambda pairs: shutil.copy(pairs.made["new"][0], pairs.cert), "live.pem: .*KEY_VALUES_MISMATCH"),
    "no key": (lambda pairs: pairs.key.unlink(), "live.key: cannot be read: No such file"),
    "no certificate": (lambda pairs: pairs.cert.unlink(), "live.pem: .*No such file"),
    "empty": (lambda pairs: pairs.cert.write_bytes(b""), "live.pem: .*no PEM file"),
    "half written": (cut, "live.pem: .*no PEM file"),
    "open to everybody": (opened, "live.key: is open to everybody"),
    "not for servers": (unfit, "live.pem: .*purpose"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_files_that_do_not_serve_change_nothing_are_told_once_and_mended_later(broken: str, pairs: Pairs, live: Live) -> None:
    import re

    failed = tls.failures["certificate"]
    harm, told = BROKEN[broken]
    assert live.shown() == "old"
    harm(pairs)
    for _ in range(3):
        assert live.shown() == "old"
    assert tls.failures["certificate"] == failed + 1
    (line,) = live.log.lines
    assert line.startswith("tls_files_refused") and re.search(told, line), line
    pairs.use("new")
    assert live.shown() == "new"
    assert (tls.failures["certificate"], len(live.log.lines)) == (failed + 1, 2)


def test_no_connection_fails_while_pairs_are_replaced_again_and_again(pairs: Pairs, live: Live) -> None:
    """Certificate and key are replaced one after the other, so that a look in between finds two that do not fit."""
    over = threading.Event()

    def replace() -> None:
        while not over.is_set():
            for name in ("new", "old"):
                pairs.use(name)

    replacing = threading.Thread(target=replace)
    replacing.start()
    try:
        seen = {live.shown() for _ in range(50)}
    finally:
        over.set()
        replacing.join(10)
    assert seen <= {"old", "new"}
    assert live.shown() == "old"


def test_a_client_trusts_a_replaced_authority_and_no_longer_the_one_before(pairs: Pairs, live: Live) -> None:
    other, trusted, log = authority(pairs.folder, "other"), pairs.folder / "trusted.pem", Heard()
    shutil.copy(pairs.ca, trusted)
    context = client_context(str(trusted), log)

    def accepts() -> bool:
        try:
            plain = socket.create_connection(("127.0.0.1", live.port), 10)
            context.wrap_socket(plain, server_hostname="127.0.0.1").close()
        except tls.ssl.SSLCertVerificationError:
            return False
        return True

    assert accepts()
    shutil.copy(other, trusted)
    assert not accepts()
    failed = tls.failures["authority"]
    for junk in (b"", b"junk"):
        trusted.write_bytes(junk)
        assert [accepts(), accepts()] == [False, False]
    assert tls.failures["authority"] == failed + 2
    trusted.write_bytes(other.read_bytes() + pairs.ca.read_bytes())
    assert accepts()
    words = [line.split()[0] for line in log.lines]
    assert words == ["tls_files_read_anew", "tls_files_refused", "tls_files_refused", "tls_files_read_anew"]


def test_the_earliest_end_in_the_file_is_the_one_that_counts(pairs: Pairs) -> None:
    """The authority lives for a day, the new certificate for thirty: nobody accepts it longer than its authority."""
    alone = server_context(*map(str, pairs.made["new"])).life
    cert = pairs.folder / "chain.pem"
    cert.write_bytes(pairs.made["new"][0].read_bytes() + pairs.ca.read_bytes())
    whole = server_context(str(cert), str(pairs.made["new"][1])).life
    assert whole.not_before == alone.not_before
    assert whole.not_after < alone.not_after


@pytest.mark.parametrize(
    ("life_days", "left_days", "soon"),
    [(90, 15, False), (90, 13, True), (90, -1, True), (20, 6, False), (20, 4, True), (1, 0.3, False), (1, 0.2, True)],
)
def test_what_lives_shortly_is_soon_over_by_its_own_measure(life_days: float, left_days: float, soon: bool) -> None:
    life = tls.Life(1e9, 1e9 + 86400 * life_days)
    assert life.is_soon_over(life.not_after - 86400 * left_days) is soon
