"""A job that has ended is shown as such for a while, then it leaves; one started again under its name is protected again."""

import pytest
from witness_doubles import FLEET, FakeEngine

from detectors.core.world import World
from detectors.witness.journal import Journal
from detectors.witness.judge import Judge
from detectors.witness.ledger_sqlite import SqliteLedger
from detectors.witness.sight import KEPT_SECONDS, Sight
from outrider.clock import ManualClock
from outrider.fleet import Fleet
from outrider.signals import Signal


def job(attempt: int = 1, source: str = "agent") -> Signal:
    data = {"attempt": attempt, "slots": [["n1", 0], ["n2", 0]]}
    return Signal(t=1.0, kind="job", node="n1", job="j", value=attempt, source=source, data=data)


def ended(rank: int, code: int = 0, attempt: int = 1) -> Signal:
    return Signal(t=2.0, kind="process_exit", node="n1", job="j", rank=rank, value=code, data={"attempt": attempt})


def shown(sight: Sight) -> list[tuple[str, int, str | None]]:
    return [(course.job, course.attempt, course.ended) for course in sight.listed()]


@pytest.mark.parametrize(("code", "word"), [(0, "ended"), (-9, "failed")])
def test_an_ended_job_is_shown_so_for_a_while_and_leaves(clock: ManualClock, code: int, word: str) -> None:
    sight = Sight(Fleet(), clock)
    for signal in (job(), ended(0)):
        sight.signal(signal)
    assert shown(sight) == [("j", 1, None)] and sight.leave() == []
    sight.signal(ended(1, code))
    assert shown(sight) == [("j", 1, word)]
    forgotten = sight.leave()
    assert forgotten == (["j"] if code == 0 else []) and shown(sight) == [("j", 1, word)]
    clock.advance(KEPT_SECONDS[word])
    assert sight.leave() == ([] if code == 0 else ["j"]) and shown(sight) == []


def test_what_lives_on_is_not_over(clock: ManualClock) -> None:
    sight = Sight(Fleet(), clock)
    for signal in (job(), ended(0, -9), ended(1, -9), job(2)):
        sight.signal(signal)
    assert shown(sight) == [("j", 2, None)]
    for signal in (ended(0, 0, 1), ended(1, 0, 1)):  # late word of the attempt before
        sight.signal(signal)
    assert shown(sight) == [("j", 2, None)]


def test_a_job_that_only_hearsay_knows_is_not_listed(clock: ManualClock) -> None:
    sight = Sight(Fleet(), clock)
    sight.signal(ended(0))
    assert shown(sight) == []


def test_who_starts_an_ended_job_again_counts_anew_everywhere(ledger: SqliteLedger, journal: Journal, clock: ManualClock) -> None:
    judge = Judge(FakeEngine(), FLEET, ledger, journal, clock, (9471, 9479))
    sight = Sight(FLEET, clock)
    judge.listeners.append(sight.signal)
    for signal in (job(7, "launcher"), ended(0, attempt=7), ended(1, attempt=7)):
        judge.observe(signal)
    assert judge.jobs["j"].attempt == 7
    for name in sight.leave():
        judge.forget(name)
    judge.observe(job(1))
    assert judge.jobs["j"].attempt == 1 and ("j", 1, None) in shown(sight)


@pytest.mark.parametrize("attempt", [1, 6, 7, 8])
def test_the_core_judges_a_job_that_was_started_again_after_its_end(attempt: int) -> None:
    world = World(FLEET)
    world.tell_job(job(7), 1.0)
    world.jobs["j"].ended = True
    state = world.tell_job(job(attempt), 2.0)
    assert state is not None and (state.attempt, state.ended) == (attempt, False)


def test_the_core_does_not_go_back_while_a_job_runs() -> None:
    world = World(FLEET)
    world.tell_job(job(7), 1.0)
    assert world.tell_job(job(6), 2.0) is None


def test_nodes_are_not_heard_up_to_the_attempt_that_a_launcher_told(
    ledger: SqliteLedger, journal: Journal, clock: ManualClock
) -> None:
    engine = FakeEngine()
    judge = Judge(engine, FLEET, ledger, journal, clock, (9471, 9479))
    judge.observe(job(2, "launcher"))
    for attempt in (1, 2):
        judge.observe(job(attempt))
    assert judge.job_signals["j"].source == "launcher"
    judge.observe(job(3))
    assert (judge.job_signals["j"].source, judge.jobs["j"].attempt) == ("agent", 3)
    assert "synchronous" not in judge.job_signals["j"].data
