"""What the agent costs and how fast it is: processor time, memory of all its processes, network, the way of a fault to a witness.

An emulated node: 8 GPUs, 8 ports with modules, 8 ranks at one step each `--step-seconds` (default 1, about the most that is
told; 42 public runs of large models had 5.2 to 55 s, half of them more than 14), three witnesses here, default intervals.
node_exporter runs beside it, scraped at the same interval, if it is installed. Latencies: /dev/kmsg where this user may write it,
else the emulated one; `link` is measured by `agent_link.py` on a real interface and a real witness. `--json` prints one object;
`--seconds` is how long costs are measured (30).
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from agent_link import measure as measure_link

from collectors.emulated.node import EmulatedNode
from collectors.emulated.witness import Caller, FakeWitness
from outrider.config.security import SecuritySection, write_secret
from outrider.sdk import page

RANKS = 8
SCRAPE_SECONDS = 10.0


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def tree(root: int) -> list[int]:
    """A process and all below it."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [root]
    for parent in found:  # grows while it is walked; numbers begin anew when they have run out, so their order says nothing
        found += [pid for pid in sorted(parents) if parents[pid] == parent]
    return found


def cpu_seconds(pids: list[int]) -> float:
    """Time on a processor of all threads, to the nanosecond (the clock ticks of /proc/PID/stat are too coarse)."""
    total = 0
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(path.read_text().split()[0])
    return total / 1e9


class Meter:
    """Processor seconds of a process and all below it, threads and processes that have ended among them: by a control group of its
    own, where this user may make one; else by what the living ones have used."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._group: Path | None = None
        for base in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
            group = base / f"outrider-bench-{root}"
            with contextlib.suppress(OSError):
                if (base / "cgroup.procs").exists():
                    group.mkdir()
                    self._group = group
                    for pid in tree(root):
                        (group / "cgroup.procs").write_text(str(pid))
                    break

    def seconds(self) -> float:
        if self._group is None:
            return cpu_seconds(tree(self._root))
        return int((self._group / "cpu.stat").read_text().split()[1]) / 1e6

    def close(self) -> None:
        """After the processes have ended, or been put back where they came from."""
        if self._group is not None:
            for pid in (self._group / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (self._group.parent / "cgroup.procs").write_text(pid)
            self._group.rmdir()


def pss_mib(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


class Bench:
    """The agent on an emulated node, with ranks and witnesses."""

    def __init__(
        self,
        folder: Path,
        extra: str = "",
        *,
        real_kmsg: bool = True,
        exporter: bool = False,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.folder, self.extra = folder, extra
        for name in ("key", "token"):
            write_secret(folder / name)
        security = SecuritySection(heartbeat_key_file=str(folder / "key"), agent_token_file=str(folder / "token"))
        keys, token = security.heartbeat_keys(), security.agent_tokens()[0]
        self.witnesses = [FakeWitness(keys, token) for _ in range(3)]
        self.node = EmulatedNode(folder / "node", exporter=exporter)
        self.real_kmsg = real_kmsg and os.access("/dev/kmsg", os.W_OK)
        self.metrics_port = free_port()
        self._write_config()
        command = [sys.executable, "-m", "outrider.cli.shell", "agent", "--config", str(folder / "o.toml"), "--node", "n1"]
        variables = {**os.environ, **self.node.environment(), **(environment or {})}
        variables.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: compiled
        variables["PYTHONPYCACHEPREFIX"] = str(folder / "cache")
        subprocess.run([*command, "--once", "--json"], env=variables, stdout=subprocess.DEVNULL, check=False)
        with open(folder / "log", "wb") as log:
            self.agent = subprocess.Popen(command, env=variables, stderr=log, stdout=log)
        self.socket = folder / "run/n1/agent.sock"
        self.callers: list[Caller] = []
        self._stop = threading.Event()

    def _write_config(self) -> None:
        settings: dict[str, Any] = dict(self.node.settings())
        if self.real_kmsg:
            settings |= {"kmsg_path": "/dev/kmsg", "kmsg_user_records": True}
        members = "".join(
            f'[[witness.members]]\nname = "w{n}"\nhttp_port = {w.http_port}\nheartbeat_port = {w.heartbeat_port}\n'
            for n, w in enumerate(self.witnesses, 1)
        )
        self.folder.joinpath("o.toml").write_text(
            f'[[fleet.nodes]]\nnode = "n1"\naddress = "127.0.0.1"\ngpus = 8\n'
            f'[agent]\nrun_dir = "{self.folder}/run"\nudp_port = {free_port(socket.SOCK_DGRAM)}\n'
            f"metrics_port = {self.metrics_port}\n"
            f'[security]\nheartbeat_key_file = "{self.folder}/key"\nagent_token_file = "{self.folder}/token"\n'
            "[collectors]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()) + self.extra + members
        )

    def start_ranks(self, step_seconds: float = 1.0) -> None:
        writers = []
        for rank in range(RANKS):
            caller = Caller(self.socket, 20.0)
            hello = {
                "hello": "rank",
                "job": "j1",
                "attempt": 1,
                "slot": rank,
                "rank": rank,
                "world": RANKS,
                "pid": 1,
                "copy_bytes": 4096,
            }
            writers.append(page.Writer(page.open_page(caller.ask(hello)["progress"])))
            self.callers.append(caller)

        def steps() -> None:
            step = 0
            while not self._stop.wait(step_seconds):
                now = time.monotonic_ns()
                for writer in writers:
                    writer.end(step, now - int(step_seconds * 1e9), now, (2.0,) * 7)
                step += 1

        threading.Thread(target=steps, daemon=True).start()

    def scrape(self) -> int:
        return len(urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics").read())

    def close(self) -> None:
        self._stop.set()
        self.agent.send_signal(signal.SIGTERM)
        self.agent.wait(10)
        for caller in self.callers:
            caller.close()
        for witness in self.witnesses:
            witness.close()
        self.node.close()


@contextlib.contextmanager
def node_exporter() -> Iterator[tuple[int, int] | None]:
    """node_exporter with its default collectors, if there is one: (pid, port)."""
    program = shutil.which("prometheus-node-exporter") or shutil.which("node_exporter")
    if program is None:
        yield None
        return
    port = free_port()
    process = subprocess.Popen([program, f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
    try:
        yield process.pid, port
    finally:
        process.terminate()
        process.wait(10)


def measure_cost(bench: Bench, seconds: float) -> dict[str, Any]:
    with node_exporter() as other:
        time.sleep(2.0)
        pids = tree(bench.agent.pid)
        meter, other_meter = Meter(bench.agent.pid), Meter(other[0]) if other else None
        before, began = meter.seconds(), time.monotonic()
        sent = [sum(len(beat.node) + 60 for beat in w.beats) for w in bench.witnesses]
        taken = [w.bytes_taken for w in bench.witnesses]
        other_before = other_meter.seconds() if other_meter else 0.0
        size = other_size = 0
        until = began + seconds
        while time.monotonic() < until:
            size = bench.scrape()
            if other:
                other_size = len(urllib.request.urlopen(f"http://127.0.0.1:{other[1]}/metrics").read())
            time.sleep(min(SCRAPE_SECONDS, max(0.0, until - time.monotonic())))
        took = time.monotonic() - began
        network = sum(w.bytes_taken for w in bench.witnesses) - sum(taken)
        network += sum(sum(len(beat.node) + 60 for beat in w.beats) for w in bench.witnesses) - sum(sent)
        result: dict[str, Any] = {
            "processes": len(pids),
            "cpu_percent": round(100 * (meter.seconds() - before) / took, 2),
            "pss_mib": round(pss_mib(tree(bench.agent.pid)), 1),
            "network_kb_s": round(network / took / 1000, 2),
            "page_bytes": size,
        }
        if other and other_meter:
            result["node_exporter_cpu_percent"] = round(100 * (other_meter.seconds() - other_before) / took, 2)
            other_meter.close()
            result["node_exporter_pss_mib"] = round(pss_mib([other[0]]), 1)
            result["node_exporter_page_bytes"] = other_size
        meter.close()
        return result


def latency(
    times: int, act: Callable[[int], None], find: Callable[[int], Callable[[FakeWitness], Any]], witness: FakeWitness, pause: float
) -> dict[str, Any]:
    """Milliseconds from `act` to the witness, in a row of tries."""
    found = []
    for number in range(times):
        began = time.monotonic()
        act(number)
        witness.wait(find(number), 10.0)
        found.append(1000 * (time.monotonic() - began))
        time.sleep(pause)
    found.sort()
    worst = found[min(len(found) - 1, int(0.99 * len(found)))]
    return {"n": times, "p50_ms": round(statistics.median(found), 1), "p99_ms": round(worst, 1), "max_ms": round(found[-1], 1)}


def measure_latencies(bench: Bench) -> dict[str, Any]:
    witness = bench.witnesses[0]

    def kernel(number: int) -> None:
        line = f"NVRM: Xid (PCI:00{number:02x}:3b:00): 79, pid=1, name=outrider-bench, GPU has fallen off the bus."
        if bench.real_kmsg:
            with open("/dev/kmsg", "w") as log:
                log.write(f"<3>{line}\n")
        else:
            bench.node.kernel(line)

    def heard_xid(number: int) -> Callable[[FakeWitness], Any]:
        return lambda w: any(s.kind == "xid" and s.pci == f"00{number:02x}:3b:00" for s in w.signals)

    results = {"kernel_log": latency(60, kernel, heard_xid, witness, 0.6)}
    results["kernel_log"]["source"] = "/dev/kmsg" if bench.real_kmsg else "emulated"
    launcher = Caller(bench.socket)
    launcher.ask({"hello": "launcher", "pid": 1})

    def told_exit(number: int) -> None:
        launcher.say({"exit": {"job": "b", "attempt": 1, "slot": 0, "rank": number, "pid": number, "code": -9}})

    def heard_exit(job: str) -> Callable[[int], Callable[[FakeWitness], Any]]:
        return lambda number: lambda w: any(s.kind == "process_exit" and s.job == job and s.rank == number for s in w.signals)

    results["exit_by_launcher"] = latency(200, told_exit, heard_exit("b"), witness, 0.01)
    launcher.close()
    ranks = start_waiting_ranks(bench, 40)
    results["exit_by_pidfd"] = latency(40, lambda number: ranks[number].kill(), heard_exit("k"), witness, 0.05)
    for rank in ranks:
        rank.wait()
    return results


WAITING_RANK = (
    "import json, socket, sys, time\n"
    "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1])\n"
    "hello = {'hello': 'rank', 'job': 'k', 'attempt': 1, 'rank': int(sys.argv[2]), 'slot': int(sys.argv[2]), 'copy_bytes': 64}\n"
    "s.sendall(json.dumps(hello).encode() + b'\\n'); s.recv(999); print(1, flush=True); time.sleep(600)\n"
)


def start_waiting_ranks(bench: Bench, count: int) -> list[subprocess.Popen[bytes]]:
    """Processes that have said hello as ranks of job `k` and wait to be killed."""
    command = [sys.executable, "-S", "-c", WAITING_RANK, str(bench.socket)]
    ranks = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE) for number in range(count)]
    for rank in ranks:
        assert rank.stdout is not None
        rank.stdout.readline()
    return ranks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--step-seconds", type=float, default=1.0)
    parser.add_argument("--links", type=int, default=50, help="falls and rises of a real virtual interface")
    parser.add_argument("--dcgm", action="store_true", help="with the page of a dcgm-exporter")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        bench = Bench(Path(folder), exporter=options.dcgm)
        try:
            bench.start_ranks(options.step_seconds)
            bench.witnesses[0].first("gpu_state", 20.0, gpu=7)
            time.sleep(5.0)
            results = {"cost": measure_cost(bench, options.seconds), "latency": measure_latencies(bench)}
        finally:
            bench.close()
    results["latency"]["link"] = measure_link(options.links)
    if options.json:
        print(json.dumps(results))
        return
    for name, value in results["cost"].items():
        print(f"{name:32} {value}")
    for name, row in results["latency"].items():
        print(f"{name:32} {row}")


if __name__ == "__main__":
    main()
