"""From a link that falls to a witness that knows: a real virtual interface, a real agent, a real witness.

One end of a veth pair goes down and up; measured on one monotonic clock from the command (`ip link set`) until the witness's own
counter of `link` signals has moved (asked for each 5 ms, so a figure may be up to that much too high). Needs the right to make
network interfaces. `--times` falls and rises each (50).
"""

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drills.cluster.settings import free_members, make_secrets, watch_settings

NEAR, FAR = "odl0", "odl1"
LIMIT_SECONDS = 10.0


@contextlib.contextmanager
def veth() -> Iterator[bool]:
    """A pair of virtual interfaces, both up; False: this user may not make any."""
    command = ["ip", "link", "add", NEAR, "type", "veth", "peer", "name", FAR]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        yield False
        return
    try:
        for name in (NEAR, FAR):
            subprocess.run(["ip", "link", "set", name, "up"], check=True)
        yield True
    finally:
        subprocess.run(["ip", "link", "del", NEAR], check=False)


def write_site(folder: Path) -> tuple[Path, int]:
    """The configuration of one node and one witness; its HTTP port."""
    held = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()]
    for one in held:
        one.bind(("127.0.0.1", 0))
    udp, page = (one.getsockname()[1] for one in held)
    for one in held:
        one.close()
    members = free_members(1)
    make_secrets(folder)
    path = folder / "outrider.toml"
    path.write_text(
        f'[[fleet.nodes]]\nnode = "n1"\naddress = "127.0.0.1"\nnics = {{{NEAR} = "leaf1"}}\n'
        f'[agent]\nrun_dir = "{folder}/run"\nudp_port = {udp}\nmetrics_port = {page}\n'
        "collect = false\ncollectors = {ports = true}\n"
        f'[collectors]\ninterfaces = ["{NEAR}"]\n'
        f"{watch_settings(folder, members)}"
    )
    return path, members[0].http_port


class Witness:
    """The witness's page of metrics."""

    def __init__(self, port: int, token: str) -> None:
        self._request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"})

    def links(self) -> int:
        """`link` signals that it took in; 0 while it does not answer."""
        try:
            with urllib.request.urlopen(self._request, timeout=2) as answer:
                text = answer.read().decode()
        except (urllib.error.URLError, OSError):
            return 0
        rows = [line for line in text.splitlines() if line.startswith("outrider_signals_total") and 'kind="link"' in line]
        return int(float(rows[0].rsplit(" ", 1)[1])) if rows else 0

    def wait(self, count: int, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.links() < count:
            if time.monotonic() > until:
                return False
            time.sleep(0.005)
        return True


def measure(times: int) -> dict[str, Any]:
    """Milliseconds, falls and rises together; `lost`: what the witness had not heard after 10 s."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name, veth() as made, contextlib.ExitStack() as stack:
        if not made:
            return {"skipped": "no right to make network interfaces"}
        folder = Path(name)
        config, port = write_site(folder)
        base = [sys.executable, "-m", "outrider.cli.shell"]
        for command in (["witness", "--name", "w1"], ["agent", "--node", "n1"]):
            with open(folder / f"{command[0]}.log", "wb") as log:
                process = subprocess.Popen([*base, *command, "--config", str(config)], stdout=log, stderr=log, cwd=folder)
            stack.callback(process.wait, 10)
            stack.callback(process.terminate)
        witness = Witness(port, (folder / "secrets" / "viewer").read_text().strip())
        if not witness.wait(1, 30.0):
            raise SystemExit(f"agent_link: no first link signal; {(folder / 'agent.log').read_text()[-500:]}")
        found, lost = [], 0
        for number in range(2 * times):
            time.sleep(0.2)
            count, began = witness.links() + 1, time.monotonic()
            subprocess.run(["ip", "link", "set", FAR, "down" if number % 2 == 0 else "up"], check=True)
            if witness.wait(count, LIMIT_SECONDS):
                found.append(1000 * (time.monotonic() - began))
            else:
                lost += 1
    found.sort()
    worst = found[min(len(found) - 1, int(0.99 * len(found)))]
    return {"n": len(found), "lost": lost, "p50_ms": round(statistics.median(found), 1), "p99_ms": round(worst, 1),
            "max_ms": round(found[-1], 1)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = measure(options.times)
    print(json.dumps(result) if options.json else result)


if __name__ == "__main__":
    main()
