"""Is what a job restored what it saved? And can it save at all?

A `restored` snapshot carries the keys of the `committed` one of that step; every key that both have must agree. What the
first steps show (learning rate, loss, step number) is compared with the steps before the stop.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from detectors.core.docket import Docket
from detectors.core.types import Evidence
from detectors.core.world import JobState, World
from outrider.signals import Signal

#: Snapshots of a job whose contents are remembered.
SNAPSHOTS_MAX = 64
#: Keys that tell how a snapshot was made, not what is in it.
BOOKKEEPING = frozenset(
    {"state", "cause", "attempt", "boot", "observed_s", "seconds", "bytes", "manifest", "path", "fence", "incident", "digest",
     "shards", "wall", "files", "root", "step", "slot", "verify_s", "load_s", "rebuild_s"}
)  # fmt: skip
#: Relative difference that two ways of writing one number may have.
SAME = 1e-6
#: Steps before and after a resume whose losses are compared, and by how much they may differ: share of the loss, and
#: times the usual move from step to step.
LOSS_STEPS, LOSS_SHARE, LOSS_MOVES = 5, 0.2, 8.0
#: A learning rate that changed by this factor over a resume changed for another reason than its schedule.
RATE_FACTOR = 2.0


@dataclass(slots=True)
class _History:
    committed: dict[int, dict[str, Any]] = field(default_factory=dict)
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=40))
    rate: float | None = None
    restored: int | None = None
    last: int = -1
    before: tuple[list[float], float | None] | None = None
    after: list[float] = field(default_factory=list)
    failed: int = 0


class ResumeRule:
    """Judges snapshots for one witness."""

    def __init__(self, world: World, docket: Docket) -> None:
        self.world, self.docket = world, docket
        self._histories: dict[str, _History] = {}

    def snapshot(self, signal: Signal, now: float) -> None:
        """A snapshot began, was committed, failed, or was restored."""
        state = self.world.jobs.get(signal.job or "")
        if state is None:
            self.world.count("snapshot of an unknown job")
            return
        history = self._histories.setdefault(state.name, _History())
        step = int(signal.value) if isinstance(signal.value, int | float) else -1
        match signal.data.get("state"):
            case "committed":
                history.committed[step] = dict(signal.data)
                while len(history.committed) > SNAPSHOTS_MAX:
                    del history.committed[next(iter(history.committed))]
                history.failed = 0
                state.moved_t = now
                self.docket.clear_subject("job.snapshot_failed", {"job": state.name}, now, f"step {step} was committed")
            case "failed" if self.world.job_of(signal, now) is not None:
                # An older attempt whose write was fenced off has failed as it should.
                history.failed += 1
                text = f"the snapshot of step {step} failed" + (f": {signal.data['error']}" if signal.data.get("error") else "")
                self._accuse(state, "job.snapshot_failed", now, text, "failed", key={"job": state.name}, incarnation="")
            case "restored":
                self._restored(state, history, step, signal, now)
            case "begin" | "staged":
                state.moved_t = now
            case _:
                pass

    def step(self, state: JobState, signal: Signal, now: float) -> None:
        """A finished step: the first ones after a resume must go on from where the job stopped."""
        history = self._histories.get(state.name)
        loss, rate = signal.data.get("loss"), signal.data.get("lr")
        if history is None:
            if loss is None and rate is None:
                return
            history = self._histories[state.name] = _History()
        if isinstance(signal.value, int | float):
            self._afresh(state, history, int(signal.value), now)
            if history.before is not None:
                self._compare(state, history, int(signal.value), loss, rate, now)
        if isinstance(loss, int | float) and math.isfinite(loss):
            history.losses.append(loss)
        if isinstance(rate, int | float):
            history.rate = rate

    def _afresh(self, state: JobState, history: _History, step: int, now: float) -> None:
        """A job with snapshots that steps from nought again, and says nothing of a restore, has lost its state."""
        newest = max(history.committed, default=-1)
        if step <= 1 and newest > 1 and history.last > newest // 2:
            text = f"the job begins anew at step {step}, and nothing was restored; step {newest} had been committed"
            self._accuse(state, "job.resume_mismatch", now, text, "afresh")
        history.last = step

    def _restored(self, state: JobState, history: _History, step: int, signal: Signal, now: float) -> None:
        saved = history.committed.get(step)
        history.restored, history.after, history.last = step, [], step
        history.before = (list(history.losses), history.rate)
        newer = max(history.committed, default=-1)
        if 0 <= step < newer:
            text = f"step {step} was restored, and step {newer} had been committed"
            self._accuse(state, "job.resume_mismatch", now, text, "older")
        if saved is None:
            return
        wrong = [
            f"{key} was {saved[key]} and is {value}"
            for key, value in signal.data.items()
            if key in saved and key not in BOOKKEEPING and not _same(saved[key], value)
        ]
        lost = [key for key in saved if key not in signal.data and key not in BOOKKEEPING]
        if wrong:
            self._accuse(state, "job.resume_mismatch", now, f"restored step {step}: {'; '.join(wrong[:6])}", "contents")
        elif lost and any(key in signal.data for key in saved if key not in BOOKKEEPING):
            text = f"restored step {step} without {', '.join(lost[:6])}"
            self._accuse(state, "job.resume_mismatch", now, text, "contents_missing", response="watch")

    def _compare(self, state: JobState, history: _History, step: int, loss: Any, rate: Any, now: float) -> None:
        assert history.before is not None
        losses, before_rate = history.before
        if not history.after and history.restored is not None and history.restored >= 0 and step + 1 < history.restored:
            text = f"step {history.restored} was restored, and the job goes on at step {step}"
            self._accuse(state, "job.resume_mismatch", now, text, "step_number")
        if isinstance(rate, int | float) and before_rate and not history.after and not _near(rate, before_rate):
            text = f"the learning rate was {before_rate:.4g} before the stop and is {rate:.4g}"
            self._accuse(state, "job.resume_mismatch", now, text, "learning_rate")
        if not isinstance(loss, int | float) or not math.isfinite(loss):
            return
        history.after.append(loss)
        if len(history.after) < LOSS_STEPS:
            return
        history.before = None
        if len(losses) < LOSS_STEPS * 2:
            return
        usual = sorted(losses[-LOSS_STEPS * 2 :])[LOSS_STEPS]
        moves = sorted(abs(a - b) for a, b in pairwise(losses))
        now_usual = sorted(history.after)[LOSS_STEPS // 2]
        if now_usual - usual > max(LOSS_SHARE * abs(usual), LOSS_MOVES * moves[len(moves) // 2]):
            text = f"the loss was about {usual:.4g} before the stop and is about {now_usual:.4g}"
            self._accuse(state, "job.resume_mismatch", now, text, "loss_jump")

    def _accuse(
        self, state: JobState, fault: str, now: float, text: str, code: str, response: str | None = None,
        key: dict[str, Any] | None = None, incarnation: str | None = None,
    ) -> None:  # fmt: skip
        subject = {"job": state.name}
        piece = Evidence(t=now, kind="snapshot", subject=subject, effect="confirm", text=text, layer="application")
        known = self.docket.find(fault, subject, str(state.attempt))
        if known is not None and response == "watch":
            return
        self.docket.accuse(
            fault, subject, key_subject=key, now=now, incarnation=str(state.attempt) if incarnation is None else incarnation,
            evidence=(piece,), reason=known.reason if known is not None else text, reason_code=known.reason_code if known else code,
            decisive=True, response=response, extra={"attempt": state.attempt},
        )  # fmt: skip


def _same(saved: Any, restored: Any) -> bool:
    if isinstance(saved, int | float) and isinstance(restored, int | float):
        return math.isclose(saved, restored, rel_tol=SAME, abs_tol=1e-12)
    return bool(saved == restored)


def _near(rate: float, before: float) -> bool:
    return rate > 0 and 1 / RATE_FACTOR <= rate / before <= RATE_FACTOR
