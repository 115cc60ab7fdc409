"""Fault scripts: what one fault of each class does to hosts, job and signals, and what the truth about it is.

A script knows nothing of the judge; the checkers know nothing of the scripts. Signals have the shapes of the design's table,
with the secondary symptoms that real machines show: a second collector that tells the same, ranks that fall over the first
one, the other end of a link. Delays are those of the reporting path (kernel log 0.1 to 0.4 s, an exporter's page up to 15 s).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from drills.simulate.cell import JOB, NICS, pci_of, uuid_of
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


# --- helpers: what several scripts do ---


def _truth(
    episode: Episode, fault: str, t: float, victim: Victim, *, accept: tuple[str, ...] = (), stops: bool = True, **more: Any
) -> None:
    place = more.pop("place", {"node": victim.node})
    nodes = more.pop("nodes", (victim.node,))
    episode.truth(Truth(fault=fault, t=t, accept=frozenset((fault, *accept)), place=place, stops=stops, nodes=nodes, **more))


def _xid(episode: Episode, victim: Victim, t: float, code: int, text: str) -> None:
    """A line of the driver in the kernel log; half of the nodes have an exporter that tells the same once more."""
    pci = pci_of(victim.gpu)
    data = {"pci": pci, "uuid": uuid_of(victim.node, victim.gpu)}
    line = f"NVRM: Xid (PCI:{pci}): {code}, {text}"
    fields = {"gpu": victim.gpu, "pci": pci, "uuid": data["uuid"], "value": code, "data": data}
    episode.send(t + episode.uniform(0.1, 0.4), victim.node, "xid", text=line, source="kmsg", **fields)
    if episode.rng.random() < 0.5:
        episode.send(t + episode.uniform(1.0, 15.0), victim.node, "xid", source="dcgm", **fields)


def _rank_dies(episode: Episode, victim: Victim, t: float, code: int = 1) -> None:
    """The rank of a dead GPU ends; two neighbours in the ring see it; the others' processes are aborted one by one."""
    rank = _rank(episode, victim)
    episode.exit(t, rank, code)
    _fallout(episode, rank, t)


def _fallout(episode: Episode, rank: int, t: float) -> None:
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


def _rank(episode: Episode, victim: Victim) -> int:
    return episode.cell.ranks(victim.node)[victim.gpu]


def _peers_complain(episode: Episode, node: str, t: float, count: int = 3) -> None:
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


def _timeouts(episode: Episode, t: float, seq: int = 4711) -> None:
    """What the training's own watchdog says when it gives up."""
    size = len(episode.cell.fleet.jobs[0].slots)
    for rank in range(0, size, max(1, size // 8)):
        node = episode.cell.fleet.jobs[0].slots[rank][0]
        data = {"attempt": episode.job.attempt, "group": "dp", "seq": seq, "op": "ALLREDUCE", "last_enqueued": seq,
                "last_completed": seq - 1, "elapsed_s": NCCL_TIMEOUT_SECONDS}  # fmt: skip
        episode.send(t + episode.uniform(0, 2), node, "collective_timeout", job=JOB, rank=rank, data=data, source="nccl")


# --- GPUs ---


@script("gpu.fallen_off_bus")
def fallen_off_bus(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "gpu.fallen_off_bus", t, victim, accept=("gpu.missing",), shard_lost=True)
    _xid(episode, victim, t, 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    episode.at(t, episode.hold, ("part", victim.node))
    _rank_dies(episode, victim, t + episode.uniform(0.5, 6.0))
    gpus = episode.cell.gpus
    episode.send(t + episode.uniform(2, 15), victim.node, "gpu_count", value=gpus - 1, data={"expected": gpus}, source="nvml")


@script("gpu.ecc_uncontained")
def ecc_uncontained(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "gpu.ecc_uncontained", t, victim, shard_lost=True)
    _xid(episode, victim, t, 95, "pid=4242, name=python, Uncontained: LTC TAG")
    episode.at(t, episode.hold, ("part", victim.node))
    data = {"corrected": 0, "uncorrected": 1, "scope": "volatile", "where": "sram"}
    episode.send(t + episode.uniform(1, 10), victim.node, "ecc", gpu=victim.gpu, data=data, source="nvml")
    _rank_dies(episode, victim, t + episode.uniform(0.2, 3.0))


@script("gpu.ecc_contained")
def ecc_contained(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "gpu.ecc_contained", t, victim, accept=("gpu.row_remap_pending",), shard_lost=True)
    _xid(episode, victim, t, 94, "pid=4242, name=python, Contained: SM (0x1). RST: No, D-RST: No")
    _xid(episode, victim, t + 0.2, 63, "Row Remapper: New row marked for remapping, reset gpu to activate.")
    data = {"corrected": 0, "uncorrected": 1, "pending": True, "failed": False}
    episode.send(t + episode.uniform(1, 10), victim.node, "row_remap", gpu=victim.gpu, data=data, source="nvml")
    _rank_dies(episode, victim, t + episode.uniform(0.1, 2.0), -6)


@script("gpu.row_remap_pending")
def row_remap_pending(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "gpu.row_remap_pending", t, victim, stops=False)
    _xid(episode, victim, t, 63, "Row Remapper: New row marked for remapping, reset gpu to activate.")
    data = {"corrected": 1, "uncorrected": 0, "pending": True, "failed": False}
    episode.send(t + episode.uniform(1, 10), victim.node, "row_remap", gpu=victim.gpu, data=data, source="nvml")


@script("gpu.row_remap_failed")
def row_remap_failed(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "gpu.row_remap_failed", t, victim, stops=False)
    _xid(episode, victim, t, 64, "Row Remapper: Failed to remap row")
    data = {"corrected": 0, "uncorrected": 8, "pending": False, "failed": True}
    episode.send(t + episode.uniform(1, 10), victim.node, "row_remap", gpu=victim.gpu, data=data, source="nvml")


@script("gpu.nvlink")
def nvlink(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "gpu.nvlink", t, victim)
    _xid(episode, victim, t, 74, "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 2(0x10000, 0x0, 0x0)")
    episode.at(t, episode.hold, ("part", victim.node))
    data = {"link": 2, "replay": 9, "recovery": 3, "crc": 120, "down": True}
    episode.send(t + episode.uniform(1, 10), victim.node, "nvlink", gpu=victim.gpu, link=2, data=data, source="nvml")
    _xid(episode, victim, t + episode.uniform(0.3, 2), 45, "pid=4242, name=python, Ch 00000010")
    _rank_dies(episode, victim, t + episode.uniform(0.3, 3.0))


@script("gpu.gsp_hang")
def gsp_hang(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "gpu.gsp_hang", t, victim, accept=("gpu.driver_hang",), shard_lost=True)
    episode.at(t, episode.hold, ("part", victim.node))
    # The driver waits for its firmware for six seconds before it says so.
    _xid(episode, victim, t + 6.0, 119, "pid=4242, name=python, Timeout after 6s of waiting for RPC response from GPU GSP! "
         "Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).")  # fmt: skip
    _stuck_driver(episode, victim, t)
    episode.ends(t + 150)


@script("gpu.driver_hang")
def driver_hang(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "gpu.driver_hang", t, victim, accept=("gpu.gsp_hang",), shard_lost=True)
    episode.at(t, episode.hold, ("part", victim.node))
    _stuck_driver(episode, victim, t)
    episode.ends(t + NCCL_TIMEOUT_SECONDS + 60)
    _timeouts(episode, t + NCCL_TIMEOUT_SECONDS)


def _stuck_driver(episode: Episode, victim: Victim, t: float) -> None:
    for seconds in (10, 20, 30, 60, 120):
        episode.send(t + episode.uniform(0, 3) + seconds, victim.node, "driver_call", gpu=victim.gpu, value=float(seconds),
                     data={"call": "nvmlDeviceGetTemperature"}, source="nvml")  # fmt: skip


@script("gpu.thermal")
def thermal(episode: Episode, victim: Victim, t: float) -> None:
    """A hot GPU throttles: the job goes on, slower."""
    _truth(episode, "gpu.thermal", t, victim, accept=("gpu.slow", "job.straggler"), stops=False)
    episode.at(t, _slow_rank, episode, _rank(episode, victim), 1.4)
    for number in range(12):
        data = {"sm_mhz": 1005, "sm_mhz_max": 1980, "temp_c": 91, "power_w": 410, "power_limit_w": 700, "util": 100,
                "throttle": ["hw_thermal_slowdown", "sw_thermal_slowdown"]}  # fmt: skip
        episode.send(t + 10 * number + episode.uniform(0, 5), victim.node, "gpu_state", gpu=victim.gpu, data=data, source="nvml")
    episode.ends(t + 130)


def _slow_rank(episode: Episode, rank: int, factor: float) -> None:
    """Each rank tells its own step from now on: the slow one computes, the others wait for it."""
    usual = episode.options.step
    episode.job.slow = factor
    slow = {"compute_s": usual * (factor - 0.05), "wait_s": usual * 0.05}
    quick = {"compute_s": usual * 0.95, "wait_s": usual * (factor - 0.95)}
    episode.rank_data = lambda one: slow if one == rank else quick


@script("gpu.sdc")
def sdc(episode: Episode, victim: Victim, t: float) -> None:
    """Silent corruption: nothing tells of it. It is played so that the recall is honest."""
    _truth(episode, "gpu.sdc", t, victim, stops=False)


# --- nodes ---


@script("node.lost")
def node_lost(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "node.lost", t, victim, accept=("node.panic", "node.reboot"), shard_lost=True)
    episode.outage(victim.node, "host_dead", t)
    if episode.rng.random() < COMPLAINT_SHARE:
        _peers_complain(episode, victim.node, t + episode.uniform(0.5, 3.0))


@script("node.panic")
def panic(episode: Episode, victim: Victim, t: float) -> None:
    """The console log of another machine tells of the panic; the node says nothing any more."""
    _truth(episode, "node.panic", t, victim, accept=("node.lost", "node.reboot"), shard_lost=True)
    episode.outage(victim.node, "host_dead", t, episode.uniform(*REBOOT_SECONDS))
    episode.tell(t + episode.uniform(0.2, 0.6), "kernel", node=victim.node, data={"event": "panic"}, source="netconsole",
                 text="Kernel panic - not syncing: Fatal exception in interrupt")  # fmt: skip
    if episode.rng.random() < COMPLAINT_SHARE:
        _peers_complain(episode, victim.node, t + episode.uniform(0.5, 3.0))


@script("node.reboot")
def reboot(episode: Episode, victim: Victim, t: float) -> None:
    """Somebody restarts the machine: the ranks are told to end, the agent goes, a new boot comes minutes later."""
    _truth(episode, "node.reboot", t, victim, accept=("node.lost", "node.panic"), shard_lost=True)
    down = episode.uniform(*REBOOT_SECONDS)
    for rank in episode.cell.ranks(victim.node):
        episode.exit(t + episode.uniform(0, 0.3), rank, -15)
    episode.outage(victim.node, "host_dead", t + 1.0, down)
    if episode.rng.random() < COMPLAINT_SHARE:
        _peers_complain(episode, victim.node, t + episode.uniform(1.5, 4.0))
    episode.ends(t + 60)


@script("node.hung")
def hung(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "node.hung", t, victim, accept=("node.lost",), shard_lost=True)
    episode.outage(victim.node, "processes_stopped", t)
    episode.ends(t + 150)


@script("node.memory")
def memory(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "node.memory", t, victim, accept=("job.rank_exit",))
    episode.send(t + episode.uniform(0.1, 0.4), victim.node, "kernel", data={"event": "memory_uncorrected"}, source="kmsg",
                 text="EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0")  # fmt: skip
    _rank_dies(episode, victim, t + episode.uniform(0.1, 1.0), -7)


# --- network ---


@script("nic.down")
def nic_down(episode: Episode, victim: Victim, t: float) -> None:
    nic = f"mlx5_{victim.nic % NICS}"
    _truth(episode, "nic.down", t, victim, accept=("link.errors", "link.flapping", "nic.degraded"))
    data = {"state": "down", "rate_gbps": 0, "rate_max_gbps": 400}
    episode.send(t + episode.uniform(0.05, 0.3), victim.node, "link", nic=nic, port=1, data=data, source="netlink")
    episode.at(t, episode.hold, ("part", victim.node))
    _peers_complain(episode, victim.node, t + episode.uniform(2.0, 8.0))
    _rank_dies(episode, victim, t + episode.uniform(4.0, 12.0))


@script("link.flapping")
def flapping(episode: Episode, victim: Victim, t: float) -> None:
    """A bad cable: down and up again and again, each time shorter than the transport's patience."""
    nic = f"mlx5_{victim.nic % NICS}"
    _truth(episode, "link.flapping", t, victim, accept=("link.errors", "nic.down", "nic.degraded"), stops=False)
    when = t
    for _ in range(6):
        for state, seconds in (("down", episode.uniform(0.5, 2.5)), ("up", episode.uniform(4, 10))):
            data = {"state": state, "rate_gbps": 400 if state == "up" else 0, "rate_max_gbps": 400}
            episode.send(when, victim.node, "link", nic=nic, port=1, data=data, source="netlink")
            when += seconds
    episode.ends(t + 100)


@script("switch.down")
def switch_down(episode: Episode, victim: Victim, t: float) -> None:
    """A leaf dies: every node behind it loses the same rail; the nodes themselves are well."""
    rail = f"mlx5_{victim.nic % NICS}"
    mine = next(node.nics[rail] for node in episode.cell.fleet.nodes if node.node == victim.node)
    behind = tuple(node.node for node in episode.cell.fleet.nodes if node.nics.get(rail) == mine)
    _truth(episode, "switch.down", t, victim, accept=("domain.lost",), place={"switch": mine}, nodes=behind)
    episode.at(t, episode.hold, ("switch", mine))
    data = {"state": "down", "rate_gbps": 0, "rate_max_gbps": 400}
    for node in behind:
        episode.send(t + episode.uniform(0.05, 0.6), node, "link", nic=rail, port=1, data=data, source="netlink")
    for node in behind[:3]:
        _peers_complain(episode, node, t + episode.uniform(3.0, 8.0), count=2)


@script("domain.lost")
def domain_lost(episode: Episode, victim: Victim, t: float) -> None:
    """A rack loses its power."""
    rack = next(node.rack for node in episode.cell.fleet.nodes if node.node == victim.node)
    place = {"rack": rack, "nodes": frozenset(victim.rack)}
    _truth(episode, "domain.lost", t, victim, accept=("switch.down",), place=place, shard_lost=True, nodes=victim.rack)
    for node in victim.rack:
        episode.outage(node, "host_dead", t + episode.uniform(0.0, 0.3))
    for node in victim.rack[:3]:
        _peers_complain(episode, node, t + episode.uniform(0.5, 3.0), count=2)


# --- storage, data, application ---


@script("storage.hang")
def storage_hang(episode: Episode, victim: Victim, t: float) -> None:
    """The shared file system stands still: every node's trial write hangs, and the job in its next save."""
    _truth(episode, "storage.hang", t, victim, place={"mount": "/data", "server": "fs1"}, poisoned=True,
           nodes=tuple(episode.cell.members))  # fmt: skip
    start = t + episode.uniform(5, 30)
    episode.tell(start, "phase", job=JOB, value="checkpoint", data={"attempt": episode.job.attempt})
    episode.at(start, episode.hold, ("storage", ""))
    for node in episode.cell.members:
        for number in range(4):
            data = {"operation": "write", "seconds": 10.0 + 30 * number, "ok": False, "error": "deadline"}
            episode.send(
                t + episode.uniform(8, 12) + 30 * number, node, "storage", mount="/data", server="fs1", data=data, source="storage"
            )
    episode.ends(t + 240)


@script("storage.full")
def storage_full(episode: Episode, victim: Victim, t: float) -> None:
    _truth(
        episode,
        "storage.full",
        t,
        victim,
        accept=("job.snapshot_failed",),
        stops=False,
        place={"mount": "/data", "node": victim.node},
    )
    data = {"operation": "write", "seconds": 0.01, "ok": False, "error": "ENOSPC"}
    for number in range(3):
        episode.send(t + 10 * number + episode.uniform(0, 2), victim.node, "storage", mount="/data", data=data, source="storage")


@script("job.rank_exit")
def rank_exit(episode: Episode, victim: Victim, t: float) -> None:
    rank = _rank(episode, victim)
    _truth(episode, "job.rank_exit", t, victim, accept=("job.app_error",), place={"rank": rank, "node": victim.node})
    _rank_dies(episode, victim, t, -11 if episode.rng.random() < 0.5 else 1)


@script("job.app_error")
def app_error(episode: Episode, victim: Victim, t: float) -> None:
    """A bug that every rank runs into: all of them end within two seconds, with the same exception."""
    _truth(episode, "job.app_error", t, victim, accept=("job.rank_exit",), place={"job": JOB})
    for rank in range(len(episode.cell.fleet.jobs[0].slots)):
        episode.exit(t + episode.uniform(0, 2), rank, 1)


@script("job.oom")
def oom(episode: Episode, victim: Victim, t: float) -> None:
    rank = _rank(episode, victim)
    _truth(episode, "job.oom", t, victim, accept=("job.rank_exit",), place={"rank": rank, "node": victim.node})
    episode.send(t + 0.2, victim.node, "kernel", data={"event": "oom"}, source="kmsg",
                 text="Out of memory: Killed process 4242 (python) total-vm:98765432kB")  # fmt: skip
    episode.exit(t, rank, -9, "oom")
    _fallout(episode, rank, t)


@script("job.hang")
def hang(episode: Episode, victim: Victim, t: float) -> None:
    """One rank never enters a collective; nothing but the steps, the flight records and the watchdog tells of it."""
    rank = _rank(episode, victim)
    accept = ("job.desync", "job.dataloader_stall")
    _truth(episode, "job.hang", t, victim, accept=accept, place={"rank": rank, "node": victim.node})
    episode.at(t, episode.hold, ("app", ""))
    _records(episode, rank, t + episode.uniform(30, 34))
    _timeouts(episode, t + NCCL_TIMEOUT_SECONDS)
    episode.ends(t + NCCL_TIMEOUT_SECONDS + 60)


def _records(episode: Episode, missing: int, t: float) -> None:
    """Flight records, asked for on suspicion: in its data-parallel group one rank has not enqueued what the others wait for."""
    job = episode.cell.fleet.jobs[0]
    for rank, (node, _) in enumerate(job.slots):
        mine = missing in next(group for group in job.groups["dp"] if rank in group)
        behind = 1 if rank == missing else 0
        data: dict[str, Any] = {
            "dp": {"enqueued": 500 - behind, "started": 500 - behind, "completed": 499, "op": "ALLREDUCE"},
            "tp": {"enqueued": 9_000 + (1 if not behind else 0), "started": 9_000, "completed": 9_000, "op": "ALLREDUCE"},
        }
        if not mine:
            data["dp"] = {"enqueued": 500, "started": 500, "completed": 500, "op": "ALLREDUCE"}
        episode.send(
            t + episode.uniform(0, 1),
            node,
            "flight_record",
            job=JOB,
            rank=rank,
            data={"attempt": episode.job.attempt, **data},
            source="flight",
        )


@script("job.dataloader_stall")
def dataloader_stall(episode: Episode, victim: Victim, t: float) -> None:
    rank = _rank(episode, victim)
    _truth(episode, "job.dataloader_stall", t, victim, accept=("job.hang",), place={"rank": rank, "node": victim.node})
    episode.at(t, episode.hold, ("app", ""))
    episode.send(
        t,
        victim.node,
        "phase",
        job=JOB,
        rank=rank,
        value="data",
        data={"attempt": episode.job.attempt, "progress": 17},
        source="sdk",
    )
    _timeouts(episode, t + NCCL_TIMEOUT_SECONDS)
    episode.ends(t + NCCL_TIMEOUT_SECONDS + 60)


@script("job.straggler")
def straggler(episode: Episode, victim: Victim, t: float) -> None:
    """One rank computes 1.3 times as long as the others, for good; nothing of the machine says why."""
    rank = _rank(episode, victim)
    accept = ("gpu.slow", "gpu.thermal")
    _truth(episode, "job.straggler", t, victim, accept=accept, stops=False, place={"rank": rank, "node": victim.node})
    episode.at(t, _slow_rank, episode, rank, 1.3)


@script("job.loss_nan")
def loss_nan(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "job.loss_nan", t, victim, accept=("job.loss_spike",), stops=False, place={"job": JOB}, poisoned=True)

    def spoil() -> None:
        episode.step_data = lambda _step: {"loss": float("nan"), "grad_norm": float("nan")}

    episode.at(t, spoil)


@script("job.loss_spike")
def loss_spike(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "job.loss_spike", t, victim, accept=("job.loss_nan",), stops=False, place={"job": JOB})

    def spoil() -> None:
        episode.step_data = lambda step: {"loss": 9.0 - 0.4 * (step % 7), "grad_norm": 55.0 + step % 5}

    episode.at(t, spoil)


# --- no faults of the job: the judge must leave it alone ---


@script("agent.lost")
def agent_lost(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "agent.lost", t, victim, stops=False)
    episode.outage(victim.node, "agent_dead", t)


@script("path.broken")
def path_broken(episode: Episode, victim: Victim, t: float) -> None:
    _truth(episode, "path.broken", t, victim, accept=("agent.lost",), stops=False)
    episode.outage(victim.node, "path_cut" if episode.rng.random() < 0.5 else "unreachable", t)
