"""Which GPU a signal means: index, PCI address and UUID of one card joined, however few of them a collector knows.

Identity comes from configuration, from signals that carry two names at once, and, at last, from two collectors that tell
of the same code on the same node at the same time. A lost GPU keeps the names it had when it lived.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from outrider.fleet import Fleet
from outrider.signals import Signal

_PCI = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.[0-7])?")


def normal_pci(text: str) -> str:
    """One spelling of a PCI address: `dddd:bb:dd`, lower case, no function digit."""
    match = _PCI.fullmatch(text.strip())
    if match is None:
        return text
    return f"{int(match[1] or '0', 16):04x}:{int(match[2], 16):02x}:{int(match[3], 16):02x}"


@dataclass(slots=True, eq=False)
class Gpu:
    """One card. `told`: (code, when) of what was said of it, so that two half identities can be joined."""

    node: str
    index: int | None = None
    pci: str | None = None
    uuid: str | None = None
    told: dict[int, float] = field(default_factory=dict)
    merged: "Gpu | None" = None

    def subject(self) -> dict[str, Any]:
        """Every name that is known."""
        named = {"node": self.node, "gpu": self.index, "pci": self.pci, "uuid": self.uuid}
        return {key: value for key, value in named.items() if value is not None}

    def key(self) -> dict[str, Any]:
        """The one name under which votes meet: the address, else the index, else the UUID."""
        if self.pci is not None:
            return {"node": self.node, "pci": self.pci}
        return {"node": self.node, "gpu": self.index} if self.index is not None else {"node": self.node, "uuid": self.uuid}


class Parts:
    """All GPUs that are known, by each of their names."""

    def __init__(self, fleet: Fleet) -> None:
        self._by_node: dict[str, list[Gpu]] = {}
        self._by_uuid: dict[str, Gpu] = {}
        self._by_pci: dict[tuple[str, str], Gpu] = {}
        self._by_index: dict[tuple[str, int], Gpu] = {}
        for node in fleet.nodes:
            for index in range(max(len(node.pcis), len(node.uuids))):
                pci = normal_pci(node.pcis[index]) if index < len(node.pcis) and node.pcis[index] else None
                uuid = node.uuids[index] if index < len(node.uuids) and node.uuids[index] else None
                self._keep(Gpu(node.node, index, pci, uuid))
        self._nodes = frozenset(node.node for node in fleet.nodes)

    def find(self, signal: Signal) -> Gpu | None:
        """The GPU that a signal means; a new one if its node is known; None if nothing tells which it is."""
        uuid = signal.uuid or _text(signal.data.get("uuid"))
        raw = signal.pci or _text(signal.data.get("pci"))
        pci = normal_pci(raw) if raw else None
        index, node = signal.gpu, signal.node if signal.node in self._nodes else None
        gpu = self._by_uuid.get(uuid) if uuid else None
        if gpu is not None:
            node = gpu.node
        if node is None and pci is not None:
            fits = [one for (_, address), one in self._by_pci.items() if address == pci]
            node = fits[0].node if len(fits) == 1 else None
        if node is None:
            return None
        if gpu is None and pci is not None:
            gpu = self._by_pci.get((node, pci))
        if gpu is None and index is not None:
            gpu = self._by_index.get((node, index))
        if gpu is None:
            if uuid is None and pci is None and index is None:
                return None
            if len(self._by_node.get(node, ())) >= CARDS_MAX:
                return None
            gpu = Gpu(node)
        return self._learn(gpu, index, pci, uuid)

    def at(self, node: str, index: int) -> Gpu | None:
        """The GPU of a slot."""
        return self._by_index.get((node, index))

    def told(self, gpu: Gpu, code: int, now: float) -> Gpu:
        """Notes that a code was told of a card; joins it with a card of the same node of which the same was just told.

        A collector that knows only the address and one that knows only the UUID speak of one card: their names do not
        contradict each other, and the same code twice within seconds on two cards of one node is far rarer.
        """
        for other in self._by_node.get(gpu.node, ()):
            if other is gpu or other.merged is not None or abs(now - other.told.get(code, float("-inf"))) > JOIN_SECONDS:
                continue
            if all(getattr(gpu, name) is None or getattr(other, name) is None for name in ("index", "pci", "uuid")):
                gpu.merged = other
                other.told[code] = now
                return self._learn(other, gpu.index, gpu.pci, gpu.uuid)
        gpu.told[code] = now
        return gpu

    def _learn(self, gpu: Gpu, index: int | None, pci: str | None, uuid: str | None) -> Gpu:
        changed = (gpu.index is None and index is not None) or (gpu.pci is None and pci is not None)
        changed = changed or (gpu.uuid is None and uuid is not None)
        if changed:
            gpu.index = index if gpu.index is None else gpu.index
            gpu.pci, gpu.uuid = gpu.pci or pci, gpu.uuid or uuid
            self._keep(gpu)
        return gpu

    def _keep(self, gpu: Gpu) -> None:
        known = self._by_node.setdefault(gpu.node, [])
        if gpu not in known:
            known.append(gpu)
        if gpu.uuid is not None:
            self._by_uuid[gpu.uuid] = gpu
        if gpu.pci is not None:
            self._by_pci[gpu.node, gpu.pci] = gpu
        if gpu.index is not None:
            self._by_index[gpu.node, gpu.index] = gpu


#: Cards kept per node, half-known ones included; no machine has so many, a flood of invented addresses may.
CARDS_MAX = 128
#: The same code told of two half-known cards of one node within this time is told of one card. An exporter is scraped
#: every 15 s, and its scrape may be late by as much.
JOIN_SECONDS = 35.0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
