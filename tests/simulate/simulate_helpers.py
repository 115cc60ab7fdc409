"""Small simulations for the tests. A helper, not a test."""

import numpy as np

from drills.simulate.cell import build, name_of
from drills.simulate.episode import Episode
from drills.simulate.jitter import NONE, Jitter
from drills.simulate.options import Options
from outrider.config.policy import Policy

WITNESSES = ("w1", "w2", "w3")


def episode(
    seed: int = 1, jitter: Jitter = NONE, policy: Policy | None = None, victims: tuple[int, ...] = (5,), **asked: object
) -> Episode:
    """An episode in a cell around the victims, taken from 256 nodes."""
    options = Options(nodes=256, **asked)  # type: ignore[arg-type]
    cell = build(options, victims, WITNESSES)
    return Episode(cell, policy or Policy(mode="act"), options, jitter, np.random.default_rng(seed))


NODE = name_of(5)
