"""Which orders are obeyed: each once, none under an old fence. Pure but for the file that remembers it."""

from collections import OrderedDict
from pathlib import Path

import msgspec

from collectors.agent.state import replace_file
from outrider.wire import UNREADABLE, Order

#: Orders and jobs remembered; a witness forgets its own orders long before.
REMEMBERED_MAX = 1_000


class _Memory(msgspec.Struct):
    obeyed: list[str] = []
    fences: dict[str, int] = {}


class OrderGate:
    """Decides once for each order. `repeated`, `stale`: orders not obeyed.

    Args:
        path: where the memory is kept over a restart of the agent; on a memory file system, so it never blocks.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            memory = msgspec.json.decode(path.read_bytes(), type=_Memory)
        except (OSError, *UNREADABLE):
            memory = _Memory()
        self._obeyed = OrderedDict.fromkeys(memory.obeyed)
        self._fences = OrderedDict(memory.fences)
        self.repeated = self.stale = self.unsaved = 0

    def admit(self, order: Order) -> bool:
        """True if the order is to be obeyed now."""
        if order.id in self._obeyed:
            self.repeated += 1
            return False
        self._remember(self._obeyed, order.id, None)
        highest = self._fences.get(order.job or "", 0)
        fresh = order.fence == 0 or order.fence >= highest
        if order.fence > highest:
            self._remember(self._fences, order.job or "", order.fence)
        self.stale += not fresh
        memory = _Memory(list(self._obeyed), dict(self._fences))
        try:
            replace_file(self._path, msgspec.json.encode(memory))
        except OSError:
            self.unsaved += 1  # obeyed all the same; at worst once more after a restart of the agent
        return fresh

    @staticmethod
    def _remember(table: "OrderedDict[str, None] | OrderedDict[str, int]", key: str, value: int | None) -> None:
        table[key] = value  # type: ignore[assignment]
        table.move_to_end(key)
        while len(table) > REMEMBERED_MAX:
            table.popitem(last=False)
