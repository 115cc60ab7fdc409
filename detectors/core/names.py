"""What others call a node: peers name it by an address, with or without a port, or in brackets, more often than by its name."""

import re
from typing import Any

from outrider.fleet import Fleet

_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:]+:[0-9a-fA-F:]*")


class Names:
    """The names and addresses of a fleet's nodes."""

    def __init__(self, fleet: Fleet) -> None:
        self._nodes = frozenset(node.node for node in fleet.nodes)
        self._by_address = {node.address: node.node for node in fleet.nodes if node.address}

    def node_at(self, text: Any) -> str | None:
        """The node that a peer's description means: a name, or an address with or without a port; None if unknown."""
        if text is None:
            return None
        name = str(text)
        if name in self._nodes:
            return name
        if name in self._by_address:
            return self._by_address[name]
        for part in _ADDRESS.findall(name):
            if part in self._by_address:
                return self._by_address[part]
        head = re.split(r"[<:\[\]/\s]", name.strip("[]<> "), maxsplit=1)[0]
        return head if head in self._nodes else None
