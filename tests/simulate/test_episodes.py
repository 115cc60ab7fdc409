"""Episodes play the real engines and council; what they decide must fit what happened."""

import pytest
from simulate_helpers import NODE, episode

from drills.simulate import check, faults
from drills.simulate.episode import T0
from drills.simulate.jitter import Jitter
from drills.simulate.world import Kind

RACK = tuple(range(8))
VICTIM = faults.Victim(NODE, 3, 1, tuple(f"n{index:05d}" for index in range(8)))


@pytest.mark.parametrize("fault", sorted(faults.known() - {"gpu.sdc"}))
def test_every_fault_that_can_be_played_is_found_with_the_right_class_and_place(fault: str) -> None:
    play = episode(seed=7, victims=RACK if fault == "domain.lost" else (5,))
    play.happen(T0, faults.SCRIPTS[fault], play, VICTIM, T0)
    found = check.outrider(play.run()).found[0]
    assert found.seconds is not None, f"{fault} was not found"
    assert found.placed, f"{fault} was found in the wrong place"


@pytest.mark.parametrize("fault", sorted(faults.known()))
def test_no_fault_makes_the_judge_touch_an_innocent_node_or_restart_a_job_that_can_go_on(fault: str) -> None:
    play = episode(seed=11, victims=RACK if fault == "domain.lost" else (5,))
    play.happen(T0, faults.SCRIPTS[fault], play, VICTIM, T0)
    outcome = check.outrider(play.run())
    assert outcome.false_restarts == []
    assert outcome.false_pages == []


#: Faults after which ranks end: whoever ends first must not be taken for the cause.
ENDS_RANKS = ("nic.down", "gpu.ecc_contained", "gpu.ecc_uncontained", "gpu.fallen_off_bus", "gpu.nvlink", "node.memory", "job.oom")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", ENDS_RANKS)
def test_the_ranks_that_end_after_a_fault_are_no_fault_of_their_own(fault: str, seed: int) -> None:
    play = episode(seed=100 + seed)
    play.happen(T0, faults.SCRIPTS[fault], play, VICTIM, T0)
    record = play.run()
    outcome = check.outrider(record)
    assert [(right, placed) for _, right, placed in outcome.named] == [(True, True)], outcome.named
    assert outcome.extra_incidents == 0
    assert sum(one.action == "restart" and one.refused is None for one in record.actions) == 1


def test_silent_corruption_is_missed_and_counted_so() -> None:
    play = episode()
    play.happen(T0, faults.SCRIPTS["gpu.sdc"], play, VICTIM, T0)
    assert check.outrider(play.run()).found[0].seconds is None


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [("agent_stopped", 3.0), ("agent_stopped", 30.0), ("processes_stopped", 20.0), ("host_frozen", 20.0), ("host_frozen", 27.0)],
)
def test_a_pause_below_the_limits_confirms_nothing(kind: Kind, seconds: float) -> None:
    play = episode(jitter=Jitter(name="J"))
    play.outage(NODE, kind, T0, seconds)
    play.ends(T0 + seconds + 10)
    outcome = check.outrider(play.run())
    assert (outcome.named, outcome.false_pages, outcome.false_restarts) == ([], [], [])


@pytest.mark.parametrize("age", [0.0, 0.3, 0.9])
def test_silence_alone_is_never_a_lost_node_before_the_hard_limit_and_is_soon_after(age: float) -> None:
    play = episode(seed=3)
    play.outage(NODE, "host_dead", T0 + age)
    play.ends(T0 + 60)
    record = play.run()
    last = record.arrivals[NODE][-1]
    confirmed = next(change.t for change in record.changes if change.event == "confirmed" and change.fault == "node.lost")
    assert 35.0 <= confirmed - last <= 36.3


def test_a_lost_node_leaves_its_slots_to_a_spare_and_the_job_steps_on() -> None:
    play = episode(seed=5)
    play.happen(T0, faults.SCRIPTS["node.lost"], play, VICTIM, T0)
    record = play.run()
    restart = next(action for action in record.actions if action.action == "restart")
    assert {item["from"] for item in restart.target["replace"]} == {NODE}
    assert record.recovered_t is not None
    assert any(change.event == "resolved" and change.fault == "node.lost" for change in record.changes)


def test_the_survivors_are_asked_for_a_copy_while_the_node_is_only_suspect() -> None:
    play = episode()
    play.outage(NODE, "host_frozen", T0, 12.0)
    play.ends(T0 + 20)
    record = play.run()
    assert record.copies and T0 + 3 <= record.copies[0][0] <= T0 + 5.5


def test_the_same_seed_decides_the_same_bit_for_bit() -> None:
    def told() -> list[object]:
        play = episode(seed=42, jitter=Jitter(name="J"))
        play.happen(T0, faults.SCRIPTS["node.lost"], play, VICTIM, T0)
        record = play.run()
        return [record.changes, record.actions, record.heartbeats]

    assert told() == told()
