"""What happens to the fleet over the whole time: faults and disturbances, drawn once, in order, and cut into episodes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from drills.simulate.jitter import Jitter
from drills.simulate.mix import Mix
from drills.simulate.options import Options
from outrider.config.policy import Policy
from outrider.errors import InputError
from outrider.reliability import DAY_SECONDS

YEAR_DAYS: Final = 365.25
#: Events closer than this are played together: an engine still remembers the one when the other comes.
TOGETHER_SECONDS: Final = 120.0
#: A freeze matters if the gap it makes may reach the least time-out. The gap is the freeze and the age of the last beat, up to one
#: interval; half a second more is for delays. Shorter ones are skipped: only a lost beat on top, one path in a thousand, could
#: make a single witness late, and one witness decides nothing.
FREEZE_MARGIN_SECONDS: Final = 1.0 + 0.5
#: Events that one run can hold; more is a larger fleet or time than one process should take on.
EVENTS_MAX: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class Event:
    """`t`: seconds from the start; `node`: index; `what`: a fault class, `freeze`, `loss` (a run of lost beats) or `pause`."""

    t: float
    kind: Literal["fault", "freeze", "loss", "pause"]
    what: str
    node: int
    seconds: float = 0.0
    witness: int = 0


@dataclass(slots=True)
class Timeline:
    """All events; how many freezes were skipped because they reach no deadline; seconds for which freezes held the job up."""

    events: list[Event]
    skipped: int
    lemons: int
    stalled: float


def draw(options: Options, mix: Mix, jitter: Jitter, policy: Policy, rng: np.random.Generator) -> Timeline:
    """Draws the whole time. Every number comes from `rng`, in a fixed order."""
    seconds = options.days * DAY_SECONDS
    rate = mix.rate if options.rate is None else options.rate
    if options.node_days * (rate / 1_000 + jitter.freezes_per_node_year / YEAR_DAYS) > EVENTS_MAX:
        raise InputError(f"--nodes times --days makes more than {EVENTS_MAX:,} events", key="--days")
    weights, lemons = _weights(options, rng)
    events = _faults(options, mix, weights, rng, seconds)
    freezes, skipped, stalled = _freezes(options, jitter, policy, rng, seconds)
    events += freezes + _losses(options, jitter, policy, rng, seconds)
    events += [
        Event(t, "pause", "pause", member, length) for t, member, length in jitter.pauses if t < seconds and member < options.nodes
    ]
    events.sort(key=lambda event: (event.t, event.node))
    return Timeline(events, skipped, lemons, stalled)


def episodes(events: list[Event]) -> Iterator[list[Event]]:
    """Groups events that are close in time."""
    group: list[Event] = []
    last = -math.inf
    for event in events:
        if group and event.t - last > TOGETHER_SECONDS:
            yield group
            group = []
        group.append(event)
        last = max(last, event.t + event.seconds)
    if group:
        yield group


def _weights(options: Options, rng: np.random.Generator) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], int]:
    """How often each node fails, as shares of all faults; lemons fail `lemon_factor` times as often."""
    weights = np.ones(options.nodes)
    lemons = round(options.lemon_share * options.nodes) if options.lemon_factor > 1 else 0
    if lemons:
        weights[rng.choice(options.nodes, size=lemons, replace=False)] = options.lemon_factor
    return weights / weights.sum(), lemons


def _faults(
    options: Options, mix: Mix, weights: np.ndarray[tuple[int], np.dtype[np.float64]], rng: np.random.Generator, seconds: float
) -> list[Event]:
    if not mix.classes:
        return []
    rate = mix.rate if options.rate is None else options.rate
    count = int(rng.poisson(options.node_days * rate / 1_000))
    times = rng.random(count) * seconds
    nodes = rng.choice(options.nodes, size=count, p=weights)
    kinds = rng.choice(len(mix.classes), size=count, p=mix.chances)
    shared = rng.random(count) < options.correlated_share
    return [
        Event(float(t), "fault", "domain.lost" if together else mix.classes[kind], int(node))
        for t, node, kind, together in zip(times, nodes, kinds, shared, strict=True)
    ]


def _freezes(
    options: Options, jitter: Jitter, policy: Policy, rng: np.random.Generator, seconds: float
) -> tuple[list[Event], int, float]:
    """Freezes that may reach a deadline, the number of the others, and for how long all of them together held the job up."""
    count = int(rng.poisson(options.node_days / YEAR_DAYS * jitter.freezes_per_node_year))
    lengths = jitter.freezes(rng, count)
    long = lengths >= policy.heartbeat_timeout - FREEZE_MARGIN_SECONDS
    times, nodes = rng.random(count) * seconds, rng.integers(options.nodes, size=count)
    events = [
        Event(float(t), "freeze", "freeze", int(node), float(length))
        for t, node, length in zip(times[long], nodes[long], lengths[long], strict=True)
    ]
    return events, count - len(events), float(lengths.sum())


def _losses(options: Options, jitter: Jitter, policy: Policy, rng: np.random.Generator, seconds: float) -> list[Event]:
    """Runs of independent losses towards one witness that are long enough to make it late: p^k for each beat.

    With k beats lost in a row the gap is k + 1 intervals; k is the least for which it reaches the time-out. A late beat at the end
    of a shorter run does the same; it is counted as a loss (chance of loss and burst together).
    """
    missing = jitter.loss + jitter.burst
    if missing <= 0:
        return []
    run = max(1, math.ceil(policy.heartbeat_timeout / jitter.heartbeat - 1e-9) - 1)
    rate = missing**run * (1 - missing) / jitter.heartbeat  # begins of such runs, a second and path
    count = int(rng.poisson(rate * seconds * options.nodes * options.witnesses))
    return [
        Event(float(rng.random()) * seconds, "loss", "loss", int(rng.integers(options.nodes)), run * jitter.heartbeat + 0.01,
              int(rng.integers(options.witnesses)))
        for _ in range(min(count, 100_000))
    ]  # fmt: skip
