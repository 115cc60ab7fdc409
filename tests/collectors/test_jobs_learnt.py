"""Jobs without the SDK: members, world, attempt and pod from what torchrun and Kubernetes give to their ranks."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.frame.types import LocalRank, News, Note, Place, Readings
from collectors.pods import pod_uid
from collectors.processes import Processes
from collectors.rank_names import Process, choose_ranks, name_rank
from detectors.witness.roll import Roll
from outrider.config.collectors import CollectorsSection
from outrider.launchers import counted_apart, kubernetes_name, torchrun_name, world_of
from outrider.signals import Signal

ELASTIC = {
    "RANK": "2", "LOCAL_RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "run7", "TORCHELASTIC_RESTART_COUNT": "1", "MASTER_ADDR": "n1", "MASTER_PORT": "29500",
}  # fmt: skip
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "1", "HOSTNAME": "llm-1-abcde", "JOBSET_NAME": "llm"}
CGROUP = "0::/kubepods.slice/kubepods-pod1b4e28ba_2fa1_11d2_883f_0016d3cca427.slice/cri-containerd-77.scope\n"


class FakeProc:
    """A /proc of ranks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "self").mkdir(parents=True)

    def add(self, pid: int, cgroup: str = "", command: str = "python", parent: int = 1, **environment: str) -> None:
        folder = self.root / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} ({command}) S {parent} " + " ".join(["0"] * 17) + f" {100 + pid} 0\n")
        (folder / "environ").write_text("\0".join(f"{name}={value}" for name, value in environment.items()))
        (folder / "cgroup").write_text(cgroup)


def read_jobs(root: Path, monkeypatch: pytest.MonkeyPatch, news: News | None = None) -> tuple[Processes, list[Signal]]:
    monkeypatch.setattr("collectors.processes.open_process", lambda pid, born: os.open("/dev/null", os.O_RDONLY))
    made = Processes(Place(node="n2", boot="b", state_dir="/", section=CollectorsSection(proc_root=str(root))), Note())
    monkeypatch.setattr(made, "_epoll", _NoEvents())
    made.told(news or News())
    outcome = made.read(100.0)
    assert isinstance(outcome, Readings)
    return made, [one for one in outcome.signals if one.kind == "job"]


class _NoEvents:
    def register(self, *_: Any) -> None: ...

    def poll(self, _: float) -> list[tuple[int, int]]:
        return []


def test_the_ranks_of_this_node_are_told_with_the_jobs_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = FakeProc(tmp_path)
    proc.add(10, **ELASTIC)
    proc.add(11, **{**ELASTIC, "RANK": "3", "LOCAL_RANK": "1"})
    _, (job,) = read_jobs(tmp_path, monkeypatch)
    assert (job.job, job.value, job.data["base"]) == ("run7", 2, 1)
    assert (job.data["world"], job.data["members"], job.data["told_by"]) == (4, [(2, 0), (3, 1)], "torchrun")
    assert job.data["synchronous"] is False and "slots" not in job.data


def test_a_job_that_is_whole_on_this_node_is_told_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = FakeProc(tmp_path)
    for rank in range(2):
        alone = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "1"}
        proc.add(10 + rank, **{**ELASTIC, **alone})
    _, (job,) = read_jobs(tmp_path, monkeypatch)
    assert job.data["slots"] == [("n2", 0), ("n2", 1)]


def test_one_that_speaks_for_itself_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeProc(tmp_path).add(10, **ELASTIC)
    news = News(ranks=[LocalRank(job="run7", rank=2, slot=0, attempt=1, pid=10)])
    assert read_jobs(tmp_path, monkeypatch, news)[1] == []


def test_an_exit_does_not_carry_a_count_on_which_the_agents_disagree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeProc(tmp_path).add(10, cgroup=CGROUP, **ELASTIC)
    collector, _ = read_jobs(tmp_path, monkeypatch)
    (found,) = collector._ranks.values()
    told = collector._exit(found, -9, 101.0)
    assert "attempt" not in told.data and told.data["pod"] == "1b4e28ba-2fa1-11d2-883f-0016d3cca427"


def test_in_a_pod_the_workers_are_the_ranks_and_not_torchrun_itself() -> None:
    workers = {"RANK": "1", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}
    processes = [Process(10, 1, 110, "torchrun", POD), Process(11, 10, 111, "python", {**POD, **workers})]
    (found,) = choose_ranks(processes)
    assert (found.pid, found.job, found.rank, found.told_by) == (11, "llm", 1, "torchrun")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TORCHELASTIC_RUN_ID": "run7"}, "run7"),
        ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}, "torchrun-n1-29500"),
        ({"TORCHELASTIC_RUN_ID": "none"}, ""),
        ({"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}, ""),
    ],
    ids=["named", "static rendezvous", "no place", "not torchrun"],
)
def test_a_job_without_a_name_is_called_by_where_its_ranks_meet(environment: dict[str, str], expected: str) -> None:
    assert torchrun_name(environment) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOSTNAME": "llm-train-6-abcde"}, "llm-train"),
        ({"HOSTNAME": "llm-workers-0-3", "JOBSET_NAME": "llm"}, "llm"),
        ({"HOSTNAME": "pod-0-x", "JOB_NAME": "bert"}, "bert"),
    ],
    ids=["indexed job", "JobSet", "named"],
)
def test_a_kubernetes_job_has_its_name(environment: dict[str, str], expected: str) -> None:
    assert kubernetes_name(environment) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"WORLD_SIZE": "16"}, 16), ({"PET_NNODES": "2", "PET_NPROC_PER_NODE": "8"}, 16), ({"PET_NNODES": "1:4"}, None), ({}, None),
        ({"WORLD_SIZE": "0"}, None), ({"WORLD_SIZE": "9" * 9}, None), ({"WORLD_SIZE": "-1"}, None), ({"WORLD_SIZE": "x"}, None),
    ],
    ids=str,
)  # fmt: skip
def test_the_world_is_what_somebody_says_or_unknown(environment: dict[str, str], expected: int | None) -> None:
    assert world_of(environment) == expected


def test_a_process_seen_between_fork_and_exec_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has become a rank it carries its starter's environment, and both are called python."""
    proc = FakeProc(tmp_path)
    proc.add(10, OUTRIDER_AGENT="/run/n2/agent.sock")
    collector, jobs = read_jobs(tmp_path, monkeypatch)
    assert jobs == []
    (tmp_path / "10/environ").write_text("\0".join(f"{name}={value}" for name, value in ELASTIC.items()))
    outcome = collector.read(110.0)
    assert isinstance(outcome, Readings) and [one.job for one in outcome.signals] == ["run7"]


def test_a_pods_uid_is_in_its_cgroup() -> None:
    assert pod_uid(CGROUP) == "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    assert pod_uid("0::/user.slice\n") == pod_uid("") == ""
    assert counted_apart(ELASTIC) and not counted_apart({"GROUP_WORLD_SIZE": "1"}) and not counted_apart({})
    found = name_rank(Process(1, 1, 1, "python", {**POD, "JOBSET_RESTART_ATTEMPT": "3", "WORLD_SIZE": "2"}))
    assert found is not None and (found.attempt, found.rank, found.told_by) == (4, 1, "kubernetes")


# --- a real torchrun of two agents ------------------------------------------------------------------------------------

WORKER = "import time\ntime.sleep(600)\n"


class Torchrun:
    """Two agents of torchrun on this machine, one for each of two emulated nodes."""

    def __init__(self, folder: Path) -> None:
        script = folder / "worker.py"
        script.write_text(WORKER)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.agents, self.name = [], f"outrider-test-{port}"
        for node in ("n1", "n2"):
            command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2",
                       "--max-restarts=2", "--rdzv-backend=c10d",
                       f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id={self.name}", str(script)]  # fmt: skip
            variables = os.environ | {"OUTRIDER_AGENT": f"/none/{node}/agent.sock", "OMP_NUM_THREADS": "1"}
            with open(folder / f"{node}.log", "wb") as log:
                self.agents.append(subprocess.Popen(command, env=variables, stdout=log, stderr=log, start_new_session=True))

    def close(self) -> None:
        for agent in self.agents:
            agent.terminate()  # it takes its workers along, which SIGKILL would leave behind
        for agent in self.agents:
            agent.wait(60)


@pytest.fixture
def torchrun(tmp_path: Path) -> Iterator[Torchrun]:
    pytest.importorskip("torch")
    made = Torchrun(tmp_path)
    yield made
    made.close()


@pytest.mark.real
def test_a_real_torchrun_of_two_agents_is_known_with_its_slots_and_its_restarts(torchrun: Torchrun) -> None:
    roll, now = Roll(), 0.0
    collectors = [
        Processes(Place(node=node, boot="b", state_dir="/", section=CollectorsSection()), Note()) for node in ("n1", "n2")
    ]
    exits: list[Signal] = []

    def look(until: float, wanted: int) -> Signal:
        nonlocal now
        while time.monotonic() < until:
            now += 10.0
            for collector in collectors:
                outcome = collector.read(now)
                assert isinstance(outcome, Readings)
                exits.extend(one for one in outcome.signals if one.kind == "process_exit")
                for told in (one for one in outcome.signals if one.kind == "job" and one.job == torchrun.name):
                    whole = roll.take(told)
                    if whole is not None and isinstance(whole.value, int) and whole.value >= wanted:
                        return whole
            time.sleep(0.2)
        raise AssertionError(f"the job did not become whole; exits: {exits}")

    first = look(time.monotonic() + 120.0, 0)
    assert sorted(map(tuple, first.data["slots"])) == [("n1", 0), ("n1", 1), ("n2", 0), ("n2", 1)]
    victim = next(found for found in collectors[0]._ranks.values() if found.job == torchrun.name)
    os.kill(victim.pid, signal.SIGKILL)
    again = look(time.monotonic() + 120.0, int(first.value or 0) + 1)
    assert len(again.data["slots"]) == 4
    assert any(one.rank == victim.rank and "attempt" not in one.data for one in exits)
    for collector in collectors:
        collector.close()
