"""Commits of the etcd ledger on a cluster of three, and what the death of etcd's own leader costs.

Starts three etcd on loopback, commits one after another for 12 s, kills the member that leads (and that this client talks to) after
4 s, and prints the commits, the median, the longest gap, and whether two replicas agree. Without etcd it says so and ends.
"""

import asyncio
import json
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from detectors.witness.ledger import Commit, LedgerError
from detectors.witness.ledger_etcd import EtcdLedger
from outrider.config.ledger import LedgerSection

SECONDS, KILL_AFTER = 12.0, 4.0


def start(folder: Path) -> dict[str, "subprocess.Popen[bytes]"]:
    """Three members: client address -> process."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(6)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    clients, peers = ([f"http://127.0.0.1:{port}" for port in some] for some in (ports[:3], ports[3:]))
    cluster = ",".join(f"m{index}={peer}" for index, peer in enumerate(peers))
    made = {}
    for index, (client, peer) in enumerate(zip(clients, peers, strict=True)):
        arguments = {
            "name": f"m{index}",
            "data-dir": str(folder / f"m{index}"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": cluster,
            "heartbeat-interval": "50",
            "election-timeout": "500",
        }
        command = ["etcd", "--unsafe-no-fsync", *(f"--{key}={value}" for key, value in arguments.items())]
        made[client] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return made


def leads(client: str) -> bool:
    request = urllib.request.Request(f"{client}/v3/maintenance/status", data=b"{}")
    with urllib.request.urlopen(request, timeout=2) as answer:
        told: dict[str, Any] = json.loads(answer.read())
    return bool(told.get("leader")) and told["header"]["member_id"] == told["leader"]


def leader_of(clients: list[str]) -> str:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for client in clients:
            try:
                if leads(client):
                    return client
            except OSError:
                continue
        time.sleep(0.2)
    raise SystemExit("witness_etcd: the cluster did not come up; is the machine very busy?")


async def measure(members: dict[str, "subprocess.Popen[bytes]"], leader: str) -> None:
    endpoints = (leader, *(client for client in members if client != leader))
    section = LedgerSection(backend="etcd", endpoints=endpoints, prefix="/bench/")
    ledger, other = EtcdLedger(section), EtcdLedger(section)
    await ledger.open()
    await other.open()
    took, longest, refused, fence = [], 0.0, 0, 0
    began = last = time.monotonic()
    while (now := time.monotonic()) < began + SECONDS:
        if now > began + KILL_AFTER and members[leader].poll() is None:
            members[leader].send_signal(signal.SIGKILL)
            members[leader].wait()
        try:
            lease = await ledger.acquire("leader", "w1")
            assert lease is not None
            await ledger.commit(Commit(term=lease.term, fence_before=fence, fence=fence + 1), "w1")
        except LedgerError:
            refused += 1
            fence = (await ledger.leader_state()).fence
            continue
        fence += 1
        took.append(time.monotonic() - now)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    await other._follower.reach(ledger._follower.replica.revision)
    agree = (await ledger.leader_state()).fence == (await other.leader_state()).fence == fence
    print(
        f"{len(took)} commits, median {statistics.median(took) * 1000:.1f} ms, longest gap {longest:.2f} s (etcd's leader killed),"
        f" {refused} refused, replicas {'agree' if agree else 'DISAGREE'}"
    )
    await ledger.close()
    await other.close()
    if not agree:
        raise SystemExit(1)


def main() -> int:
    if shutil.which("etcd") is None:
        print("witness_etcd: no etcd here; nothing measured")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        members = start(Path(folder))
        try:
            asyncio.run(measure(members, leader_of(list(members))))
        finally:
            for process in members.values():
                process.kill()
                process.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
