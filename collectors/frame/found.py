"""Which collectors there are: the entry points of `outrider.collectors`, less those that the configuration switches off."""

import contextlib
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path

from collectors.frame.types import Collector, Place
from outrider.config.collectors import CollectorsSection
from outrider.config.fleet import FleetSection
from outrider.config.site import Config
from outrider.errors import InputError


@dataclass
class Found:
    """`kinds`: name -> class. `targets`: name -> `module:class`, from which a child builds it. `off`: switched off. `broken`: what
    could not be loaded, and why: it stops nobody else."""

    kinds: dict[str, type[Collector]] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)
    off: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)


def find_collectors(switches: dict[str, bool], default: bool = True) -> Found:
    """All collectors that may run.

    Args:
        switches: name -> on or off, from `[agent] collectors`.
        default: of those that are not named.

    Raises:
        InputError: a switch names no collector.
    """
    points = {point.name: point for point in entry_points(group="outrider.collectors")}
    if strange := sorted(set(switches) - set(points)):
        known = ", ".join(sorted(points)) or "none"
        raise InputError(f"no collector {', '.join(strange)} (known: {known})", key="agent.collectors")
    found = Found()
    for name, point in sorted(points.items()):
        if not switches.get(name, default):
            found.off.append(name)
            continue
        try:
            found.kinds[name] = point.load()
        except Exception as error:
            found.broken[name] = f"cannot be loaded: {error!r}"[:300]
            continue
        found.targets[name] = point.value
    return found


def preload(found: Found, section: CollectorsSection) -> None:
    """Loads what the wanted collectors share, before the first fork. What cannot be loaded its own reading tells."""
    for kind in found.kinds.values():
        if kind.wanted(section) is None:
            with contextlib.suppress(ImportError):
                kind.preload()


def make_place(config: Config, node: str, boot: str, state_dir: Path) -> Place:
    """Where the collectors of a node run."""
    entry = next((one for one in config.get(FleetSection).nodes if one.node == node), None)
    return Place(
        node=node,
        boot=boot,
        state_dir=str(state_dir),
        section=config.get(CollectorsSection),
        gpus=entry.gpus if entry else 0,
        nics=entry.nics if entry else {},
    )
