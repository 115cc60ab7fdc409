"""Whether the agent grows: memory, descriptors and processes under churn, each few seconds for `--minutes` (default 3).

GPUs are lost and come back, ports flap, the kernel log is flooded, logs rotate, ranks come and go, witnesses are gone for a while
and collectors' children are killed. Prints one row each half minute; exit status 1 if the end is above the first half by more
than 10 % (memory) or by more than a handful (descriptors, processes).
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from agent import Bench, pss_mib, start_waiting_ranks, tree

from collectors.emulated.witness import Caller

ROW_SECONDS = 30.0


def descriptors(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        try:
            total += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
    return total


def churn(bench: Bench, turn: int) -> None:
    """One round of trouble."""
    node, gpu = bench.node, turn % 8
    node.gpus.set(gpu, lost=turn % 2)
    node.link(f"mlx5_{turn % 8}", up=turn % 3 != 0)
    node.count(f"mlx5_{turn % 8}", symbol_error=turn * 100)
    for _ in range(200):
        node.kernel(f"NVRM: Xid (PCI:0000:{0x1B + 0x10 * gpu:02x}:00): {31 + turn % 50}, pid=1, name=x, churn")
    log = bench.folder / f"logs/rank{turn % 4}.log"
    with open(log, "a") as file:
        file.write("[rank0]: CUDA error: an illegal memory access was encountered\n" * 50)
    if turn % 5 == 0:
        log.rename(log.with_suffix(".old"))
    for rank in start_waiting_ranks(bench, 2):
        rank.kill()
        rank.wait()
        assert rank.stdout is not None
        rank.stdout.close()
    for witness in bench.witnesses[:2]:
        witness.refuse = 503 if turn % 4 == 0 else 0
        with witness.changed:
            del witness.signals[:-1000]
            del witness.beats[:-100]
    stranger = Caller(bench.socket)
    stranger.say({"nonsense": "x" * 1000})
    stranger.close()
    if turn % 10 == 9:
        child = tree(bench.agent.pid)[-1]
        os.kill(child, signal.SIGKILL)  # a child of the agent that this bench started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        (Path(folder) / "logs").mkdir()
        bench = Bench(Path(folder), extra=f'rank_logs = [{{glob = "{folder}/logs/*.log", job = "j"}}]\n', real_kmsg=False)
        rows = []
        try:
            bench.start_ranks()
            bench.witnesses[0].first("gpu_state", 20.0, gpu=7)
            until, due, turn = time.monotonic() + 60 * options.minutes, time.monotonic(), 0
            while time.monotonic() < until:
                churn(bench, turn)
                turn += 1
                if time.monotonic() >= due:
                    due += ROW_SECONDS
                    pids = tree(bench.agent.pid)
                    rows.append((round(pss_mib(pids), 1), descriptors(pids), len(pids)))
                    print(f"turn {turn:5}  {rows[-1][0]:6} MiB  {rows[-1][1]:4} descriptors  {rows[-1][2]:3} processes", flush=True)
                time.sleep(1.0)
        finally:
            bench.close()
    half, end = rows[: (len(rows) + 1) // 2], rows[-1]
    # Rows differ by a child that has just been killed, so the end is held against the most of the first half.
    memory, handles, processes = (max(row[place] for row in half) for place in range(3))
    return int(end[0] > 1.1 * memory or end[1] > handles + 5 or end[2] > processes + 1)


if __name__ == "__main__":
    sys.exit(main())
