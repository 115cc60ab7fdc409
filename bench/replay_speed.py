"""How many trace lines a second `replay` runs through three witnesses, in processor seconds of one core.

    python bench/replay_speed.py [LINES]

The trace has 64 nodes with 8 GPUs: explicit heartbeats, steps of every rank with loss and times, now and then an Xid.
"""

import json
import sys
import time
from collections.abc import Iterator

from detectors.replay.runner import Replay
from detectors.replay.trace import read_header, read_signals
from outrider.config.policy import Policy


def trace(count: int) -> Iterator[bytes]:
    names = [f"n{number}" for number in range(64)]
    slots = [[name, gpu] for name in names for gpu in range(8)]
    nodes = [{"node": name, "rack": f"r{index // 8}", "gpus": 8} for index, name in enumerate(names)]
    yield json.dumps(
        {"kind": "fleet", "nodes": nodes, "jobs": [{"job": "j1", "slots": slots}], "witnesses": ["w1", "w2", "w3"]}
    ).encode()
    made = second = 0
    while made < count:
        for name in names:
            data = {"seq": second + 1, "boot": "b", "sent_s": second - 0.1}
            yield json.dumps({"t": float(second), "kind": "heartbeat", "node": name, "data": data}).encode()
        for rank in range(0, 512, 8):
            data = {"step_s": 1.0, "compute_s": 0.7, "wait_s": 0.2, "data_s": 0.01, "loss": 2.5 - second / 1e6}
            yield json.dumps({"t": second + 0.5, "kind": "step", "job": "j1", "rank": rank, "value": second, "data": data}).encode()
        if second % 50 == 0:
            data = {"pci": "0000:3b:00"}
            yield json.dumps({"t": second + 0.6, "kind": "xid", "node": "n3", "value": 13, "source": "kmsg", "data": data}).encode()
        made += 128
        second += 1


def main(count: int) -> None:
    lines = list(trace(count))
    begun = time.process_time()
    Replay(read_header(lines[0], "trace"), Policy(mode="act"))
    imports = time.process_time() - begun
    begun = time.process_time()
    run = Replay(read_header(lines[0], "trace"), Policy(mode="act"))
    events = sum(1 for _ in run.run(read_signals(iter(lines[1:]), run.fleet, "trace")))
    spent = time.process_time() - begun
    told = f"{run.count.lines:,} lines, {run.count.end_t:.0f} s of time, {events} events"
    print(f"{told}: {run.count.lines / spent:,.0f} lines a second, after {imports:.2f} s of imports")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
