"""Doubles of the core's two halves, and a small fleet, for the witness's tests."""

from typing import Any

from detectors.core.types import Decision
from outrider.fleet import Fleet, Job, Node
from outrider.signals import Signal

FLEET = Fleet(
    nodes=tuple(Node(node=name, gpus=1, address=f"10.0.0.{index}") for index, name in enumerate(("n1", "n2", "n3"), 1)),
    jobs=(Job(job="j1", slots=(("n1", 0), ("n2", 0))),),
    spares=("n3",),
)


class FakeEngine:
    """Answers each signal with what the test put into `answers`; remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[Signal] = []
        self.answers: list[Decision] = []
        self.stalls: list[float] = []

    def observe(self, signal: Signal, now: float) -> list[Decision]:
        self.heard.append(signal)
        if signal.kind == "kernel":
            raise ValueError("a bug of our own")
        answers, self.answers = self.answers, []
        return answers

    def advance(self, now: float) -> list[Decision]:
        answers, self.answers = self.answers, []
        return answers

    def next_deadline(self) -> float | None:
        return None

    def note_stall(self, seconds: float, now: float) -> None:
        self.stalls.append(seconds)


class FakeCouncil:
    """Answers the next event with what the test put into `answers`; its memory is a list of what it heard."""

    def __init__(self, fence: int) -> None:
        self.fence = fence
        self.heard: list[Any] = []
        self.answers: list[Decision] = []
        self.memory: Any = None

    def observe(self, event: Any, now: float) -> list[Decision]:
        self.heard.append(event)
        answers, self.answers = self.answers, []
        return answers

    def advance(self, now: float) -> list[Decision]:
        return []

    def next_deadline(self) -> float | None:
        return None

    def snapshot(self) -> Any:
        return {"heard": len(self.heard)}

    def restore(self, state: Any) -> None:
        self.memory = state
