"""What is asked of a simulation."""

import math
from dataclasses import dataclass
from typing import Literal

from outrider.errors import InputError

PauseKind = Literal["agent", "node", "host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All times in seconds unless the name says otherwise.

    Attributes:
        mix: name of a fault mix, `CLASS=WEIGHT,..`, or `none`.
        rate: faults for 1000 node-days; None: the rate published with the mix.
        jitter: `J`, `none`, or a pause scenario's name or file.
        pause_kind: what a scenario's pause stops: the agent, all processes of the node, or the whole host.
        interval, save: between periodic snapshots (None: what is best for each detector), and what one costs the job.
        replicated: a lost node's shard exists on another node too, so that an emergency snapshot is complete.
        lemon_share, lemon_factor: this share of nodes fails so many times as often.
        correlated_share: this share of faults strikes a whole rack at once.
    """

    nodes: int = 128
    gpus_per_node: int = 8
    days: float = 30.0
    mix: str = "llama3_405b_2024"
    rate: float | None = None
    jitter: str = "J"
    pause_kind: PauseKind = "agent"
    witnesses: int = 3
    step: float = 5.0
    restart: float = 120.0
    interval: float | None = None
    save: float = 5.0
    replicated: bool = True
    lemon_share: float = 0.01
    lemon_factor: float = 10.0
    correlated_share: float = 0.01
    rack: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        # Upper bounds keep the sum of expected events and the memory for node weights within one machine's reach.
        _within("--nodes", self.nodes, 2, 1_000_000)
        _within("--gpus-per-node", self.gpus_per_node, 1, 64)
        _within("--days", self.days, 1e-6, 1e5)
        _within("--witnesses", self.witnesses, 1, 9)
        _within("--step-seconds", self.step, 0.01, 3_600)
        _within("--restart-seconds", self.restart, 0, 86_400)
        _within("--save-seconds", self.save, 0, 86_400)
        _within("--rack-size", self.rack, 1, 1_000)
        _within("--lemon-share", self.lemon_share, 0, 1)
        _within("--lemon-factor", self.lemon_factor, 1, 1_000)
        _within("--correlated-share", self.correlated_share, 0, 1)
        if self.rate is not None:
            _within("--failures-per-1000-node-days", self.rate, 0, 1e6)
        if self.interval is not None:
            _within("--interval-seconds", self.interval, 1, 1e7)
        if self.seed < 0:
            raise InputError(f"must be at least 0 (is {self.seed})", key="--seed")

    @property
    def node_days(self) -> float:
        """The size of the experiment."""
        return self.nodes * self.days


def _within(name: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise InputError(f"must lie between {low:g} and {high:g} (is {value:g})", key=name)
