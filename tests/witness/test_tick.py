"""The own-stall watch: whatever kept this process from its work, sockets come first, then the engine is told, then the clock."""

import asyncio
from typing import Any

import pytest

from detectors.witness.service import Witness
from outrider.clock import ManualClock
from outrider.signals import Signal


class Story:
    """Stands in for the judge and the receiver, and writes down in which order they were called."""

    def __init__(self, clock: ManualClock, works: list[float]) -> None:
        self.clock, self.works, self.lines = clock, works, list[str]()

    def advance(self) -> None:
        self.lines.append("advance")
        self.clock.advance(self.works.pop(0) if self.works else 0.0)

    def note_stall(self, seconds: float) -> None:
        self.lines.append(f"stall {seconds:.1f}")

    def next_deadline(self) -> float | None:
        return None

    def drain(self) -> int:
        self.lines.append("drain")
        return 0


async def turns(witness: Witness, monkeypatch: pytest.MonkeyPatch, works: list[float], sleeps: list[float]) -> list[str]:
    """Runs the watch with turns that work and sleep for so long."""
    clock = ManualClock(100.0)
    story: Any = Story(clock, works)
    witness.clock, witness.judge, witness.receiver = clock, story, story

    async def sleep(seconds: float) -> None:
        if not sleeps:
            raise asyncio.CancelledError
        clock.advance(sleeps.pop(0))

    monkeypatch.setattr("detectors.witness.service.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await witness._tick()
    return list(story.lines)


async def test_a_tick_in_time_is_no_stall(witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await turns(witness, monkeypatch, [], [0.1, 0.3]) == ["advance"] * 3


async def test_after_a_stall_sockets_come_first_then_the_engine_is_told(witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await turns(witness, monkeypatch, [], [3.1]) == ["advance", "drain", "stall 3.0", "advance"]
    assert witness.stalls == 1


async def test_own_work_that_takes_long_is_a_stall_too(witness: Witness, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await turns(witness, monkeypatch, [4.0], [0.1]) == ["advance", "drain", "stall 4.0", "advance"]


async def test_a_part_of_a_job_is_a_sign_of_its_life_however_little_news_it_is(witness: Witness) -> None:
    """What agents send goes past the eyes of people before the judge drops it."""
    whole = {"attempt": 1, "slots": [["n1", 0], ["n2", 0]]}
    witness.judge.observe(Signal(t=1.0, kind="job", node="n1", job="j", value=1, source="launcher", data=whole))
    witness.sight.jobs["j"].alive = 0.0
    part = {"attempt": 1, "world": 2, "members": [[1, 0]]}
    witness._hear(Signal(t=2.0, kind="job", node="n2", job="j", value=1, source="agent", data=part))
    line = witness.sight.job_lines()["j"]
    assert line["state"] == "running" and line["heard_s"] < 60
