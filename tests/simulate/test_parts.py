"""The simulator's own parts: mixes, jitter, time line, baselines, accounts."""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from drills.simulate import baselines, check, faults, mix
from drills.simulate.episode import T0
from drills.simulate.ettr import Account, Stop
from drills.simulate.jitter import Jitter
from drills.simulate.jitter import load as load_jitter
from drills.simulate.options import Options
from drills.simulate.record import Record
from drills.simulate.report import poisson_upper, quantile
from drills.simulate.timeline import draw, episodes
from drills.simulate.world import Truth
from outrider.config.policy import Policy
from outrider.errors import InputError
from outrider.reliability import expected_ettr

POLICY = Policy(mode="act")


@pytest.mark.parametrize("name", mix.names())
def test_every_cause_of_every_mix_is_played_as_a_class_that_can_be_played(name: str) -> None:
    loaded = mix.load(name, faults.known())
    assert set(loaded.classes) <= faults.known()
    assert sum(loaded.chances) == pytest.approx(1)


def test_a_mix_goes_by_the_beginning_of_its_name_or_is_written_out() -> None:
    assert mix.load("llama3", faults.known()).name == "llama3_405b_2024"
    written = mix.load("node.lost=3,job.hang=1", faults.known())
    assert dict(zip(written.classes, written.chances, strict=True)) == {"node.lost": 0.75, "job.hang": 0.25}


@pytest.mark.parametrize("name", ["llama9", "node.lots=1", "node.lost=x", "node.lost=-1", ""])
def test_a_mix_that_does_not_exist_is_told(name: str) -> None:
    with pytest.raises(InputError):
        mix.load(name, faults.known())


def test_freezes_follow_the_law_of_the_model() -> None:
    lengths = Jitter(name="J").freezes(np.random.default_rng(1), 200_000)
    # 12 freezes a node-year: 0.499 longer than 4 s and 0.125 longer than 8 s (sigma 1.2).
    assert 12 * float((lengths > 4).mean()) == pytest.approx(0.499, rel=0.05)
    assert 12 * float((lengths > 8).mean()) == pytest.approx(0.125, rel=0.08)


def test_the_shipped_scenarios_are_read(tmp_path: Path) -> None:
    short = load_jitter("pause_scenario")
    assert (short.members, len(short.pauses)) == (20, 176)
    assert all(0 <= member < 20 for _, member, _ in short.pauses)
    assert load_jitter("pause_scenario_long").pauses[-1][2] >= 10
    for text in ("{", "[]", json.dumps({"schema": "other"}), json.dumps({"schema": "outrider.pause-scenario.v1"})):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(InputError):
            load_jitter(str(tmp_path / "bad.json"))
    with pytest.raises(InputError, match="is none of J, none"):
        load_jitter("K")


def test_the_number_of_faults_and_freezes_is_that_of_the_rates() -> None:
    options = Options(nodes=2048, days=54, lemon_share=0.0)
    loaded = mix.load("llama3", faults.known())
    timeline = draw(options, loaded, Jitter(name="J"), POLICY, np.random.default_rng(1))
    struck = [event for event in timeline.events if event.kind == "fault"]
    assert abs(len(struck) - 419) < 4 * math.sqrt(419)
    freezes = 2048 * 54 / 365.25 * 12
    frozen = [event for event in timeline.events if event.kind == "freeze"]
    assert abs(len(frozen) + timeline.skipped - freezes) < 4 * math.sqrt(freezes)
    assert all(event.seconds >= 2.5 for event in frozen)


def test_lemons_fail_as_often_as_they_are_told_to() -> None:
    options = Options(nodes=1000, days=365, lemon_share=0.01, lemon_factor=50, correlated_share=0)
    timeline = draw(
        options, mix.load("llama3", faults.known()), Jitter(name="J", freezes_per_node_year=0), POLICY, np.random.default_rng(2)
    )
    counts = np.bincount([event.node for event in timeline.events if event.kind == "fault"], minlength=1000)
    # Ten lemons of weight 50 among 990 others carry 500 / 1490 of all faults.
    assert np.sort(counts)[-10:].sum() / counts.sum() == pytest.approx(500 / 1490, abs=0.05)


def test_runs_of_lost_beats_come_as_often_as_beats_that_are_really_drawn() -> None:
    jitter = Jitter(name="lossy", loss=0.2, burst=0.0, freezes_per_node_year=0)
    options = Options(nodes=10, days=0.2, witnesses=1)
    timeline = draw(options, mix.load("none", faults.known()), jitter, POLICY, np.random.default_rng(3))
    beats = int(10 * 0.2 * 86_400)
    lost = np.isinf(jitter.delays(np.random.default_rng(4), (beats,)))
    runs = sum(1 for i in range(3, beats) if lost[i - 2 : i + 1].all() and not lost[i - 3])
    assert len(timeline.events) == pytest.approx(runs, rel=0.12)


def test_events_that_are_close_are_played_together() -> None:
    options = Options(nodes=500, days=30)
    timeline = draw(options, mix.load("llama3", faults.known()), Jitter(name="J"), POLICY, np.random.default_rng(5))
    groups = list(episodes(timeline.events))
    assert sum(map(len, groups)) == len(timeline.events)
    assert all(later[0].t - earlier[-1].t > 120 for earlier, later in pairwise(groups))


def _silent(last: float, end: float) -> Record:
    beats = [T0 + last - 30 + second for second in range(31)]
    return Record(arrivals={"n1": beats}, end=T0 + end)


@pytest.mark.parametrize(
    ("name", "patience"), [("fixed_timeout_10s", 10.0), ("phi_accrual_akka", 4.523), ("phi_accrual_cassandra", 18.42)]
)
def test_baselines_convict_after_their_published_patience(name: str, patience: float) -> None:
    said = baselines.convictions(_silent(0.0, 60.0), ("n1",), 1.0)[name]
    assert [one.node for one in said] == ["n1"]
    assert said[0].t - T0 == pytest.approx(patience, abs=0.01)


def test_a_baseline_that_convicts_a_frozen_host_has_a_false_restart() -> None:
    record = _silent(0.0, 60.0)
    outcome = check.baseline(record, baselines.convictions(record, ("n1",), 1.0)["fixed_timeout_10s"], hears_silence=True)
    assert len(outcome.false_restarts) == 1


def test_the_trainings_own_time_out_sees_an_exit_at_once_and_a_hang_after_ten_minutes() -> None:
    truth = Truth(fault="job.hang", t=T0, accept=frozenset({"job.hang"}), place={}, stops=True)
    hung = Record(truths=[truth], held_since=T0, end=T0 + 60)
    assert [one.t for one in baselines.convictions(hung, (), 1.0)["nccl_timeout_only"]] == [T0 + 600]
    ended = Record(truths=[truth], held_since=T0, first_exit=(T0 + 2, "n1"), end=T0 + 60)
    assert [one.node for one in baselines.convictions(ended, (), 1.0)["nccl_timeout_only"]] == ["n1"]


@pytest.mark.parametrize("emergency", [False, True])
def test_the_walk_through_random_stops_agrees_with_the_expected_ettr(emergency: bool) -> None:
    options = Options(days=2000, interval=600.0, save=20.0, restart=150.0, step=4.0)
    rng, mttf = np.random.default_rng(6), 11_135.0
    count = int(options.days * 86_400 / mttf)
    account = Account(options, 600.0, [Stop(float(t), 30.0, emergency) for t in rng.random(count) * options.days * 86_400])
    expected = expected_ettr(600.0, 20.0, mttf, 180.0, lost=2.0 if emergency else None)
    assert account.total()[0] == pytest.approx(expected, abs=0.004)
    assert (account.total()[1] == 0) is emergency


def test_bounds_and_quantiles() -> None:
    assert poisson_upper(0) == pytest.approx(2.996, abs=0.001)
    assert poisson_upper(7) == pytest.approx(13.148, abs=0.001)
    assert quantile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0
    assert quantile([], 0.5) is None
