"""The shipped dashboards: fresh, complete, only metrics that exist, nothing over anything else."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from grafana_panels import Expression, expressions, panels

from alerts.rules.recording import RECORDING, SLOW_RECORDING, grown
from dashboards.grafana import site
from dashboards.grafana.shipped import HASH_FILE, dashboards, source_hash
from outrider.config.alerts import AlertsConfig
from outrider.metrics import METRICS

ROOT = Path(__file__).parents[2]
BUILDER = ROOT / ".venv-grafana" / "bin" / "python"
BOARDS = dashboards()
ALL = list(expressions(BOARDS))
RECORDED = dict([*RECORDING, *SLOW_RECORDING])
BY_UID = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def test_the_json_was_made_from_these_sources() -> None:
    assert HASH_FILE.read_text().strip() == source_hash(), "run `make grafana`"


@pytest.mark.real
@pytest.mark.skipif(not BUILDER.exists(), reason="the builder's environment is not there: `make grafana` makes it")
def test_the_json_is_what_the_builder_makes() -> None:
    ask = "import json; from dashboards.grafana.build import boards; print(json.dumps(boards()))"
    done = subprocess.run([BUILDER, "-c", ask], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == BOARDS, "run `make grafana`"


@pytest.mark.real
@pytest.mark.skipif(not BUILDER.exists(), reason="the builder's environment is not there: `make grafana` makes it")
def test_the_published_schema_reads_every_dashboard_and_loses_nothing_of_it() -> None:
    """Read by Grafana's own types and written again it is the same, but for what Prometheus' annotations add to the types."""
    ask = (
        "import json, sys\nfrom grafana_foundation_sdk.cog.encoder import JSONEncoder\n"
        "from grafana_foundation_sdk.cog.plugins import register_default_plugins\n"
        "from grafana_foundation_sdk.models.dashboard import Dashboard\nregister_default_plugins()\n"
        "boards = json.load(sys.stdin)\n"
        "print(json.dumps({name: Dashboard.from_json(board) for name, board in boards.items()}, cls=JSONEncoder))"
    )
    done = subprocess.run([BUILDER, "-c", ask], input=json.dumps(BOARDS), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    for name, board in BOARDS.items():
        for mark, kept in zip(board["annotations"]["list"], read[name]["annotations"]["list"], strict=True):
            assert set(mark) - set(kept) == {"titleFormat", "textFormat", "step", "useValueForTime"}
        assert {**read[name], "annotations": None} == {**board, "annotations": None}


def test_there_is_a_dashboard_for_each_question() -> None:
    assert {board["uid"] for board in BOARDS.values()} == {
        f"outrider-{name}" for name in ("fleet", "incident", "job", "node", "network", "snapshots", "itself")
    }


def test_no_metric_is_named_that_the_code_does_not_expose() -> None:
    for one in ALL:
        for name in re.findall(r"\b(?:\w+:)?(?:outrider_|up\b)[\w:]*", one.expr):
            plain = re.sub(r"_(bucket|sum|count)$", "", name)
            assert name in RECORDED or name in METRICS or plain in METRICS, f"{one.board}, {one.panel}: {name}"


#: Counters that begin with their first event: Prometheus' `increase` does not see it.
BORN_WITH_AN_EVENT = (
    "outrider_incidents_total", "outrider_actions_total", "outrider_refusals_total", "outrider_kernel_events_total",
    "outrider_gpu_xid_errors_total", "outrider_job_snapshots_total", "outrider_job_exits_total",
    "outrider_detection_seconds_bucket", "outrider_recovery_seconds_bucket",
)  # fmt: skip


@pytest.mark.parametrize("counter", BORN_WITH_AN_EVENT)
def test_the_first_event_of_a_counter_is_counted(counter: str) -> None:
    texts = [text for text in [*(one.expr for one in ALL), *RECORDED.values()] if f"increase({counter}" in text]
    assert texts
    for text in texts:
        for selector, window in re.findall(rf"increase\(({counter}(?:{{[^}}]*}})?)\[([^\]]+)\]\)", text):
            assert grown(selector, window) in text


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_no_recording_rule_is_made_for_nobody(name: str) -> None:
    assert any(name in text for text in [*(one.expr for one in ALL), *RECORDED.values()]), name


@BY_UID
def test_no_panel_lies_over_another_and_all_fit(board: dict[str, Any]) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies over {taken[x, y]}"
                taken[x, y] = panel["title"]
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(numbers) == len(set(numbers))


@BY_UID
def test_every_panel_says_what_it_shows_in_which_unit_with_a_legend(board: dict[str, Any]) -> None:
    for panel in panels(board):
        if panel["type"] == "text":
            continue
        assert panel["title"] and panel["description"], panel
        assert panel["description"].endswith("."), panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${store}"}
        if panel["type"] == "timeseries":
            assert panel["options"]["legend"]["showLegend"]
            assert all(target["legendFormat"] != "__auto" for target in panel["targets"]), panel["title"]


@BY_UID
def test_every_variable_is_defined_and_every_link_leads_to_a_dashboard_of_ours(board: dict[str, Any]) -> None:
    text = json.dumps(board)
    defined = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"(?<![$\w])\$\{?([a-z]\w*)", text))
    assert used <= defined, used - defined
    assert {"store", "cluster"} <= defined
    for uid, query in re.findall(r"/d/([\w-]+)\?var-(\w+)=", text):
        (target,) = (one for one in BOARDS.values() if one["uid"] == uid)
        assert query in {variable["name"] for variable in target["templating"]["list"]}
    assert [mark["name"] for mark in board["annotations"]["list"]] == ["Incidents", "Actions", "Brakes"]
    assert board["schemaVersion"] >= 41
    assert not board["editable"]


@pytest.mark.parametrize("one", [one for one in ALL if one.ranged], ids=lambda one: f"{one.board}: {one.panel}")
def test_a_picture_over_time_of_a_whole_fleet_reads_recorded_series(one: Expression) -> None:
    """A metric that every node or GPU has is read over time only for chosen nodes or jobs, where "all" is no choice."""
    per_node = {name for name, metric in METRICS.items() if metric.room == "agent"}
    raw = [name for name in re.findall(r"(?<![\w:])outrider_\w+(?![\w:])", one.expr) if name in per_node]
    chosen = [variable["name"] for variable in BOARDS[one.board]["templating"]["list"] if not variable.get("includeAll")]
    assert not raw or any(f'{name}=~"${name}"' in one.expr for name in chosen), raw


def test_links_become_the_sites_own() -> None:
    settings = AlertsConfig(runbook_url="https://wiki.example/r/{fault}.html", console_url="https://o.example/incidents/{incident}")
    text = json.dumps(site.own_dashboards(settings))
    assert "https://wiki.example/r/${__data.fields.fault}.html" in text
    assert '"https://o.example/incidents/"' in text
    assert "outrider.example" not in text
    assert site.CONSOLE_URL not in json.dumps(site.own_dashboards(AlertsConfig()))
