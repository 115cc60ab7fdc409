"""How the virtual job of an episode goes: the steps it tells of, what holds it, and its next attempts."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from detectors.core.types import Action
from drills.simulate.cell import JOB
from outrider.signals import Signal

if TYPE_CHECKING:
    from drills.simulate.episode import Episode

#: Steps told before the episode, so that the median step and the usual loss are known.
STEPS_BEFORE: Final = 64
#: The emergency snapshot and the orders take this long before a new attempt is announced.
SNAPSHOT_SECONDS: Final = 3.0
#: After a recovery an episode lasts this many steps more, so that whatever comes after it is seen.
STEPS_AFTER: Final = 3


class JobRun:
    """The one job of an episode; fault scripts use `hold`, `step_data` and `rank_data`.

    Attributes:
        slots: (node, GPU) of each rank, in the newest attempt.
        step_data: what a script adds to every step.
        rank_data: what it adds to each rank's own step; None: the job tells its steps as one.
    """

    def __init__(self, episode: "Episode") -> None:
        self._episode, self._job = episode, episode.job
        self.slots = list(episode.cell.fleet.jobs[0].slots)
        self.step_data: Callable[[int], dict[str, Any]] = lambda _step: {}
        self.rank_data: Callable[[int], dict[str, Any]] | None = None
        self._restarting = False
        self._steps_after = 0

    # --- steps ---

    def teach(self) -> None:
        """Steps of the time before, straight to the engines: they need the rhythm, not every heartbeat of an hour."""
        step = self._episode.options.step
        for number in range(STEPS_BEFORE):
            t = self._job.next_step - step * (STEPS_BEFORE - number)
            signal = self.step_signal(t, number, step)
            for engine in self._episode.engines:
                engine.observe(signal, t)
        self._job.step = STEPS_BEFORE

    def plan_step(self) -> None:
        """The next step ends when the job's clock says."""
        self._episode.at(self._job.next_step, self._step, self._job.plan)

    def _step(self, plan: int) -> None:
        job, episode = self._job, self._episode
        if plan != job.plan or job.holds:
            return
        took = job.step_seconds * job.slow * float(np.exp(0.01 * episode.rng.standard_normal()))
        signal = self.step_signal(episode.now, job.step, took)
        if self.rank_data is None:
            episode.deliver(signal)
        else:
            for rank in range(len(self.slots)):
                episode.deliver(msgspec.structs.replace(signal, rank=rank, data={**signal.data, **self.rank_data(rank)}))
        job.step += 1
        if job.attempt > 1:
            self._steps_after += 1
            if episode.record.recovered_t is None:
                episode.record.recovered_t = episode.now
            if self._steps_after == STEPS_AFTER:
                episode.horizon = min(episode.horizon, episode.now + 2.0)
        job.next_step = episode.now + took
        self.plan_step()

    def step_signal(self, t: float, step: int, took: float) -> Signal:
        """What the job tells of a step that ended at `t` and took `took` seconds."""
        data = {"attempt": self._job.attempt, "step_s": took, "age_s": 0.0,
                "loss": 2.0 + 0.02 * float(self._episode.rng.standard_normal()), **self.step_data(step)}  # fmt: skip
        return Signal(t=t, kind="step", job=JOB, value=step, source="sdk", data=data)

    # --- stops ---

    def hold(self, reason: tuple[str, str]) -> None:
        """The job stops until the reason is gone: a fault of a node goes when the node leaves, `app` with a restart."""
        if not self._job.holds:
            self._episode.record.held_since = self._episode.now
        self._job.hold(reason, self._episode.now)

    def release(self, reasons: list[tuple[str, str]]) -> None:
        """Takes reasons away; the job steps again when none is left."""
        if self._job.release(reasons, self._episode.now):
            self.plan_step()

    # --- attempts ---

    def restart(self, action: Action) -> None:
        """The scheduler is told to start the job anew; while it does so, it needs no second order."""
        if self._restarting:
            return
        self._restarting = True
        moved = {item["from"]: item["to"] for item in action.target.get("replace", ()) if item.get("to")}
        self._episode.at(self._episode.now + SNAPSHOT_SECONDS, self._new_attempt, moved)

    def _new_attempt(self, moved: dict[str, str]) -> None:
        episode = self._episode
        self.slots = [(moved.get(node, node), gpu) for node, gpu in self.slots]
        self._job.attempt += 1
        data = {"slots": [list(slot) for slot in self.slots], "groups": episode.cell.fleet.jobs[0].groups, "synchronous": True}
        episode.deliver(Signal(t=episode.now, kind="job", job=JOB, value=self._job.attempt, data=data))
        episode.deliver(Signal(t=episode.now, kind="phase", job=JOB, value="init", data={"attempt": self._job.attempt}))
        started = max(episode.options.restart - SNAPSHOT_SECONDS, 0.1)
        episode.ends(episode.now + started + episode.options.step * (STEPS_AFTER + 1) + 5.0)
        episode.at(episode.now + started, self._started)

    def _started(self) -> None:
        episode, job = self._episode, self._job
        self._restarting = False
        here = {node for node, _ in self.slots}
        gone = [reason for reason in job.holds if reason[0] == "app" or reason[1] not in here]
        gone += [reason for reason in job.holds if reason[0] == "outage" and not episode.outages.at(reason[1], episode.now)]
        job.hold(("start", ""), episode.now)
        job.remaining = episode.options.step
        self.release([*gone, ("start", "")])
