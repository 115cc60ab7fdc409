"""Partitions and stalls: nothing is wrong with any job, only with the watching. Each has the incident that it deserves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from drills.simulate import check
from drills.simulate.cell import SPARES_MIN, build, name_of
from drills.simulate.episode import T0, Episode
from drills.simulate.jitter import Jitter
from drills.simulate.options import Options
from drills.simulate.record import Record
from outrider.catalogue.faults import RESPONSES
from outrider.config.policy import Policy

NODES: Final = 256
SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """`expect`: fault classes that name it rightly; `incidents`: how many at `page` or above are right."""

    name: str
    play: Callable[[Episode], None]
    expect: frozenset[str]
    incidents: tuple[int, ...] = (1,)
    witnesses: int = 3


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a scenario. `ok`: no restart, the right number of incidents, each rightly named."""

    ok: bool
    told: tuple[str, ...]
    restarts: int
    record: Record


def _rack(episode: Episode) -> None:
    for index in range(8, 16):
        episode.outage(name_of(index), "unreachable", T0, SECONDS)


def _switch(episode: Episode) -> None:
    """A management switch above four racks."""
    for index in range(32, 64):
        episode.outage(name_of(index), "unreachable", T0, SECONDS)


def _witness_side(episode: Episode) -> None:
    episode.cut_witness(0, T0, SECONDS, votes=False)


def _witness_gone(episode: Episode) -> None:
    episode.cut_witness(0, T0, SECONDS, votes=True)


def _observers(episode: Episode) -> None:
    """One witness hears the first half of the fleet only, the others the second half only."""
    others = frozenset(range(1, len(episode.engines)))
    for index in range(NODES):
        episode.outage(name_of(index), "path_cut", T0, SECONDS, others if index < NODES // 2 else frozenset({0}))


def _tenth_of_agents(episode: Episode) -> None:
    for index in range(0, NODES, 10):
        episode.outage(name_of(index), "agent_stopped", T0, SECONDS)


def _all_agents(episode: Episode) -> None:
    """The management network is out as a whole: no witness hears any node, no prober reaches another."""
    for index in range(NODES):
        episode.outage(name_of(index), "unreachable", T0, SECONDS)


def _stall(count: int) -> Callable[[Episode], None]:
    def play(episode: Episode) -> None:
        for index in range(count):
            episode.stall_witness(index, T0, 15.0)

    return play


BLIND: Final = frozenset({"monitor.blind", "monitor.witness_lost"})
SCENARIOS: Final = (
    Scenario("rack cut off, job steps", _rack, frozenset({"domain.lost", "path.broken"})),
    Scenario("switch cut off (4 racks), job steps", _switch, frozenset({"domain.lost", "path.broken", "monitor.blind"})),
    Scenario("one witness hears nobody", _witness_side, BLIND, (0, 1)),
    Scenario("one witness is cut off", _witness_gone, BLIND, (0, 1)),
    Scenario("one witness of five is cut off", _witness_gone, BLIND, (0, 1), witnesses=5),
    Scenario("witnesses hear different halves", _observers, BLIND | {"path.broken", "domain.lost"}, (0, 1)),
    Scenario("a tenth of the agents is silent", _tenth_of_agents, BLIND | {"agent.lost"}),
    Scenario("all agents are silent", _all_agents, BLIND),
    Scenario("one witness stalls 15 s", _stall(1), frozenset({"monitor.witness_lost"}), (0, 1)),
    Scenario("all witnesses stall 15 s", _stall(3), BLIND, (0, 1)),
)


def run(scenario: Scenario, seed: int = 1) -> Result:
    """Plays one scenario with 256 nodes under jitter without freezes."""
    options = Options(nodes=NODES, gpus_per_node=1)
    witnesses = tuple(f"w{index + 1}" for index in range(scenario.witnesses))
    cell = build(options, tuple(range(NODES)), witnesses, spares_max=SPARES_MIN)
    episode = Episode(cell, Policy(mode="act"), options, Jitter(name="J"), np.random.default_rng(seed))
    scenario.play(episode)
    episode.ends(T0 + SECONDS + 20.0)
    record = episode.run()
    told = tuple(f"{change.fault} {change.subject}" for change in check.confirmed(record, set()) if _paged(change.response))
    faults = {line.split(" ", 1)[0] for line in told}
    restarts = sum(1 for action in record.actions if action.refused is None and action.action in ("restart", "quarantine", "drain"))
    ok = restarts == 0 and len(told) in scenario.incidents and faults <= scenario.expect
    return Result(ok, told, restarts, record)


def _paged(response: str) -> bool:
    return RESPONSES.index(response) >= RESPONSES.index("page")
