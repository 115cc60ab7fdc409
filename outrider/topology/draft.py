"""What was discovered of a site, put together from one source or several, and written as the `[fleet]` of a configuration file."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from outrider.fleet import Fleet, Node
from outrider.topology.graph import ends_of


@dataclass
class Draft:
    """Nodes and what they hang on, as far as a source tells.

    Attributes:
        nodes: name -> the keys of a `[[fleet.nodes]]` table that are known.
        links: cables between switches, (lower, upper).
        notes: what a person should know: what was left out, and why.
    """

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    links: set[tuple[str, str]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def node(self, name: str, **facts: Any) -> None:
        """Adds a node, or what is newly known of one: what was told first stands."""
        known = self.nodes.setdefault(name, {})
        for key, value in facts.items():
            if value in (None, "", {}, 0):
                continue
            if isinstance(value, dict):
                known[key] = {**value, **known.get(key, {})}
            elif known.setdefault(key, value) != value:
                self.notes.append(f"node {name}: {key} is told as {known[key]!r} and as {value!r}; the first one stands")

    def add(self, other: "Draft") -> None:
        """Takes in what another source tells; what is known already stands."""
        for name, facts in other.nodes.items():
            self.node(name, **facts)
        self.links |= other.links
        self.notes += other.notes

    def fleet(self, base: Fleet | None = None) -> Fleet:
        """The site: what the configuration says of it stands, what was discovered fills the gaps."""
        base = base or Fleet()
        known = Draft({node.node: {k: v for k, v in msgspec.to_builtins(node).items() if k != "node"} for node in base.nodes})
        known.add(self)
        told = {frozenset(ends) for link in base.links if (ends := ends_of(link)) is not None}
        links = [{"from": lower, "to": upper} for lower, upper in sorted(self.links) if frozenset((lower, upper)) not in told]
        nodes = tuple(msgspec.convert({"node": name, **facts}, Node) for name, facts in known.nodes.items())
        self.notes = known.notes
        return msgspec.structs.replace(base, nodes=nodes, links=(*base.links, *links))


def to_toml(fleet: Fleet) -> str:
    """The `[fleet]` part of a configuration file. Names that TOML has no plain form for are quoted."""
    return "\n".join(_lines(fleet)) + "\n"


def _lines(fleet: Fleet) -> Iterator[str]:
    yield "[fleet]"
    if fleet.spares:
        yield f"spares = {_value(list(fleet.spares))}"
    if fleet.links:
        yield "links = ["
        yield from (f"  {_value(link)}," for link in fleet.links)
        yield "]"
    if fleet.rails:
        yield f"rails = {_value(msgspec.to_builtins(fleet.rails))}"
    for node in fleet.nodes:
        yield ""
        yield "[[fleet.nodes]]"
        for key, value in msgspec.to_builtins(node).items():
            yield f"{key} = {_value(value)}"
    for job in fleet.jobs:
        yield ""
        yield "[[fleet.jobs]]"
        for key, value in msgspec.to_builtins(job).items():
            yield f"{key} = {_value(value)}"


def _value(value: Any) -> str:
    """A value as TOML writes it. A basic string of TOML is a JSON string, with DEL escaped too."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            return msgspec.json.encode(value).decode().replace("\x7f", "\\u007F")
        case dict():
            pairs = ", ".join(f"{_value(str(key))} = {_value(one)}" for key, one in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
        case _:
            return f"[{', '.join(_value(one) for one in value)}]"
