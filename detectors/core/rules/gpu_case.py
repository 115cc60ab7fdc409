"""What the driver said of one card: its lines joined to a case, and which of them explains the others. Pure."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from detectors.core.parts import Gpu
from detectors.core.types import Evidence
from outrider.catalogue.faults import RESPONSES
from outrider.catalogue.reading import Reading
from outrider.parsers.sxid import parse_sxid
from outrider.parsers.xid import parse_xid
from outrider.signals import Signal


@dataclass(slots=True, eq=False)
class CodeCase:
    """What the driver said of one card (or one NVSwitch of a node)."""

    gpu: Gpu
    opened: float
    last: float
    readings: dict[int, Reading] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)
    lines: int = 0
    #: Cards that told the same.
    cards: set[int] = field(default_factory=set)
    key: tuple[str, dict[str, Any]] | None = None
    page_at: float | None = None
    old: bool = False

    def shown_lines(self) -> int:
        """Powers of two, so that a flood does not make a vote of every line."""
        return 1 << (self.lines - 1).bit_length() if self.lines else 0

    def root(self) -> Reading | None:
        """The reading that explains the others: decisive first, then the farther-reaching; consequences never."""
        roots = [one for one in self.readings.values() if one.role in ("root", "severity") and one.response != "ignore"]
        if not roots:
            roots = [one for one in self.readings.values() if one.role == "verdict" and one.response != "ignore"]
        if 48 in self.readings and 94 in self.readings and 95 not in self.readings:
            roots = [one for one in roots if one.code.code != 48]  # the damage stayed in one process
        return max(roots, key=lambda one: (one.code.code == 79, one.decisive, RESPONSES.index(one.response)), default=None)


def parsed(signal: Signal) -> Signal:
    """A signal whose text nobody has taken apart yet is read here."""
    if not signal.text or "detail" in signal.data:
        return signal
    found = parse_xid(signal.text) if signal.kind == "xid" else parse_sxid(signal.text)
    if found is None or found.value != signal.value:
        return signal
    return msgspec.structs.replace(
        signal, data={**found.data, **signal.data}, link=signal.link if signal.link is not None else found.link
    )
