"""Incidents in a real Alertmanager: posted, updated, resolved; one notice for one cause; larger causes silence smaller ones."""

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from alerts_doubles import Leader, row, until

from alerts.alertmanager import AlertmanagerSender
from alerts.rules.alertmanager import configuration
from alerts.rules.prometheus import rules
from alerts.rules.yaml import dump
from alerts.story import alert_name, level_of
from detectors.witness.ledger import IncidentWrite
from outrider.catalogue import FAULTS
from outrider.config.alerts import AlertsConfig, Receiver
from outrider.config.targets import AlertmanagerTarget

pytestmark = pytest.mark.real


def picture(incident: str = "i1", fault: str = "node.lost", state: str = "confirmed", **more: Any) -> dict[str, Any]:
    return {
        "incident": incident, "state": state, "fault": fault, "culprit": "node", "subject": {"node": "n2"}, "response": "restart",
        "repair": "investigate", "votes": {"w1": "faulty", "w2": "faulty"}, "explanation": "silent for 35 s",
        "opened": "2026-01-01T00:00:00Z",
        "evidence": [{"t": 1.0, "kind": "probe", "subject": {}, "effect": "confirm", "text": "no answer; password=hunter2"}],
        "times": {}, "extra": {},
    } | more  # fmt: skip


async def write(leader: Leader, *pictures: dict[str, Any], line: dict[str, Any] | None = None) -> None:
    writes = tuple(
        IncidentWrite(incident=one["incident"], state=one["state"], picture=one, line=line or {"event": one["state"]})
        for one in pictures
    )
    await leader.commit(incidents=writes)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Pager:
    """What Alertmanager tells people."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.url = ""

    async def start(self) -> web.AppRunner:
        async def take(request: web.Request) -> web.Response:
            self.told.append(await request.json())
            return web.Response()

        application = web.Application(client_max_size=8 << 20)
        application.router.add_post("/page", take)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/page"
        return runner


class Cluster:
    """Two Alertmanagers that gossip, on free ports."""

    def __init__(self, folder: Path, pager: Pager) -> None:
        self.folder, self.pager = folder, pager
        self.urls: list[str] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    async def start(self) -> None:
        program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
        if program is None:
            pytest.skip("alertmanager is not installed")
        settings = AlertsConfig(receivers=(Receiver(name="sre", webhook_url=self.pager.url),))
        # People wait 5 s for a group; a test does not.
        made = configuration(settings)
        made["route"] |= {"group_wait": "1s", "group_interval": "1s"}
        (self.folder / "am.yml").write_text(dump(made, "test"))
        ports = [(free_port(), free_port()) for _ in range(2)]
        for number, (http, gossip) in enumerate(ports):
            command = [
                program, f"--config.file={self.folder / 'am.yml'}", f"--storage.path={self.folder / str(number)}",
                f"--web.listen-address=127.0.0.1:{http}", f"--cluster.listen-address=127.0.0.1:{gossip}",
                f"--cluster.peer=127.0.0.1:{ports[1 - number][1]}", "--cluster.peer-timeout=1s", "--cluster.settle-timeout=2s",
                "--cluster.gossip-interval=50ms",
            ]  # fmt: skip
            with (self.folder / f"{number}.log").open("wb") as log:
                self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))
            self.urls.append(f"http://127.0.0.1:{http}")
        async with aiohttp.ClientSession() as session:

            async def ready() -> bool:
                try:
                    for url in self.urls:
                        async with session.get(f"{url}/api/v2/status") as answer:
                            if len((await answer.json())["cluster"].get("peers", [])) < 2:
                                return False
                except (aiohttp.ClientError, OSError):
                    return False
                return True

            await until(ready, 20)

    async def alerts(self, member: int = 0) -> list[dict[str, Any]]:
        async with aiohttp.ClientSession() as session, session.get(f"{self.urls[member]}/api/v2/alerts") as answer:
            return await answer.json()

    async def post(self, alerts: list[dict[str, Any]]) -> None:
        async with aiohttp.ClientSession() as session:
            for url in self.urls:
                async with session.post(f"{url}/api/v2/alerts", json=alerts) as answer:
                    assert answer.status == 200, await answer.text()

    def stop(self) -> None:
        for process in self.processes:
            process.kill()  # leaving a cluster politely takes longer than a test has
        for process in self.processes:
            process.wait(10)


@pytest.fixture
async def pager() -> AsyncIterator[Pager]:
    made = Pager()
    runner = await made.start()
    yield made
    await runner.cleanup()


@pytest.fixture
async def cluster(tmp_path: Path, pager: Pager) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path, pager)
    try:
        await made.start()
        yield made
    finally:
        made.stop()


def sender(cluster: Cluster, leader: Leader, **settings: Any) -> AlertmanagerSender:
    target = AlertmanagerTarget(name="am", urls=tuple(cluster.urls), repeat_seconds=1.0, hold_seconds=60.0)
    config = AlertsConfig(owners={"llm*": "team-llm"}, console_url="https://console/#/incident/{incident}", **settings)
    return AlertmanagerSender(target, config, leader.ledger, "site", {"n2": "leaf1"})


async def test_incident_is_posted_updated_and_resolved_with_one_page_each(cluster, leader, pager) -> None:
    await write(leader, picture())
    am = sender(cluster, leader)
    await am.open()
    try:
        told = row("told", "incident.confirmed", incident="i1")
        assert (await am.send(told, time.time())).outcome == "accepted"
        await until(lambda: pager.told)
        (first,) = pager.told
        (alert,) = first["alerts"]
        assert (
            alert["labels"] | {"fault": "node.lost", "node": "n2", "incident": "i1", "severity": "critical", "switch": "leaf1"}
            == alert["labels"]
        )
        assert "hunter2" not in str(first)
        assert "w1 faulty, w2 faulty" in alert["annotations"]["description"]
        assert alert["annotations"]["incident_url"] == "https://console/#/incident/i1"
        # What was done since stands in the alert without another page.
        line = {
            "event": "action",
            "action": "restart",
            "decision_id": "d",
            "target": {"job": "llm", "replace": [{"slot": 1, "from": "n2", "to": "n9"}]},
        }
        await write(leader, picture(state="acting"), line=line)

        async def updated() -> bool:
            return "restarted llm (slot 1 from n2 to n9)" in (await cluster.alerts(1))[0]["annotations"]["description"]

        await until(updated)
        await write(leader, picture(state="resolved"))
        assert (await am.send(row("over", "incident.resolved", incident="i1"), time.time())).outcome == "accepted"
        await until(lambda: [one for one in pager.told if one["status"] == "resolved"])
    finally:
        await am.close()
    assert [one["status"] for one in pager.told] == ["firing", "resolved"]


async def test_late_row_of_an_incident_that_is_over_does_not_open_it_again(cluster, leader, pager) -> None:
    await write(leader, picture(state="resolved"))
    am = sender(cluster, leader)
    await am.open()
    try:
        await am.send(row("told", "incident.confirmed", incident="i1"), time.time())
    finally:
        await am.close()
    assert await cluster.alerts() == []


async def test_another_deliverer_goes_on_repeating_and_a_sharper_subject_ends_the_vaguer_alert(cluster, leader) -> None:
    await write(leader, picture())
    await leader.put(msgspec.structs.replace(row("told", "incident.confirmed", incident="i1"), target="am"))
    first, second = sender(cluster, leader), sender(cluster, leader)
    await first.open()
    await first.send(row("told", "incident.confirmed", incident="i1"), time.time())
    await first.close()
    await leader.ledger.mark_done("told")
    await second.open()
    try:
        line = {"event": "action", "action": "quarantine", "decision_id": "d", "target": {"node": "n2"}}
        await write(leader, picture(state="acting"), line=line)

        async def repeated() -> bool:
            return "took n2 out of service" in (await cluster.alerts())[0]["annotations"]["description"]

        await until(repeated)
        await write(leader, picture(state="acting", subject={"node": "n2", "gpu": 3}))

        async def sharper() -> bool:
            return [one["labels"].get("gpu") for one in await cluster.alerts()] == ["3"]

        await until(sharper)
    finally:
        await second.close()


async def test_one_member_down_is_no_failure_and_all_down_is_tried_again(cluster, leader) -> None:
    await write(leader, picture())
    cluster.processes[0].kill()
    cluster.processes[0].wait(10)
    am = sender(cluster, leader)
    await am.open()
    try:
        attempt = await am.send(row("told", "incident.confirmed", incident="i1"), time.time())
        assert attempt.outcome == "accepted"
        assert len(await cluster.alerts(1)) == 1
        cluster.processes[1].kill()
        cluster.processes[1].wait(10)
        assert (await am.send(row("told", "incident.confirmed", incident="i1"), time.time())).outcome == "retry"
    finally:
        await am.close()


def rule_alert(fault: str, **labels: str) -> dict[str, Any]:
    entry = FAULTS[fault]
    known = {
        "alertname": alert_name(fault),
        "severity": entry.severity,
        "fault": fault,
        "level": level_of(fault),
        "cluster": "site",
        "source": "rules",
    }
    return {"labels": known | labels, "annotations": {}}


async def test_five_hundred_alerts_of_one_cause_are_one_notification(cluster, leader, pager) -> None:
    """One switch falls: its incident is posted; 500 nodes, GPUs and jobs below it fire by the rules."""
    await write(leader, picture("i7", "switch.down", culprit="switch", subject={"switch": "leaf1"}))
    am = sender(cluster, leader)
    await am.open()
    try:
        await am.send(row("told", "incident.confirmed", incident="i7"), time.time())
        below = [rule_alert("node.lost", node=f"n{number}", switch="leaf1") for number in range(250)]
        below += [rule_alert("nic.down", node=f"n{number}", nic="mlx5_0", switch="leaf1") for number in range(250)]
        await cluster.post(below)
        await until(lambda: pager.told, 15)
        await asyncio.sleep(3.0)  # three times the group's wait, and the second member's turn
    finally:
        await am.close()
    assert len(pager.told) == 1
    assert [one["labels"]["fault"] for one in pager.told[0]["alerts"]] == ["switch.down"]
    held = [one for one in await cluster.alerts() if one["status"]["inhibitedBy"]]
    assert len(held) == 500


async def test_a_node_holds_back_its_gpus_and_no_other_nodes(cluster, pager) -> None:
    await cluster.post(
        [
            rule_alert("node.lost", node="n1"),
            rule_alert("gpu.fallen_off_bus", node="n1", gpu="3"),
            rule_alert("gpu.fallen_off_bus", node="n2", gpu="0"),
        ]
    )

    async def seen() -> bool:
        return sum(len(one["alerts"]) for one in pager.told) >= 2

    await until(seen, 15)
    told = {(alert["labels"]["fault"], alert["labels"]["node"]) for one in pager.told for alert in one["alerts"]}
    assert told == {("node.lost", "n1"), ("gpu.fallen_off_bus", "n2")}


async def test_the_rule_about_what_was_posted_directly_pages_nobody_again(cluster, leader, pager) -> None:
    await write(leader, picture())
    am = sender(cluster, leader)
    await am.open()
    try:
        await am.send(row("told", "incident.confirmed", incident="i1"), time.time())
        await cluster.post([rule_alert("node.lost", node="n2")])
        await until(lambda: pager.told, 15)
        await asyncio.sleep(2.5)  # more than twice the group's wait
    finally:
        await am.close()
    assert len(pager.told) == 1


async def test_prometheus_fires_by_the_rules_and_the_page_comes_when_the_deliverer_is_dead(cluster, pager, tmp_path) -> None:
    """The second way: an exporter's page, the generated rules, a real Prometheus; nobody posts anything directly."""
    program = shutil.which("prometheus") or pytest.skip("prometheus is not installed")
    open_ = {"n2"}

    async def metrics(_: web.Request) -> web.Response:
        lines = [f'outrider_incident_open{{fault="node.lost",culprit="node",response="restart",node="{node}"}} 1' for node in open_]
        return web.Response(text='outrider_build_info{component="witness"} 1\n' + "".join(f"{line}\n" for line in lines))

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    exporter = web.AppRunner(application)
    await exporter.setup()
    await web.TCPSite(exporter, "127.0.0.1", 0).start()
    made = rules("site", AlertsConfig())
    for group in made["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = "1s"  # a minute for people; a test has none
    (tmp_path / "outrider.rules.yml").write_text(dump(made, "test"))
    target = [{"targets": [f"127.0.0.1:{exporter.addresses[0][1]}"]}]
    members = [{"targets": [url.removeprefix("http://") for url in cluster.urls]}]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(tmp_path / "outrider.rules.yml")],
        "scrape_configs": [{"job_name": "outrider", "static_configs": target}],
        "alerting": {"alertmanagers": [{"static_configs": members}]},
    }  # fmt: skip
    (tmp_path / "p.yml").write_text(dump(config, "test"))
    command = [
        program,
        f"--config.file={tmp_path / 'p.yml'}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{free_port()}",
    ]
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)

    def told(status: str) -> list[str]:
        return [alert["labels"]["node"] for one in pager.told for alert in one["alerts"]
                if alert["labels"]["alertname"] == "OutriderNodeLost" and alert["status"] == status]  # fmt: skip

    try:
        await until(lambda: told("firing"), 30)
        open_.clear()
        await until(lambda: told("resolved"), 60)
    finally:
        process.kill()
        process.wait(10)
        await exporter.cleanup()
    assert set(told("firing")) == set(told("resolved")) == {"n2"}
