"""What a healthy fleet does to heartbeats: delays, losses, bursts, and freezes of whole hosts.

Model J: one-way delay lognormal (median 0.5 ms, sigma 1), 0.1 % of messages lost, 0.1 % delayed by 0.2 to 2 s more, and 12
freezes a node and year whose length is lognormal (median 0.5 s, sigma 1.2). The law of the freezes is an assumption until a
site measures its own. Pause scenarios (`outrider.pause-scenario.v1`) bring their own network and list their pauses.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from outrider.errors import InputError

SCHEMA = "outrider.pause-scenario.v1"
SHIPPED = ("pause_scenario", "pause_scenario_long")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jitter:
    """Times in seconds. `pauses`: (t, member from 0, seconds) of a scenario; empty for a model."""

    name: str
    delay_median: float = 0.0005
    delay_sigma: float = 1.0
    loss: float = 0.001
    burst: float = 0.001
    burst_range: tuple[float, float] = (0.2, 2.0)
    freezes_per_node_year: float = 12.0
    freeze_median: float = 0.5
    freeze_sigma: float = 1.2
    heartbeat: float = 1.0
    members: int = 0
    duration: float = 0.0
    pauses: tuple[tuple[float, int, float], ...] = ()

    def delays(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """One-way delays, shape `shape`, float64, seconds; infinity where the message is lost."""
        delay = self.delay_median * np.exp(self.delay_sigma * rng.standard_normal(shape))
        chance = rng.random(shape)
        late = chance < self.burst
        delay[late] += rng.uniform(*self.burst_range, size=int(late.sum()))
        delay[chance > 1 - self.loss] = np.inf
        return delay

    def freezes(self, rng: np.random.Generator, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Lengths of freezes, shape (count,), float64, seconds."""
        return self.freeze_median * np.exp(self.freeze_sigma * rng.standard_normal(count))


NONE = Jitter(name="none", delay_sigma=0.0, loss=0.0, burst=0.0, freezes_per_node_year=0.0)


def load(name: str) -> Jitter:
    """`J`, `none`, a scenario that ships with the package, or a scenario's file.

    Raises:
        InputError: it is none of these, or the file is not a scenario.
    """
    if name in ("J", "j"):
        return Jitter(name="J")
    if name == "none":
        return NONE
    if name.removesuffix(".json") in SHIPPED and not Path(name).exists():
        name = name.removesuffix(".json")
        return _scenario((files("drills.simulate") / "data" / f"{name}.json").read_text(encoding="utf-8"), name)
    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(("J", "none", *SHIPPED))
        raise InputError(f"is none of {known}, nor a file that can be read ({error})", key="--jitter") from None
    return _scenario(text, name)


def _scenario(text: str, name: str) -> Jitter:
    try:
        table = json.loads(text)
        if table["schema"] != SCHEMA:
            raise InputError(f"schema must be {SCHEMA!r} (is {table['schema']!r})", file=name, key="schema")
        net, members = table["network_jitter"], int(table["members"])
        events = [event for block in table["blocks"] for event in block["events"]]
        pauses = tuple(sorted((float(one["t"]), int(one["member"]) - 1, float(one["pause_s"])) for one in events))
        jitter = Jitter(
            name=name, delay_median=float(net["delay_median_s"]), delay_sigma=float(net["delay_sigma"]),
            loss=float(net["loss_p"]), burst=float(net["burst_p"]), burst_range=tuple(map(float, net["burst_uniform_s"])),  # type: ignore[arg-type]
            freezes_per_node_year=0.0, heartbeat=float(table["heartbeat_interval_s"]), members=members,
            duration=float(table["duration_s"]), pauses=pauses,
        )  # fmt: skip
    except json.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error.msg}", file=name, line=error.lineno) from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"is not a pause scenario: {error!r}", file=name) from None
    for t, member, seconds in pauses:
        if not (0 <= member < members and 0 <= t <= 1e6 and 0 < seconds <= 1e5):
            raise InputError(f"no such pause: t {t:g}, member {member + 1}, {seconds:g} s", file=name, key="blocks.events")
    if not (2 <= members <= 10_000 and 0 < jitter.duration <= 1e5 and 0.05 <= jitter.heartbeat <= 60):
        raise InputError("members, duration_s or heartbeat_interval_s is out of range", file=name)
    return jitter
