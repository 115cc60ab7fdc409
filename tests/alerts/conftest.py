"""A real SQLite ledger with a leader, a webhook secret, and receivers on free ports."""

import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web
from alerts_doubles import SECRET, Leader, Receiver

from detectors.witness.ledger import make_ledger
from outrider.config.ledger import LedgerSection


@pytest.fixture
def ledger_section(tmp_path: Path) -> LedgerSection:
    """Leases of two seconds: a machine that is busy with other things may well stop a test for half a second."""
    return LedgerSection(path=str(tmp_path / "ledger.db"), lease_seconds=2.0)


@pytest.fixture
async def leader(request: pytest.FixtureRequest, ledger_section: LedgerSection) -> AsyncIterator[Leader]:
    """On SQLite; on etcd where a test asks for it (`indirect`)."""
    section = ledger_section
    if getattr(request, "param", "sqlite") == "etcd":
        prefix = f"/{Path(section.path).parent.name}/"
        section = LedgerSection(backend="etcd", endpoints=(request.getfixturevalue("etcd"),), prefix=prefix, lease_seconds=2.0)
    ledger = make_ledger(section)
    await ledger.open()
    yield Leader(ledger, section)
    await ledger.close()


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real etcd of one member; its client address."""
    program = shutil.which("etcd")
    if program is None:
        pytest.skip("etcd is not installed")
    folder = tmp_path_factory.mktemp("etcd")
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    command = [
        program, "--data-dir", str(folder / "data"), "--listen-client-urls", client, "--advertise-client-urls", client,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        "--unsafe-no-fsync",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 20
        while not _answers(f"{client}/health"):
            assert time.monotonic() < deadline, (folder / "log").read_text()[-500:]
            time.sleep(0.05)
        yield client
    finally:
        process.kill()
        process.wait(10)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "webhook.key"
    path.write_text(SECRET)
    return str(path)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., object]]:
    """Starts receivers on free ports of loopback."""
    runners: list[web.AppRunner] = []

    async def start(*answers: object) -> Receiver:
        receiver = Receiver(*answers)
        application = web.Application()
        application.router.add_route("*", "/{tail:.*}", receiver.handle)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        runners.append(runner)
        return receiver

    yield start
    for runner in runners:
        await runner.cleanup()
