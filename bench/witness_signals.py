"""How many signals a second one witness takes in: a batch's bytes through decoding, deduplication, engine and journal's buffer.

Prints signals a second on one core for step signals of a job of 1,000 ranks and for hardware counters, and for decoding alone.
"""

import time
from pathlib import Path

from detectors.core.engine import Engine
from detectors.witness.intake import Intake
from detectors.witness.journal import Journal
from detectors.witness.judge import Judge
from detectors.witness.ledger_sqlite import SqliteLedger
from outrider.clock import SystemClock
from outrider.config.ledger import LedgerSection
from outrider.config.policy import PolicySection
from outrider.fleet import Fleet, Job, Node
from outrider.signals import Signal, encode_batch
from outrider.wire import signal_id

NODES, BATCHES, BATCH = 125, 400, 250


def batches(kind: str) -> list[bytes]:
    made, number = [], 0
    for batch in range(BATCHES):
        signals = []
        for _ in range(BATCH):
            number += 1
            rank = number % (NODES * 8)
            name = signal_id("node-000", "boot", 1, number)
            if kind == "step":
                data = {"attempt": 1, "step_s": 4.0, "age_s": 0.1, "loss": 2.5 + number % 97 * 1e-3, "grad_norm": 0.3}
                signals.append(
                    Signal(
                        t=batch * 0.1,
                        kind="step",
                        job="j1",
                        rank=rank,
                        node=f"node-{rank // 8:03}",
                        value=batch,
                        data=data,
                        id=name,
                    )
                )
            else:
                data = {"corrected": 0, "uncorrected": 0, "scope": "volatile", "where": "dram"}
                signals.append(Signal(t=batch * 0.1, kind="ecc", node=f"node-{rank // 8:03}", gpu=rank % 8, data=data, id=name))
        made.append(encode_batch(signals))
    return made


def measure(kind: str) -> tuple[float, float]:
    """Signals a second: all of it, and decoding alone."""
    nodes = tuple(Node(node=f"node-{index:03}", gpus=8) for index in range(NODES))
    slots = tuple((f"node-{rank // 8:03}", rank % 8) for rank in range(NODES * 8))
    fleet = Fleet(nodes=nodes, jobs=(Job(job="j1", slots=slots),))
    engine = Engine(fleet, PolicySection(), "w1", fleet.witnesses)
    journal = Journal(Path("unused"), fleet, "w1", 256 << 20)
    judge = Judge(engine, fleet, SqliteLedger(LedgerSection()), journal, SystemClock(), (1, 2))
    bodies = batches(kind)
    began = time.thread_time()
    for body in bodies:
        Intake(10).take(body, time.monotonic(), 100.0, "boot")
    decoding = time.thread_time() - began
    intake = Intake(10)
    began = time.thread_time()
    for body in bodies:
        for signal in intake.take(body, time.monotonic(), 100.0, "boot")[0]:
            judge.observe(signal)
    everything = time.thread_time() - began
    count = BATCHES * BATCH
    return count / everything, count / decoding


def main() -> int:
    for kind in ("step", "ecc"):
        everything, decoding = measure(kind)
        print(f"{kind}: {everything:,.0f} signals/s through the witness, {decoding:,.0f}/s decoded and moved to our clock")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
