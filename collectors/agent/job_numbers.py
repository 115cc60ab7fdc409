"""What local ranks tell, as numbers of a job on this node for `/metrics`: steps, loss, time by phase, snapshots.

Bounded: no rank and no step is a label, jobs that ended go away after ten minutes, and at most 64 are kept. A job's numbers
are those of its newest attempt. Called from the agent's loop and from the thread that answers scrapes, hence the lock.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from collectors.agent.metrics import Family, family
from outrider.signals import PHASES, Signal

#: Jobs kept; a node runs a few at a time.
JOBS_MAX = 64
#: A job without ranks is shown for so long: a restart comes back well before, a scrape each minute sees its end.
LEFT_SECONDS = 600.0
#: Parts of a step: label -> key of a `step` signal's data.
STEP_PARTS = {"step": "step_s", "data": "data_s", "compute": "compute_s", "wait": "wait_s"}
_STATES = ("begin", "staged", "committed", "failed", "restored")
_CAUSES = ("periodic", "emergency", "restore")


class _Rank:
    def __init__(self, phase: str, since: float) -> None:
        self.phase, self.since = phase, since
        self.step: int | None = None
        self.data: dict[str, Any] = {}


class _Job:
    def __init__(self) -> None:
        self.attempt, self.seen = 0, 0.0
        self.ranks: dict[int, _Rank] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.exits: Counter[str] = Counter()
        self.snapshots: Counter[tuple[str, str]] = Counter()
        self.snapshot_step: int | None = None
        self.snapshot_seconds: dict[str, float] = {}
        self.begun: dict[int, float] = {}

    def enter(self, number: int, phase: str, t: float) -> _Rank:
        """The rank, in `phase` from `t` on; the time before goes to the phase that it leaves."""
        rank = self.ranks.get(number)
        if rank is None:
            rank = self.ranks[number] = _Rank(phase, t)
        elif rank.phase != phase:
            self.leave(rank, t)
            rank.phase, rank.since = phase, t
        return rank

    def leave(self, rank: _Rank, t: float) -> None:
        self.seconds[rank.phase] += max(0.0, t - rank.since)


class JobNumbers:
    """Counts what goes by.

    Args:
        node: our name.
        clock: monotonic seconds.
    """

    def __init__(self, node: str, clock: Callable[[], float]) -> None:
        self._node, self._clock = node, clock
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()

    def observe(self, signal: Signal) -> None:
        """Takes one signal of a local rank in; others are passed over."""
        if signal.job is None or signal.rank is None or signal.kind not in _OBSERVERS:
            return
        with self._lock:
            job = self._job(signal.job, signal.t)
            attempt = signal.data.get("attempt")
            if isinstance(attempt, int) and attempt != job.attempt:
                if attempt < job.attempt:
                    return
                for rank in job.ranks.values():
                    job.leave(rank, signal.t)
                job.attempt, job.ranks = attempt, {}
            job.seen = signal.t
            _OBSERVERS[signal.kind](job, signal.rank, signal)

    def families(self) -> Iterable[Family]:
        """All numbers as they are now."""
        now = self._clock()
        with self._lock:
            self._jobs = {name: job for name, job in self._jobs.items() if job.ranks or now - job.seen < LEFT_SECONDS}
            samples: dict[str, list[tuple[dict[str, str], float]]] = {}
            for name, job in self._jobs.items():
                for metric, labels, value in _readings(job, now):
                    samples.setdefault(metric, []).append(({"node": self._node, "job": name, **labels}, value))
        return [family(metric, found) for metric, found in samples.items()]

    def _job(self, name: str, t: float) -> _Job:
        if name not in self._jobs:
            while len(self._jobs) >= JOBS_MAX:
                del self._jobs[min(self._jobs, key=lambda known: self._jobs[known].seen)]
            self._jobs[name] = _Job()
        return self._jobs[name]


def _step(job: _Job, number: int, signal: Signal) -> None:
    if not isinstance(signal.value, int):
        return
    phase = job.ranks[number].phase if number in job.ranks else "train"
    rank = job.enter(number, phase if phase not in ("init", "compile") else "train", signal.t)
    rank.step, rank.data = signal.value, signal.data


def _phase(job: _Job, number: int, signal: Signal) -> None:
    phase = "stalled" if signal.data.get("situation") == "stalled" else str(signal.value)
    if phase == "stalled" or phase in PHASES:
        job.enter(number, phase, signal.t)


def _exit(job: _Job, number: int, signal: Signal) -> None:
    rank = job.ranks.pop(number, None)
    if rank is not None:
        job.leave(rank, signal.t)
    known = isinstance(signal.value, int)
    job.exits["unknown" if not known else "good" if signal.value == 0 else "bad"] += 1


def _snapshot(job: _Job, number: int, signal: Signal) -> None:
    data = signal.data
    state, cause = str(data.get("state")), str(data.get("cause"))
    if state not in _STATES:
        return
    job.snapshots[state, cause if cause in _CAUSES else "other"] += 1
    if state == "begin":
        job.begun[number] = signal.t
    elif state in ("committed", "failed") and number in job.begun:
        job.snapshot_seconds["write"] = signal.t - job.begun.pop(number)
    for part, key in (("copy", "seconds"), ("verify", "verify_s"), ("load", "load_s")):
        if isinstance(data.get(key), int | float):
            job.snapshot_seconds[part] = float(data[key])
    if state == "committed" and isinstance(signal.value, int):
        job.snapshot_step = max(job.snapshot_step or 0, signal.value)


_OBSERVERS: dict[str, Callable[[_Job, int, Signal], None]] = {
    "step": _step, "phase": _phase, "process_exit": _exit, "snapshot": _snapshot,
}  # fmt: skip


def _readings(job: _Job, now: float) -> Iterator[tuple[str, dict[str, str], float]]:
    yield "outrider_job_attempt", {}, float(job.attempt)
    seconds = defaultdict(float, job.seconds)
    for rank in job.ranks.values():
        seconds[rank.phase] += max(0.0, now - rank.since)
    for phase, count in Counter(rank.phase for rank in job.ranks.values()).items():
        yield "outrider_job_ranks", {"phase": phase}, float(count)
    for phase, total in seconds.items():
        yield "outrider_job_phase_seconds_total", {"phase": phase}, total
    for outcome, count in job.exits.items():
        yield "outrider_job_exits_total", {"outcome": outcome}, float(count)
    yield from _step_readings([rank for rank in job.ranks.values() if rank.step is not None])
    for (state, cause), count in job.snapshots.items():
        yield "outrider_job_snapshots_total", {"state": state, "cause": cause}, float(count)
    if job.snapshot_step is not None:
        yield "outrider_job_snapshot_step", {}, float(job.snapshot_step)
    for part, value in job.snapshot_seconds.items():
        yield "outrider_job_snapshot_seconds", {"part": part}, value


def _step_readings(ranks: list[_Rank]) -> Iterator[tuple[str, dict[str, str], float]]:
    if not ranks:
        return
    yield "outrider_job_step", {}, float(min(rank.step for rank in ranks if rank.step is not None))
    for part, key in STEP_PARTS.items():
        if told := _told(ranks, key):
            yield "outrider_job_step_seconds", {"part": part}, max(told)
    for metric, key in (
        ("outrider_job_loss", "loss"), ("outrider_job_gradient_norm", "grad_norm"), ("outrider_job_learning_rate", "lr"),
    ):  # fmt: skip
        if told := _told(ranks, key):
            yield metric, {}, sum(told) / len(told)
    rates = [rank.data["tokens"] / rank.data["step_s"] for rank in ranks if rank.data.get("tokens") and rank.data.get("step_s")]
    if rates:
        yield "outrider_job_tokens_per_second", {}, float(sum(rates))


def _told(ranks: list[_Rank], key: str) -> list[float]:
    return [float(rank.data[key]) for rank in ranks if isinstance(rank.data.get(key), int | float)]
