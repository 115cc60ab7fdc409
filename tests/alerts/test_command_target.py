"""A command of the site's as a target: how it ends is how the row ends."""

import sys

import pytest
from alerts_doubles import row

from alerts.command_target import CommandSender
from outrider.config.targets import CommandTarget


@pytest.mark.parametrize(
    ("script", "outcome", "said"),
    [
        ("import json; print('restarted', json.load(sys.stdin)['data']['node'], sys.argv[1])", "accepted", "restarted n2 n2"),
        ("print('busy'); sys.exit(75)", "retry", "ended with 75: busy"),
        ("print('no such unit'); sys.exit(5)", "refused", "ended with 5: no such unit"),
        ("import time; time.sleep(9)", "retry", "did not end within 0.5 s"),
    ],
    ids=["done", "later", "never", "hangs"],
)  # fmt: skip
async def test_exit_status_says_whether_it_is_done(script: str, outcome: str, said: str) -> None:
    command = (sys.executable, "-c", f"import sys; {script}", "{node}")
    sender = CommandSender(CommandTarget(name="c", command=command, types=("agent.restart.requested",), timeout_seconds=0.5))
    attempt = await sender.send(row("r", "agent.restart.requested", node="n2"), 0.0)
    assert (attempt.outcome, attempt.reason) == (outcome, said)


async def test_program_that_is_not_there_is_tried_again_and_braces_stay() -> None:
    sender = CommandSender(CommandTarget(name="c", command=("/no/such/program", "{other}"), types=("test",)))
    attempt = await sender.send(row("r", "test", node="n2"), 0.0)
    assert (attempt.outcome, attempt.reason) == ("retry", "cannot be run: No such file or directory")
