"""A real Slurm of four virtual nodes on this machine: munged, slurmctld, slurmrestd, one slurmd a node, all ended by their pid."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

PROGRAMS = ("slurmctld", "slurmd", "slurmrestd", "scontrol", "sbatch", "munged")

CONF = """
ClusterName=outrider
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
SlurmdSpoolDir={folder}/spool/%n
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmctldLogFile={folder}/log/slurmctld.log
StateSaveLocation={folder}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobRequeue=1
ReturnToService=0
SlurmdTimeout=300
KillWait=2
SlurmdParameters=config_overrides
NodeName=gpu[0-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=2 CoresPerSocket=2 RealMemory=1000 State=UNKNOWN
PartitionName=train Nodes=ALL Default=YES State=UP
"""


def free_ports(count: int) -> list[int]:
    """A run of free ports, one after the other."""
    for _ in range(50):
        first = 20000 + secrets.randbelow(9000)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return list(range(first, first + count))
    raise OSError("no free ports")


class SlurmCluster:
    """Nodes gpu0..gpu3. `lose` kills one's slurmd and all that runs under it, as a power cut does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        ports = free_ports(6)
        self.rest = f"http://127.0.0.1:{ports[5]}"
        self._rest_port = ports[5]
        host = socket.gethostname().partition(".")[0]
        self._conf = CONF.format(folder=folder, host=host, controller=ports[4], first=ports[0], last=ports[3])
        self.env = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        for program in PROGRAMS:
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")
        if os.geteuid() != 0:
            pytest.skip("a Slurm of several nodes on one host needs root")
        for name in ("spool", "run", "log", "state"):
            (self.folder / name).mkdir()
        self.folder.chmod(0o755)
        (self.folder / "slurm.conf").write_text(self._conf)
        for name in ("jwt.key", "munge.key"):
            (self.folder / name).write_bytes(secrets.token_bytes(64))
            (self.folder / name).chmod(0o600)
        folder = self.folder
        self._run("munged", "munged", "-F", "--force", f"--socket={folder}/munge.sock", f"--key-file={folder}/munge.key",
                  f"--pid-file={folder}/run/munged.pid", f"--log-file={folder}/log/munged.log",
                  f"--seed-file={folder}/run/munged.seed")  # fmt: skip
        self._until(lambda: (folder / "munge.sock").exists(), "munged")
        self._run("slurmctld", "slurmctld", "-D", "-c")
        for number in range(4):
            self.begin_node(f"gpu{number}")
        self._until(lambda: self.state("gpu0").startswith("IDLE") and self.state("gpu3").startswith("IDLE"), "idle nodes")
        nobody = ["runuser", "-u", "nobody", "--"]
        self._run("slurmrestd", *nobody, "env", f"SLURM_CONF={folder}/slurm.conf", "SLURM_JWT=daemon", "slurmrestd", "-a",
                  "rest_auth/jwt",
                  "-s", "openapi/v0.0.38", f"127.0.0.1:{self._rest_port}")  # fmt: skip
        self._until(self._rest_listens, "slurmrestd")

    def _rest_listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._rest_port)) == 0

    def begin_node(self, node: str) -> None:
        self._run(node, "slurmd", "-D", "-N", node)

    def lose(self, node: str) -> None:
        """The node's daemon and its steps die at once."""
        for step in self._steps(node):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(os.getpgid(step), signal.SIGKILL)
        daemon = self.processes.pop(node)
        daemon.kill()
        daemon.wait(10)
        for step in self._steps(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(step, signal.SIGKILL)

    def _steps(self, node: str) -> list[int]:
        """slurmstepd processes of a node and their children: slurmd is their parent or their log names it."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if (
                    entry.name.isdecimal()
                    and f"SLURMD_NODENAME={node}".encode() in (entry / "environ").read_bytes().split(b"\0")
                    and str(self.folder).encode() in (entry / "environ").read_bytes()
                ):
                    found.append(int(entry.name))
        return found

    def scontrol(self, *arguments: str) -> str:
        return self._call("scontrol", *arguments)

    def sbatch(self, *arguments: str) -> int:
        return int(self._call("sbatch", "--parsable", *arguments))

    def token(self) -> str:
        return self.scontrol("token", "username=root", "lifespan=600").strip().partition("=")[2]

    def state(self, node: str) -> str:
        return self._field(f"node={node}", "State")

    def reason(self, node: str) -> str:
        return self._field(f"node={node}", "Reason")

    def _field(self, what: str, name: str) -> str:
        text = self.scontrol("show", *what.split("="))
        for line in text.splitlines():
            for part in line.split():
                if part.startswith(f"{name}="):
                    return line.strip()[len(name) + 1 :] if name == "Reason" else part.partition("=")[2]
        return ""

    def stop(self) -> None:
        for node in [name for name in self.processes if name.startswith("gpu")]:
            for step in self._steps(node):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(step, signal.SIGKILL)
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait(10)
        self._end_steps()

    def _end_steps(self) -> None:
        """slurmstepd outlives slurmd: end those of this cluster, known by the folder in their environment or command."""
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and int(entry.name) != os.getpid():
                    said = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                    if f"{self.folder}/".encode() in said and (b"slurm" in said) and b"pytest" not in said:
                        os.kill(int(entry.name), signal.SIGKILL)

    def _run(self, name: str, *command: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("wb") as log:
            self.processes[name] = subprocess.Popen(command, env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _call(self, *command: str) -> str:
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=10)
        assert done.returncode == 0, f"{command}: {done.stdout} {done.stderr}"
        return done.stdout

    def _until(self, condition, what: str, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                if condition():
                    return
            assert time.monotonic() < deadline, f"no {what} within {seconds} s; see {self.folder}/log"
            time.sleep(0.05)
