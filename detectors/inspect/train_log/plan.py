"""Was the end asked for? A time limit, a cancel, a preemption, a finished training: what breaks after that is teardown."""

from itertools import pairwise
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import Finding, finding
from detectors.inspect.train_log.story import PLANS, Episode, Story, Told

#: Clocks of two machines, and lines that were printed late, differ by so much: what is this little older than the order to
#: stop is its effect.
SLACK_SECONDS: Final = 2.0
#: Notices that somebody may also send because a job is already broken: a cause that follows at once still counts.
_WEAK: Final = frozenset({"signal_received", "done", "reclaim"})
#: What breaks without being told to: no order to stop makes these.
HARD: Final = frozenset(
    {"cuda_oom", "host_oom", "slurm_oom", "pod_oom", "cuda_error", "device_assert", "nan_local", "bus_error", "node_failure"}
)
#: A run without a step for this many usual gaps, and at least this long, stood still before it was stopped.
SILENT_GAPS: Final = 20
SILENT_SECONDS_MIN: Final = 1800.0

_WORDS: Final = {
    "time_limit": "its time limit was reached",
    "preempted": "it was preempted",
    "evicted": "it was evicted on purpose",
    "deleted": "it was deleted",
    "requeued": "it was requeued",
    "cancelled": "somebody cancelled it",
}


def is_before(one: Told, other: Told, slack: float = 0.0) -> bool:
    """Whether `one` came before `other` by more than `slack` seconds: by their own stamps if both have one, else by order."""
    if one.own is not None and other.own is not None and one.own != other.own:
        return one.own < other.own - slack
    return one.order < other.order


def _plans(episode: Episode) -> list[Told]:
    """The orders to stop, unless Slurm gives the failure of a node as its reason."""
    plans = [one for one in episode.told if one.what in PLANS and one.data.get("kind") not in ("node_failure", "oom")]
    plans += [one for one in episode.told if one.what == "exception" and one.data.get("kind") == "user"]
    return sorted(plans, key=lambda one: one.order)


def judge_plan(episode: Episode, causes: list[Told], trouble: list[Told], story: Story, context: Context) -> Finding | None:
    """A finding `job.planned_stop` if the job was asked to stop before anything was wrong, else None.

    Args:
        causes: records that name a cause by themselves. trouble: all signs of failure, consequences too.
    """
    plans = _plans(episode)
    if not plans:
        return None
    plan = plans[0]
    strong = [one for one in plans if _is_strong(one)]
    if any(is_before(one, plan, 0.0 if one in causes else SLACK_SECONDS) for one in trouble):
        return None
    if any(one.what in HARD and not (strong and is_before(strong[0], one)) for one in causes):
        return None
    if not strong and _step_cancel(plan) and any(one in causes and one.what != "task_exit" for one in trouble):
        return None
    if silent := _silent_before(plan, story, context):
        return silent
    plan = strong[0] if strong else plan
    words = _WORDS.get(str(plan.data.get("kind")), "it ended by itself" if plan.what == "done" else "it was told to stop")
    return finding(
        "job.planned_stop",
        {"job": context.job_name, "node": plan.record.node if plan.data.get("level") != "STEP" else None},
        f"The job did not fail: {words}. Errors after that are one side being ended before the other.",
        evidence=[plan.evidence(), *(one.evidence() for one in trouble[:3])],
        state="resolved",
    )


def _is_strong(plan: Told) -> bool:
    return plan.what not in _WEAK and not _step_cancel(plan)


def _step_cancel(plan: Told) -> bool:
    """A step that Slurm cancels without a reason may be what follows the failure of one of its tasks."""
    return plan.what == "cancelled" and plan.data.get("level") == "STEP" and plan.data.get("kind") == "cancelled"


def _silent_before(plan: Told, story: Story, context: Context) -> Finding | None:
    """The stop ended a job that had stood still for long: the limit only uncovered a hang."""
    if plan.own is None or plan.what == "done":
        return None
    walls = [wall for one in story.numbers.series.values() for wall in one.walls]
    if len(walls) < 3:
        return None
    walls.sort()
    gaps = sorted(b - a for a, b in pairwise(walls) if b > a)
    usual = gaps[len(gaps) // 2] if gaps else 0.0
    saved = [one.own for one in story.life if one.what in ("saved", "phase_eval", "phase_checkpoint") and one.own is not None]
    silent = plan.own - max([walls[-1], *(wall for wall in saved if wall <= plan.own)])
    if not usual or silent < max(SILENT_SECONDS_MIN, SILENT_GAPS * usual):
        return None
    subject: dict[str, Any] = {"job": context.job_name}
    return finding(
        "job.hang",
        subject,
        f"The job was stopped by its scheduler, but it had made no step for {silent / 60:.0f} min before: it hung.",
        evidence=[plan.evidence()],
        response="page",
    )
