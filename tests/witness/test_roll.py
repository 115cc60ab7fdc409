"""A job that no single node can describe becomes known when every rank has been told by some node."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from witness_doubles import FLEET, FakeEngine

from detectors.witness.journal import Journal
from detectors.witness.judge import Judge
from detectors.witness.ledger_sqlite import SqliteLedger
from detectors.witness.roll import JOBS_MAX, Roll
from outrider.clock import ManualClock
from outrider.signals import Signal


def told(node: str, *members: tuple[int, int], world: int = 4, attempt: Any = 0, job: str = "run7") -> Signal:
    data = {"attempt": attempt, "base": 0, "world": world, "members": members, "synchronous": False, "told_by": "torchrun"}
    return Signal(t=1.0, kind="job", node=node, job=job, value=attempt, data=data, id="x")


def test_slots_are_known_when_the_last_rank_is_told() -> None:
    roll = Roll()
    assert roll.take(told("n2", (2, 0), (3, 1))) is None
    assert roll.waiting == 1
    whole = roll.take(told("n1", (0, 0), (1, 1)))
    assert whole is not None and roll.waiting == 0
    assert whole.data == {
        "attempt": 0, "synchronous": False, "told_by": "torchrun", "slots": [["n1", 0], ["n1", 1], ["n2", 0], ["n2", 1]],
    }  # fmt: skip


def test_the_attempt_grows_with_every_restart_although_the_agents_disagree() -> None:
    roll = Roll()
    roll.take(told("n1", (0, 0), world=2))
    attempts = []
    for node, rank, attempt in (("n2", 1, 0), ("n1", 0, 1), ("n2", 1, 0), ("n2", 1, 1), ("n1", 0, 2)):
        whole = roll.take(told(node, (rank, 0), world=2, attempt=attempt))
        assert whole is None or whole.value == whole.data["attempt"]
        attempts.append(whole.value if whole is not None else None)
    assert attempts == [0, 1, None, 2, 3]


def test_a_job_of_many_nodes_is_told_once_and_again_after_a_while_not_with_each_part() -> None:
    roll, wholes = Roll(), list[float]()
    for now in (0.0, 100.0, 300.0, 400.0):
        for node in range(500):
            part = told(f"n{node}", *((8 * node + gpu, gpu) for gpu in range(8)), world=4000)
            if roll.take(msgspec.structs.replace(part, t=now)) is not None:
                wholes.append(now)
    assert wholes == [0.0, 300.0]


def test_a_restart_of_a_large_job_is_told_a_few_times_not_once_a_node() -> None:
    """Each agent of torchrun counts it for itself, all within two seconds; the last count is told in the end."""
    roll, nodes, world = Roll(), 1250, 10_000
    wholes: list[Signal] = []

    def hear(attempt: int, since: float) -> None:
        for number in range(nodes):
            now = since + 2.0 * number / nodes
            part = told(f"n{number}", *((8 * number + gpu, gpu) for gpu in range(8)), world=world, attempt=attempt)
            wholes.extend([whole] if (whole := roll.take(msgspec.structs.replace(part, t=now))) is not None else [])
            if (due := roll.next_due()) is not None and due <= now:
                wholes.extend(roll.due(now))

    hear(0, 0.0)
    assert [whole.value for whole in wholes] == [0] and roll.next_due() is None
    for attempt in (1, 2):
        hear(attempt, 100.0 * attempt)
        due = roll.next_due()
        assert due is not None and due - (100.0 * attempt + 2.0) < 2.0
        wholes += roll.due(due)
        assert wholes[-1].value == attempt * nodes and wholes[-1].t == due
        assert len(wholes[-1].data["slots"]) == world and roll.next_due() is None
    assert len(wholes) <= 1 + 2 * 3


async def test_a_judge_tells_a_large_job_when_it_has_rested(ledger: SqliteLedger, journal: Journal, clock: ManualClock) -> None:
    engine = FakeEngine()
    judge = Judge(engine, FLEET, ledger, journal, clock, (1, 2))

    def hear(attempt: int) -> None:
        for number in range(2):
            part = told(f"n{number}", *((500 * number + gpu, gpu) for gpu in range(500)), world=1000, attempt=attempt)
            judge.observe(msgspec.structs.replace(part, t=clock.monotonic()))

    hear(0)
    hear(1)
    assert [signal.value for signal in engine.heard] == [0]
    due = judge.next_deadline()
    assert due is not None
    clock.advance(due - clock.monotonic())
    judge.advance()
    assert [signal.value for signal in engine.heard] == [0, 2]
    assert judge.jobs["run7"].attempt == 2 and judge.next_deadline() is None


class Slow:
    """The same, put together anew each time."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[int, int]] = {}
        self.attempts: dict[str, int] = {}

    def take(self, node: str, members: dict[int, int], attempt: int, world: int) -> tuple[list[list[Any]], int] | None:
        self.nodes = {name: {r: g for r, g in ranks.items() if r not in members} for name, ranks in self.nodes.items()}
        self.nodes[node], self.attempts[node] = members, attempt
        places = {rank: [name, gpu] for name, ranks in self.nodes.items() for rank, gpu in ranks.items()}
        return ([places[rank] for rank in range(world)], sum(self.attempts.values())) if len(places) == world else None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.dictionaries(st.integers(0, 3), st.integers(0, 1), min_size=1),
                          st.integers(0, 2)), max_size=12))  # fmt: skip
def test_it_says_what_a_slow_twin_says_and_only_when_that_is_news(parts: list[tuple[str, dict[int, int], int]]) -> None:
    roll, slow, last = Roll(), Slow(), None
    for node, members, attempt in parts:
        whole = roll.take(told(node, *members.items(), attempt=attempt))
        expected = slow.take(node, members, attempt, 4)
        if whole is None:
            assert expected is None or expected == last
        else:
            last = (whole.data["slots"], whole.value)
            assert last == expected


def test_ranks_that_moved_to_another_node_are_there_and_nowhere_else() -> None:
    roll = Roll()
    roll.take(told("n1", (0, 0), world=2))
    roll.take(told("n2", (1, 0), world=2, attempt=3))
    moved = roll.take(told("n3", (1, 0), world=2))
    assert moved is not None and moved.data["slots"] == [["n1", 0], ["n3", 0]]
    assert moved.value == 3  # an attempt never goes back


def test_another_world_is_another_start() -> None:
    roll = Roll()
    roll.take(told("n1", (0, 0), world=2))
    roll.take(told("n2", (1, 0), world=2))
    assert roll.take(told("n1", (0, 0), world=3)) is None
    assert roll.take(told("n2", (1, 0), (2, 1), world=3)) is not None


@pytest.mark.parametrize(
    "strange",
    [
        {"members": "all"}, {"members": [[0]]}, {"members": [[-1, 0]]}, {"members": [[9, 0]]}, {"members": []}, {"world": 0},
        {"world": True}, {"world": 10**9}, {"world": None}, {"members": [[0, 0]] * 5000},
    ],
    ids=str,
)  # fmt: skip
def test_what_makes_no_sense_is_nobodys_roll(strange: dict[str, Any]) -> None:
    data = {"world": 2, "members": [[0, 0]]} | strange
    roll = Roll()
    assert roll.take(Signal(t=1.0, kind="job", node="n1", job="j", value=0, data=data)) is None
    assert roll.waiting == 0


def test_the_roll_is_bounded() -> None:
    roll = Roll()
    for number in range(JOBS_MAX + 50):
        roll.take(told("n1", (0, 0), job=f"j{number}"))
    assert roll.waiting == JOBS_MAX


def test_the_judge_hears_of_such_a_job_only_when_it_is_whole(ledger: SqliteLedger, journal: Journal, clock: ManualClock) -> None:
    engine = FakeEngine()
    judge = Judge(engine, FLEET, ledger, journal, clock, (9471, 9479))
    judge.observe(told("n1", (0, 0), world=2))
    assert judge.job_signals == {}
    judge.observe(told("n2", (1, 0), world=2))
    assert judge.job_signals["run7"].data["slots"] == [["n1", 0], ["n2", 0]]
