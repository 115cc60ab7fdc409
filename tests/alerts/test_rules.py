"""`outrider rules`: every class has its alert, and the real promtool and amtool agree."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from alerts.commands import rules as rules_command
from alerts.rules.alertmanager import configuration
from alerts.rules.prometheus import RECORDING, SELF, rules
from alerts.rules.yaml import dump
from alerts.story import alert_name
from outrider.catalogue import FAULTS
from outrider.config.alerts import AlertsConfig, Receiver
from outrider.metrics import METRICS

SETTINGS = AlertsConfig(
    receivers=(
        Receiver(name="sre", severities=("critical",), webhook_url="http://127.0.0.1:9/page"),
        Receiver(name="team-llm", owners=("team-llm",), webhook_url="http://127.0.0.1:9/llm"),
    ),
    silent_jobs=("sandbox-*",),
    deadman="http://127.0.0.1:9/deadman",
)


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def written(tmp_path: Path) -> Path:
    result = CliRunner().invoke(rules_command, [str(tmp_path / "rules")], catch_exceptions=False)
    assert result.exit_code == 0
    return tmp_path / "rules"


def test_every_fault_class_has_an_alert_with_severity_for_and_runbook() -> None:
    found = {rule["alert"]: rule for group in rules("site", SETTINGS)["groups"] for rule in group["rules"] if "alert" in rule}
    for key, entry in FAULTS.items():
        rule = found[alert_name(key)]
        assert rule["labels"]["severity"] == entry.severity
        assert rule["for"]
        assert rule["annotations"]["runbook_url"].endswith(key)


def test_only_metrics_that_something_exposes_are_named() -> None:
    expressions = [rule["expr"] for group in rules("site", SETTINGS)["groups"] for rule in group["rules"]]
    for name in re.findall(r"(?<![\w:])outrider_\w+(?![\w:])", " ".join(expressions)):
        assert re.sub(r"_(bucket|sum|count)$", "", name) in METRICS or name in METRICS
    assert len(RECORDING) == len({name for name, _ in RECORDING})
    assert len(SELF) == len({entry[0] for entry in SELF})


@pytest.mark.real
def test_promtool_finds_the_rules_sound_and_each_class_fires_bears_jitter_and_resolves(written: Path) -> None:
    promtool = tool("promtool")
    assert "rules found" in run(promtool, "check", "rules", "outrider.rules.yml", cwd=written)
    assert "SUCCESS" in run(promtool, "test", "rules", "outrider.rules.test.yml", cwd=written)
    text = (written / "outrider.rules.test.yml").read_text()
    for key in FAULTS:
        assert text.count(f'alertname: "{alert_name(key)}"') == 4 + 6, "fires, resolves, and bears jitter"


@pytest.mark.real
def test_the_unit_tests_notice_a_rule_without_patience(written: Path) -> None:
    promtool = tool("promtool")
    path = written / "outrider.rules.yml"
    path.write_text(path.read_text().replace('for: "1m"', 'for: "0s"'))
    done = subprocess.run(
        [promtool, "test", "rules", "outrider.rules.test.yml"], cwd=written, capture_output=True, text=True, timeout=120
    )
    assert done.returncode != 0


@pytest.mark.real
@pytest.mark.parametrize(
    ("labels", "receivers"),
    [
        ({"alertname": "OutriderWatchdog", "severity": "none"}, "deadman"),
        ({"alertname": "OutriderNodeLost", "severity": "critical", "level": "node"}, "sre"),
        (
            {"alertname": "OutriderJobHang", "severity": "critical", "level": "job", "job": "llm", "owner": "team-llm"},
            "sre,team-llm",
        ),
        ({"alertname": "OutriderJobHang", "severity": "critical", "level": "job", "job": "sandbox-7"}, "nobody"),
        ({"alertname": "OutriderNodeLost", "severity": "critical", "level": "node", "job": "sandbox-7"}, "sre"),
        ({"alertname": "OutriderJobPlannedStop", "severity": "info", "level": "job"}, "nobody"),
    ],
    ids=["dead man", "page", "owner too", "silent job", "a node is never silent", "info"],
)
def test_amtool_routes_each_alert_to_whom_it_concerns(tmp_path: Path, labels: dict[str, str], receivers: str) -> None:
    amtool = tool("amtool")
    (tmp_path / "am.yml").write_text(dump(configuration(SETTINGS), "test"))
    run(amtool, "check-config", "am.yml", cwd=tmp_path)
    pairs = [f"{key}={value}" for key, value in labels.items()]
    said = run(amtool, "config", "routes", "test", "--config.file=am.yml", *pairs, cwd=tmp_path)
    assert said.strip() == receivers


def test_yaml_is_plain_and_texts_are_quoted() -> None:
    assert dump({"a": [{"b": "x: y", "c": 1}, "z"], "d": {}, "e": []}, "head") == (
        '# head\na:\n  - b: "x: y"\n    c: 1\n  - "z"\nd: {}\ne: []\n'
    )


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(rules_command, [str(tmp_path / "file" / "x")])
    assert result.exception is not None
    assert "cannot be written" in str(result.exception)
