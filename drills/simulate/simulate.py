"""Runs a simulation: draws the time line, plays its episodes, scores them and adds up."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from drills.simulate import baselines, check, faults
from drills.simulate.cell import Cell, build, name_of
from drills.simulate.check import Outcome
from drills.simulate.episode import T0, Episode
from drills.simulate.ettr import young_for
from drills.simulate.jitter import Jitter
from drills.simulate.jitter import load as load_jitter
from drills.simulate.mix import Mix
from drills.simulate.mix import load as load_mix
from drills.simulate.options import Options
from drills.simulate.record import Record
from drills.simulate.report import Totals
from drills.simulate.timeline import Event, Timeline, draw, episodes
from outrider.config.policy import Policy
from outrider.errors import InputError, OutriderError

#: After a disturbance ends an episode goes on this long: a late verdict or a resolution would come by then.
SETTLE_SECONDS = 8.0


@dataclass(slots=True)
class Simulation:
    """One run: what was asked, what was drawn, what was counted."""

    options: Options
    policy: Policy
    mix: Mix
    jitter: Jitter
    timeline: Timeline
    totals: dict[str, Totals]
    episodes: int = 0
    heartbeats: int = 0
    signals: int = 0
    simulated_seconds: float = 0.0


def prepare(options: Options, policy: Policy) -> Simulation:
    """Checks what is asked and draws the time line.

    Raises:
        InputError: the mix or the jitter model is not known.
    """
    mix, jitter = load_mix(options.mix, faults.known()), load_jitter(options.jitter)
    if jitter.members > options.nodes:
        raise InputError(f"the scenario has {jitter.members} members (--nodes is {options.nodes})", key="--nodes")
    if policy.mode is None:
        policy = msgspec.structs.replace(policy, mode="act")
    timeline = draw(options, mix, jitter, policy, np.random.default_rng(options.seed))
    rate = (mix.rate if options.rate is None else options.rate) * options.nodes / 1_000
    young = young_for(options, rate if mix.classes else 0.0)
    totals = {name: Totals(options, young) for name in ("outrider", *baselines.NAMES)}
    for total in totals.values():
        total.account.stalled = timeline.stalled
    return Simulation(options, policy, mix, jitter, timeline, totals)


def run(simulation: Simulation, progress: Callable[[int, int], None] = lambda _done, _all: None) -> None:
    """Plays every episode. `progress(done, all)` is called as events are used up."""
    done, total = 0, len(simulation.timeline.events)
    for number, group in enumerate(episodes(simulation.timeline.events)):
        cell, record = play(simulation, number, group)
        _score(simulation, number, group, cell, record)
        done += len(group)
        progress(done, total)


def one(simulation: Simulation, number: int) -> tuple[list[Event], Record]:
    """Plays a single episode again, bit for bit.

    Raises:
        InputError: there are fewer episodes.
    """
    groups = list(episodes(simulation.timeline.events))
    if not 0 <= number < len(groups):
        raise InputError(f"must lie between 0 and {len(groups) - 1} (is {number})", key="--episode")
    return groups[number], play(simulation, number, groups[number])[1]


def play(simulation: Simulation, number: int, group: list[Event]) -> tuple[Cell, Record]:
    """Plays one episode."""
    options, jitter = simulation.options, simulation.jitter
    witnesses = tuple(f"w{index + 1}" for index in range(options.witnesses))
    victims = tuple(dict.fromkeys(node for event in group for node in _concerned(options, event)))
    cell = build(options, victims, witnesses)
    episode = Episode(cell, simulation.policy, options, jitter, np.random.default_rng([options.seed, number]))
    for event in group:
        _enact(episode, event, T0 + event.t - group[0].t)
    try:
        record = episode.run()
    except Exception as error:  # our own bug, in the core or here: the seed and the episode make it repeatable
        raise OutriderError(
            f"episode {number} of seed {options.seed} failed at {episode.now:.3f} s: {type(error).__name__}: {error}; "
            f"repeat it with --episode {number} and the same options"
        ) from error
    return cell, record


def _concerned(options: Options, event: Event) -> tuple[int, ...]:
    """Nodes that an event touches: one, or the whole rack."""
    if event.what != "domain.lost":
        return (event.node,)
    first = event.node // options.rack * options.rack
    return tuple(range(first, min(first + options.rack, options.nodes)))


def _enact(episode: Episode, event: Event, t: float) -> None:
    """Brings one event into an episode."""
    node, options = name_of(event.node), episode.options
    match event.kind:
        case "fault":
            rack = tuple(name_of(index) for index in _concerned(options, event))
            gpu = int(episode.rng.integers(options.gpus_per_node))
            victim = faults.Victim(node, gpu, int(episode.rng.integers(64)), rack)
            episode.happen(t, _strike, episode, event.what, victim, t)
        case "freeze":
            episode.outage(node, "host_frozen", t, event.seconds)
        case "loss":
            episode.outage(node, "path_cut", t, event.seconds, frozenset({event.witness}))
        case "pause":
            kinds = {"agent": "agent_stopped", "node": "processes_stopped", "host": "host_frozen"}
            episode.outage(node, kinds[options.pause_kind], t, event.seconds)  # type: ignore[arg-type]
    if event.kind != "fault":
        episode.ends(t + event.seconds + SETTLE_SECONDS)


def _strike(episode: Episode, fault: str, victim: faults.Victim, t: float) -> None:
    """Lets a fault happen. A job that stands still or is being restarted can have none of its own."""
    if not (fault.startswith("job.") and episode.job.holds):
        faults.SCRIPTS[fault](episode, victim, t)


def _score(simulation: Simulation, number: int, group: list[Event], cell: Cell, record: Record) -> None:
    start = group[0].t - T0
    simulation.episodes += 1
    simulation.heartbeats += record.heartbeats
    simulation.signals += record.signals
    simulation.simulated_seconds += record.end - (T0 - 8.0)
    said = baselines.convictions(record, cell.members, simulation.jitter.heartbeat)
    outcomes: dict[str, Outcome] = {"outrider": check.outrider(record)}
    for name in baselines.NAMES:
        outcomes[name] = check.baseline(record, said[name], hears_silence=name != "nccl_timeout_only")
    fallback = [found.acted for found in outcomes["nccl_timeout_only"].found]
    for name, outcome in outcomes.items():
        simulation.totals[name].add(number, start, outcome, fallback, emergency=name == "outrider")
