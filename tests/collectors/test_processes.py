"""Ranks found by their environment; their ends and states told. Formats: proc(5)."""

import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.frame.types import LocalRank, News, Note, Outcome, Place, Readings
from collectors.processes import Processes
from collectors.rank_names import Process, belongs_here, choose_ranks, name_rank, parse_environment, parse_stat
from collectors.slurm_jobs import expand_nodes, expand_tasks, slots_of
from outrider.config.collectors import CollectorsSection
from outrider.signals import Signal

TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "run7", "TORCHELASTIC_RESTART_COUNT": "2"}
SLURM = {"SLURM_JOB_ID": "42", "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_RESTART_COUNT": "1"}
KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "6", "HOSTNAME": "llm-train-6-abcde"}


def process(pid: int, parent: int = 1, command: str = "python", **environment: str) -> Process:
    return Process(pid, parent, 100 + pid, command, environment)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (TORCHRUN, ("run7", 5, 3, 1, "torchrun")),
        (SLURM, ("slurm-42", 3, 2, 1, "slurm")),
        ({**SLURM, **TORCHRUN}, ("slurm-42", 5, 4, 1, "torchrun")),
        (KUBERNETES, ("llm-train", 6, 1, None, "kubernetes")),
        ({"OUTRIDER_JOB": "j1", "OUTRIDER_ATTEMPT": "4", "RANK": "0"}, ("j1", 0, 4, None, "outrider")),
    ],
    ids=["torchrun", "slurm", "torchrun in slurm", "kubernetes", "outrider"],
)
def test_a_rank_is_named_by_whoever_started_it(environment: dict[str, str], expected: tuple[object, ...]) -> None:
    found = name_rank(process(10, **environment))
    assert found is not None
    assert (found.job, found.rank, found.attempt, found.gpu, found.told_by) == expected


@pytest.mark.parametrize(
    "environment",
    [{}, {"RANK": "x", "TORCHELASTIC_RUN_ID": "r"}, {"RANK": "1"}, {"SLURM_JOB_ID": "1"}],
    ids=["nothing", "no number", "no job", "no rank"],
)
def test_what_is_no_rank_is_not_made_one(environment: dict[str, str]) -> None:
    assert name_rank(process(10, **environment)) is None


def test_data_loaders_and_starters_are_not_taken_for_ranks() -> None:
    processes = [
        process(10, 1, "slurmstepd", **SLURM),
        process(11, 10, "bash", **SLURM),
        process(12, 11, "python", **SLURM),
        process(13, 12, "pt_data_worker", **SLURM),
    ]
    assert [found.pid for found in choose_ranks(processes)] == [12]


def test_torchruns_own_process_is_not_a_rank_of_slurm() -> None:
    processes = [
        process(10, 1, "torchrun", **SLURM),
        process(11, 10, "python", **{**SLURM, **TORCHRUN}),
        process(12, 10, "python", **{**SLURM, **TORCHRUN, "RANK": "6", "LOCAL_RANK": "2"}),
    ]
    assert [(found.pid, found.rank) for found in choose_ranks(processes)] == [(11, 5), (12, 6)]


def test_a_rank_of_another_node_on_this_machine_is_left_to_it() -> None:
    ours, theirs = "/dev/shm/run/n1/agent.sock", "/dev/shm/run/n2/agent.sock"
    assert belongs_here(process(1, OUTRIDER_AGENT=ours), "n1") and belongs_here(process(1), "n1")
    assert not belongs_here(process(1, OUTRIDER_AGENT=theirs), "n1")


def test_stat_is_read_with_odd_names() -> None:
    tail = " S 77 " + " ".join(["0"] * 17) + " 9999 0"
    assert parse_stat(f"12 (a) b (c){tail}") == ("a) b (c", "S", 77, 9999)
    for junk in ("", "12", "12 (x) S", "12 (x) S a b", "\x00"):
        assert parse_stat(junk) is None


def test_only_what_names_a_rank_is_kept_of_an_environment() -> None:
    assert parse_environment("RANK=3\0SECRET_TOKEN=abc\0junk\0=x\0") == {"RANK": "3"}


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("gpu[0-2]", ["gpu0", "gpu1", "gpu2"]),
        ("gpu[08-10,3],login1", ["gpu08", "gpu09", "gpu10", "gpu3", "login1"]),
        ("a[1-2]-ib,b", ["a1-ib", "a2-ib", "b"]),
        ("n1", ["n1"]),
        ("", []),
        ("gpu[3-1]", []),
        ("gpu[x]", []),
        ("gpu[0-99999999]", []),
    ],
)
def test_slurms_node_lists_are_expanded(expression: str, names: list[str]) -> None:
    assert expand_nodes(expression) == names


@pytest.mark.parametrize(("expression", "tasks"), [("8(x2),4", [8, 8, 4]), ("1", [1]), ("", []), ("x", []), ("8(x", [])])
def test_slurms_tasks_are_expanded(expression: str, tasks: list[int]) -> None:
    assert expand_tasks(expression) == tasks


SLURM_JOB = {"SLURM_JOB_NODELIST": "gpu[0-1]", "SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_NTASKS": "4"}


@pytest.mark.parametrize(
    ("environment", "slots"),
    [
        (SLURM_JOB, [("gpu0", 0), ("gpu0", 1), ("gpu1", 0), ("gpu1", 1)]),
        ({**SLURM_JOB, "SLURM_NTASKS": "5"}, []),
        (
            {**SLURM_JOB, "SLURM_TASKS_PER_NODE": "1(x2)", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"},
            [("gpu0", 0), ("gpu0", 1), ("gpu1", 0), ("gpu1", 1)],
        ),
        ({}, []),
    ],
    ids=["srun", "it does not add up", "torchrun", "nothing"],
)
def test_a_jobs_slots_are_learnt_from_slurm(environment: dict[str, str], slots: list[tuple[str, int]]) -> None:
    assert slots_of(environment) == slots


@pytest.mark.parametrize(
    "environment",
    [
        {"SLURM_JOB_NODELIST": "n[1-20000]", "SLURM_TASKS_PER_NODE": "256(x20000)", "SLURM_NTASKS": "5120000"},
        {"SLURM_JOB_NODELIST": "n[1-20000]", "SLURM_TASKS_PER_NODE": "256(x20000)", "SLURM_NTASKS": "7"},
        {"SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "9999", "SLURM_NTASKS": "9999"},
        {"SLURM_JOB_NODELIST": "n1", "RANK": "0", "LOCAL_WORLD_SIZE": "9" * 4000, "WORLD_SIZE": "9" * 4000},
    ],
    ids=["as large as it says", "larger than it says", "a node of thousands", "a number of thousands of digits"],
)
def test_a_job_without_end_is_none_and_fills_no_memory(environment: dict[str, str]) -> None:
    """Any process on the node may say such a thing of itself; the agent stays below 60 MiB."""
    tracemalloc.start()
    assert slots_of(environment) == []
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


class Bench:
    """A collector on this machine's /proc."""

    def __init__(self, folder: Path) -> None:
        self.collector = Processes(Place(node="n1", boot="b", state_dir=str(folder), section=CollectorsSection()), Note())
        self.children: list[subprocess.Popen[bytes]] = []
        self.now = 0.0

    def rank(self, job: str, number: int, **more: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, "TORCHELASTIC_RUN_ID": job, "RANK": str(number), "LOCAL_RANK": "0", **more}
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", "import sys, time; print(1, flush=True); time.sleep(60)"], env=env, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        self.children.append(child)
        return child

    def read(self, seconds: float = 10.0) -> list[Signal]:
        self.now += seconds
        outcome: Outcome = self.collector.read(self.now)
        assert isinstance(outcome, Readings)
        return [one for one in outcome.signals if str(one.job).startswith(("odjob", "slurm-odjob"))]

    def wait(self, find: Callable[[], list[Signal]]) -> list[Signal]:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if found := find():
                return found
            time.sleep(0.01)
        raise AssertionError("never told")

    def close(self) -> None:
        self.collector.close()
        for child in self.children:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.mark.real
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_the_end_of_a_rank_is_told_with_its_code(bench: Bench, number: int) -> None:
    child = bench.rank("odjob1", 3)
    assert bench.read() == []
    child.send_signal(number)
    (told,) = bench.wait(lambda: bench.read(0.1))
    assert (told.kind, told.job, told.rank, told.process) == ("process_exit", "odjob1", 3, child.pid)
    assert told.value == -number
    assert bench.read(10.0) == []


@pytest.mark.real
def test_a_stopped_rank_is_told_and_so_is_its_waking(bench: Bench) -> None:
    child = bench.rank("odjob2", 0)
    bench.read()
    child.send_signal(signal.SIGSTOP)
    (told,) = bench.wait(lambda: bench.read(1.5))
    assert (told.kind, told.data["event"], told.rank) == ("kernel", "process_stopped", 0)
    assert bench.read(2.0) == []
    child.send_signal(signal.SIGCONT)
    (told,) = bench.wait(lambda: bench.read(0.1))
    assert told.data["event"] == "process_running"


@pytest.mark.real
def test_a_rank_that_speaks_to_the_agent_is_left_to_it(bench: Bench) -> None:
    child = bench.rank("odjob3", 1)
    bench.read()
    bench.collector.told(News(ranks=[LocalRank(job="odjob3", rank=1, slot=1, attempt=1, pid=child.pid)]))
    child.kill()
    child.wait()
    time.sleep(0.05)
    assert bench.read(0.1) == []


@pytest.mark.real
def test_a_slurm_job_tells_its_slots_once(bench: Bench) -> None:
    bench.rank("run", 3, SLURM_JOB_ID="odjob4", LOCAL_WORLD_SIZE="2", WORLD_SIZE="4", **SLURM_JOB)
    (told,) = bench.read()
    assert (told.kind, told.job, told.data["slots"]) == (
        "job",
        "slurm-odjob4",
        [("gpu0", 0), ("gpu0", 1), ("gpu1", 0), ("gpu1", 1)],
    )
    assert told.data["synchronous"] is False
    assert bench.read() == []
