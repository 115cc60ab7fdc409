"""What a heartbeat costs the witness: from the socket through the signature, the engine and the journal's buffer.

Goal: at most 10 microseconds. Prints processor time, the median of five rounds of 20,000 beats from 2,000 nodes, layer by layer.
"""

import socket
import statistics
import time
from pathlib import Path

from detectors.core.engine import Engine
from detectors.witness.heartbeats import HeartbeatReceiver
from detectors.witness.journal import Journal
from detectors.witness.judge import Judge
from detectors.witness.ledger_sqlite import SqliteLedger
from outrider.clock import SystemClock
from outrider.config.ledger import LedgerSection
from outrider.config.policy import PolicySection
from outrider.fleet import Fleet, Node
from outrider.signals import Signal
from outrider.wire import Heartbeat, pack_heartbeat

NODES, ROUNDS, BEATS = 2000, 5, 20_000
KEY = b"k" * 32
GOAL_MICROSECONDS = 10.0


def measure(sink_name: str, journal_bytes: int) -> float:
    """Median microseconds a beat."""
    fleet = Fleet(nodes=tuple(Node(node=f"node-{index:05}", gpus=8) for index in range(NODES)))
    names = fleet.witnesses
    journal = Journal(Path("unused"), fleet, "w1", journal_bytes)
    engine = Engine(fleet, PolicySection(), "w1", names)
    judge = Judge(engine, fleet, SqliteLedger(LedgerSection()), journal, SystemClock(), (1, 2))

    def nothing(signal: Signal) -> None: ...

    receiver = HeartbeatReceiver("127.0.0.1", 0, (KEY,), judge.observe if sink_name == "judge" else nothing, SystemClock())
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.connect(("127.0.0.1", receiver.port))
    costs, beat = [], 0
    for _ in range(ROUNDS):
        spent = 0.0
        done = 0
        while done < BEATS:
            for _ in range(256):
                node, seq = fleet.nodes[beat % NODES].node, beat // NODES + 1
                sender.send(pack_heartbeat(Heartbeat(1, node, "8f14e45f-ceea-4672", 1, seq, beat * 0.001, 0.0), (KEY,)))
                beat += 1
            began = time.thread_time()
            done += receiver.read(256)
            spent += time.thread_time() - began
        costs.append(spent / done * 1e6)
    sender.close()
    receiver.close()
    return statistics.median(costs)


def main() -> int:
    bare = measure("nothing", 0)
    judged = measure("judge", 0)
    journalled = measure("judge", 256 << 20)
    print(f"socket and signature {bare:.1f} us, with the engine {judged:.1f} us, with the journal {journalled:.1f} us a heartbeat")
    print(f"goal {GOAL_MICROSECONDS:g} us: {'kept' if journalled <= GOAL_MICROSECONDS else 'MISSED'}")
    return 0 if journalled <= GOAL_MICROSECONDS else 1


if __name__ == "__main__":
    raise SystemExit(main())
