"""Faults of whole nodes."""

from drills.simulate.episode import Episode
from drills.simulate.faults.parts import COMPLAINT_SHARE, REBOOT_SECONDS, Victim, peers_complain, rank_dies, script, truth


@script("node.lost")
def node_lost(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "node.lost", t, victim, accept=("node.panic", "node.reboot"), shard_lost=True)
    episode.outage(victim.node, "host_dead", t)
    if episode.rng.random() < COMPLAINT_SHARE:
        peers_complain(episode, victim.node, t + episode.uniform(0.5, 3.0))


@script("node.panic")
def panic(episode: Episode, victim: Victim, t: float) -> None:
    """The console log of another machine tells of the panic; the node says nothing any more."""
    truth(episode, "node.panic", t, victim, accept=("node.lost", "node.reboot"), shard_lost=True)
    episode.outage(victim.node, "host_dead", t, episode.uniform(*REBOOT_SECONDS))
    episode.tell(t + episode.uniform(0.2, 0.6), "kernel", node=victim.node, data={"event": "panic"}, source="netconsole",
                 text="Kernel panic - not syncing: Fatal exception in interrupt")  # fmt: skip
    if episode.rng.random() < COMPLAINT_SHARE:
        peers_complain(episode, victim.node, t + episode.uniform(0.5, 3.0))


@script("node.reboot")
def reboot(episode: Episode, victim: Victim, t: float) -> None:
    """Somebody restarts the machine: the ranks are told to end, the agent goes, a new boot comes minutes later."""
    truth(episode, "node.reboot", t, victim, accept=("node.lost", "node.panic"), shard_lost=True)
    down = episode.uniform(*REBOOT_SECONDS)
    for rank in episode.cell.ranks(victim.node):
        episode.exit(t + episode.uniform(0, 0.3), rank, -15)
    episode.outage(victim.node, "host_dead", t + 1.0, down)
    if episode.rng.random() < COMPLAINT_SHARE:
        peers_complain(episode, victim.node, t + episode.uniform(1.5, 4.0))
    episode.ends(t + 60)


@script("node.hung")
def hung(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "node.hung", t, victim, accept=("node.lost",), shard_lost=True)
    episode.outage(victim.node, "processes_stopped", t)
    episode.ends(t + 150)


@script("node.memory")
def memory(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "node.memory", t, victim, accept=("job.rank_exit",))
    episode.send(t + episode.uniform(0.1, 0.4), victim.node, "kernel", data={"event": "memory_uncorrected"}, source="kmsg",
                 text="EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0")  # fmt: skip
    rank_dies(episode, victim, t + episode.uniform(0.1, 1.0), -7)
