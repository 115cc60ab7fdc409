"""Slurm's picture of the network: `topology.conf` (tree and block), and what `scontrol show topology` prints of it.

A switch without switches below it is a leaf: its nodes hang on it (`switch`). A block (what shares an NVLink or another fast
domain) is a rack. Source: Slurm's manuals topology.conf(5) and scontrol(1).
"""

import re

from outrider.errors import InputError
from outrider.parsers.hostlist import expand
from outrider.topology.draft import Draft

#: What one file may say in all, names below names; the largest sites have some 10,000 switches and 100,000 nodes.
PAIRS_MAX = 1_000_000
_PAIR = re.compile(r"(\w+)\s*=\s*(\S+)")
#: Lines that begin so say how blocks are grouped, not what they hold.
_GROUPING = ("blocksizes", "aggregatedblock")


def read(text: str, file: str) -> Draft:
    """Reads either form."""
    draft = Draft()
    entries = [entry for entry in _entries(text, file) if entry[1]]
    uppers, said = [], 0
    for line, pairs in entries:
        key = next(iter(pairs))
        if key in _GROUPING:
            continue
        if key not in ("switchname", "blockname"):
            raise InputError("a line begins with SwitchName= or BlockName=", file=file, line=line, key=key)
        nodes, switches = (_names(pairs, name, file, line) for name in ("nodes", "switches"))
        if not nodes and not switches:
            raise InputError("names neither nodes nor switches", file=file, line=line, key=f"{key}={pairs[key]}")
        names = _names(pairs, key, file, line)
        said += len(names) * (len(nodes) + len(switches))
        if said > PAIRS_MAX:
            raise InputError(f"says more than {PAIRS_MAX} things", file=file, line=line, key=key)
        for name in names:
            for lower in switches:
                draft.links.add((lower, name))
            if switches:
                uppers.append((name, nodes))
                continue
            for node in nodes:
                draft.node(node, **({"switch": name} if key == "switchname" else {"rack": name}))
    for name, nodes in uppers:  # `scontrol` lists under an upper switch all nodes below it, too
        for node in nodes:
            if "switch" not in draft.nodes.get(node, {}):
                draft.node(node, switch=name)
    return draft


def _entries(text: str, file: str) -> list[tuple[int, dict[str, str]]]:
    """(number of the line, its pairs by lower-case key); a line that ends with a backslash goes on in the next."""
    found = []
    begun, before = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].rstrip()
        begun = begun or number
        if line.endswith("\\"):
            before += line[:-1] + " "
            continue
        whole, first, before, begun = before + line, begun, "", 0
        pairs = {key.lower(): value for key, value in _PAIR.findall(whole) if value != "(null)"}
        if whole.strip() and not pairs:
            raise InputError(f"is no line of Key=Value pairs: {whole.strip()[:60]!r}", file=file, line=first)
        found.append((first, pairs))
    return found


def _names(pairs: dict[str, str], key: str, file: str, line: int) -> list[str]:
    try:
        return expand(pairs.get(key, ""))
    except ValueError as error:
        raise InputError(str(error), file=file, line=line, key=key) from None
