"""The figures of the judge in simulation: latencies, false restarts, ETTR; each line says how it was measured.

python bench/simulate_figures.py latency      ten minutes of one core; --crashes 10000 for the full count
python bench/simulate_figures.py restarts     3,000 node-years of model J
python bench/simulate_figures.py ettr         16,384 GPUs, Llama 3's mix and rate, with and without replicated shards
"""

import argparse
import time
from collections.abc import Callable

import numpy as np

from drills.simulate import check, faults
from drills.simulate.cell import build, name_of
from drills.simulate.episode import T0, Episode
from drills.simulate.jitter import Jitter
from drills.simulate.options import Options
from drills.simulate.report import quantile
from drills.simulate.simulate import prepare, run
from outrider.config.policy import Policy

NODE = name_of(5)
VICTIM = faults.Victim(NODE, 3, 1, tuple(name_of(index) for index in range(8)))
WITNESSES = ("w1", "w2", "w3")


def corroborated(episode: Episode, t: float) -> None:
    """The host dies, and two layers see it: no heartbeats, and peers' transports give up within 0.5 to 3 s."""
    faults.truth(episode, "node.lost", t, VICTIM, shard_lost=True)
    episode.outage(NODE, "host_dead", t)
    faults.peers_complain(episode, NODE, t + episode.uniform(0.5, 3.0))


def silent(episode: Episode, t: float) -> None:
    """The host dies and nothing but its silence tells."""
    faults.truth(episode, "node.lost", t, VICTIM, shard_lost=True)
    episode.outage(NODE, "host_dead", t)


def scripted(fault: str) -> Callable[[Episode, float], None]:
    return lambda episode, t: faults.SCRIPTS[fault](episode, VICTIM, t)


PATHS: dict[str, tuple[str, Callable[[Episode, float], None]]] = {
    "decisive: Xid 79 (from the fault)": ("gpu.fallen_off_bus", scripted("gpu.fallen_off_bus")),
    "decisive: Xid 95 (from the fault)": ("gpu.ecc_uncontained", scripted("gpu.ecc_uncontained")),
    "decisive: rank exit": ("job.rank_exit", scripted("job.rank_exit")),
    "node lost, corroborated": ("node.lost", corroborated),
    "node lost, silence only": ("node.lost", silent),
    "agent lost": ("agent.lost", scripted("agent.lost")),
    "rack lost": ("domain.lost", scripted("domain.lost")),
    "node hung": ("node.hung", scripted("node.hung")),
}


def latency(crashes: int, seed: int) -> None:
    options = Options(nodes=256)
    hard = Policy().hard_limit_seconds
    print(f"{crashes} faults a path, jitter model J without freezes, 3 witnesses, hard limit {hard:g} s, seed {seed}")
    for number, (name, (fault, play)) in enumerate(PATHS.items()):
        cell = build(options, tuple(range(8)) if fault == "domain.lost" else (5,), WITNESSES)
        times: list[float] = []
        since_last: list[float] = []
        for index in range(crashes):
            rng = np.random.default_rng([seed, number, index])
            episode = Episode(cell, Policy(mode="act"), options, Jitter(name="J"), rng)
            t = T0 + float(rng.random()) * 5
            episode.happen(t, play, episode, t)
            record = episode.run(stop_when=fault)
            found = check.outrider(record).found[0]
            if found.seconds is not None:
                times.append(found.seconds)
                since_last.append(found.seconds + found.truth.t - record.sent[NODE])
        times.sort()
        shown = ", ".join(f"p{round(part * 100)} {quantile(times, part):.2f}" for part in (0.5, 0.95, 0.99))
        print(f"{name:36} found {len(times)} of {crashes}; {shown}, max {times[-1]:.2f} s")
        if play is silent:
            print(f"{'':36} never sooner than {min(since_last):.2f} s after the last heartbeat left")


def restarts(seed: int) -> None:
    options = Options(nodes=1_000, days=1_095.75, mix="none", seed=seed)
    simulation = prepare(options, Policy())
    began = time.perf_counter()
    run(simulation)
    for name, totals in simulation.totals.items():
        figures = totals.figures()
        rate, upper = (figures[f"false_restarts_per_1000_node_days{end}"] for end in ("", "_upper_95"))
        print(f"{name:24} {figures['false_restarts']:6} false restarts: {rate:.4f} for 1000 node-days (95 %: below {upper:.4f}); "
              f"{figures['false_pages']} false pages")  # fmt: skip
    seconds = time.perf_counter() - began
    print(f"{options.node_days / 365.25:.0f} node-years, {simulation.episodes} episodes, {seconds:.0f} s")


def ettr(seed: int) -> None:
    for replicated in (True, False):
        options = Options(nodes=2_048, days=54, seed=seed, replicated=replicated)
        simulation = prepare(options, Policy())
        run(simulation)
        print("shards replicated" if replicated else "shards not replicated")
        for name, totals in simulation.totals.items():
            figures = totals.figures()
            often = f"saves each {figures['interval_s']:.0f} s"
            print(f"  {name:24} ETTR {figures['ettr']:.4f}, {figures['lost_steps']} steps run again, {often}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["latency", "restarts", "ettr"])
    parser.add_argument("--crashes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.what == "latency":
        latency(asked.crashes, asked.seed)
    elif asked.what == "restarts":
        restarts(asked.seed)
    else:
        ettr(asked.seed)


if __name__ == "__main__":
    main()
