"""`outrider dashboards DIR`: the provisioning files and the alert rules in Grafana's own form."""

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from grafana_site import missing_tools

from alerts.rules.prometheus import rules
from alerts.rules.yaml import dump
from dashboards.grafana.alert_rules import provisioning
from dashboards.grafana.command import dashboards
from dashboards.grafana.shipped import dashboards as shipped
from outrider.catalogue import FAULTS
from outrider.config.alerts import AlertsConfig

GROUPS = provisioning("s1", AlertsConfig(), "prom")["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]


def test_files_for_grafanas_start_are_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(dashboards, [str(tmp_path), "--grafana-path", "/srv/boards", "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    written = {str(Path(path).relative_to(tmp_path)) for path in json.loads(done.output)["written"]}
    assert written == {*shipped(), "provisioning/dashboards/outrider.yml", "provisioning/alerting/outrider.yml"}
    assert 'path: "/srv/boards"' in (tmp_path / "provisioning/dashboards/outrider.yml").read_text()
    for name in shipped():
        assert json.loads((tmp_path / name).read_text())["uid"].startswith("outrider-")


def test_every_alert_of_the_catalogue_is_there_with_its_runbook() -> None:
    assert {rule["labels"].get("fault") for rule in RULES} >= set(FAULTS)
    prometheus = [rule["alert"] for group in rules("s1", AlertsConfig())["groups"] for rule in group["rules"] if "alert" in rule]
    assert [rule["title"] for rule in RULES] == prometheus
    assert len({rule["uid"] for rule in RULES}) == len(RULES)
    assert all(len(rule["uid"]) <= 40 for rule in RULES)
    for rule in RULES:
        if rule["labels"].get("fault"):
            assert rule["annotations"]["runbook_url"].endswith(rule["labels"]["fault"])


def test_dollars_stand_doubled_where_grafana_would_read_a_variable_and_single_in_annotations() -> None:
    settings = AlertsConfig(runbook_url="https://x.example/{fault}")
    for rule in (rule for group in provisioning("a$b", settings, "prom")["groups"] for rule in group["rules"]):
        assert rule["labels"]["cluster"] == "a$$b"
        assert "$$" not in rule["annotations"]["summary"]


def test_a_rule_fires_by_having_a_series_whatever_its_value() -> None:
    """`== 0` has the value 0 where it is true; Grafana compares values, so series are counted."""
    (leader,) = (rule for rule in RULES if rule["title"] == "OutriderNoLeader")
    assert leader["data"][0]["model"]["expr"] == "count without () (sum(outrider_witness_leader) == 0)"
    assert leader["condition"] == leader["data"][1]["refId"]
    assert leader["data"][1]["model"]["expression"] == leader["data"][0]["refId"]


@pytest.mark.real
@pytest.mark.skipif(bool(missing_tools()), reason="promtool is not installed")
def test_promtool_parses_every_alert_expression(tmp_path: Path) -> None:
    made = [{"record": f"x{place}", "expr": rule["data"][0]["model"]["expr"]} for place, rule in enumerate(RULES)]
    (tmp_path / "all.yml").write_text(dump({"groups": [{"name": "all", "rules": made}]}, "test"))
    done = subprocess.run(["promtool", "check", "rules", "all.yml"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
