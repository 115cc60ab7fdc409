"""Hangs in nested groups, and partitions of the watching: who is named, and that no job is touched."""

import numpy as np
import pytest

from detectors.core.waits import head_of_chain
from drills.simulate.hangs import KINDS, Kind, Layout, Machine
from drills.simulate.scenarios import SCENARIOS, Scenario, run

LAYOUT = Layout(tensor=2, pipeline=4, data=4)
MACHINE = Machine(LAYOUT)


def test_every_rank_is_in_one_tensor_and_one_data_group_and_between_its_neighbours() -> None:
    groups = LAYOUT.groups()
    for name in ("tp", "dp"):
        assert sorted(rank for group in groups[name] for rank in group) == list(range(LAYOUT.size))
    counts = np.bincount([rank for pair in groups["pp"] for rank in pair])
    assert sorted(set(counts.tolist())) == [1, 2]


def test_a_stopped_rank_stops_the_whole_job_and_nobody_is_past_the_operation_it_misses() -> None:
    position = MACHINE.settle(victim=5, stop=3)
    lengths = np.array([len(program) for program in MACHINE.programs])
    assert position[5] == 3
    assert (position < lengths).all()


def test_without_a_stop_in_the_way_everybody_ends_the_step() -> None:
    last = len(MACHINE.programs[0]) - 1
    position = MACHINE.settle(victim=0, stop=last)
    lengths = np.array([len(program) for program in MACHINE.programs])
    # Only the last tensor collective of its own group is missed.
    assert set(np.flatnonzero(position < lengths)) == set(LAYOUT.groups()["tp"][0])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "other_operation"])
@pytest.mark.parametrize("ahead", [False, True])
def test_the_core_names_the_rank_that_stopped(kind: Kind, ahead: bool) -> None:
    rng, right, hangs = np.random.default_rng(1), 0, 20
    for _ in range(hangs):
        victim = int(rng.integers(LAYOUT.size))
        stop = int(rng.integers(len(MACHINE.programs[victim])))
        head = head_of_chain(MACHINE.records(kind, victim, stop, ahead=ahead), MACHINE.members, LAYOUT.size)
        right += head is not None and head.ranks == (victim,)
    assert right >= 0.97 * hangs


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.name for scenario in SCENARIOS])
def test_a_partition_or_a_stall_of_the_watching_restarts_nothing_and_is_one_incident(scenario: Scenario) -> None:
    result = run(scenario)
    assert result.restarts == 0
    assert result.ok, result.told
