"""From a decisive signal to everybody's knowledge: three real witnesses, the ledger and the deliverer of `outrider up`.

A rank of a job is reported dead to all three; measured on one monotonic clock: until the leader confirmed, until the webhook that
tells people was received. `--etcd URL` measures on an etcd ledger. Prints median and worst of `--runs` jobs.
"""

import argparse
import base64
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from detectors.witness.client import Client
from drills.cluster.settings import free_members, make_secrets, watch_settings
from outrider.config.security import SecuritySection
from outrider.config.site import read_config
from outrider.errors import OutriderError
from outrider.signals import Signal, encode_batch
from outrider.wire import SENT_HEADER, signal_id

received: dict[str, float] = {}


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["type"] == "incident.confirmed":
            received[body["data"]["subject"]["job"]] = time.monotonic()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def site(folder: Path, hook: int, etcd: str | None) -> Path:
    ledger = f'backend = "etcd"\nendpoints = ["{etcd}"]\nprefix = "/bench-{secrets.token_hex(4)}/"' if etcd else ""
    make_secrets(folder)
    (folder / "webhook").write_text("whsec_" + base64.b64encode(secrets.token_bytes(32)).decode())
    (folder / "webhook").chmod(0o600)
    path = folder / "site.toml"
    path.write_text(f"""
[site]
mode = "act"
[policy]
cluster_actions_per_hour = 0
{"".join(f'[[fleet.nodes]]{chr(10)}node = "n{n}"{chr(10)}' for n in range(100))}
{watch_settings(folder, free_members(3), ledger)}
[[alerts.targets]]
name = "hook"
url = "http://127.0.0.1:{hook}/"
secret_files = ["{folder}/webhook"]
""")
    return path


def send(client: Client, token: str, *signals: Signal) -> None:
    for member in client._members:
        headers = {"Authorization": f"Bearer {token}", SENT_HEADER: str(time.monotonic())}
        request = urllib.request.Request(f"{member.url}/v1/signals", data=encode_batch(list(signals)), headers=headers)
        urllib.request.urlopen(request, timeout=5).close()


def wait(what: Any, seconds: float = 30.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if answer := what():
                return answer
        except OutriderError:
            pass
        time.sleep(0.05)
    raise SystemExit("witness_confirm: it did not come; is the machine very busy?")


def measure(config_path: Path, runs: int) -> None:
    config = read_config(config_path)
    client, token, number = Client(config), config.get(SecuritySection).agent_tokens()[0], 0
    wait(lambda: client.get("/v1/status")["leader"])
    wait(lambda: all(seen["up"] for seen in client.get("/v1/status")["witnesses"].values()))
    sent = {}
    for run in range(runs):
        job = f"job-{run}"
        for kind, value, data in (("job", 1, {"slots": [[f"n{run}", 0], [f"n{run}", 1]]}), ("process_exit", -9, {"attempt": 1})):
            number += 1
            rank = 1 if kind == "process_exit" else None
            now = time.monotonic()
            sent[job] = now
            send(
                client,
                token,
                Signal(
                    t=now, kind=kind, job=job, node=f"n{run}", rank=rank, value=value, data=data, id=signal_id("n1", "b", 1, number)
                ),
            )
        wait(lambda job=job: job in received)
    confirmed = [one["times"]["confirmed"] - sent[one["subject"]["job"]] for one in client.get("/v1/incidents", limit=10_000)]
    delivered = [at - sent[job] for job, at in received.items()]
    for name, values in (("confirmed", confirmed), ("webhook received", delivered)):
        print(f"{name}: median {statistics.median(values) * 1000:.0f} ms, worst {max(values) * 1000:.0f} ms of {len(values)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, choices=range(1, 101), metavar="1..100")
    parser.add_argument("--etcd")
    chosen = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        path = site(Path(folder), server.server_port, chosen.etcd)
        up = subprocess.Popen(
            [sys.executable, "-m", "outrider.cli.shell", "up", "--config", str(path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            measure(path, chosen.runs)
        finally:
            up.terminate()
            up.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
