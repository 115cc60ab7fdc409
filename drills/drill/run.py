"""Runs one fault from an empty folder to its figures: stage up, job started, fault made, job ended, everything measured."""

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drills.cluster.network import Loopback, Namespaces
from drills.drill.faults import FAULT_STEP, HUNG_AFTER_SECONDS, PROMISES, Promise, wait_for_step
from drills.drill.measure import Event, Facts, measure, sentence
from drills.drill.processes import DrillError, Nursery
from drills.drill.records import Run, newest_step, read_run
from drills.drill.result import Outcome
from drills.drill.site import JOB, NODES, WORLD, Site
from drills.drill.stage import STEPS, Stage
from drills.drill.waking import wake_and_watch

#: A run that has not ended after this is given up: the longest (freeze) takes about 45 s on two free cores.
RUN_SECONDS = 150.0
#: How long a verdict and its deliveries may trail behind the end of the job, seconds.
SETTLE_SECONDS = 8.0
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all runs of one drill share."""

    folder: Path
    network: Namespaces | Loopback
    nursery: Nursery
    seed: int
    strict: bool
    say: Say


async def run_baseline(setting: Setting) -> tuple[Run, list[str]]:
    """The same job under the same watch, never disturbed. Returns its records and what was wrong with it (nothing may be).

    Raises:
        DrillError: the job does not run.
    """
    site = _site(setting, "undisturbed")
    async with Stage(site, setting.nursery, setting.seed) as stage:
        stage.submit()
        await _ended(stage, setting.say, "undisturbed")
        incidents = await stage.incidents()
    run = read_run(site.records(), WORLD)
    loud = [
        one
        for one in incidents
        if one.get("response") not in ("ignore", "watch") and one.get("state") not in ("refuted", "suspected")
    ]
    return run, [f"{one['fault']} was confirmed on a job that nobody disturbed" for one in loud]


async def run_fault(setting: Setting, name: str, repeat: int, baseline: Run) -> Outcome:
    """One fault, once. A drill that cannot go on is an outcome that failed, with the reason."""
    promise = PROMISES[name]
    outcome = Outcome(fault=name, story=promise.story)
    chance = random.Random(f"{setting.seed}/{name}/{repeat}")  # noqa: S311 - seeded so that a run can be repeated
    site = _site(setting, f"{name}-{repeat}" if repeat else name)
    events: list[Event] = []
    try:
        relayed = chance.choice(NODES[:WORLD]) if promise.relayed else None
        async with Stage(site, setting.nursery, setting.seed, relayed) as stage:
            events = stage.scheduler.events
            facts = await _play(stage, promise, chance, setting)
        return measure(outcome, promise, read_run(site.records(), WORLD), baseline, facts, setting.strict)
    except (DrillError, OSError) as error:
        outcome.failures.append(str(error))
        outcome.timeline = [(t - events[0][0], sentence(what, data)) for t, what, data in events]
        return outcome


def _site(setting: Setting, name: str) -> Site:
    site = Site(setting.folder / name, setting.network, HUNG_AFTER_SECONDS)
    site.prepare()
    return site


async def _play(stage: Stage, promise: Promise, chance: random.Random, setting: Setting) -> Facts:
    stage.submit()
    await wait_for_step(stage, FAULT_STEP + chance.randrange(10))
    setting.say(f"{promise.fault}: {promise.story}")
    commits = Commits(stage.site.snapshots() / JOB)
    watch = asyncio.create_task(commits.watch())
    try:
        fault_t = await promise.inject(stage, chance)
        notes = await wake_and_watch(stage, setting.say) if promise.wakes else []
        await _ended(stage, setting.say, promise.fault)
        await _settled(stage, promise)
        return Facts(fault_t, list(stage.scheduler.events), await stage.incidents(), list(commits.seen.values()), notes)
    finally:
        watch.cancel()


async def _ended(stage: Stage, say: Say, name: str) -> None:
    """Waits until every rank of the newest attempt has ended well."""
    deadline = time.monotonic() + RUN_SECONDS
    said = 0.0
    while True:
        attempt = stage.scheduler.jobs[JOB].attempt
        codes = {
            data["rank"]: data["code"]
            for _, what, data in stage.scheduler.events
            if what == "rank_exit" and data["attempt"] == attempt
        }
        if len(codes) == WORLD and not any(codes.values()):
            return
        if time.monotonic() > deadline:
            raise DrillError(
                f"the job did not end within {RUN_SECONDS:g} s (attempt {attempt}, exits {codes}); see {stage.site.folder}"
            )
        if time.monotonic() - said > 5.0:
            said = time.monotonic()
            say(f"{name}: attempt {attempt}, {_progress(stage)}")
        await asyncio.sleep(0.05)


def _progress(stage: Stage) -> str:
    return f"step {max(newest_step(stage.site.records(), WORLD), 0)} of {STEPS}"


async def _settled(stage: Stage, promise: Promise) -> None:
    """Gives verdicts and deliveries the time to arrive: until what was promised is there, or the time is over."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while promise.incident is not None and time.monotonic() < deadline:
        incidents = await stage.incidents()
        found = any(one.get("fault") == promise.incident and one.get("state") != "suspected" for one in incidents)
        back = not promise.agent_back or any(what == "agent_started" for _, what, _ in stage.scheduler.events[-3:])
        if found and back:
            return
        await asyncio.sleep(0.2)


class Commits:
    """Sees every MANIFEST as it is linked: the ranks prune old sets, so a look at the end would miss some.

    `seen`: path -> (monotonic seconds of the link, the MANIFEST).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: dict[str, tuple[float, dict[str, Any]]] = {}

    async def watch(self) -> None:
        """Looks every 20 ms until cancelled."""
        offset = time.time() - time.monotonic()
        while True:
            for path in self.folder.glob("step-*/MANIFEST.json"):
                if str(path) not in self.seen:
                    with contextlib.suppress(OSError, ValueError):
                        self.seen[str(path)] = (os.stat(path).st_mtime - offset, json.loads(path.read_text(encoding="utf-8")))
            await asyncio.sleep(0.02)


def cancel_on_interrupt(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> None:
    """Ctrl-C and SIGTERM cancel the task, so that everything that was started is ended."""
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
