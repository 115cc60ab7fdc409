"""Fault mixes: published causes of interruptions, and the fault class that each one is played as.

Source: `data/failure_mix.csv`, causes with counts (or shares) as published by the operators of those trainings.
"""

import csv
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import Final

from outrider.errors import InputError
from outrider.reliability import LLAMA3_PER_1000_NODE_DAYS

Parts = tuple[tuple[str, float], ...]

#: Interruptions for 1000 node-days where they were published with the mix; Llama 3's for the others.
RATES: Final[dict[str, float]] = {"llama3_405b_2024": LLAMA3_PER_1000_NODE_DAYS, "meta_ft_hsdp_32k_2026": 2.3}

_MEMORY: Final[Parts] = (("gpu.ecc_uncontained", 0.5), ("gpu.ecc_contained", 0.5))
_APPLICATION: Final[Parts] = (("job.rank_exit", 0.5), ("job.app_error", 0.5))
#: Alibaba HPN 2024: each month 0.057 % of links fail and 0.051 % of switches; a leaf has some 32 links to nodes, so a dead switch
#: is one event in about 36. Fire-Flyer 2024 saw flaps about as often as dead links.
_CABLING: Final[Parts] = (("nic.down", 0.5), ("link.flapping", 0.47), ("switch.down", 0.03))

#: Words in a cause that name its class, first match wins; what none of them names goes by its component.
WORDS: Final[tuple[tuple[str, Parts], ...]] = (
    ("GSP", (("gpu.gsp_hang", 1),)),
    ("thermal", (("gpu.thermal", 1),)),
    ("cooling", (("gpu.thermal", 1),)),
    ("MFU", (("gpu.thermal", 1),)),
    ("panic", (("node.panic", 1),)),
    ("Kernel fault", (("node.panic", 1),)),
    ("reboot", (("node.reboot", 1),)),
    ("79", (("gpu.fallen_off_bus", 1),)),
    ("card drop", (("gpu.fallen_off_bus", 1),)),
    ("95", (("gpu.ecc_uncontained", 1),)),
    ("XID 48", (("gpu.ecc_uncontained", 1),)),
    ("94", (("gpu.ecc_contained", 1),)),
    ("XID 63", (("gpu.row_remap_pending", 1),)),
    ("XID 64", (("gpu.row_remap_failed", 1),)),
    ("NVLink", (("gpu.nvlink", 1),)),
    ("flap", (("link.flapping", 1),)),
    ("disk space", (("storage.full", 1),)),
    ("OOM", (("job.oom", 1),)),
    ("OutofMemory", (("job.oom", 1),)),
    ("NCCL", (("job.hang", 1),)),
    ("NaN", (("job.loss_nan", 1),)),
    ("spike", (("job.loss_spike", 1),)),
    ("explosion", (("job.loss_nan", 1),)),
    ("lost at once", (("domain.lost", 1),)),
    ("switch/cable", _CABLING),
)
COMPONENTS: Final[dict[str, Parts]] = {
    "gpu": (("gpu.fallen_off_bus", 0.45), ("gpu.ecc_uncontained", 0.2), ("gpu.nvlink", 0.2), ("gpu.driver_hang", 0.15)),
    "gpu_memory": _MEMORY,
    "gpu_sdc": (("gpu.sdc", 1),),
    "gpu_sdc_or_user": (("job.loss_nan", 1),),
    "gpu_or_user": _APPLICATION,
    "gpu_slow": (("gpu.thermal", 1),),
    "cooling": (("gpu.thermal", 1),),
    "pcie": (("gpu.fallen_off_bus", 1),),
    "nvlink": (("gpu.nvlink", 1),),
    "nic": (("nic.down", 1),),
    "network": (("nic.down", 0.5), ("link.flapping", 0.5)),
    "host": (("node.lost", 0.5), ("node.panic", 0.3), ("node.hung", 0.2)),
    "host_memory": (("node.memory", 1),),
    "power": (("node.lost", 1),),
    "operator": (("node.reboot", 1),),
    "storage": (("storage.hang", 1),),
    "software": _APPLICATION,
    "user": _APPLICATION,
    "dataloader": (("job.dataloader_stall", 1),),
    "training_loss": (("job.loss_spike", 0.5), ("job.loss_nan", 0.5)),
    "unknown": (("job.hang", 1),),
}


@dataclass(frozen=True, slots=True)
class Mix:
    """Fault classes with the chance of each (they add up to 1), in a fixed order; `rate` is per 1000 node-days."""

    name: str
    classes: tuple[str, ...]
    chances: tuple[float, ...]
    rate: float


def load(name: str, known: frozenset[str]) -> Mix:
    """The mix of that name, `none`, or one written as `CLASS=WEIGHT,CLASS=WEIGHT`.

    Args:
        known: classes that can be played.

    Raises:
        InputError: there is no such mix or class.
    """
    if name == "none":
        return Mix(name, (), (), 0.0)
    if "=" in name:
        return _make(name, _written(name, known), LLAMA3_PER_1000_NODE_DAYS)
    table = _table()
    full = [one for one in table if one == name] or [one for one in table if one.startswith(name)]
    if len(full) != 1:
        near = get_close_matches(name, table, 3) or sorted(table)
        raise InputError(f"no mix is called {name!r}; known: none, CLASS=WEIGHT,.., {', '.join(near)}", key="--mix")
    weights: dict[str, float] = {}
    for cause, component, weight in table[full[0]]:
        for fault, share in _parts(cause, component):
            weights[fault] = weights.get(fault, 0.0) + weight * share
    return _make(full[0], weights, RATES.get(full[0], LLAMA3_PER_1000_NODE_DAYS))


def names() -> list[str]:
    """Names of all mixes that ship with the package."""
    return sorted(_table())


def _make(name: str, weights: dict[str, float], rate: float) -> Mix:
    classes, total = tuple(sorted(weights)), sum(weights.values())
    return Mix(name, classes, tuple(weights[fault] / total for fault in classes), rate)


def _parts(cause: str, component: str) -> Parts:
    for word, parts in WORDS:
        if word in cause:
            return parts
    return COMPONENTS[component]


def _written(text: str, known: frozenset[str]) -> dict[str, float]:
    weights = {}
    for item in text.split(","):
        fault, _, number = item.partition("=")
        fault = fault.strip()
        if fault not in known:
            near = get_close_matches(fault, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InputError(f"no fault that can be played is called {fault!r}{hint}", key="--mix")
        try:
            weights[fault] = float(number)
        except ValueError:
            raise InputError(f"{fault}: {number!r} is not a number", key="--mix") from None
        if not 0 < weights[fault] < 1e9:
            raise InputError(f"{fault}: a weight must be above 0 (is {number})", key="--mix")
    return weights


def _table() -> dict[str, list[tuple[str, str, float]]]:
    text = (files("drills.simulate") / "data" / "failure_mix.csv").read_text(encoding="utf-8")
    table: dict[str, list[tuple[str, str, float]]] = {}
    for row in csv.DictReader(text.splitlines()):
        table.setdefault(row["mix"], []).append((row["cause"], row["component"], float(row["weight"])))
    return table
