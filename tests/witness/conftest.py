"""What the witness's tests share: a clock in hand, a ledger and a journal in a folder of their own."""

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from witness_doubles import FLEET

from detectors.witness.journal import Journal
from detectors.witness.ledger_sqlite import SqliteLedger
from outrider.clock import ManualClock
from outrider.config.ledger import LedgerSection


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    made = SqliteLedger(LedgerSection(path=str(tmp_path / "ledger.db")))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal", FLEET, "w1", 1 << 20)


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real etcd of one member, for the whole session; its client address."""
    program = shutil.which("etcd")
    if program is None:
        pytest.skip("etcd is not installed")
    folder = tmp_path_factory.mktemp("etcd")
    held = [socket.socket() for _ in range(2)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    client, peer = (f"http://127.0.0.1:{one.getsockname()[1]}" for one in held)
    for one in held:
        one.close()
    arguments = [
        program, "--data-dir", str(folder / "data"), "--listen-client-urls", client, "--advertise-client-urls", client,
        "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        "--unsafe-no-fsync",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log, subprocess.Popen(arguments, stdout=log, stderr=log) as server:
        try:
            end = time.monotonic() + 20
            while True:
                try:
                    urllib.request.urlopen(f"{client}/health", timeout=1).close()
                    break
                except (urllib.error.URLError, OSError):
                    assert time.monotonic() < end, (folder / "log").read_text()[-2000:]
                    time.sleep(0.05)
            yield client
        finally:
            server.terminate()
