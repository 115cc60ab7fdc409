"""The console of a real site, `outrider up` with its judge: what a person presses is carried out, a killed witness is survived."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drills.cluster.settings import free_members, watch_settings
from outrider.config.security import SecuritySection
from outrider.config.site import read_config
from outrider.config.witness import WitnessSection
from outrider.signals import Signal, encode_batch
from outrider.wire import SENT_HEADER, signal_id

pytestmark = pytest.mark.real
pytest.importorskip("selenium", reason="selenium is not installed")
from console_browser import Person  # noqa: E402  # it imports selenium


def write_site(folder: Path) -> Path:
    nodes = "".join(f'[[fleet.nodes]]\nnode = "n{number}"\ngpus = 8\nrack = "r1"\n' for number in range(1, 6))
    path = folder / "site.toml"
    path.write_text(f"""
[site]
name = "site-b"
mode = "advise"
[fleet]
spares = ["n5"]
{nodes}
{watch_settings(folder, free_members(3), "lease_seconds = 1.0")}""")
    return path


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """The configuration's path and the process of `outrider up`."""
    path = write_site(tmp_path)
    command = [sys.executable, "-m", "outrider.cli.shell", "up", "--config", str(path)]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path) as up:
        try:
            yield path, up.pid
        finally:
            up.terminate()


def wait_for(url: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            assert time.monotonic() < end, f"{url} does not answer"
            time.sleep(0.1)


def send(path: Path, *signals: Signal) -> None:
    config = read_config(path)
    (token, *_) = config.get(SecuritySection).agent_tokens()
    for member in config.get(WitnessSection).members:
        headers = {"Authorization": f"Bearer {token}", SENT_HEADER: str(time.monotonic())}
        request = urllib.request.Request(f"{member.url}/v1/signals", data=encode_batch(list(signals)), headers=headers)
        urllib.request.urlopen(request, timeout=5).close()


def who_leads(path: Path) -> int:
    """The place of the leading witness among the members."""
    config = read_config(path)
    (token, *_) = config.get(SecuritySection).viewer_tokens()
    urls, end = [member.url for member in config.get(WitnessSection).members], time.monotonic() + 30
    while time.monotonic() < end:
        for place, url in enumerate(urls):
            request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request, timeout=5) as answer:
                if b"\noutrider_witness_leader 1.0" in answer.read():
                    return place
        time.sleep(0.1)
    raise AssertionError("nobody leads")


def witness_process(up: int, name: str) -> int:
    children = [int(word) for word in Path(f"/proc/{up}/task/{up}/children").read_text().split()]
    (pid,) = [pid for pid in children if f"witness:{name}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    return pid


@pytest.mark.parametrize("of_the_leader", [True, False], ids=["leader", "another"])
def test_a_person_approves_and_the_leader_acts_though_the_witness_that_shows_it_is_killed(
    chromium: Any, site: tuple[Path, int], of_the_leader: bool
) -> None:
    path, up = site
    members = read_config(path).get(WitnessSection).members
    for member in members:
        wait_for(f"{member.url}/healthz")
    (operator, *_) = read_config(path).get(SecuritySection).operator_tokens()
    killed = members[who_leads(path) - (0 if of_the_leader else 1)]
    person = Person(chromium, killed.url).log_in(operator)
    person.sees("site-b", 30)
    person.sees("unknown 5")  # nobody was heard: that is not healthy
    now, slots = time.monotonic(), [["n1", 0], ["n2", 0]]
    job = Signal(t=now, kind="job", job="llama", node="n1", value=1, data={"slots": slots}, id=signal_id("n1", "b", 1, 1))
    steps = [
        Signal(t=now, kind="step", job="llama", node="n1", value=step, data={"attempt": 1, "loss": 2.0, "step_s": 1.0},
               id=signal_id("n1", "b", 1, 2 + step))
        for step in range(3)
    ]  # fmt: skip
    end = Signal(
        t=now, kind="process_exit", job="llama", node="n1", rank=1, value=-9, data={"attempt": 1}, id=signal_id("n1", "b", 1, 9)
    )
    send(path, job, *steps, end)
    person.go("#/incidents").sees("A rank of a job ended though nobody asked it to.", 30)
    person.find(".line .lead").click()
    person.sees("Waits for an operator's approval of", 30)
    person.sees("If nobody answers within")
    person.picture("real-advise")
    os.kill(witness_process(up, killed.name), signal.SIGKILL)
    person.sees("answers in its place", 30)
    person.press("approve", "go on")
    person.sees("by ada", 30)  # the leader's own line in the course of events
    person.sees("action · restart", 30)
    person.picture("real-approved")
    person.go("#/audit").sees("go on")
    person.picture("real-audit")
    person.go("#/job/llama").sees("Job llama", 30)
    assert person.complaints() == []
