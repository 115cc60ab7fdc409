"""A command of the site's as a target: how it ends is how the row ends."""

import asyncio
import sys
from pathlib import Path

import pytest
from alerts_doubles import row

from alerts.command_target import CommandSender
from alerts.run_command import run_command
from outrider.config.targets import CommandTarget

#: Starts a process that outlives it and holds its output open, as ssh's shared connection and daemons do.
CHILD = "import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(45)'])"


@pytest.mark.parametrize(
    ("script", "outcome", "said"),
    [
        ("import json; print('restarted', json.load(sys.stdin)['data']['node'], sys.argv[1])", "accepted", "restarted n2 n2"),
        ("print('busy'); sys.exit(75)", "retry", "ended with 75: busy"),
        ("print('no such unit'); sys.exit(5)", "refused", "ended with 5: no such unit"),
        ("import time; time.sleep(99)", "retry", "did not end within 0.5 s"),
        (f"import time; {CHILD}; time.sleep(99)", "retry", "did not end within 0.5 s"),
        (f"{CHILD}; print('started')", "accepted", "started"),
        ("print('x' * 9_000_000); print('the last')", "accepted", "the last"),
    ],
    ids=["done", "later", "never", "hangs", "hangs with a child", "leaves a child behind", "says too much"],
)  # fmt: skip
async def test_exit_status_says_whether_it_is_done(script: str, outcome: str, said: str) -> None:
    command = (sys.executable, "-c", f"import sys; {script}", "{node}")
    seconds = 0.5 if said.startswith("did not") else 20.0
    sender = CommandSender(CommandTarget(name="c", command=command, types=("agent.restart.requested",), timeout_seconds=seconds))
    async with asyncio.timeout(30.0):
        attempt = await sender.send(row("r", "agent.restart.requested", node="n2"), 0.0)
    assert (attempt.outcome, attempt.reason) == (outcome, said)


async def test_who_is_ended_leaves_nothing_running(tmp_path: Path) -> None:
    told = tmp_path / "child"
    child = f"import pathlib, os, time; pathlib.Path({str(told)!r}).write_text(str(os.getpid())); time.sleep(99)"
    script = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(99)"
    task = asyncio.create_task(run_command((sys.executable, "-c", script), 60.0))
    while not (told.exists() and told.read_text()):
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    state = Path(f"/proc/{told.read_text()}/stat")
    async with asyncio.timeout(10.0):
        while state.exists() and state.read_text().split()[2] != "Z":
            await asyncio.sleep(0.02)


HOSTILE = ("-oProxyCommand=x", "--all", "a;reboot", "a b", "$(x)", "`x`", "a|b", "a\nb", "a\0b", "a&", "'a'", "~x")


@pytest.mark.parametrize("job", HOSTILE)
async def test_whoever_names_a_job_chooses_no_option_and_no_command(job: str, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    sender = CommandSender(CommandTarget(name="c", command=("touch", str(ran), "{job}"), types=("test",)))
    attempt = await sender.send(row("r", "job.restart.requested", job=job), 0.0)
    assert (attempt.outcome, attempt.reason_code) == ("refused", "unsafe_name")
    assert "\n" not in attempt.reason
    assert not ran.exists()
    heedless = CommandSender(CommandTarget(name="c", command=("touch", str(ran)), types=("test",)))
    assert (await heedless.send(row("r", "job.restart.requested", job=job), 0.0)).outcome == "accepted"


@pytest.mark.parametrize("job", ["llm-7b", "team/llm_7:v2", "llm[3]", "模型", "a@b+c=d,e%"])
async def test_names_that_people_give_jobs_are_passed_on_as_they_are(job: str) -> None:
    sender = CommandSender(CommandTarget(name="c", command=("echo", "{job}"), types=("test",)))
    assert (await sender.send(row("r", "job.restart.requested", job=job), 0.0)).reason == job


async def test_program_that_is_not_there_is_tried_again_and_braces_stay() -> None:
    sender = CommandSender(CommandTarget(name="c", command=("/no/such/program", "{other}"), types=("test",)))
    attempt = await sender.send(row("r", "test", node="n2"), 0.0)
    assert (attempt.outcome, attempt.reason) == ("retry", "cannot be run: No such file or directory")
