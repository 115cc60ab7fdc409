"""Whether the agent grows: memory, descriptors and processes under churn, for `--minutes` (default 3).

Each turn (about a second): GPUs are lost and come back, RDMA devices are taken out and put back, ports flap, modules complain, the
kernel log is flooded, rank logs grow and rotate, flight records come and go, ranks with and without the SDK start and are killed, a
dcgm-exporter misbehaves in every way it can, witnesses restart or refuse, a collector's child is killed, and (where libfaketime is
installed) the wall clock steps by minutes and days. Prints a row each `--row` seconds; exit status 1 if the end is above the first
half by more than 10 % (memory) or by more than a handful (descriptors, processes), or if the heartbeats ever paused for over 3 s.
"""

import argparse
import contextlib
import json
import os
import pickle
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from agent import Bench, cpu_seconds, pss_mib, start_waiting_ranks, tree

from collectors.emulated.witness import Caller

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
#: A heartbeat is sent each second; on a busy machine the bench itself may be late by as much again.
BEAT_GAP_MAX = 3.0
MOODS = ("well", "stuck", "well", "endless", "well", "cut", "well", "junk", "well", "error", "well", "trickle")


def descriptors(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += len(os.listdir(f"/proc/{pid}/fd"))
    return total


class Churn:
    """One round of trouble after the other.

    `gap`: longest time in seconds between two heartbeats at the third witness, by the agent's clock of sending.
    """

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench, self.folder, self.turn = bench, folder, 0
        self.gap, self._last_beat = 0.0, 0.0
        self._gone: list[Callable[[], None]] = []
        self._strangers: list[subprocess.Popen[bytes]] = []

    def once(self) -> None:
        self._devices()
        self._logs()
        self._ranks()
        self._witnesses()
        if self.turn % 10 == 9:
            children = tree(self.bench.agent.pid)[2:]  # not the agent, not the nursery
            if children:
                os.kill(children[self.turn // 10 % len(children)], signal.SIGKILL)
        if self.turn % 15 == 14:
            step = ("+0", "+300", "-300", "+86400", "+0", "-86400")[self.turn // 15 % 6]
            (self.folder / "clock").write_text(step + "\n")
        assert self.bench.node.exporter is not None
        self.bench.node.exporter.mood = MOODS[self.turn // 4 % len(MOODS)]  # type: ignore[assignment]
        self.turn += 1

    def _devices(self) -> None:
        node, place, nic = self.bench.node, self.turn % 8, f"mlx5_{self.turn % 8}"
        while self._gone:
            self._gone.pop()()
        node.gpus.set(place, lost=self.turn % 2)
        node.link(nic, up=self.turn % 3 != 0)
        node.count(nic, symbol_error=self.turn * 100)
        node.cards[nic].complain(hot=self.turn % 2 == 0)
        node.cards[nic].fec(corrected=self.turn * 1000, uncorrectable=self.turn)
        device = node.sysfs / f"class/infiniband/mlx5_{(self.turn + 3) % 8}"
        if self.turn % 4 == 0 and device.exists():
            aside = self.folder / "aside" / device.name
            device.rename(aside)
            self._gone.append(lambda: aside.rename(device) and None)
        for _ in range(200):
            node.kernel(f"NVRM: Xid (PCI:0000:{0x1B + 0x10 * place:02x}:00): {31 + self.turn % 50}, pid=1, name=x, churn")
        if self.turn % 20 == 0:
            node.kernel("x" * 100_000)

    def _logs(self) -> None:
        log = self.folder / f"logs/rank{self.turn % 4}.log"
        with open(log, "a") as file:
            file.write("[rank0]: CUDA error: an illegal memory access was encountered\n" * 50)
        if self.turn % 5 == 0:
            log.rename(log.with_suffix(".old"))
        elif self.turn % 7 == 0:
            os.truncate(log, 0)
        record = self.folder / f"flight/dump_rank_{self.turn % 8}"
        if self.turn % 3 == 0:
            record.write_bytes(pickle.dumps({"version": "2.5", "pg_config": {}, "pg_status": {}, "entries": []}))
        elif record.exists():
            record.unlink()
        with open(self.folder / "train.jsonl", "a") as file:
            file.write(json.dumps({"step": self.turn, "loss": 2.0}) + "\n")

    def _ranks(self) -> None:
        for rank in start_waiting_ranks(self.bench, 2):
            rank.kill()
            rank.wait()
            assert rank.stdout is not None
            rank.stdout.close()
        place = {"RANK": str(self.turn % 4), "LOCAL_RANK": str(self.turn % 4), "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}
        job = {"TORCHELASTIC_RUN_ID": f"churn-{self.turn // 30}", "TORCHELASTIC_RESTART_COUNT": "0"}
        self._strangers.append(subprocess.Popen(["sleep", "600"], env={**os.environ, **place, **job}))
        if len(self._strangers) > 12:
            stranger = self._strangers.pop(0)
            stranger.kill()
            stranger.wait()
        nonsense = Caller(self.bench.socket)
        nonsense.say({"nonsense": "x" * 1000})
        nonsense.close()

    def _witnesses(self) -> None:
        first, second, third = self.bench.witnesses
        first.refuse = 503 if self.turn % 4 == 0 else 0
        if self.turn % 12 == 5:
            second.go_away()
        elif self.turn % 12 == 8:
            second.come_back()
        for beat in third.beats[-30:]:
            if beat.sent_s > self._last_beat:
                self.gap = max(self.gap, beat.sent_s - self._last_beat) if self._last_beat else 0.0
                self._last_beat = beat.sent_s
        for witness in self.bench.witnesses:
            with witness.changed:
                del witness.signals[:-1000]
                del witness.beats[:-100]

    def close(self) -> None:
        for stranger in self._strangers:
            stranger.kill()
            stranger.wait()


def page_value(bench: Bench, name: str) -> float:
    """The sum of a metric on the agent's page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{bench.metrics_port}/metrics", timeout=10) as answer:
        rows = [line for line in answer.read().decode().splitlines() if line.startswith((name + " ", name + "{"))]
    return sum(float(row.rsplit(" ", 1)[1]) for row in rows)


def slope_an_hour(rows: list[tuple[float, ...]], column: int) -> float:
    """Growth of a column in an hour, by a straight line through the second half of the rows."""
    late = rows[len(rows) // 2 :]
    if len(late) < 3:
        return 0.0
    return statistics.linear_regression([row[0] for row in late], [row[column] for row in late]).slope * 3600


def run(bench: Bench, churn: Churn, minutes: float, row_seconds: float) -> list[tuple[float, ...]]:
    """Churns; returns rows (seconds, MiB, descriptors, processes)."""
    print(" minute   turn      MiB  descriptors  processes  cpu %  children lost  failures  longest heartbeat gap s", flush=True)
    rows: list[tuple[float, ...]] = []
    began = due = time.monotonic()
    cpu_before, cpu_at = cpu_seconds(tree(bench.agent.pid)), began
    while time.monotonic() < began + 60 * minutes:
        churn.once()
        time.sleep(1.0)
        now = time.monotonic()
        if now < due:
            continue
        due += row_seconds
        pids = tree(bench.agent.pid)
        cpu = cpu_seconds(pids)
        rows.append((now - began, round(pss_mib(pids), 1), descriptors(pids), len(pids)))
        lost = page_value(bench, "outrider_agent_child_restarts_total")
        failures = page_value(bench, "outrider_agent_failures_total")
        share = 100 * max(0.0, cpu - cpu_before) / max(0.1, now - cpu_at)
        print(
            f"{(now - began) / 60:7.1f} {churn.turn:6} {rows[-1][1]:8} {rows[-1][2]:12} {rows[-1][3]:10} {share:6.1f} {lost:14.0f} "
            f"{failures:9.0f} {churn.gap:8.2f}",
            flush=True,
        )
        cpu_before, cpu_at = cpu, now
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--row", type=float, default=30.0, help="seconds between two rows")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        for sub in ("logs", "flight", "aside", "mount"):
            (folder / sub).mkdir()
        (folder / "clock").write_text("+0\n")
        environment = {}
        if FAKETIME.exists():
            environment = {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(folder / "clock"),
                           "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_CACHE_DURATION": "1"}  # fmt: skip
        print(f"clock steps: {'yes' if environment else 'no, libfaketime is not installed'}", flush=True)
        extra = (
            f'rank_logs = [{{glob = "{folder}/logs/*.log", job = "j"}}]\nflight_dir = "{folder}/flight"\n'
            f'train_logs = [{{glob = "{folder}/train.jsonl", job = "t"}}]\nmounts = [{{path = "{folder}/mount"}}]\n'
        )
        bench = Bench(folder, extra=extra, real_kmsg=False, exporter=True, environment=environment)
        churn = Churn(bench, folder)
        try:
            bench.start_ranks()
            bench.witnesses[0].first("gpu_state", 30.0, gpu=7)
            rows = run(bench, churn, options.minutes, options.row)
        finally:
            churn.close()
            bench.close()
            strange = [line for line in (folder / "log").read_text().splitlines() if '"level": "info"' not in line]
            print(*strange[-20:], sep="\n", file=sys.stderr)
    half, end = rows[: (len(rows) + 1) // 2], rows[-1]
    # Rows differ by a child that has just been killed, so the end is held against the most of the first half.
    memory, handles, processes = (max(row[place] for row in half) for place in (1, 2, 3))
    grown = end[1] > 1.1 * memory or end[2] > handles + 5 or end[3] > processes + 1
    print(f"second half: {slope_an_hour(rows, 1):+.2f} MiB, {slope_an_hour(rows, 2):+.1f} descriptors, "
          f"{slope_an_hour(rows, 3):+.1f} processes an hour; longest heartbeat gap {churn.gap:.2f} s")  # fmt: skip
    print("GROWS" if grown else "does not grow")
    return int(grown or churn.gap > BEAT_GAP_MAX)


if __name__ == "__main__":
    sys.exit(main())
