"""What fault scripts share: the register, the victim, and the symptoms that several faults show.

Signals have the shapes of the design's table, with the secondary symptoms of real machines: a second collector that tells the
same, ranks that fall over the first one, the other end of a link. Delays are those of the reporting path (kernel log 0.1 to
0.4 s, an exporter's page up to 15 s).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from drills.simulate.cell import JOB, pci_of, uuid_of
from drills.simulate.episode import Episode
from drills.simulate.world import Truth

#: A torch process group gives up a collective after ten minutes unless it is told otherwise.
NCCL_TIMEOUT_SECONDS: Final = 600.0
#: A machine that fell over by itself is up again after this long.
REBOOT_SECONDS: Final = (150.0, 300.0)
#: Share of dead hosts whose peers see a transport error within seconds; the others' queues retry past the hard limit.
COMPLAINT_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class Victim:
    """Whom a fault strikes: a node (and, where it matters, one of its GPUs or network devices); `rack` for shared faults."""

    node: str
    gpu: int
    nic: int
    rack: tuple[str, ...]


Script = Callable[[Episode, Victim, float], None]
SCRIPTS: dict[str, Script] = {}


def script(fault: str) -> Callable[[Script], Script]:
    """Registers a script for a fault class."""

    def register(play: Script) -> Script:
        SCRIPTS[fault] = play
        return play

    return register


def known() -> frozenset[str]:
    """Classes that can be played."""
    return frozenset(SCRIPTS)


def truth(
    episode: Episode, fault: str, t: float, victim: Victim, *, accept: tuple[str, ...] = (), stops: bool = True, **more: Any
) -> None:
    """Tells what happened; `accept`: other classes that name it rightly, `more`: the other fields of `Truth`."""
    place = more.pop("place", {"node": victim.node})
    nodes = more.pop("nodes", (victim.node,))
    episode.truth(Truth(fault=fault, t=t, accept=frozenset((fault, *accept)), place=place, stops=stops, nodes=nodes, **more))


def xid(episode: Episode, victim: Victim, t: float, code: int, text: str) -> None:
    """A line of the driver in the kernel log; half of the nodes have an exporter that tells the same once more."""
    pci = pci_of(victim.gpu)
    data = {"pci": pci, "uuid": uuid_of(victim.node, victim.gpu)}
    line = f"NVRM: Xid (PCI:{pci}): {code}, {text}"
    fields = {"gpu": victim.gpu, "pci": pci, "uuid": data["uuid"], "value": code, "data": data}
    episode.send(t + episode.uniform(0.1, 0.4), victim.node, "xid", text=line, source="kmsg", **fields)
    if episode.rng.random() < 0.5:
        episode.send(t + episode.uniform(1.0, 15.0), victim.node, "xid", source="dcgm", **fields)


def rank_dies(episode: Episode, victim: Victim, t: float, code: int = 1) -> None:
    """The rank of a dead GPU ends; two neighbours in the ring see it; the others' processes are aborted one by one."""
    rank = rank_of(episode, victim)
    episode.exit(t, rank, code)
    fallout(episode, rank, t)


def fallout(episode: Episode, rank: int, t: float) -> None:
    size = len(episode.cell.fleet.jobs[0].slots)
    near = [one % size for one in (rank - 1, rank + 1)]
    for one in near:
        data = {"attempt": episode.job.attempt, "library": "nccl", "code": "remote", "peer_rank": rank, "recovered": False}
        node = episode.cell.fleet.jobs[0].slots[one][0]
        episode.send(t + episode.uniform(0.05, 0.6), node, "collective_error", job=JOB, rank=one, data=data, source="nccl",
                     text="NCCL WARN: remote process exited or there was a network error")  # fmt: skip
    for one in episode.rng.choice(size, size=min(6, size), replace=False).tolist():
        if one != rank:
            episode.exit(t + episode.uniform(2.0, 12.0), int(one), -6)


def rank_of(episode: Episode, victim: Victim) -> int:
    return episode.cell.ranks(victim.node)[victim.gpu]


def peers_complain(episode: Episode, node: str, t: float, count: int = 3) -> None:
    """Ranks on other nodes run out of retries towards `node`."""
    address = next(one.address for one in episode.cell.fleet.nodes if one.node == node)
    others = [one for one in episode.cell.members if one != node]
    for peer in episode.rng.choice(len(others), size=min(count, len(others)), replace=False).tolist():
        rank = episode.cell.ranks(others[peer])[0]
        data = {
            "attempt": episode.job.attempt,
            "library": "nccl",
            "status": 12,
            "peer": f"{address}<54321>",
            "peer_node": node,
            "recovered": False,
        }
        episode.send(t + episode.uniform(0.0, 1.0), others[peer], "collective_error", job=JOB, rank=rank, data=data, source="nccl",
                     text=f"NCCL WARN NET/IB: Got completion from peer {address}<54321> with status=12 retry exceeded")  # fmt: skip


def timeouts(episode: Episode, t: float, seq: int = 4711) -> None:
    """What the training's own watchdog says when it gives up."""
    size = len(episode.cell.fleet.jobs[0].slots)
    for rank in range(0, size, max(1, size // 8)):
        node = episode.cell.fleet.jobs[0].slots[rank][0]
        data = {"attempt": episode.job.attempt, "group": "dp", "seq": seq, "op": "ALLREDUCE", "last_enqueued": seq,
                "last_completed": seq - 1, "elapsed_s": NCCL_TIMEOUT_SECONDS}  # fmt: skip
        episode.send(t + episode.uniform(0, 2), node, "collective_timeout", job=JOB, rank=rank, data=data, source="nccl")


def slow_rank(episode: Episode, rank: int, factor: float) -> None:
    """Each rank tells its own step from now on: the slow one computes, the others wait for it."""
    usual = episode.options.step
    episode.job.slow = factor
    slow = {"compute_s": usual * (factor - 0.05), "wait_s": usual * 0.05}
    quick = {"compute_s": usual * 0.95, "wait_s": usual * (factor - 0.95)}
    episode.job_run.rank_data = lambda one: slow if one == rank else quick
