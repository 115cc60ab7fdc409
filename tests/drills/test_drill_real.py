"""The drill itself, shortened: one real job, one real fault, one real recovery; and what it says when it cannot run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.real
OUTRIDER = [sys.executable, "-m", "outrider.cli.shell", "drill"]


def drill(*arguments: str, **kwargs) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*OUTRIDER, *arguments], capture_output=True, text=True, timeout=400, **kwargs)


def processes_in(folder: Path) -> list[str]:
    """Command lines of living processes that name the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(folder) in line:
                found.append(line)
    return found


def test_killed_rank_is_replaced_and_training_is_the_same_to_the_bit(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = drill("--fault", "kill", "--json", "--out", str(tmp_path / "drill"))
    (line,) = done.stdout.splitlines()
    outcome = json.loads(line)
    assert outcome["failures"] == [] and outcome["ok"], done.stderr
    assert done.returncode == 0
    assert outcome["incident"]["fault"] == "job.rank_exit"
    assert outcome["loss_equal"] and outcome["digest_equal"] and outcome["steps_compared"] >= 20
    assert outcome["lost_steps"] <= 1
    assert outcome["detect_s"] <= outcome["confirm_s"] <= outcome["snapshot_s"] <= outcome["load_s"] <= outcome["first_step_s"]
    assert [action["type"] for action in outcome["actions"]][:1] == ["job.snapshot.requested"]
    report = (tmp_path / "drill" / "report.html").read_text()
    assert "kill" in report and "<svg" in report
    assert processes_in(tmp_path) == []


def test_interrupted_drill_leaves_nothing_running(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    child = subprocess.Popen([*OUTRIDER, "--fault", "kill", "--out", str(tmp_path / "drill")], stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    deadline = time.monotonic() + 120
    while not list((tmp_path / "drill").glob("undisturbed/records/*")) and time.monotonic() < deadline:
        time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "interrupted" in said and "Traceback" not in said
    assert processes_in(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["--fault", "flood"], "flood"), (["--out", "/proc/nowhere"], "--out"), (["--network", "moon"], "moon")],
    ids=["unknown fault", "folder that cannot be made", "unknown network"],
)
def test_bad_input_is_one_line_and_exit_status_two(arguments: list[str], word: str) -> None:
    done = drill(*arguments)
    assert done.returncode == 2
    assert word in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_folder_that_is_not_a_drills_is_not_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    done = drill("--out", str(tmp_path))
    assert done.returncode == 2 and "not a drill's folder" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_missing_torch_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('No module named torch')\n")
    done = drill("--out", str(tmp_path / "drill"), env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2 and "torch" in done.stderr and len(done.stderr.strip().splitlines()) == 1
