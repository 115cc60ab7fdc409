"""Xids that are a program's own (13, 31, ..), and the one case in which they are not: one unit of one GPU repeats them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from detectors.inspect.xid_events import XidEvent
from outrider.catalogue.faults import Response

#: Lines closer than this are one failure of one program, and not a repetition.
SPELL_SECONDS: Final = 60.0
#: Failures of one GPU from which chance is out (NVIDIA: repeats on one GPC and TPC call for diagnostics).
REPEATS: Final = 3
#: Programs that fail on a shared node by chance rarely stay on one of eight GPUs: 1/64 for three of them, 1/512 for four.
PROGRAMS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """One GPU on which errors that look like a program's come again and again."""

    unit: str | None
    events: tuple[XidEvent, ...]
    spells: int
    programs: tuple[str, ...]
    #: the part of the chip that all lines name, if they do
    part: str | None
    response: Response


@dataclass(slots=True)
class _Unit:
    events: list[XidEvent]

    @property
    def spells(self) -> list[list[XidEvent]]:
        spells: list[list[XidEvent]] = []
        for event in sorted(self.events, key=lambda event: event.t):
            if spells and event.t - spells[-1][-1].t <= SPELL_SECONDS:
                spells[-1].append(event)
            else:
                spells.append([event])
        return spells

    @property
    def part(self) -> str | None:
        """The part that all failures name, if they name one."""
        parts = {event.signal.data.get("unit") for event in self.events}
        return str(next(iter(parts))) if len(parts) == 1 and None not in parts else None

    @property
    def programs(self) -> list[str]:
        return list(dict.fromkeys(_program(event) for event in self.events))


#: Names that say nothing about the program: under them, runs hours apart count as different programs.
_GENERIC: Final = ("python", "pt_main_thread", "ray::", "java", "torchrun")
#: Starts of one program that fails come within minutes.
APART_SECONDS: Final = 3600.0


def _program(event: XidEvent) -> str:
    """What tells one program from another: its name; of an interpreter, which runs many, the hour."""
    name = event.program
    if name is None:
        return f"pid {event.pid}"
    return f"{name}, hour {int(event.t // APART_SECONDS)}" if name.startswith(_GENERIC) else name


def find_repetitions(events: Iterable[XidEvent]) -> list[Repetition]:
    """The GPUs whose repeated program errors point at the GPU itself."""
    units: dict[str | None, _Unit] = {}
    for event in events:
        if event.reading.role == "app":
            units.setdefault(event.unit, _Unit([])).events.append(event)
    spells = {name: len(unit.spells) for name, unit in units.items()}
    spread = Counter(program for unit in units.values() for program in unit.programs)
    found = []
    for name, unit in units.items():
        others = sum(count for other, count in spells.items() if other != name)
        response = _response(unit, spells[name], others, spread)
        if name is not None and response:
            found.append(
                Repetition(
                    unit=name,
                    events=tuple(unit.events),
                    spells=spells[name],
                    programs=tuple(unit.programs),
                    part=unit.part,
                    response=response,
                )
            )
    return found


def _response(unit: _Unit, spells: int, others: int, spread: Counter[str]) -> Response | None:
    """`drain` where only the GPU is common to the failures, `page` where one program on one GPU may still be the reason."""
    if spells < REPEATS or others * 2 > spells:
        return None  # the neighbours fail as well: not this GPU
    own = [program for program in unit.programs if spread[program] == 1]
    named = [program for program in own if not program.startswith(_GENERIC)]
    if len(named) >= PROGRAMS:
        return "drain"
    pids = {event.pid for event in unit.events}
    if unit.part and len(pids) >= REPEATS:
        return "drain"
    device = all(event.reading.code.scope == "gpu" for event in unit.events)
    return "page" if device or len(own) >= PROGRAMS else None
