"""What each dashboard costs Prometheus at 500,000 series: every query of every panel, timed over HTTP.

A real Prometheus scrapes a page for each of NODES nodes from one process and runs the shipped recording rules; then each query is
asked five times and the best counts. Range queries have 360 points (three hours at 30 s) squeezed into the minutes there are, so
they read as many samples as over three hours. Arguments: nodes (default 1,500), seconds to scrape before asking (default 150).
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from multiprocessing import Process
from pathlib import Path

from alerts.rules.prometheus import rules
from alerts.rules.recording import RECORDING, SLOW_INTERVAL, SLOW_RECORDING
from alerts.rules.yaml import dump
from collectors.agent.metrics import MetricsPage, family
from dashboards.grafana.shipped import dashboards
from outrider.agent_metrics import AGENT_METRICS
from outrider.config.alerts import AlertsConfig

PAGES, PROMETHEUS = 29470, 29471
POINTS = 360
#: Words of each label on one node: 8 GPUs, 8 ports of 8 lanes with a few counters, 13 collectors.
WORDS = {
    "gpu": 8, "nic": 8, "counter": 6, "collector": 13, "witness": 3, "reason": 2, "kind": 2, "where": 2, "xid": 2, "mount": 3,
    "state": 3, "phase": 3, "part": 4, "resource": 3, "event": 3, "cause": 2, "lane": 8,
}  # fmt: skip
#: A uuid goes with its GPU, a port with its device.
TOGETHER = {"uuid": "gpu", "port": "nic"}
FILLED = {
    "$cluster": ".*", "$node": "n0007", "$job": "j1", "$fault": ".*", "$switch": ".*", "$__rate_interval": "1m",
    "$__range_s": "120", "$__range": "2m", "$__interval_ms": "10000", "$__interval": "10s",
}  # fmt: skip


def page() -> bytes:
    """One node's page, the node called NODE."""
    made = MetricsPage(0.0)

    def families():
        for name, kind, labels, _ in AGENT_METRICS:
            samples = [{}]
            for label in labels:
                if label == "node":
                    samples = [{**one, "node": "NODE"} for one in samples]
                elif label in TOGETHER:
                    samples = [{**one, label: f"{label}-{one[TOGETHER[label]]}-NODE"[:16]} for one in samples]
                elif label == "job":
                    samples = [{**one, "job": "j1"} for one in samples]
                else:
                    samples = [{**one, label: f"{label}{number}"} for one in samples for number in range(WORDS.get(label, 1))]
            yield family(name, [(one, float(len(name) % 7 + (kind == "counter"))) for one in samples])
        for name in ("outrider_collector_success", "outrider_collector_age_seconds"):
            yield family(name, [({"node": "NODE", "collector": f"collector{number}"}, 1.0) for number in range(13)])

    made.sources.append(families)
    return made.render()


def serve() -> None:
    """Answers /nXXXX with that node's page; as little work as possible."""
    text = page()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):  # Prometheus ends
            while line := await reader.readline():
                while (await reader.readline()).strip():
                    pass
                body = text.replace(b"NODE", line.split()[1][1:])
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n" % len(body) + body
                )
                await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", PAGES)
        await server.serve_forever()

    asyncio.run(main())


def ask(path: str, **query: str) -> tuple[dict, float]:
    """The answer and the seconds it took."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{PROMETHEUS}{path}?{urllib.parse.urlencode(query)}", timeout=120) as told:
        body = told.read()
    return json.loads(body), time.perf_counter() - began


def timed(path: str, **query: str) -> float:
    """The best of five: what it costs, not how long it waits for a busy machine."""
    return min(ask(path, **query)[1] for _ in range(5))


def processor_seconds(process: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cost_of(process: int, rules: Sequence[tuple[str, str]]) -> float:
    """Processor seconds of one evaluation of all rules, less what scraping costs meanwhile."""
    before, began = processor_seconds(process), time.monotonic()
    time.sleep(10)
    idle = (processor_seconds(process) - before) / (time.monotonic() - began)
    before, began = processor_seconds(process), time.monotonic()
    for _ in range(3):
        for _, expr in rules:
            ask("/api/v1/query", query=expr)
    return max(0.0, processor_seconds(process) - before - idle * (time.monotonic() - began)) / 3


def configure(folder: Path, nodes: int) -> None:
    targets = [
        {"targets": [f"127.0.0.1:{PAGES}"], "labels": {"__metrics_path__": f"/n{n:04d}", "instance": f"n{n:04d}", "site": "s1",
                                                       "rack": f"r{n // 16}", "switch": f"leaf{n // 32}"}}
        for n in range(nodes)
    ]  # fmt: skip
    (folder / "t.json").write_text(json.dumps(targets))
    (folder / "rules.yml").write_text(
        dump(rules("s1", AlertsConfig()), "bench").replace(f'interval: "{SLOW_INTERVAL}"', 'interval: "30s"')
    )
    (folder / "p.yml").write_text(
        "global: {scrape_interval: 30s, scrape_timeout: 25s, evaluation_interval: 30s}\nrule_files: [rules.yml]\nscrape_configs:\n"
        "  - {job_name: outrider-agents, honor_labels: true, file_sd_configs: [{files: [t.json]}]}\n"
    )


def measure(name: str, board: dict) -> tuple[float, int, float, str]:
    """Seconds of the whole dashboard, its queries, the slowest query and what it is."""
    total, count, worst = 0.0, 0, (0.0, "")
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            expr = target["expr"]
            for variable, value in FILLED.items():
                expr = expr.replace(variable, value)
            now, path, more = time.time(), "/api/v1/query", {}
            if target.get("range"):
                path, more = "/api/v1/query_range", {"start": f"{now - 90}", "end": f"{now}", "step": f"{90 / POINTS}"}
            seconds = timed(path, query=expr, **more)
            total, count, worst = total + seconds, count + 1, max(worst, (seconds, f"{panel['title']}: {expr}"))
    return total, count, *worst


def report(nodes: int, process: int) -> None:
    series = ask("/api/v1/status/tsdb")[0]["data"]["headStats"]["numSeries"]
    print(f"{nodes} nodes, {series:,} series")
    for words, group in (("at each evaluation", RECORDING), (f"each {SLOW_INTERVAL}", SLOW_RECORDING)):
        cost = cost_of(process, group)
        print(f"{len(group)} recording rules {words}: {cost:.2f} processor seconds an evaluation")
    for name, board in dashboards().items():
        total, count, seconds, what = measure(name, board)
        print(f"{name:28} {count:3} queries {total:6.2f} s in all; slowest {seconds * 1e3:5.0f} ms: {what[:110]}")


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 1_500
    wait = float(sys.argv[2]) if len(sys.argv) > 2 else 150.0
    pages = Process(target=serve, daemon=True)
    pages.start()
    with tempfile.TemporaryDirectory() as place, (Path(place) / "log").open("w") as log:
        configure(Path(place), nodes)
        server = subprocess.Popen(
            ["prometheus", "--config.file=p.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{PROMETHEUS}"],
            cwd=place, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            time.sleep(wait)
            report(nodes, server.pid)
        finally:
            server.terminate()
            server.wait(60)
            pages.terminate()


if __name__ == "__main__":
    main()
