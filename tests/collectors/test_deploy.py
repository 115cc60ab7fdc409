"""What is deployed beside the agent: Prometheus' own checker likes its files, the counters file names what we read."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from collectors.targets import targets
from outrider.parsers.dcgm import gpu_measure

DEPLOY = Path(__file__).parents[2] / "deploy"

CONFIG = """
[site]
name = "s1"
[fleet]
spares = ["n2"]
[[fleet.nodes]]
node = "n1"
address = "10.0.0.1"
rack = "r1"
[[fleet.nodes]]
node = "n2"
address = "10.0.0.2"
[agent]
metrics_address = "node"
[[witness.members]]
name = "w1"
address = "10.0.1.1"
http_port = 9480
heartbeat_port = 9481
"""


def test_targets_are_written_for_every_node_and_witness(tmp_path: Path) -> None:
    (tmp_path / "o.toml").write_text(CONFIG)
    done = CliRunner().invoke(targets, ["--config", str(tmp_path / "o.toml"), str(tmp_path / "targets")])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "targets/agents.json").read_text()) == [
        {"targets": ["10.0.0.1:9470"], "labels": {"node": "n1", "rack": "r1", "site": "s1", "spare": "false"}},
        {"targets": ["10.0.0.2:9470"], "labels": {"node": "n2", "site": "s1", "spare": "true"}},
    ]
    assert json.loads((tmp_path / "targets/witnesses.json").read_text())[0]["targets"] == ["10.0.1.1:9480"]


def test_targets_that_speak_tls_are_called_by_https(tmp_path: Path) -> None:
    """Each by its own setting: Prometheus would send the viewer's token in clear text otherwise, or hear nothing."""
    pair = ('metrics_tls_cert = "c"\nmetrics_tls_key = "k"', 'tls_cert = "c"\ntls_key = "k"')
    text = CONFIG.replace("[agent]", f"[agent]\n{pair[0]}") + f"{pair[1]}\n[alerts]\nmetrics_port = 9\n{pair[0]}\n"
    for name, config in (("tls", text), ("clear", CONFIG + "[alerts]\nmetrics_port = 9\n")):
        (tmp_path / "o.toml").write_text(config)
        done = CliRunner().invoke(targets, ["--config", str(tmp_path / "o.toml"), str(tmp_path / name)])
        assert done.exit_code == 0, done.output
        for file in ("agents", "witnesses", "deliverers"):
            for entry in json.loads((tmp_path / name / f"{file}.json").read_text()):
                assert entry["labels"].get("__scheme__") == ("https" if name == "tls" else None)


@pytest.mark.real
@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
def test_prometheus_likes_its_configuration(tmp_path: Path) -> None:
    shutil.copy(DEPLOY / "prometheus/prometheus.yml", tmp_path)
    (tmp_path / "viewer.token").write_text("x" * 32)
    (tmp_path / "o.toml").write_text(CONFIG)
    CliRunner().invoke(targets, ["--config", str(tmp_path / "o.toml"), str(tmp_path / "targets")])
    done = subprocess.run(
        ["promtool", "check", "config", str(tmp_path / "prometheus.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_counters_file_names_what_outrider_reads_and_nothing_else() -> None:
    rows = [line.split(",") for line in (DEPLOY / "dcgm-counters.csv").read_text().splitlines() if not line.startswith("#")]
    for name, kind, text in rows:
        assert gpu_measure(name, {}) is not None, name
        assert kind in ("gauge", "counter") and text
    names = {row[0] for row in rows}
    assert {"DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ROW_REMAP_FAILURE"} <= names
