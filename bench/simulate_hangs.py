"""Localisation of hangs at 16,384 ranks by the core's own rules on flight records.

    python bench/simulate_hangs.py [--hangs 200] [--seed 1] [--small] [--untold 0.01]

Each hang stops one rank in one of four ways (`drills/simulate/hangs.py`), with hosts that queue a step ahead or not at all.
Precision: of the hangs for which one rank is named, how often it is the right one. Recall: of all hangs, how often the right
rank is named. The target is 0.98 and 0.97.
"""

import argparse
import time
from collections import defaultdict

import numpy as np

from detectors.core.waits import head_of_chain
from drills.simulate.hangs import KINDS, Layout, Machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hangs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="512 ranks instead of 16,384")
    parser.add_argument("--untold", type=float, default=0.0, help="share of records that never arrive")
    asked = parser.parse_args()
    layout = Layout(tensor=4, pipeline=8, data=16) if asked.small else Layout()
    machine, rng = Machine(layout), np.random.default_rng(asked.seed)
    groups = machine.members
    tally: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    seconds: list[float] = []
    for number in range(asked.hangs):
        kind, ahead = KINDS[number % len(KINDS)], bool(number // len(KINDS) % 2)
        victim = int(rng.integers(layout.size))
        stop = int(rng.integers(len(machine.programs[victim])))
        records = machine.records(kind, victim, stop, ahead=ahead)
        records = {rank: one for rank, one in records.items() if rank == victim or rng.random() >= asked.untold}
        began = time.perf_counter()
        head = head_of_chain(records, groups, layout.size)
        seconds.append(time.perf_counter() - began)
        named = head is not None and len(head.ranks) == 1
        right = named and head is not None and head.ranks[0] == victim
        row = tally[f"{kind}{', queued ahead' if ahead else ''}"]
        row[0] += 1
        row[1] += named
        row[2] += right
        row[3] += head is not None and victim in head.ranks
    median = sorted(seconds)[len(seconds) // 2] * 1e3
    print(f"{layout.size} ranks (tensor {layout.tensor}, pipeline {layout.pipeline}, data {layout.data}), {asked.hangs} hangs, "
          f"{asked.untold:.1%} of the records lost, seed {asked.seed}; {median:.0f} ms a judgement (median)")  # fmt: skip
    for name, row in sorted(tally.items()):
        print(f"{name:32} n {row[0]:4}  one rank named {row[1]:4}  rightly {row[2]:4}  among the named {row[3]:4}")
    total = np.array(list(tally.values())).sum(axis=0)
    print(f"precision {total[2] / max(total[1], 1):.4f}, recall {total[2] / total[0]:.4f}")


if __name__ == "__main__":
    main()
