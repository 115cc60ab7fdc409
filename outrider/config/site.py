"""`[site]`, and the whole file: `read_config` finds every section of this package by its name.

Convention: the table `[name]` is the struct `NameSection` (or `NameConfig`) in `outrider/config/name.py`. Nothing has
to be registered.
"""

import importlib
import pkgutil
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

import outrider.config
from outrider.config.loader import load_sections
from outrider.config.paths import from_folder

S = TypeVar("S", bound=msgspec.Struct)


class SiteSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for the whole site.

    name: of the cluster, in every message.
    mode: `observe` records what would be done, `advise` asks a person first, `act` acts. The safe one is the default.
    """

    name: str = "cluster"
    mode: Literal["observe", "advise", "act"] = "observe"


class Config:
    """All sections of one file, each at hand by its type."""

    def __init__(self, sections: dict[str, msgspec.Struct], path: Path | None) -> None:
        self.sections, self.path = sections, path

    def get(self, kind: type[S]) -> S:
        """The section of type `kind`."""
        for section in self.sections.values():
            if isinstance(section, kind):
                return section
        raise LookupError(f"no section is a {kind.__name__}")


def section_types() -> dict[str, type[msgspec.Struct]]:
    """Section name -> its struct, for every module of this package that has one."""
    found: dict[str, type[msgspec.Struct]] = {}
    for entry in pkgutil.iter_modules(outrider.config.__path__):
        module = importlib.import_module(f"outrider.config.{entry.name}")
        for suffix in ("Section", "Config"):
            kind: Any = getattr(module, entry.name.title() + suffix, None)
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                found[entry.name] = kind
    return found


def read_config(path: str | Path | None) -> Config:
    """Reads a whole configuration file, its relative paths counted from its folder; None gives the defaults.

    Raises:
        InputError: the file cannot be read.
        ConfigError: something in it is wrong; all of it is told.
    """
    place = Path(path) if path is not None else None
    sections = load_sections(place, section_types())
    if place is not None:
        folder = place.absolute().parent
        sections = {name: from_folder(section, folder) for name, section in sections.items()}
    return Config(sections, place)
