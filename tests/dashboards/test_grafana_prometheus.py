"""Every query of the dashboards, against the real Prometheus with the shipped configuration and pages of the real code."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from grafana_panels import Expression, expressions
from grafana_site import Site, missing_tools, running

from alerts.rules.yaml import dump
from dashboards.grafana.shipped import dashboards

pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(missing_tools()), reason="Prometheus is not installed")]
ALL = list(expressions(dashboards()))
SHIPPED = Path(__file__).parents[2] / "deploy" / "prometheus" / "prometheus.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running(tmp_path_factory.mktemp("site"), SHIPPED) as made:
        yield made


def test_promtool_parses_every_expression(tmp_path: Path) -> None:
    rules = [{"record": f"x{place}", "expr": one.filled} for place, one in enumerate(ALL)]
    (tmp_path / "all.yml").write_text(dump({"groups": [{"name": "all", "rules": rules}]}, "test"))
    done = subprocess.run(["promtool", "check", "rules", "all.yml"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one.board}: {one.panel}: {ALL.index(one)}")
def test_every_expression_has_data(site: Site, one: Expression) -> None:
    assert site.ask_range(one.filled, 10) if one.ranged else site.ask(one.filled), one.filled


def test_an_incident_keeps_its_job_and_others_get_none(site: Site) -> None:
    found = {row["metric"]["fault"]: row["metric"] for row in site.ask("outrider_incident_open")}
    assert found["job.hang"]["job"] == "j1"
    assert "job" not in found["node.lost"]
    assert found["node.lost"]["switch"] == "leaf1"
