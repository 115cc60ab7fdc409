"""Who is behind which address and port: gloo's errors name a peer so, and on one machine many peers share an address.

gloo binds what it listens on to the rank's address, but not what it opens: on loopback such a connection comes from 127.0.0.1
and some port. So each rank reads its own connections from the kernel, once, and tells the others.
"""

import ipaddress
import os
import re
from pathlib import Path
from typing import Final

import torch.distributed as dist

_ESTABLISHED: Final = "01"
_SOCKET = re.compile(r"socket:\[(\d+)\]")


def peers(address: str | None) -> dict[str, tuple[int, str | None]]:
    """`address:port` -> (rank, that rank's own address). A collective: every rank calls it, after the group is made."""
    told: list[tuple[int, str | None, list[str]] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(told, (dist.get_rank(), address, own_endpoints()))
    return {endpoint: (rank, where) for rank, where, endpoints in filter(None, told) for endpoint in endpoints}


def own_endpoints() -> list[str]:
    """Local `address:port` of this process's connections."""
    mine = set()
    for link in Path("/proc/self/fd").iterdir():
        try:
            match = _SOCKET.fullmatch(os.readlink(link))
        except OSError:
            continue
        if match:
            mine.add(match[1])
    found = []
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        if Path(table).exists():
            found += parse(Path(table).read_text(encoding="ascii"), mine)
    return sorted(set(found))


def parse(table: str, inodes: set[str]) -> list[str]:
    """Local `address:port` of the established connections with these inodes.

    Args:
        table: text of `/proc/net/tcp` or `tcp6`. Source: Linux, Documentation/networking/proc_net_tcp.rst.
        inodes: as decimal text.
    """
    found = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == _ESTABLISHED and fields[9] in inodes:
            raw, port = fields[1].split(":")
            found.append(f"{_address(raw)}:{int(port, 16)}")
    return found


def _address(raw: str) -> str:
    """The kernel writes 32-bit words in the order of this machine (little-endian where torch runs)."""
    words = [bytes.fromhex(raw[at : at + 8])[::-1] for at in range(0, len(raw), 8)]
    address = ipaddress.ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
