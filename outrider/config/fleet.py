"""`[fleet]`: the machines, and the jobs if they are known beforehand."""

import re
from collections import Counter
from typing import Any, Final

import msgspec

from outrider.fleet import Fleet, Job, Node
from outrider.topology.graph import ends_of, strange_keys

#: A node's name becomes an argument of commands and a part of addresses: no option, no way up, one word.
_NAME: Final = re.compile(r"\w[^\s/\\\x00-\x1f\x7f]*")


class NodeEntry(Node, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One `[[fleet.nodes]]` table: as `Node`, but a misspelt key is a mistake."""


class FleetSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is there.

    nodes: every machine, spares too.
    spares: names of those that stand by.
    jobs: usually empty, for a job tells of itself by a `job` signal.
    links: cables between switches, for the graph: `{ from = "leaf-1", to = "spine-1" }`.
    rails: rail -> its network devices or its leaf switches; empty: told from the cabling (docs/topology.md).
    """

    nodes: tuple[NodeEntry, ...] = ()
    spares: tuple[str, ...] = ()
    jobs: tuple[Job, ...] = ()
    links: tuple[dict[str, Any], ...] = ()
    rails: dict[str, tuple[str, ...]] = {}

    def __post_init__(self) -> None:
        count = Counter(node.node for node in self.nodes)
        if twice := sorted(name for name, number in count.items() if number > 1):
            raise ValueError(f"nodes named twice: {', '.join(twice)}")
        if strange := sorted(name for name in count if not _NAME.fullmatch(name)):
            names = ", ".join(map(repr, strange))
            raise ValueError(f"nodes that no scheduler could be told of: {names}; no space, no slash, a letter or digit first")
        if strange := sorted(set(self.spares) - set(count)):
            raise ValueError(f"spares that are no nodes: {', '.join(strange)}")

        for place, cable in enumerate(self.links):
            if ends_of(cable) is None:
                raise ValueError(f"links[{place}] names no two switches: from and to")
            if strange := strange_keys(cable):
                raise ValueError(f"links[{place}].{strange[0]}: unknown key; a cable has two ends: from and to")

    def fleet(self, witnesses: tuple[str, ...]) -> Fleet:
        """The picture of the site that the judge starts from."""
        return Fleet(nodes=self.nodes, jobs=self.jobs, spares=self.spares, links=self.links, rails=self.rails, witnesses=witnesses)
