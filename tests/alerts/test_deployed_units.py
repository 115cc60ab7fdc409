"""The systemd units name commands and options that exist, and systemd itself understands them."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from outrider.cli.shell import outrider

UNITS = sorted((Path(__file__).parents[2] / "deploy/systemd").glob("*.service"))


def lines(unit: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in unit.read_text().splitlines() if "=" in line and not line.startswith("#"))


def test_every_long_running_process_has_a_unit() -> None:
    started = {shlex.split(lines(unit)["ExecStart"])[1] for unit in UNITS}
    assert started == {"agent", "witness", "deliver"}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_command_and_its_options_exist(unit: Path) -> None:
    _, command, *options = shlex.split(lines(unit)["ExecStart"])
    shown = CliRunner().invoke(outrider, [command, "--help"])
    assert shown.exit_code == 0, shown.output
    for option in options:
        assert not option.startswith("--") or re.search(rf"{option}\b", shown.output), option


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_it_comes_back_for_ever(unit: Path) -> None:
    told = lines(unit)
    assert (told["Restart"], told["StartLimitIntervalSec"]) == ("always", "0")
    if told.get("ExecStart", "").split()[1] != "agent":  # the agent looks into other users' processes and devices
        assert told["User"] == "outrider" and told["NoNewPrivileges"] == "yes" and told["ProtectSystem"] == "strict"


@pytest.mark.real
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_it(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text().replace("/opt/outrider/bin/outrider", "/bin/true").replace("User=outrider", "User=daemon")
    name = unit.name.replace("@", "@w1")
    (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)], capture_output=True, text=True, check=False, timeout=60
    )
    mine = [line for line in done.stderr.splitlines() if str(tmp_path) in line or name in line]
    assert mine == [], done.stderr
