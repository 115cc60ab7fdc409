"""Partitions and stalls of the watching itself: no restart, one incident, rightly named (or none).

python bench/simulate_partitions.py [--seed 1]
"""

import argparse

from drills.simulate.scenarios import NODES, SCENARIOS, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    seed = parser.parse_args().seed
    print(f"{NODES} nodes, seed {seed}")
    for scenario in SCENARIOS:
        result = run(scenario, seed)
        told = ", ".join(sorted(set(result.told))) or "nothing"
        score = f"restarts {result.restarts}, incidents {len(result.told)}"
        print(f"{'ok ' if result.ok else 'BAD'} {scenario.name:36} {score}: {told[:150]}")


if __name__ == "__main__":
    main()
