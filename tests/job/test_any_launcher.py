"""Whoever starts the ranks, the job is protected: real ranks with the SDK, a real agent a node, a real witness, a SIGKILL."""

import json
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

from drills.cluster.settings import free_members, make_secrets, watch_settings

pytestmark = pytest.mark.real
SHELL = [sys.executable, "-m", "outrider.cli.shell"]
WORLD = 4
#: A rank: attaches as docs/sdk.md says, steps, and says who it is.
SCRIPT = """
import os, pathlib, time, torch, outrider
model = torch.nn.Linear(2, 2)
run = outrider.attach(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
pathlib.Path(os.environ["OUT"], f"{run.place.rank}.{run.place.attempt}.{os.getpid()}").touch()
while True:
    with run.step():
        time.sleep(0.05)
"""


def free(kind: int = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Cluster:
    """Two nodes of one machine: an agent each, one witness, and the ranks of one job on both."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, []
        self.out = folder / "out"
        self.out.mkdir()
        (folder / "train.py").write_text(SCRIPT)
        make_secrets(folder)
        members = free_members(1)
        for node in ("n1", "n2"):
            (folder / f"{node}.toml").write_text(
                f"""
[fleet]
[[fleet.nodes]]
node = "n1"
address = "127.0.0.1"
gpus = 2
[[fleet.nodes]]
node = "n2"
address = "127.0.0.1"
gpus = 2
{watch_settings(folder, members, "lease_seconds = 1.0")}
[agent]
run_dir = "{folder}/run"
udp_port = {free(socket.SOCK_DGRAM)}
metrics_port = 0
heartbeat_seconds = 0.2
collect = false
collectors = {{ processes = true }}
"""
            )
        self.start([*SHELL, "witness", "--config", str(folder / "n1.toml"), "--name", "w1"], "witness", {})

    def start_agents(self, *nodes: str) -> None:
        for node in nodes:
            self.start([*SHELL, "agent", "--config", str(self.folder / f"{node}.toml"), "--node", node], f"agent-{node}", {})
        self.until(lambda: all(self.socket_of(node).exists() for node in nodes), 40)

    def start(self, command: list[str], name: str, environment: dict[str, str]) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes.append(
                subprocess.Popen(command, env=os.environ | environment, stdout=log, stderr=log, start_new_session=True)
            )

    def ask(self, *command: str) -> Any:
        done = subprocess.run(
            [*SHELL, *command, "--config", str(self.folder / "n1.toml"), "--json"], capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        try:
            return [json.loads(line) for line in done.stdout.splitlines()]
        except ValueError:
            return []

    def until(self, what: Any, seconds: float = 60.0) -> Any:
        end = time.monotonic() + seconds
        while not (found := what()):
            logs = "".join(path.read_text()[-600:] for path in sorted(self.folder.glob("*.log")))
            assert time.monotonic() < end, f"it did not come; {self.ask('status')}\n{logs}"
            time.sleep(0.2)
        return found

    def socket_of(self, node: str) -> Path:
        return self.folder / "run" / node / "agent.sock"

    def pid_of(self, rank: int) -> int:
        return max(int(path.suffix[1:]) for path in self.out.glob(f"{rank}.*"))

    def close(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(15)
        for path in self.out.glob("*.*.*"):
            try:
                os.kill(int(path.suffix[1:]), signal.SIGKILL)
            except ProcessLookupError:
                continue


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    pytest.importorskip("torch")
    made = Cluster(tmp_path)
    yield made
    made.close()


def begin(cluster: Cluster, launcher: str, job: dict[str, str], agent: bool) -> tuple[str, set[str]]:
    """Starts the four ranks as `launcher` would. Returns its one name, and all others that it could have."""
    script, port = str(cluster.folder / "train.py"), str(free())
    common = {"OUT": str(cluster.out), "OMP_NUM_THREADS": "1", **job}
    run = f"run{port}"
    for number, node in enumerate(("n1", "n2")):
        here = common | ({"OUTRIDER_AGENT": str(cluster.socket_of(node))} if agent else {})
        if launcher.startswith("torchrun"):
            command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=2", "--max-restarts=0"]
            if launcher == "torchrun":
                command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", f"--rdzv-id={run}"]
            else:
                command += [f"--node-rank={number}", "--master-addr=127.0.0.1", f"--master-port={port}"]
            cluster.start([*command, script], f"torchrun-{node}", here)
            continue
        for local in range(2):
            rank = 2 * number + local
            place = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(local)}
            if launcher == "slurm":
                place = {
                    "SLURM_JOB_ID": port, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(local), "SLURM_NTASKS": str(WORLD),
                    "SLURM_STEP_NUM_TASKS": str(WORLD), "SLURM_JOB_NODELIST": "n[1-2]" if agent else "n1",
                    "SLURM_TASKS_PER_NODE": "2(x2)" if agent else "4",
                }  # fmt: skip
            elif launcher == "kubernetes":
                place |= {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": str(rank), "JOBSET_NAME": run}
            cluster.start([sys.executable, script], f"rank-{rank}", here | place)
    names = {"torchrun": run, "torchrun static": f"torchrun-127.0.0.1-{port}", "slurm": f"slurm-{port}", "kubernetes": run}
    told = job.get("OUTRIDER_JOB", names.get(launcher, "job"))
    return told, {"job", "llm", *names.values()} - {told}


@pytest.mark.parametrize("agent", [True, False], ids=["agent told", "no agent told"])
@pytest.mark.parametrize("job", [{"OUTRIDER_JOB": "llm"}, {}], ids=["name told", "no name told"])
@pytest.mark.parametrize("launcher", ["torchrun", "torchrun static", "slurm", "kubernetes", "shell"])
def test_a_killed_rank_is_an_incident_whoever_started_it(cluster: Cluster, launcher: str, job: dict[str, str], agent: bool) -> None:
    if launcher == "shell" and not job and not agent:
        pytest.skip("nobody names such a job, and it speaks to nobody")
    # Without the socket in their environment, ranks of two nodes cannot be told apart on one machine: then it is one node.
    cluster.start_agents(*(("n1", "n2") if agent else ("n1",)))
    name, others = begin(cluster, launcher, job, agent)
    known = cluster.until(lambda: [one["jobs"] for one in cluster.ask("status") if name in one.get("jobs", {})])[0]
    assert known[name]["ranks"] == WORLD and not others & known.keys()
    cluster.until(lambda: len(list(cluster.out.glob("*.*.*"))) == WORLD)
    os.kill(cluster.pid_of(1), signal.SIGKILL)
    (incident,) = cluster.until(lambda: [one for one in cluster.ask("incidents") if one.get("subject", {}).get("job") == name])
    assert (incident["fault"], incident["subject"]["rank"], incident["state"] == "suspected") == ("job.rank_exit", 1, False)
