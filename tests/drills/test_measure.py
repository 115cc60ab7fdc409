"""The drill's verdict on what it saw: right only if everything that was promised came."""

import pytest

from drills.drill.faults import PROMISES
from drills.drill.measure import Facts, measure
from drills.drill.records import Attempt, Run
from drills.drill.result import Outcome

STEPS = 60


def run_of(attempts: dict[int, range], restored: int | None = None, changed_step: int | None = None) -> Run:
    """Two ranks; `attempts`: steps finished in each."""
    ranks = []
    for rank in range(2):
        held = {}
        for attempt, steps in attempts.items():
            one = Attempt(digest="d" if attempt == max(attempts) else None)
            for step in steps:
                loss = 1.0 / (step + 1) + rank + (0.5 if step == changed_step else 0.0)
                one.steps[step] = {"step": step, "loss": loss.hex(), "samples": [step, rank], "end": 100 + step * 0.1 + attempt}
            if attempt > 1:
                one.restored_step, one.restored_t = restored, 104.5
            held[attempt] = one
        ranks.append(held)
    return Run(ranks=ranks)


def facts(confirmed: float | None = 103.1, fault: str = "job.rank_exit", response: str = "restart") -> Facts:
    history = [{"t": 103.05, "event": "suspected"}]
    if confirmed is not None:
        history.append({"t": confirmed, "event": "confirmed"})
    incident = {"incident": "i", "fault": fault, "response": response, "subject": {"job": "drill"}, "history": history}
    return Facts(103.0, [], [incident], [(103.2, {"step": 29, "cause": "emergency"})], [])


def outcome_of(run: Run, seen: Facts, fault: str = "kill", strict: bool = False) -> Outcome:
    return measure(Outcome(fault=fault, story=""), PROMISES[fault], run, run_of({1: range(STEPS)}), seen, strict)


GOOD = {1: range(30), 2: range(30, STEPS)}


def test_a_kept_promise_is_right_and_its_figures_are_seconds_after_the_fault() -> None:
    outcome = outcome_of(run_of(GOOD, restored=29), facts())
    assert outcome.failures == [] and outcome.ok
    assert (outcome.detect_s, outcome.confirm_s, outcome.snapshot_s, outcome.load_s) == (0.05, 0.1, 0.2, 1.5)
    assert (outcome.lost_steps, outcome.steps_compared, outcome.loss_equal, outcome.digest_equal) == (0, 30, True, True)


@pytest.mark.parametrize(
    ("run", "seen", "strict", "complaint"),
    [
        (run_of(GOOD, restored=29), facts(confirmed=None), False, "job.rank_exit was not confirmed"),
        (run_of(GOOD, restored=29), facts(fault="node.lost"), False, "job.rank_exit was not confirmed"),
        (run_of(GOOD, restored=29), facts(confirmed=106.5), False, "confirmed after 3.50 s"),
        (run_of(GOOD, restored=29), facts(confirmed=105.0), True, "confirmed after 2.00 s"),
        (run_of({1: range(30), 2: range(27, STEPS)}, restored=26), facts(), False, "3 finished steps had to be run again"),
        (run_of(GOOD, restored=29, changed_step=40), facts(), False, "losses or samples differ"),
        (run_of({1: range(50), 2: range(50, STEPS)}, restored=49), facts(), False, "only 10 steps could be compared"),
        (run_of({1: range(STEPS)}), facts(), False, "restarted 0 times, not 1"),
    ],
    ids=["not confirmed", "other fault", "far too late", "late and strict", "steps lost", "loss differs", "too few", "no restart"],
)
def test_a_broken_promise_is_wrong_and_says_which(run: Run, seen: Facts, strict: bool, complaint: str) -> None:
    outcome = outcome_of(run, seen, strict=strict)
    assert not outcome.ok
    assert any(complaint in failure for failure in outcome.failures), outcome.failures


def test_jitter_that_only_raised_a_suspicion_is_right_and_one_that_paged_is_wrong() -> None:
    quiet = outcome_of(run_of({1: range(STEPS)}), facts(confirmed=None, fault="node.lost", response="watch"), "jitter")
    assert quiet.ok, quiet.failures
    loud = outcome_of(run_of({1: range(STEPS)}), facts(fault="path.broken", response="page"), "jitter")
    assert not loud.ok


@pytest.mark.parametrize(
    ("pace", "strict", "right"), [(1.1, True, True), (1.5, True, False), (1.5, False, True), (4.0, False, False)]
)
def test_a_busy_machine_may_slow_the_steps_unless_the_drill_is_strict(pace: float, strict: bool, right: bool) -> None:
    run = run_of({1: range(STEPS)})
    for attempts in run.ranks:
        for step in attempts[1].steps.values():
            step["end"] = 100 + (step["end"] - 100) * pace
    outcome = outcome_of(run, facts(confirmed=None, fault="node.lost", response="watch"), "jitter", strict)
    assert outcome.ok is right, outcome.failures


def test_the_timeline_says_what_was_ordered_and_how_it_ended() -> None:
    seen = facts()
    seen.incidents[0]["history"] += [
        {"t": 103.2, "event": "action", "action": "restart", "reason": "rank 3 ended"},
        {"t": 103.3, "event": "action_result", "action": "restart", "outcome": "done", "detail": ""},
        {"t": 103.4, "event": "first_step"},
    ]
    said = [text for _, text in outcome_of(run_of(GOOD, restored=29), seen).timeline]
    assert "job.rank_exit orders restart" in said
    assert "job.rank_exit restart done" in said
    assert "job.rank_exit a rank has made its first step" in said
