"""Events of one machine's GPUs and switches, kept in bounded memory, each with what its line means."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from detectors.inspect.findings import EvidenceLine
from outrider.catalogue.codes import CodeBook
from outrider.catalogue.reading import Reading, read_code
from outrider.signals import Signal

#: Events kept for one code of one device: a flood of the same line adds nothing but a count.
_KEPT: Final = 50
#: Codes x devices that one machine can have: 16 GPUs and 6 switches with 40 codes each, and room.
_KEYS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class XidEvent:
    """One line about one device. `unit`: GPU address or switch name; None if the line does not say."""

    order: int
    signal: Signal
    reading: Reading
    line: EvidenceLine
    #: which boot of the log it belongs to, from 0
    boot: int = 0

    @property
    def t(self) -> float:
        return self.signal.t

    @property
    def number(self) -> int:
        return self.reading.code.code

    @property
    def unit(self) -> str | None:
        return self.signal.switch or self.signal.pci or self.signal.uuid

    @property
    def program(self) -> str | None:
        name = self.signal.data.get("name")
        return str(name) if name else None

    @property
    def pid(self) -> int | None:
        pid = self.signal.data.get("pid")
        return pid if isinstance(pid, int) else None


@dataclass(slots=True)
class Budget:
    """How many events may still be kept, over all machines of one call: about 1.5 KiB each, so 90 MiB in all."""

    left: int = 60_000

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


@dataclass(slots=True)
class XidEvents:
    """The events of one machine, in order of their lines."""

    codes: CodeBook
    budget: Budget = field(default_factory=Budget)
    events: list[XidEvent] = field(default_factory=list)
    counts: dict[tuple[str, int, str | None], int] = field(default_factory=dict)
    #: Lines that were counted and not kept.
    dropped: int = 0
    #: The boot in hand, from 0, and the GPUs that the driver greeted in it.
    boot: int = 0
    seen_after_boot: set[str] = field(default_factory=set)
    #: Bus address -> UUID, as the driver greeted them: a lost GPU can no longer be asked who it is.
    uuids: dict[str, str] = field(default_factory=dict)

    def greet(self, pci: str, uuid: str) -> None:
        """The driver named a GPU."""
        if len(self.uuids) < _KEYS_MAX:
            self.seen_after_boot.add(pci)
            self.uuids[pci] = uuid

    def begin_boot(self) -> None:
        """The machine booted: what comes is another life of its GPUs."""
        self.boot += 1
        self.seen_after_boot.clear()

    def add(self, signal: Signal, line: EvidenceLine, order: int) -> None:
        key = (signal.kind, signal.value if isinstance(signal.value, int) else -1, signal.switch or signal.pci)
        seen = self.counts.get(key, 0)
        if seen == 0 and len(self.counts) >= _KEYS_MAX:
            self.dropped += 1
            return
        self.counts[key] = seen + 1
        if seen >= _KEPT or not self.budget.take():
            self.dropped += 1
            return
        self.events.append(XidEvent(order, signal, read_code(signal, self.codes), line, self.boot))

    def count(self, kind: str, number: int, unit: str | None) -> int:
        """How many lines there were, kept or not."""
        return self.counts.get((kind, number, unit), 0)

    def of_role(self, *roles: str) -> Iterator[XidEvent]:
        return (event for event in self.events if event.reading.role in roles)
