"""A job that has ended is shown as such for a while, then it leaves; one started again under its name is protected again."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from witness_doubles import FLEET, FakeEngine

from detectors.core.council import Council
from detectors.core.engine import Engine
from detectors.core.world import World
from detectors.witness.course import KEPT_SECONDS, QUIET_SECONDS, UNHEARD_SECONDS
from detectors.witness.journal import Journal
from detectors.witness.judge import Judge
from detectors.witness.ledger_sqlite import SqliteLedger
from detectors.witness.service import Witness
from detectors.witness.sight import Sight
from detectors.witness.tables import print_status
from drills.cluster.settings import free_members, make_secrets, watch_settings
from outrider.clock import ManualClock
from outrider.config.policy import Policy
from outrider.config.site import read_config
from outrider.fleet import Fleet, Job
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


def beat(sight: Sight, *nodes: str, boot: str = "b1") -> None:
    for node in nodes:
        sight.beat(Signal(t=1.0, kind="heartbeat", node=node, data={"boot": boot}))


def pass_time(sight: Sight, clock: ManualClock, seconds: float, *nodes: str, boot: str = "b1") -> list[str]:
    """Lets time pass while `nodes` beat. Returns what may be forgotten."""
    left = []
    for _ in range(int(seconds // 30)):
        clock.advance(30.0)
        beat(sight, *nodes, boot=boot)
        left += sight.leave()
    return left


def states(sight: Sight) -> dict[str, str]:
    return {course.job: course.state for course in sight.listed()}


@pytest.mark.parametrize("exits", [(), (0,)], ids=["nobody-ended", "its-mate-ended"])
def test_a_job_whose_nodes_died_is_unknown_soon_and_leaves(clock: ManualClock, exits: tuple[int, ...]) -> None:
    """The ends of its ranks were never told: that is no running job, and no ended one either."""
    sight = Sight(FLEET, clock)
    beat(sight, "n1", "n2", "n3")
    for signal in (job(), *(ended(rank, 1) for rank in exits)):
        sight.signal(signal)
    assert states(sight)["j"] == "running"
    others = ("n1", "n3", "n4") if exits else ("n3", "n4")
    assert pass_time(sight, clock, QUIET_SECONDS + 30, *others) == [] and states(sight)["j"] == "unknown"
    assert pass_time(sight, clock, KEPT_SECONDS["unknown"], *others) == ["j"] and "j" not in states(sight)


def test_a_node_that_came_back_without_its_ranks_does_not_keep_the_job(clock: ManualClock) -> None:
    sight = Sight(FLEET, clock)
    for signal in (job(), ended(0, 1)):
        sight.signal(signal)
    assert pass_time(sight, clock, UNHEARD_SECONDS - 30, "n1", "n2", "n3", "n4") == [] and states(sight)["j"] == "running"
    assert pass_time(sight, clock, 60, "n1", "n2", "n3", "n4") == [] and states(sight)["j"] == "unknown"
    assert pass_time(sight, clock, KEPT_SECONDS["unknown"], "n1", "n2", "n3", "n4") == ["j"]


def test_a_job_whose_ranks_are_heard_of_again_runs(clock: ManualClock) -> None:
    """A part of a job is a sign of its life, although the whole is not told anew; agents tell parts each five minutes."""
    sight = Sight(FLEET, clock)
    sight.signal(job())
    for _ in range(20):
        assert pass_time(sight, clock, 300, "n1", "n2", "n3", "n4") == [] and states(sight)["j"] == "running"
        sight.part(Signal(t=1.0, kind="job", node="n2", job="j", value=1, data={"members": [[1, 0]], "world": 2}))
    pass_time(sight, clock, UNHEARD_SECONDS, "n1")
    assert states(sight)["j"] == "unknown"
    sight.part(job())
    assert states(sight)["j"] == "running"


def test_a_witness_that_hears_nobody_forgets_no_job(clock: ManualClock) -> None:
    """Silence from everywhere is more likely its own."""
    sight = Sight(FLEET, clock)
    beat(sight, "n1", "n2", "n3")
    sight.signal(job())
    assert pass_time(sight, clock, 10 * KEPT_SECONDS["unknown"]) == [] and states(sight)["j"] == "unknown"


@pytest.mark.parametrize(("boot", "left"), [("b1", []), ("b2", ["j"])], ids=["same-boot", "rebooted"])
def test_a_job_that_only_its_launcher_told_of_lives_as_long_as_its_nodes(clock: ManualClock, boot: str, left: list[str]) -> None:
    """A launcher tells of a job once: that it says no more proves nothing, but no rank outlives its machine."""
    sight = Sight(FLEET, clock)
    beat(sight, "n1", "n2", "n3")
    sight.signal(job(1, "launcher"))
    hours = UNHEARD_SECONDS + KEPT_SECONDS["unknown"] + 60
    assert pass_time(sight, clock, hours, "n1", "n2", "n3", "n4", boot=boot) == left


def test_a_job_of_the_sites_file_is_unknown_until_a_rank_is_heard_of(clock: ManualClock) -> None:
    sight = Sight(Fleet(nodes=FLEET.nodes, jobs=(Job(job="j", slots=(("n1", 0),)),)), clock)
    assert states(sight) == {"j": "unknown"}
    assert pass_time(sight, clock, 2 * KEPT_SECONDS["unknown"], "n1", "n2", "n3", "n4") == [] and states(sight) == {"j": "unknown"}
    sight.signal(Signal(t=1.0, kind="step", node="n1", job="j", rank=0, value=1))
    assert states(sight) == {"j": "running"}


async def controls_of(ledger: SqliteLedger) -> dict[str, Any]:
    return {one.key: one.body for one in await ledger.controls() if one.kind == "job"}


async def written_whole(ledger: SqliteLedger) -> None:
    async with asyncio.timeout(60):
        while "slots" not in (await controls_of(ledger)).get("j", {}).get("data", {}):
            await ledger.changed(1.0)


async def test_who_forgets_a_job_tells_the_leader_and_who_hears_it_corrects_that(tmp_path: Path) -> None:
    """Two witnesses on one ledger: one has lost its way to the job's nodes, the other has not."""
    deaf, hearing = (site_of(tmp_path, name) for name in ("w1", "w2"))
    async with AsyncExitStack() as stack:
        for one in (deaf, hearing):
            await one.ledger.open()
            stack.push_async_callback(one.ledger.close)
            stack.push_async_callback(one.journal.close)
        deaf._hear(job(3))
        hearing._hear(job(3))
        writing = stack.enter_context(running(hearing.judge))
        await written_whole(hearing.ledger)
        deaf.sight.jobs["j"].exits, deaf.sight.jobs["j"].over = {0: 0, 1: 0}, 1.0
        await deaf._heed_controls()
        told = (await controls_of(deaf.ledger))["j"]
        assert (told["value"], told["data"]) == (3, {"over": True}) and "j" not in deaf.judge.jobs
        await hearing._heed_controls()
        await written_whole(hearing.ledger)
        assert not writing.done()
        await deaf._heed_controls()
        assert deaf.judge.jobs["j"].attempt == 3, "and who was wrong knows it again"


def site_of(folder: Path, name: str) -> Witness:
    path = folder / "site.toml"
    make_secrets(folder)
    path.write_text(watch_settings(folder, free_members(2)))
    return Witness(read_config(path), name)


@contextmanager
def running(judge: Judge) -> Iterator[asyncio.Task[None]]:
    task = asyncio.create_task(judge.run())
    yield task
    task.cancel()


@pytest.mark.parametrize("attempt", [1, 3, 4])
def test_council_and_engine_hear_that_a_job_is_over_and_judge_the_next_of_its_name(attempt: int) -> None:
    over = Signal(t=2.0, kind="job", job="j", value=3, source="witness", data={"over": True})
    council = Council(FLEET, Policy(mode="act"), ("w1",), fence=1)
    engine = Engine(FLEET, Policy(mode="act"), "w1", ("w1",))
    for one in (council, engine):
        world = one.world
        one.observe(job(3), 1.0)
        assert [state.name for state in world.jobs_on("n1") if state.name == "j"] == ["j"]
        one.observe(over, 2.0)
        assert [state.name for state in world.jobs_on("n1") if state.name == "j"] == [], "nobody restarts what is gone"
        one.observe(job(attempt), 3.0)
        assert (world.jobs["j"].attempt, world.jobs["j"].ended) == (attempt, False)


def test_late_word_that_an_older_start_is_over_ends_nothing() -> None:
    world = World(FLEET)
    world.tell_job(job(4), 1.0)
    world.tell_job(Signal(t=2.0, kind="job", job="j", value=3, source="witness", data={"over": True}), 2.0)
    assert not world.jobs["j"].ended


@pytest.mark.parametrize(
    ("state", "heard", "words"),
    [("running", 3.0, "running"), ("unknown", 1260.0, "no rank is heard of for 21 min"), ("unknown", None, "none of its ranks")],
)
def test_status_says_how_a_job_stands(capsys: pytest.CaptureFixture[str], state: str, heard: float | None, words: str) -> None:
    line = {"attempt": 1, "ranks": 8, "ended": None, "state": state, "heard_s": heard}
    told = {"mode": "observe", "site": "s", "paused": False, "witnesses": {}, "leader": None, "deliverer": True, "nodes": 2}
    print_status(told | {"spares": [], "jobs": {"j": line}, "maintenance": [], "open": [], "warnings": []})
    said = capsys.readouterr().out
    assert words in said and ("running" in said) == (state == "running")


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
