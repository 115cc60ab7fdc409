"""Wakes the frozen processes of a node that was given up, and looks whether they can still do harm."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

from drills.drill.processes import DrillError
from drills.drill.site import JOB
from drills.drill.stage import Stage
from outrider.sdk.page import CommandWriter, open_page

#: How long the ranks are awake before their agent and launcher are: the time in which nobody but the fence holds them.
ALONE_SECONDS = 1.5
#: The longest wait for the next attempt, seconds: the limit for hangs, the recovery, and three times that for a slow machine.
RESTART_SECONDS = 60.0


async def wake_and_watch(stage: Stage, say: Callable[[str], None]) -> list[str]:
    """Waits for the restart, wakes the ranks first and has them try to publish, then wakes agent and launcher.

    Returns:
        Sentences for the report.

    Raises:
        DrillError: no restart came, or the woken ranks wrote something shared.
    """
    job = stage.scheduler.jobs[JOB]
    async with asyncio.timeout(RESTART_SECONDS):
        while job.attempt < 2:
            await asyncio.sleep(0.05)
    await asyncio.sleep(1.0)
    root = stage.site.snapshots() / JOB
    before = _old_files(root, job.fence)
    ranks = [pid for pid in stage.frozen if pid not in stage.frozen_service]
    for pid in ranks:
        _wake(pid)
    asked = _ask_to_publish(stage)
    await asyncio.sleep(ALONE_SECONDS)
    for pid in stage.frozen_service:
        _wake(pid)
    await asyncio.sleep(ALONE_SECONDS)
    written = _old_files(root, job.fence) - before
    if written:
        raise DrillError(f"a woken rank wrote under an old fence: {', '.join(sorted(written))}")
    say(f"freeze: the frozen processes are awake again, asked {asked} of them to publish; nothing was written")
    return [f"{len(ranks)} frozen rank(s) woken and told to publish under their old fence: nothing shared was written"]


def _wake(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _old_files(root: Path, fence: int) -> set[str]:
    """Files of snapshots that carry a fence older than the running attempt's."""
    found = set()
    for path in root.glob("step-*/*"):
        mark = [part for part in path.name.split(".") if part[:1] == "f" and part[1:].isdigit()]
        number = int(mark[0][1:]) if mark else _manifest_fence(path)
        if number is not None and number < fence:
            found.add(f"{path.parent.name}/{path.name}")
    return found


def _manifest_fence(path: Path) -> int | None:
    if path.name != "MANIFEST.json":
        return None
    return int(json.loads(path.read_text(encoding="utf-8"))["fence"])


def _ask_to_publish(stage: Stage) -> int:
    """Writes the order to publish into the frozen ranks' pages, as an agent would that nobody told of the new attempt."""
    asked = 0
    for path in stage.frozen_pages:
        with contextlib.suppress(OSError, ValueError):
            CommandWriter(open_page(path)).write("publish", fence=0, incident="stale")
            asked += 1
    return asked
