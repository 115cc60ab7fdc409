"""What only looks like a fault of the job: the judge must leave the job alone."""

from drills.simulate.episode import Episode
from drills.simulate.faults.parts import Victim, script, truth


@script("agent.lost")
def agent_lost(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "agent.lost", t, victim, stops=False)
    episode.outage(victim.node, "agent_dead", t)


@script("path.broken")
def path_broken(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "path.broken", t, victim, accept=("agent.lost",), stops=False)
    episode.outage(victim.node, "path_cut" if episode.rng.random() < 0.5 else "unreachable", t)
