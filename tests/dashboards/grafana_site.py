"""A small site as Prometheus sees it: pages that the real code renders, and a real Prometheus with the shipped configuration."""

import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alerts.metrics import DelivererMetrics
from alerts.rules.prometheus import rules
from alerts.rules.recording import SLOW_INTERVAL
from alerts.rules.yaml import dump
from collectors.agent.job_numbers import JobNumbers
from collectors.agent.metrics import Family, MetricsPage, family
from collectors.targets import targets
from detectors.core.types import Action, IncidentChange
from detectors.witness.metrics import Metrics
from detectors.witness.numbers import Tally, open_incidents, state_of_the_fleet
from outrider.agent_metrics import AGENT_METRICS
from outrider.config.alerts import AlertsConfig
from outrider.fleet import Fleet, Node
from outrider.signals import Signal

NODES = ("n1", "n2")
#: Values of labels that the tables of dashboards select by; others are one word.
WORDS: dict[str, tuple[str, ...]] = {
    "gpu": ("0", "1"), "xid": ("79",), "kind": ("corrected", "uncorrected", "pending", "failed", "corrected_blocks"),
    "counter": ("symbol_error", "local_ack_timeout_err", "port_xmit_wait", "fec_corrected_blocks", "fec_uncorrectable_blocks"),
    "reason": ("hw_thermal",), "collector": ("kmsg", "nvml"), "witness": ("w1", "w2"), "event": ("hung_task",),
    "state": ("running", "disk"), "flag": ("temperature_high_alarm",),
}  # fmt: skip
#: What is wrong on the site, so that every table has something to show.
WRONG = {
    "outrider_gpus": 1.0, "outrider_gpus_expected": 2.0, "outrider_port_up": 0.0, "outrider_storage_probe_ok": 0.0,
    "outrider_agent_witness_up": 0.0, "outrider_collector_success": 0.0, "outrider_gpu_pcie_width_max": 1e9,
    "outrider_module_flag": 1.0, "outrider_module_supported": 0.0,
}  # fmt: skip
#: Every page was read a few times, and the rules that read rules have run.
READ_A_FEW_TIMES = "site:outrider_gpu_power_watts:sum and on() count_over_time(job:outrider_job_step:min[1m]) >= 5"
FLEET = Fleet(
    nodes=tuple(
        Node(node=name, rack="r1", nics={"mlx5_0": "leaf1"}, address=f"127.0.0.{place + 2}") for place, name in enumerate(NODES)
    )
)


def agent_page(node: str, now: Callable[[], float]) -> MetricsPage:
    """An agent's page: every metric of the agent's table, and a job whose ranks live."""
    page = MetricsPage(0.0)
    jobs = JobNumbers(node, now)
    step = 0

    def tell(kind: str, value: Any, **data: Any) -> None:
        jobs.observe(Signal(t=now(), kind=kind, value=value, job="j1", rank=0, source="t", data={"attempt": 1, **data}))

    def families() -> Iterator[Family]:
        nonlocal step
        step += 1
        tell("phase", "train" if step % 2 else "checkpoint")
        figures = {
            "step_s": 2.0,
            "data_s": 0.1,
            "compute_s": 1.0,
            "wait_s": 0.2,
            "loss": 3.0,
            "grad_norm": 1.0,
            "lr": 0.1,
            "tokens": 8.0,
        }
        tell("step", step, **figures)
        for state in ("begin", "staged", "committed", "failed", "restored"):
            tell("snapshot", step, state=state, cause="emergency", seconds=0.1, verify_s=0.2, load_s=0.3)
        tell("process_exit", 1) if step % 3 == 0 else None
        for name, kind, labels, _ in AGENT_METRICS:
            if not name.startswith("outrider_job_"):
                yield family(name, _samples(name, labels, node, float(step) if kind == "counter" else WRONG.get(name, 0.5)))
        for name in ("outrider_collector_success", "outrider_collector_age_seconds"):
            yield family(name, _samples(name, ("node", "collector"), node, WRONG.get(name, 3.0)))
        yield family("outrider_build_info", [({"version": "1", "component": "agent"}, 1.0)])

    page.sources += [families, jobs.families]
    return page


def _samples(name: str, labels: tuple[str, ...], node: str, value: float) -> list[tuple[dict[str, str], float]]:
    made: list[dict[str, str]] = [{}]
    for label in labels:
        words = (node,) if label == "node" else WORDS.get(label, ("x",))
        made = [{**one, label: word} for one in made for word in words]
    return [(one, value) for one in made]


def witness_page() -> Metrics:
    """The leader's page: two open incidents, what was decided, and a brake."""
    tally, beats = Tally(), 0
    picture = {"state": "confirmed", "culprit": "node", "response": "restart"}
    pictures = {
        "a": {**picture, "fault": "link.errors", "subject": {"node": "n1", "nic": "mlx5_0"}},
        "b": {**picture, "fault": "job.hang", "subject": {"job": "j1"}},
        "c": {**picture, "fault": "node.lost", "subject": {"node": "n2"}, "detection": {"total": 2.0}, "recovery": {"total": 9.0}},
    }
    memory = {"recovery": {"guard": {"paused": True}}}

    def read() -> Iterator[tuple[str, tuple[str, ...], float]]:
        nonlocal beats
        beats += 1
        for event in ("suspected", "confirmed", "refuted", "resolved"):
            tally.decided(_change(event), pictures)
        tally.said("false_alarm", "node.lost")
        for why in (None, "limit: too many"):
            tally.decided(_action(why), pictures)
        yield "outrider_witness_leader", (), 1.0
        yield "outrider_witness_lag_seconds", (), 0.01
        yield "outrider_signals_total", ("step",), float(beats)
        yield "outrider_tls_not_after_timestamp_seconds", ("witness",), 4e9
        yield "outrider_heartbeats_total", ("good",), float(beats)
        yield "outrider_votes_total", ("faulty",), float(beats)
        yield from tally.readings()
        yield from open_incidents(pictures, FLEET)
        yield from state_of_the_fleet(FLEET, pictures, memory, 1.0)

    return Metrics(read, tally.histograms)


def _change(event: Any) -> IncidentChange:
    return IncidentChange(
        t=1.0, incident="c", event=event, fault="node.lost", culprit="node", subject={"node": "n2"}, response="restart",
        repair="investigate", layers=(), votes={}, evidence=(), explanation="",
    )  # fmt: skip


def _action(refused: str | None) -> Action:
    return Action(t=1.0, decision_id="d", incident="c", action="drain", target={}, fence=1, deadline_seconds=1.0, refused=refused)


def deliverer_page() -> bytes:
    """The deliverer's counters (its outbox is asked in its own tests)."""
    from prometheus_client import generate_latest

    metrics = DelivererMetrics()
    metrics.attempt("slurm", "accepted", 0.2)
    metrics.breaker("slurm", False)
    metrics._rows.labels("dead").set(0)
    return generate_latest(metrics.registry)


def with_numbers(series: list[Any]) -> list[Any]:
    """Those that have a number anywhere: NaN (0 / 0, a quantile of nothing) draws nothing."""
    return [one for one in series if any(value != "NaN" for _, value in one.get("values") or [one["value"]])]


class Site:
    """A Prometheus that scrapes the pages."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, expr: str) -> list[Any]:
        """The series of an instant query."""
        return self._get("/api/v1/query", query=expr)["data"]["result"]

    def ask_range(self, expr: str, seconds: int) -> list[Any]:
        """The series of a range query over the last `seconds`."""
        now = time.time()
        told = self._get("/api/v1/query_range", query=expr, start=str(now - seconds), end=str(now), step="1")
        return told["data"]["result"]

    def label_values(self, selector: str, label: str) -> list[str]:
        """What a variable offers."""
        return self._get(f"/api/v1/label/{label}/values", **{"match[]": selector})["data"]

    def _get(self, path: str, **query: str) -> Any:
        url = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 503:  # it still starts
                    raise ConnectionError(str(error)) from None
                raise AssertionError(f"{query}: {error.read().decode()}") from None


def _serve(address: str, port: int, page: Callable[[], bytes]) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = page()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer((address, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def running(folder: Path, shipped: Path) -> Iterator[Site]:
    """Starts pages and Prometheus; `shipped` is the configuration that is deployed, at a pace of one second."""
    agents, witness, deliverer = (free_port() for _ in range(3))
    servers = [_serve(node.address or "", agents, agent_page(node.node, time.monotonic).render) for node in FLEET.nodes]
    page = witness_page()
    servers.append(_serve("127.0.0.1", witness, lambda: page.page()[0]))
    servers.append(_serve("127.0.0.1", deliverer, deliverer_page))
    try:
        configure(folder, shipped, targets_of(_site_file(folder, agents, witness, deliverer)), "x")
        with prometheus(folder, READ_A_FEW_TIMES) as site:
            yield site
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


@contextmanager
def prometheus(folder: Path, condition: str = "up == 1") -> Iterator[Site]:
    """A real Prometheus with what `configure` wrote into `folder`, as soon as the condition has data."""
    port = free_port()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}"],
            cwd=folder, stdout=log, stderr=log,
        )  # fmt: skip
        site = Site(f"http://127.0.0.1:{port}")
        try:
            _wait(site, condition, process, folder / "log")
            yield site
        finally:
            process.terminate()
            process.wait(20)


def _site_file(folder: Path, agents: int, witness: int, deliverer: int) -> Path:
    nodes = "\n".join(
        f'[[fleet.nodes]]\nnode = "{node.node}"\naddress = "{node.address}"\nrack = "r1"\nnics = {{ mlx5_0 = "leaf1" }}'
        for node in FLEET.nodes
    )
    path = folder / "site.toml"
    path.write_text(
        f'[site]\nname = "s1"\n[agent]\nmetrics_address = "node"\nmetrics_port = {agents}\n[[witness.members]]\nname = "w1"\n'
        f'address = "127.0.0.1"\nhttp_port = {witness}\nheartbeat_port = 9\n[alerts]\nmetrics_port = {deliverer}\n{nodes}\n'
    )
    return path


def targets_of(config: Path) -> Path:
    """The folder that `outrider targets` fills from a site's configuration."""
    from click.testing import CliRunner

    folder = config.parent / "targets"
    done = CliRunner().invoke(targets, ["--config", str(config), str(folder)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return folder


def configure(folder: Path, shipped: Path, found: Path, token: str) -> None:
    """Prometheus' files: the shipped configuration and rules, at a pace of one second."""
    text = shipped.read_text()
    for pace in ("scrape_interval: 10s", "scrape_timeout: 5s", "evaluation_interval: 10s"):
        assert pace in text
        text = text.replace(pace, f"{pace.partition(':')[0]}: 1s")
    (folder / "prometheus.yml").write_text(text.replace("targets/", f"{found}/"))
    (folder / "viewer.token").write_text(token)
    (folder / "rules").mkdir()
    (folder / "rules" / "outrider.rules.yml").write_text(
        dump(rules("s1", AlertsConfig()), "test").replace(f'interval: "{SLOW_INTERVAL}"', 'interval: "1s"')
    )


def _wait(site: Site, condition: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            if site.ask(condition):
                return
        except OSError:
            pass
        time.sleep(0.3)
    raise AssertionError(f"Prometheus has no data: {log.read_text()[-2000:]}")


def missing_tools() -> list[str]:
    return [name for name in ("prometheus", "promtool") if shutil.which(name) is None]
