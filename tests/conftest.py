"""What several rooms' tests share: a real etcd; and that a busy machine makes no random test fail."""

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How fast examples are made and run says something of the machine, nothing of the code.
settings.register_profile("outrider", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("outrider")


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
