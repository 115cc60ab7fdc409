"""How fast one witness's engine judges, in processor seconds of one core (so a busy machine does not spoil the figure).

    python bench/core_speed.py

1. Decoded signals a second: heartbeats, steps per rank, steps batched per node.
2. 12,500 nodes with 8 GPUs, each sending one heartbeat and one batched step a second: share of a core, and memory.
3. The same site's graph: how long its tables take to derive, and how long blame takes for a lost rail, leaf and rack.
"""

import resource
import time
from collections.abc import Callable, Iterator

from detectors.core.blame import common_causes
from detectors.core.engine import Engine
from detectors.core.topology import Part, Topology
from outrider.config.policy import Policy
from outrider.fleet import Fleet, Job, Node
from outrider.signals import Signal

WITNESSES = ("w1", "w2", "w3")


def fleet(count: int, gpus: int = 8) -> Fleet:
    names = [f"n{number}" for number in range(count)]
    nodes = tuple(
        Node(
            node=name, rack=f"r{index // 8}", power=f"feed{index // 32}", switch=f"m{index // 32}", gpus=gpus,
            nics={f"mlx5_{rail}": f"leaf-{index // 64}-{rail}" for rail in range(gpus)},
        )
        for index, name in enumerate(names)
    )  # fmt: skip
    leaves = sorted({leaf for node in nodes for leaf in node.nics.values()})
    links = tuple({"from": leaf, "to": f"spine-{leaf[-1]}-{number}"} for leaf in leaves for number in range(4))
    jobs = (Job(job="j1", slots=tuple((name, gpu) for name in names for gpu in range(gpus))),)
    return Fleet(nodes=nodes, jobs=jobs, links=links)


def heartbeats(site: Fleet, second: int) -> Iterator[Signal]:
    for node in site.nodes:
        data = {"seq": second + 1, "boot": "b", "start": 1, "sent_s": float(second), "lag_s": 0.0}
        yield Signal(t=float(second), kind="heartbeat", node=node.node, data=data)


def node_steps(site: Fleet, second: int) -> Iterator[Signal]:
    for node in site.nodes:
        data = {"attempt": 1, "step_s": 1.0, "age_s": 0.0}
        yield Signal(t=float(second), kind="step", node=node.node, job="j1", value=second, data=data)


def rank_steps(site: Fleet, second: int) -> Iterator[Signal]:
    for rank in range(len(site.jobs[0].slots)):
        data = {"step_s": 1.0, "compute_s": 0.7, "wait_s": 0.2, "data_s": 0.01, "loss": 2.0 + second / 1000}
        yield Signal(t=float(second), kind="step", job="j1", rank=rank, value=second, data=data)


def drive(engine: Engine, batches: list[list[Signal]]) -> tuple[int, float]:
    """Signals judged, and processor seconds for it (making the signals is not counted)."""
    count, begun = 0, time.process_time()
    for batch in batches:
        now = batch[0].t
        while (due := engine.next_deadline()) is not None and due <= now:
            engine.advance(now)
        for signal in batch:
            engine.observe(signal, now)
        count += len(batch)
    return count, time.process_time() - begun


def speed(name: str, site: Fleet, make: Callable[[Fleet, int], Iterator[Signal]], seconds: int) -> None:
    engine = Engine(site, Policy(), "w1", WITNESSES)
    batches = [list(make(site, second)) for second in range(seconds)]
    count, spent = drive(engine, batches)
    print(f"{name}: {count / spent:,.0f} signals a second ({spent / count * 1e6:.1f} us each)")


def large(seconds: int) -> None:
    site = fleet(12_500)
    engine = Engine(site, Policy(), "w1", WITNESSES)
    spent = total = 0.0
    for second in range(seconds):
        batch = [*heartbeats(site, second), *node_steps(site, second)]
        count, cost = drive(engine, [batch])
        total += count
        spent += cost
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"12,500 nodes x 8 GPUs at 1 Hz: {spent / seconds:.3f} of a core, {memory:.0f} MiB at most ({total:,.0f} signals)")


def blame() -> None:
    begun = time.process_time()
    topology = Topology(fleet(12_500))
    print(f"tables of 112,500 parts from the graph: {time.process_time() - begun:.1f} s, once a process")
    rail: set[Part] = {("port", f"n{number}", "mlx5_3") for number in range(12_500)}
    leaf: set[Part] = {("port", f"n{number}", "mlx5_3") for number in range(64)}
    rack: set[Part] = {("node", f"n{number}") for number in range(8)}
    for name, failing in (("a rail of 12,500 ports", rail), ("a leaf of 64 ports", leaf), ("a rack of 8 nodes", rack)):
        begun, rounds = time.process_time(), 20
        for _ in range(rounds):
            causes = common_causes(topology, failing)
        assert len(causes) == 1, causes
        spent = (time.process_time() - begun) / rounds
        print(f"blame of {name}: {spent * 1e3:.2f} ms ({causes[0].level} {causes[0].name})")


if __name__ == "__main__":
    small = fleet(64)
    speed("heartbeats", small, heartbeats, 2000)
    speed("steps per rank", small, rank_steps, 200)
    speed("steps per node", small, node_steps, 2000)
    large(20)
    blame()
