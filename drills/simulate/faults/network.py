"""Faults of ports, cables, switches and racks."""

from drills.simulate.cell import NICS
from drills.simulate.episode import Episode
from drills.simulate.faults.parts import Victim, peers_complain, rank_dies, script, truth


@script("nic.down")
def nic_down(episode: Episode, victim: Victim, t: float) -> None:
    nic = f"mlx5_{victim.nic % NICS}"
    truth(episode, "nic.down", t, victim, accept=("link.errors", "link.flapping", "nic.degraded"))
    data = {"state": "down", "rate_gbps": 0, "rate_max_gbps": 400}
    episode.send(t + episode.uniform(0.05, 0.3), victim.node, "link", nic=nic, port=1, data=data, source="netlink")
    episode.at(t, episode.job_run.hold, ("part", victim.node))
    peers_complain(episode, victim.node, t + episode.uniform(2.0, 8.0))
    rank_dies(episode, victim, t + episode.uniform(4.0, 12.0))


@script("link.flapping")
def flapping(episode: Episode, victim: Victim, t: float) -> None:
    """A bad cable: down and up again and again, each time shorter than the transport's patience."""
    nic = f"mlx5_{victim.nic % NICS}"
    truth(episode, "link.flapping", t, victim, accept=("link.errors", "nic.down", "nic.degraded"), stops=False)
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
    truth(episode, "switch.down", t, victim, accept=("domain.lost",), place={"switch": mine}, nodes=behind)
    episode.at(t, episode.job_run.hold, ("switch", mine))
    data = {"state": "down", "rate_gbps": 0, "rate_max_gbps": 400}
    for node in behind:
        episode.send(t + episode.uniform(0.05, 0.6), node, "link", nic=rail, port=1, data=data, source="netlink")
    for node in behind[:3]:
        peers_complain(episode, node, t + episode.uniform(3.0, 8.0), count=2)


@script("domain.lost")
def domain_lost(episode: Episode, victim: Victim, t: float) -> None:
    """A rack loses its power."""
    rack = next(node.rack for node in episode.cell.fleet.nodes if node.node == victim.node)
    place = {"rack": rack, "nodes": frozenset(victim.rack)}
    truth(episode, "domain.lost", t, victim, accept=("switch.down",), place=place, shard_lost=True, nodes=victim.rack)
    for node in victim.rack:
        episode.outage(node, "host_dead", t + episode.uniform(0.0, 0.3))
    for node in victim.rack[:3]:
        peers_complain(episode, node, t + episode.uniform(0.5, 3.0), count=2)
