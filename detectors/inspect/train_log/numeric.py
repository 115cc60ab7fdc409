"""Findings about numbers: NaN and who made it, a loss that jumps or stands still, a resume that is none."""

from collections import Counter
from statistics import median
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding, finding
from detectors.inspect.train_log.numbers import DIVERGED_LINES, SKIPS_MAX, Numbers, Series, stands_still
from detectors.inspect.train_log.reruns import POISONED, judge_reruns
from detectors.inspect.train_log.story import Story, Told

_Ranks = dict[int | None, Series]

#: Skipped steps in a row at a loss scale of 1: nothing is left to halve.
SKIPS_AT_LOWEST: Final = 3
#: Slower steps: so many lines in a row, after at least so many others, each this many times the median.
SLOW_LINES: Final = 5
HISTORY_LINES: Final = 5
SLOW_RATIO: Final = 1.3


def judge_numbers(story: Story, context: Context) -> list[Finding]:
    """At most one finding, of the kind that explains the others: one spoiled run shows in several numbers."""
    attributed = judge_reruns(story, context)
    nan = [] if attributed else _nan(story, context)
    if attributed or nan:
        return attributed + nan
    for look in (_resume, _jump, _stagnant, _scaling, _slower):
        if found := look(story, context):
            return found
    return []


def _job(context: Context) -> dict[str, Any]:
    return {"job": context.job_name}


def _nan(story: Story, context: Context) -> list[Finding]:
    series = story.numbers.series
    bad = {rank: one for rank, one in series.items() if one.bad}
    zero = {rank: one for rank, one in series.items() if _turned_zero(one)}
    spoken = [one for one in story.numeric if one.what == "nan_text"]
    if bad or zero:
        return [_not_finite(bad, zero, spoken, series, context)]
    if story.numbers.bad_eval:
        return [
            finding(
                "job.loss_nan",
                _job(context),
                "The loss of an evaluation is not finite, though the training loss is: the weights, or the evaluation's data "
                "or arithmetic, are spoiled.",
                evidence=[story.numbers.bad_eval.evidence()],
                response="page",
                next_steps=POISONED,
            )
        ]
    return [_spoken(spoken, story, context)] if spoken else []


def _not_finite(bad: _Ranks, zero: _Ranks, spoken: list[Told], series: _Ranks, context: Context) -> Finding:
    """Ranks whose numbers are not finite, or that turned to exactly 0: it healed, comes again at one step, or lasts."""
    worst = max((bad or zero).values(), key=lambda one: one.bad_run)
    reasons = _reasons(bad)
    evidence = [one.evidence() for one in spoken[:4]] + [
        mark.evidence() for mark in ([worst.first_bad] if worst.first_bad else []) + list(worst.texts)
    ]
    subject = _job(context) | _only_rank(bad or zero, series, context)
    where = f" first at step {worst.first_bad.step}" if worst.first_bad and worst.first_bad.step is not None else ""
    still = any(one.bad_run for one in bad.values()) or bool(zero)
    if not still and max(one.bad_run_longest for one in bad.values()) < 3:
        return finding(
            "job.loss_nan",
            subject,
            f"A step was not finite ({reasons},{where}), and the next ones are: it healed.",
            evidence=evidence,
            response="watch",
            state="resolved",
        )
    if again := _bad_again(bad):
        return _same_step(again, reasons, evidence, context)
    lasting = any(one.bad_run >= 2 or (one.bad_run >= 1 and one.lines <= 3) for one in bad.values()) or bool(zero)
    return finding(
        "job.loss_nan",
        subject,
        f"The numbers are not finite any more: {reasons},{where}{'' if lasting else ' (so far one line)'}. Whether "
        f"program, data or a GPU began it is"
        " not told, so no node is drained.",
        evidence=_unique(evidence),
        response="page",
        next_steps=POISONED,
    )


def _reasons(bad: _Ranks) -> str:
    """The most frequent signs, over all ranks."""
    told: Counter[str] = sum((one.bad_reasons for one in bad.values()), Counter())
    return ", ".join(text for text, _ in told.most_common(3)) or "the loss is exactly 0"


def _same_step(step: int, reasons: str, evidence: list[EvidenceLine], context: Context) -> Finding:
    return finding(
        "job.loss_nan",
        _job(context),
        f"The numbers are not finite at step {step} in one attempt after the other ({reasons}): the same step, so "
        f"its data or the program, no device.",
        evidence=_unique(evidence),
        culprit="data",
        response="page",
        repair="fix_data",
        next_steps=("Look at the batch of that step, or skip it.", *POISONED[:2]),
    )


def _bad_again(bad: _Ranks) -> int | None:
    """The step at which two attempts turned bad, if there is one."""
    steps = Counter(step for one in bad.values() for step in one.began)
    return next(
        (step for step, count in steps.items() if count > 1 and any(one.began.count(step) > 1 for one in bad.values())), None
    )


def _turned_zero(one: Series) -> bool:
    """A loss that is exactly 0 again and again after real values: trainers print that for NaN that they filter."""
    return one.equal_value == 0 and one.equal_run >= 3 and bool(one.losses) and max(one.losses) > 0.05


def _spoken(lines: list[Told], story: Story, context: Context) -> Finding:
    """A line says NaN in words, the step lines do not show it."""
    ranks = sorted({one.record.rank for one in lines if one.record.rank is not None})
    on_data = any(word in one.record.text.lower() for one in lines for word in ("batch", "input", "sample", "shard", "data"))
    healthy_after = any(one.last and one.last.line > lines[-1].line and not one.bad_run for one in story.numbers.series.values())
    subject = context.rank_subject(ranks[0]) if len(ranks) == 1 else _job(context)
    return finding(
        "job.loss_nan",
        subject,
        "A rank reports values that are not finite." + (" They come with the data." if on_data else ""),
        evidence=[one.evidence() for one in lines],
        culprit="data" if on_data else "app",
        repair="fix_data" if on_data else "fix_app",
        response="watch" if healthy_after else "page",
        next_steps=POISONED,
    )


def _only_rank(bad: dict[int | None, Series], series: dict[int | None, Series], context: Context) -> dict[str, Any]:
    """The one rank whose numbers are bad while others' are not, or where they were bad first."""
    named = [rank for rank in bad if rank is not None]
    if len(named) == 1 and len(series) > 1:
        return context.rank_subject(named[0])
    return {}


def _unique(lines: list[EvidenceLine]) -> list[EvidenceLine]:
    return list({(one.file, one.line): one for one in lines}.values())


# --- Jumps, standing still, resumes ---------------------------------------------------------------------------------------


def _main(numbers: Numbers) -> Series | None:
    """The series with most losses."""
    return max(numbers.series.values(), key=lambda one: one.with_loss, default=None)


def _resume(story: Story, context: Context) -> list[Finding]:
    """A job that starts where it did not stop: the loss jumps at a resume, or nothing was loaded."""
    one = _main(story.numbers)
    if one is None:
        return []
    fresh = [told for told in story.life if told.what == "fresh_start"]
    if one.high_after_resume and one.high_run >= 1:
        return [
            finding(
                "job.resume_mismatch",
                _job(context),
                f"After a resume the loss is {one.high_value:.4g} where it was {one.normal_value:.4g}: what was loaded is not "
                f"what was saved.",
                evidence=[told.evidence() for told in fresh] + ([one.first_high.evidence()] if one.first_high else []),
                next_steps=(
                    "Stop: the run trains from a wrong state.",
                    "Compare step, learning rate and data cursor with those of the snapshot.",
                ),
            )
        ]
    if one.zero_lr_run >= 3 and not (one.total and one.last and one.last.step and one.last.step >= 0.98 * one.total):
        return [
            finding(
                "job.resume_mismatch" if story.life else "job.loss_stagnant",
                _job(context),
                f"The learning rate is exactly 0 for {one.zero_lr_run} lines, and the schedule is not at its end: nothing is "
                f"learnt.",
                evidence=[mark.evidence() for mark in one.texts],
                next_steps=("Check the scheduler's state and total steps that were loaded.",),
            )
        ]
    return []


def _jump(story: Story, context: Context) -> list[Finding]:
    one = _main(story.numbers)
    if one is None or not one.spikes or one.first_high is None:
        return []
    evidence = _unique([one.first_high.evidence(), *(mark.evidence() for mark in one.texts)])
    text = f"The loss jumped from {one.normal_value:.4g} to {one.high_value:.4g} at step {one.first_high.step}"
    if one.high_run >= DIVERGED_LINES:
        return [
            finding(
                "job.loss_spike",
                _job(context),
                f"{text} and does not come back.",
                evidence=evidence,
                response="page",
                next_steps=POISONED,
            )
        ]
    came_back = one.high_run == 0
    return [
        finding(
            "job.loss_spike",
            _job(context),
            f"{text}{' and came back by itself' if came_back else '; the log ends there'}.",
            evidence=evidence,
            response="watch",
            state="resolved" if came_back else "open",
        )
    ]


def _stagnant(story: Story, context: Context) -> list[Finding]:
    one = _main(story.numbers)
    if one is None or one.equal_longest_first is None:
        return []
    flat = len(one.losses) >= 10 and one.with_loss >= 10 and (max(one.losses) - min(one.losses)) < 2e-4 * abs(median(one.losses))
    if not stands_still(one) and not (one.equal_run >= 3 and one.zero_grad_run >= 3) and not flat:
        return []
    return [
        finding(
            "job.loss_stagnant",
            _job(context),
            f"The loss is {one.equal_longest_value:.6g} again and again "
            f"({max(one.equal_run_longest, len(one.losses) if flat else 0)} lines): nothing is learnt.",
            evidence=[one.equal_longest_first.evidence(), *(mark.evidence() for mark in one.texts)],
            next_steps=("Check learning rate, gradient norm and that the data moves on.",),
        )
    ]


def _scaling(story: Story, context: Context) -> list[Finding]:
    """Dynamic loss scaling that cannot find a scale."""
    numbers = story.numbers
    longest = max((one.skip_run for one in numbers.series.values()), default=0)
    lowest = any(one.skip_run >= SKIPS_AT_LOWEST and one.scale is not None and one.scale <= 1 for one in numbers.series.values())
    if longest < SKIPS_MAX and not numbers.notices["scale_minimum"] and not lowest:
        return []
    evidence = [one.evidence() for one in story.numeric if one.what in ("overflow", "scale_minimum")][-6:]
    return [
        finding(
            "job.loss_nan",
            _job(context),
            f"Steps are skipped without end ({longest} in a row): gradients overflow at every loss scale.",
            evidence=evidence or [mark.evidence() for one in numbers.series.values() for mark in one.texts],
            response="page",
            next_steps=POISONED,
        )
    ]


def _slower(story: Story, context: Context) -> list[Finding]:
    """Steps that last longer and stay so, with no other sign: worth a look, no proof of anything."""
    one = _main(story.numbers)
    if one is None or story.episodes or len(one.times) < SLOW_LINES + HISTORY_LINES:
        return []
    times = list(one.times)
    before, after = median(times[:-SLOW_LINES]), min(times[-SLOW_LINES:])
    if after < SLOW_RATIO * before:
        return []
    return [
        finding(
            "job.straggler",
            _job(context),
            f"Steps last {after / before:.2f} times as long as before, for {SLOW_LINES} lines and more; which rank holds them "
            f"up is not told here.",
            evidence=[mark.evidence() for mark in one.texts],
            response="watch",
        )
    ]
