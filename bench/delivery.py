"""How fast decisions leave: commit to webhook received, 1,000 incidents at once, 750 nodes' quarantine; kill -9 again and again.

A leader writes into a real SQLite ledger; the deliverer is a process of its own; the receiver answers at once. `--kills 1000` also
runs the kill test at full length. `--json` prints one object.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "alerts"))

from alerts_doubles import SECRET, Leader, Receiver, row, until
from killing import CONFIG, kill_again_and_again, moody
from kube_fake import TOKEN, Kube

from detectors.witness.ledger import make_ledger
from outrider.config.ledger import LedgerSection


class Clocked(Receiver):
    """Notes when each message came (CLOCK_MONOTONIC, one machine)."""

    def __init__(self, *answers: object) -> None:
        super().__init__(*answers)
        self.came: dict[str, float] = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.came.setdefault(request.headers["webhook-id"], time.monotonic())
        return await super().handle(request)


KUBERNETES = """
[ledger]
path = "{ledger}"

[[alerts.kubernetes]]
name = "kube"
url = "{url}"
token_file = "{token}"
"""


class Bench:
    """Ledger, leader, receiver and deliverer in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.section = LedgerSection(path=str(folder / "ledger.db"), lease_seconds=3.0)
        self.secret = folder / "webhook.key"
        self.secret.write_text(SECRET)
        self.receiver = Clocked()
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, deliverer: bool = True) -> None:
        application = web.Application()
        application.router.add_route("*", "/{tail:.*}", self.receiver.handle)
        self.runner = web.AppRunner(application)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.receiver.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}/hook"
        self.ledger = make_ledger(self.section)
        await self.ledger.open()
        self.leader = Leader(self.ledger)
        if deliverer:
            config = self.folder / "site.toml"
            text = CONFIG.format(ledger=self.section.path, url=self.receiver.url, secret=self.secret)
            config.write_text(
                text.replace("lease_seconds = 0.5", "lease_seconds = 3.0").replace("poll_seconds = 0.01", "poll_seconds = 0.05")
            )
            await self.deliver(config)

    async def deliver(self, config: Path) -> None:
        """Starts the deliverer, and waits until it has the lease."""
        command = [sys.executable, "-m", "outrider.cli.shell", "deliver", "--config", str(config)]
        self.process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        async def leads() -> bool:
            return await self.ledger.holder("deliverer") is not None

        await until(leads, 30)

    async def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            await self.process.wait()
        await self.ledger.close()
        await self.runner.cleanup()

    def memory_mib(self) -> float:
        """The deliverer's largest resident size so far."""
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

    async def latency(self, count: int, gap_seconds: float) -> dict[str, float]:
        """One incident after the other."""
        asked = {}
        for number in range(count):
            name = f"l{number}"
            asked[f"{name}.t1"] = time.monotonic()
            await self.leader.put(row(name, "incident.confirmed", incident=name))
            await asyncio.sleep(gap_seconds)
        await until(lambda: asked.keys() <= self.receiver.came.keys(), 30)
        spent = sorted(self.receiver.came[name] - moment for name, moment in asked.items())
        return {"p50_s": statistics.median(spent), "p99_s": spent[int(0.99 * len(spent))], "max_s": spent[-1]}

    async def at_once(self, prefix: str, kind: str, count: int) -> dict[str, float]:
        """All in one commit."""
        rows = [row(f"{prefix}{number}", kind, incident=f"{prefix}{number}", node=f"n{number}") for number in range(count)]
        began = time.monotonic()
        await self.leader.put(*rows)
        names = {f"{one.id}.t1" for one in rows}
        await until(lambda: names <= self.receiver.effects.keys(), 120)
        spent = sorted(self.receiver.came[name] - began for name in names)
        return {
            "rows": count,
            "first_s": spent[0],
            "p50_s": statistics.median(spent),
            "all_s": spent[-1],
            "memory_mib": self.memory_mib(),
        }


async def kubernetes(nodes: int) -> dict[str, float]:
    """As many nodes cordoned, tainted and marked: three requests each, against the fake API server in this process."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        await bench.start(deliverer=False)
        kube = Kube("JobSet", [f"n{number}" for number in range(nodes)], ["n0"])
        server = TestServer(kube.application())
        await server.start_server()
        token = Path(folder) / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        config = Path(folder) / "site.toml"
        config.write_text(KUBERNETES.format(ledger=bench.section.path, url=server.make_url(""), token=token))
        await bench.deliver(config)
        try:
            rows = [
                row(f"q{number}", "node.quarantine.requested", incident=f"q{number}", node=f"n{number}", fault="node.lost")
                for number in range(nodes)
            ]
            began = time.monotonic()
            await bench.leader.put(*rows)
            await until(lambda: not any(kube.takes_work(name) for name in kube.nodes), 120)
            return {"nodes": nodes, "all_s": time.monotonic() - began, "requests": len(kube.requests)}
        finally:
            await bench.stop()
            await server.close()


async def measure(kills: int) -> dict[str, Any]:
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        await bench.start()
        try:
            told["memory_idle_mib"] = bench.memory_mib()
            told["confirmed_to_received"] = await bench.latency(300, 0.02)
            told["thousand_incidents_at_once"] = await bench.at_once("i", "incident.confirmed", 1000)
            told["quarantine_750_nodes"] = await bench.at_once("q", "node.quarantine.requested", 750)
        finally:
            await bench.stop()
    told["kubernetes_750_nodes"] = await kubernetes(750)
    if kills:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder))
            await bench.start(deliverer=False)
            chance = random.Random(11)
            bench.receiver.answers = [await moody(chance)]
            try:
                outcome = await kill_again_and_again(
                    bench.leader, bench.receiver, Path(bench.section.path), str(bench.secret), kills, chance
                )
            finally:
                await bench.stop()
            told["kills"] = {
                "kills": outcome.kills, "actions": len(outcome.put), "lost": len(outcome.lost), "repeats": outcome.repeats,
                "effects": len(bench.receiver.effects), "out_of_order": len(outcome.out_of_order),
            }  # fmt: skip
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    told = asyncio.run(measure(options.kills))
    if options.json:
        print(json.dumps(told))
        return
    for name, figures in told.items():
        shown = figures if isinstance(figures, dict) else {"": figures}
        print(f"{name:28}", "  ".join(f"{key} {value:.4g}" for key, value in shown.items()))


if __name__ == "__main__":
    main()
