"""A node's numbers of a job: from what its ranks tell, bounded, without the time of others."""

import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from collector_site import Site

from collectors.agent.job_numbers import JOBS_MAX, LEFT_SECONDS, JobNumbers
from collectors.emulated.witness import Caller
from outrider.sdk import page
from outrider.signals import Signal


class Bench:
    """Numbers under a virtual clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.numbers = JobNumbers("n1", lambda: self.now)

    def tell(self, kind: str, value: Any, rank: int = 0, job: str = "j1", **data: Any) -> None:
        self.numbers.observe(
            Signal(t=self.now, kind=kind, value=value, job=job, rank=rank, node="n1", source="t", data={"attempt": 1, **data})
        )

    def read(self, name: str, **labels: str) -> float | None:
        for one in self.numbers.families():
            for found, value in one.samples:
                if one.name == name.removesuffix("_total") and labels.items() <= found.items():
                    return value
        return None


def test_time_is_counted_by_phase_and_by_rank_also_while_it_runs() -> None:
    bench = Bench()
    for rank in (0, 1):
        bench.tell("phase", "init", rank)
    bench.now = 10.0
    bench.tell("phase", "train", 0)
    bench.now = 15.0
    assert bench.read("outrider_job_phase_seconds_total", phase="init") == 25.0
    assert bench.read("outrider_job_phase_seconds_total", phase="train") == 5.0
    assert bench.read("outrider_job_ranks", phase="init") == 1.0
    bench.tell("phase", "train", 0, situation="stalled")
    bench.now = 18.0
    bench.tell("process_exit", 0, 0)
    bench.now = 30.0
    assert bench.read("outrider_job_phase_seconds_total", phase="stalled") == 3.0
    assert bench.read("outrider_job_exits_total", outcome="good") == 1.0


def test_step_is_the_lowest_rank_s_and_its_time_the_slowest_rank_s() -> None:
    bench = Bench()
    bench.tell("step", 7, 0, step_s=1.0, data_s=0.1, loss=2.0, tokens=100)
    bench.tell("step", 6, 1, step_s=2.0, data_s=1.5, loss=4.0, tokens=100)
    assert bench.read("outrider_job_step") == 6.0
    assert bench.read("outrider_job_step_seconds", part="step") == 2.0
    assert bench.read("outrider_job_step_seconds", part="data") == 1.5
    assert bench.read("outrider_job_loss") == 3.0
    assert bench.read("outrider_job_tokens_per_second") == 150.0
    assert bench.read("outrider_job_step_seconds", part="wait") is None


def test_a_new_attempt_begins_anew_and_an_old_one_says_nothing() -> None:
    bench = Bench()
    bench.tell("step", 9, 0, step_s=1.0)
    bench.tell("step", 5, 0, step_s=1.0, attempt=2)
    bench.tell("step", 10, 1, step_s=1.0, attempt=1)
    assert bench.read("outrider_job_step") == 5.0
    assert bench.read("outrider_job_attempt") == 2.0


def test_snapshots_are_counted_and_timed() -> None:
    bench = Bench()
    bench.tell("snapshot", 4, state="staged", cause="emergency", seconds=0.5)
    bench.tell("snapshot", 4, state="begin", cause="emergency")
    bench.now = 3.0
    bench.tell("snapshot", 4, state="committed", cause="emergency")
    bench.tell("snapshot", 4, state="begin", cause="of somebody's own making")
    assert bench.read("outrider_job_snapshots_total", state="committed", cause="emergency") == 1.0
    assert bench.read("outrider_job_snapshots_total", state="begin", cause="other") == 1.0
    assert bench.read("outrider_job_snapshot_step") == 4.0
    assert bench.read("outrider_job_snapshot_seconds", part="copy") == 0.5
    assert bench.read("outrider_job_snapshot_seconds", part="write") == 3.0


def test_jobs_are_bounded_and_ended_ones_go_away() -> None:
    bench = Bench()
    for number in range(JOBS_MAX + 3):
        bench.now += 1.0
        bench.tell("process_exit", None, job=f"j{number}")
    (exits,) = (one for one in bench.numbers.families() if one.name == "outrider_job_exits")
    assert len(exits.samples) == JOBS_MAX
    bench.now += LEFT_SECONDS + 1
    assert list(bench.numbers.families()) == []


@pytest.mark.real
def test_a_real_agent_shows_the_numbers_of_its_ranks(make_site: Callable[..., Site]) -> None:
    site = make_site()
    site.start()
    rank = Caller(site.socket)
    hello = {"hello": "rank", "job": "j1", "attempt": 3, "slot": 0, "rank": 0, "world": 2, "pid": 1, "copy_bytes": 10_000}
    writer = page.Writer(page.open_page(rank.ask(hello)["progress"]))
    now = time.monotonic_ns()
    writer.tell_phase("train", now)
    writer.end(7, now - 2_000_000_000, now, (2.5, *[float("nan")] * 6))
    site.witnesses[0].first("step")
    end = time.monotonic() + 20
    wanted = ('outrider_job_step{job="j1",node="n1"} 7.0', 'outrider_job_attempt{job="j1",node="n1"} 3.0')
    while not all(line in (text := _page(site)) for line in wanted):
        assert time.monotonic() < end, text
    assert 'outrider_job_ranks{job="j1",node="n1",phase="train"} 1.0' in text
    assert 'outrider_job_step_seconds{job="j1",node="n1",part="step"} 2.0' in text
    rank.close()


def _page(site: Site) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{site.metrics_port}/metrics", timeout=10) as told:
        return str(told.read().decode())
