"""Whom a node's Ethernet ports see: `lldpctl -f json` (or `json0`), one file a node, called as the node (`n7.json`).

A port's neighbour is its leaf switch. Ports of the management network (eth0, eno1, idrac and the like) make the node's `switch`.
A network device is called here as Linux calls it; where the agent watches RDMA devices (`mlx5_0`), rename them as `ibdev2netdev`
says. Source: lldpd, lldpcli(8) and its tests of the JSON forms.
"""

import re
from pathlib import PurePath
from typing import Any

from outrider.errors import InputError
from outrider.topology.draft import Draft
from outrider.topology.sources.json_text import read_json

#: Ports on the main board and of the service processor: the network that heartbeats use.
MANAGEMENT = re.compile(r"(eth|eno|em|idrac|ilo|bmc|mgmt)\d*(s\d+)?")


def read(text: str, file: str) -> Draft:
    """Reads one node's neighbours; the node is the file's name."""
    told = read_json(text, file)
    lldp = _one(told.get("lldp")) if isinstance(told, dict) else None
    if not isinstance(lldp, dict):
        raise InputError("must be an object with the key `lldp`", file=file, key="lldp")
    draft, node = Draft(), PurePath(file).name.removesuffix(".json")
    nics, management = {}, None
    for name, facts in _interfaces(lldp.get("interface"), file):
        switch = _neighbour(facts)
        if switch is None:
            draft.notes.append(f"node {node}: the neighbour of {name} does not say who it is: left out")
        elif MANAGEMENT.fullmatch(name):
            management = management or switch
        else:
            nics[name] = switch
    draft.node(node, nics=nics, switch=management)
    return draft


def _interfaces(told: Any, file: str) -> list[tuple[str, dict[str, Any]]]:
    """(name, facts) of each port. `json` writes one port as an object and several as a list of them; `json0` always a list."""
    found = []
    for index, one in enumerate(told if isinstance(told, list) else [told] if told else []):
        if not isinstance(one, dict):
            raise InputError("must be an object", file=file, key=f"lldp.interface[{index}]")
        pairs = [(str(one["name"]), one)] if isinstance(one.get("name"), str) else list(one.items())
        for name, facts in pairs:
            if not isinstance(facts, dict):
                raise InputError("must be an object", file=file, key=f"lldp.interface.{name}")
            found.append((name, facts))
    return found


def _neighbour(facts: dict[str, Any]) -> str | None:
    """The system name of a port's neighbour, else its chassis's id."""
    chassis = _one(facts.get("chassis"))
    if not isinstance(chassis, dict):
        return None
    if isinstance(chassis.get("name"), list):
        inside = _one(chassis["name"])
        return str(inside["value"]) if isinstance(inside, dict) and inside.get("value") else None
    names: list[str] = [name for name, inside in chassis.items() if isinstance(inside, dict) and "id" in inside]
    if names:
        return names[0]
    number = _one(chassis.get("id"))
    return str(number["value"]) if isinstance(number, dict) and number.get("value") else None


def _one(value: Any) -> Any:
    """`json0` wraps every object in a list."""
    return value[0] if isinstance(value, list) and value else value
