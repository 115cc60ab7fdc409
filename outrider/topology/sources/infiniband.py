"""An InfiniBand fabric as its own tools print it: `ibnetdiscover` and `iblinkinfo`.

A host's adapter is described as `HOST DEVICE` ("n7 mlx5_0"); an adapter that a switch has for its own use is left out. A switch
is called by the name in its description, or by its GUID where descriptions are not unique.
Source: rdma-core, infiniband-diags: ibnetdiscover(8), section "topology file format", and iblinkinfo(8).
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field

from outrider.errors import InputError
from outrider.topology.draft import Draft

#: Adapters inside a switch (SHARP) and of a subnet manager that describes itself otherwise.
_INNER = "Aggregation Node"
_HOST = re.compile(r"(\S+)\s+(\S+)")
_SWITCH = re.compile(r'Switch\s+\d+\s+"S-([0-9a-fA-F]{16})"\s*#\s*"([^"]*)"')
_OTHER = re.compile(r'(?:Ca|Rt|Hca)\s+\d+\s+"[HR]-[0-9a-fA-F]{16}"')
_PORT = re.compile(r'\[(\d+)\](?:\[[^\]]*\])?(?:\([0-9a-fA-F]+\))?\s+"([SHR])-([0-9a-fA-F]{16})"\[(\d+)\]')
_QUOTED = re.compile(r'"([^"]*)"')
_LINK_HEAD = re.compile(r"(Switch|CA|Router|\?\?): (?:0x([0-9a-fA-F]{16}) )?(.*):\s*$")
_LINK_PORT = re.compile(
    r'\s*(?:0x[0-9a-fA-F]{16}\s+"\s*(?P<name>[^"]*)"\s+)?(?:0x[0-9a-fA-F]{16}\s+)?'
    r"\d+\s+\d+\[[^\]]*\] ==\((?P<state>.*?)\)==>(?P<peer>.*)"
)
_LINK_PEER = re.compile(r'\s*(?:0x[0-9a-fA-F]{16}\s+)?\d+\s+\d+\[[^\]]*\] "([^"]*)"')


@dataclass
class _Fabric:
    """`switches`: GUID (or name) -> description; `hosts`: (its key, description of an adapter); `cables`: pairs of keys."""

    switches: dict[str, str] = field(default_factory=dict)
    hosts: list[tuple[str, str]] = field(default_factory=list)
    cables: set[tuple[str, str]] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)


def read_netdiscover(text: str, file: str) -> Draft:
    """Reads the topology file that `ibnetdiscover` prints."""
    fabric, here = _Fabric(), None
    for number, line in enumerate(text.splitlines(), 1):
        if match := _SWITCH.match(line):
            here = match[1].lower()
            fabric.switches[here] = match[2]
        elif _OTHER.match(line):
            here = None
        elif line.startswith("Switch"):
            raise InputError('is no line `Switch PORTS "S-GUID" # "DESCRIPTION"`', file=file, line=number, key="Switch")
        elif line.startswith("[") and here is not None:
            port = _PORT.match(line)
            if port is None:
                raise InputError('is no line `[PORT] "TYPE-GUID"[PORT]`', file=file, line=number, key=line.split()[0])
            if port[2] == "S":
                fabric.cables.add((here, port[3].lower()))
            elif port[2] == "H":
                words = _QUOTED.findall(line.partition("#")[2])
                fabric.hosts.append((here, words[0] if words else ""))
    return _draft(fabric)


def read_linkinfo(text: str, file: str) -> Draft:
    """Reads what `iblinkinfo` prints: a head and its ports, or with `--line` a line a port."""
    fabric, here = _Fabric(), ""
    peers: list[tuple[str, str]] = []
    adapters: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := _LINK_HEAD.match(line):
            here = match[3].strip()
            if match[1] == "Switch":
                here = (match[2] or here).lower()
                fabric.switches[here] = match[3].strip()
            else:
                adapters.append(here)
            continue
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        port = _LINK_PORT.match(line)
        if port is None:
            raise InputError("is no line of iblinkinfo", file=file, line=number, key=line.split()[0][:40])
        peer = _LINK_PEER.match(port["peer"])
        if peer is not None and "LinkUp" in port["state"]:
            peers.append((port["name"].strip() if port["name"] is not None else here, peer[1].strip()))
    _join(fabric, peers, adapters)
    return _draft(fabric)


def _join(fabric: _Fabric, peers: list[tuple[str, str]], adapters: list[str]) -> None:
    """Cables by description, for that is how iblinkinfo names the far end. An end is a switch if a head says so, or if it is no
    `HOST DEVICE`."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for guid, description in fabric.switches.items():
        by_name[description].append(guid)
    hosts = set(adapters)
    if twice := sorted(name for name, guids in by_name.items() if len(guids) > 1):
        fabric.notes.append(f"switches are described alike ({twice[0]!r}): take `ibnetdiscover`, which names them by GUID")

    def is_switch(name: str) -> bool:
        if name in by_name or name in fabric.switches:
            return True
        return name not in hosts and (";" in name or _HOST.fullmatch(name) is None)

    def key(name: str) -> str:
        known = by_name.get(name)
        if known is None and name not in fabric.switches:
            fabric.switches[name] = name
        return known[0] if known else name

    for one, other in peers:
        if _INNER in one or _INNER in other:
            continue
        if is_switch(one) and is_switch(other):
            fabric.cables.add((key(one), key(other)))
        elif is_switch(one):
            fabric.hosts.append((key(one), other))
        elif is_switch(other):
            fabric.hosts.append((key(other), one))


def _draft(fabric: _Fabric) -> Draft:
    names = _switch_names(fabric.switches)
    draft = Draft(notes=fabric.notes)
    nameless = 0
    for switch, description in fabric.hosts:
        match = _HOST.fullmatch(description.strip())
        if _INNER in description:
            continue
        if match is None:
            nameless += 1
            continue
        draft.node(match[1], nics={match[2]: names[switch]})
    leaves = {leaf for facts in draft.nodes.values() for leaf in facts["nics"].values()}
    for one, other in fabric.cables:
        if one in names and other in names and one != other:
            lower, upper = sorted((names[one], names[other]), key=lambda name: (name not in leaves, name))
            draft.links.add((lower, upper))
    if nameless:
        draft.notes.append(f"{nameless} adapters are not described as `HOST DEVICE` (is rdma-ndd running?): left out")
    return draft


def _switch_names(switches: dict[str, str]) -> dict[str, str]:
    """Key -> name: `MF0;leaf1:MQM8700/U1` is leaf1; of several chips of one chassis the whole description; else the GUID."""
    short = {key: _short(description) for key, description in switches.items()}
    names: dict[str, str] = {}
    for key, description in switches.items():
        candidates = (short[key], description)
        pools = (list(short.values()), list(switches.values()))
        unique = [one for one, pool in zip(candidates, pools, strict=True) if one and pool.count(one) == 1]
        names[key] = unique[0] if unique else key
    return names


def _short(description: str) -> str:
    match = re.fullmatch(r"[^;]*;([^:;]+):.*", description)
    return match[1].strip() if match else description.strip()
