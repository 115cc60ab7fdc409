"""Every query of the dashboards, variables and alert rules, against a Prometheus that watches a real cluster with a real fault.

What needs a fault that this run does not have is named in `NOT_IN_THIS_RUN`; `test_grafana_prometheus.py` shows its form by
pages of the real renderers.
"""

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_panels import Choice, Expression, choices, expressions
from grafana_site import missing_tools

from alerts.rules.prometheus import fault_expression
from alerts.story import alert_name
from dashboards.grafana.alert_rules import provisioning
from dashboards.grafana.shipped import dashboards
from outrider.catalogue import FAULTS
from outrider.config.alerts import AlertsConfig

pytest.importorskip("torch")
from grafana_live import FAULT, Live, live
from grafana_picture import COLUMN, ROW, page

MISSING = [*missing_tools(), *(tool for tool in ("cc", "env") if shutil.which(tool) is None)]
pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")]
PICTURES = Path(__file__).parents[2] / "out" / "screenshots"
SHIPPED = Path(__file__).parents[2] / "deploy" / "prometheus" / "prometheus.yml"
ALL = list(expressions(dashboards()))
CHOICES = list(choices(dashboards()))
#: Panel -> why it is empty here.
NOT_IN_THIS_RUN = {
    "Stragglers": "the drill's job does not tell the parts of its steps: on two cores they would be noise",
    "Spread of the step": "the same",
    "Agents cut off from a witness": "every witness answers all the time",
    "Certificates": "the run speaks clear text",
}
#: Panel -> why it may be empty here or not.
BY_CHANCE = {"Lost time by cause": "the job is outside of training for less than a scrape at a time"}
#: Alerts about Outrider itself that a run like this one may raise; the others stay silent.
MAY_FIRE = {
    "OutriderAbsent": "before the first scrape", "OutriderNoLeader": "the same", "OutriderWitnessStalls": "a busy machine",
    "OutriderCollectorFails": "a reading that came late", "OutriderBrake": "a person pauses",
    "OutriderNoSpares": "the spare is in use",
    "OutriderWatchdog": "always",
    "OutriderDeadLetters": "somebody else trains on this machine: agents see it, the drill's scheduler does not know it",
}  # fmt: skip
MUST_FIRE = {"OutriderBrake", "OutriderNoSpares", "OutriderWatchdog", "OutriderAbsent"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with asyncio.Runner() as runner:
        playing = live(tmp_path_factory.mktemp("live"), SHIPPED)
        yield runner.run(playing.__aenter__())
        runner.run(playing.__aexit__(None, None, None))


def test_the_fault_was_found_and_the_job_went_on(run: Live) -> None:
    found = {(one["fault"], one["subject"]["node"]): one["state"] for one in run.incidents if "node" in one["subject"]}
    assert found[FAULT, "n2"] in ("recovering", "resolved")
    assert "link.errors" in {fault for fault, _ in found}


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one.board}: {one.panel}: {ALL.index(one)}")
def test_every_expression_has_had_data(run: Live, one: Expression) -> None:
    """At any second of the run: what Grafana asks once is asked once for each of them."""
    found = bool(run.over_the_run(one.filled))
    assert one.panel in BY_CHANCE or found != (one.panel in NOT_IN_THIS_RUN), one.filled


@pytest.mark.parametrize("one", CHOICES, ids=lambda one: f"{one.board}: {one.name}")
def test_every_variable_offers_something(run: Live, one: Choice) -> None:
    values = run.prometheus.label_values(one.selector, one.label)
    assert values and "" not in values
    expected = {"cluster": {"drill"}, "job": {"drill"}, "node": {"n1", "n5"}, "fault": {FAULT}, "switch": {"leaf0"}}
    assert expected[one.name] <= set(values)


@pytest.mark.parametrize("key", FAULTS)
def test_an_alert_has_a_series_when_and_only_when_its_fault_was_open(run: Live, key: str) -> None:
    confirmed = {"confirmed", "acting", "recovering", "resolved"}
    open_once = any(one["fault"] == key and one["state"] in confirmed for one in run.incidents)
    assert bool(run.over_the_run(_grafana(alert_name(key)))) == open_once
    assert fault_expression(key) in _grafana(alert_name(key))


def test_alerts_about_outrider_itself(run: Live) -> None:
    own = [rule["title"] for rule in _rules() if "fault" not in rule["labels"]]
    fired = {title for title in own if run.over_the_run(_grafana(title))}
    assert MUST_FIRE <= fired <= set(MAY_FIRE)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize("name", dashboards())
def test_a_picture_of_each_dashboard_is_kept(run: Live, name: str, tmp_path: Path) -> None:
    """Drawn by ourselves from the JSON and this run's data; looked at by people in `out/screenshots/`."""
    path = tmp_path / "board.html"
    path.write_text(page(dashboards()[name], run.prometheus, int(time.time() - run.began), run.at))
    PICTURES.mkdir(parents=True, exist_ok=True)
    picture = PICTURES / f"grafana-{name.removesuffix('.json')}.png"
    tall = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboards()[name]["panels"]) * ROW + 80
    command = [
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--window-size={24 * COLUMN + 30},{tall}",
    ]
    done = subprocess.run(
        [*command, f"--user-data-dir={tmp_path}/profile", f"--screenshot={picture}", str(path)], capture_output=True, timeout=60
    )
    assert done.returncode == 0 and picture.stat().st_size > 10_000


def _rules() -> list[dict[str, Any]]:
    return [rule for group in provisioning("drill", AlertsConfig(), "p")["groups"] for rule in group["rules"]]


def _grafana(title: str) -> str:
    """What Grafana asks for that alert."""
    (expr,) = (rule["data"][0]["model"]["expr"] for rule in _rules() if rule["title"] == title)
    return str(expr)
