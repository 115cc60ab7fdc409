"""Addresses for the drill's nodes: a network namespace each where that is allowed, else 127.0.0.x.

With namespaces the drill's own process moves into a fresh namespace that holds a bridge; each node's launcher makes a namespace
of its own and is tied to the bridge by a veth pair. Nothing of the machine's own network is touched, and the kernel removes all
of it when the processes end.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Literal, Protocol

from drills.cluster.kernel import unshare_network

#: Addresses of the bridge (host part 1) and the nodes (host part 10 + index): a private range inside our own namespaces.
SUBNET = "10.77.0"
#: Unanswered retransmissions after which the kernel gives a connection up: with 2 it does so at its fourth attempt, 3 s after the
#: cut (0.2 + 0.4 + 0.8 + 1.6 s), so that a peer behind a cut link shows as a transport error; with 3 it takes 6.2 s. The default of
#: 15 takes a quarter of an hour; RDMA's own retry limit is a few seconds too.
TCP_RETRIES = 2
#: A bridge without an address of its own takes the lowest of its ports' and changes it when a node is tied to it; nodes that are
#: there already would then send to an address that nobody has, and lose their connections.
BRIDGE_MAC = "02:00:0a:4d:00:01"


class Network(Protocol):
    """Port of the drill to the network."""

    kind: Literal["namespaces", "loopback"]

    def hub_address(self) -> str:
        """Where witnesses and scheduler listen."""
        ...

    def node_address(self, index: int) -> str: ...

    def attach(self, index: int, pid: int) -> None:
        """Ties the namespace of process `pid` to the bridge as node `index`."""
        ...

    def cut(self, index: int) -> bool:
        """Cuts the node's link; False where there is none to cut."""
        ...


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=10)


@dataclass
class Namespaces:
    """Every node in a network namespace of its own."""

    kind: Literal["namespaces", "loopback"] = "namespaces"

    def hub_address(self) -> str:
        return f"{SUBNET}.1"

    def node_address(self, index: int) -> str:
        return f"{SUBNET}.{10 + index}"

    def attach(self, index: int, pid: int) -> None:
        _ip("link", "add", f"node{index}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        _ip("link", "set", f"node{index}", "master", "bridge0", "up")
        inside = (
            f"ip link set lo up && ip addr add {self.node_address(index)}/24 dev eth0 && ip link set eth0 up"
            f" && echo {TCP_RETRIES} > /proc/sys/net/ipv4/tcp_retries2"
        )
        subprocess.run(["nsenter", "-t", str(pid), "-n", "sh", "-c", inside], check=True, capture_output=True, timeout=10)

    def detach(self, index: int) -> None:
        """Removes the link of a node that ended, so that its number can be used again."""
        subprocess.run(["ip", "link", "del", f"node{index}"], check=False, capture_output=True, timeout=10)

    def cut(self, index: int) -> bool:
        _ip("link", "set", f"node{index}", "down")
        return True


@dataclass
class Loopback:
    """Every node has its own address 127.0.0.x on the one loopback device."""

    kind: Literal["namespaces", "loopback"] = "loopback"

    def hub_address(self) -> str:
        return "127.0.0.1"

    def node_address(self, index: int) -> str:
        return f"127.0.0.{10 + index}"

    def attach(self, index: int, pid: int) -> None:
        """Nothing to tie: all nodes share the loopback device."""

    def detach(self, index: int) -> None:
        """Nothing to remove."""

    def cut(self, index: int) -> bool:
        return False


def make_network(wanted: str = "auto") -> tuple[Namespaces | Loopback, str]:
    """Moves this process into a namespace with a bridge where it may, else falls back to loopback.

    Args:
        wanted: "auto", "namespaces" or "loopback".

    Returns:
        The network, and a sentence for the report that says why it is this one.

    Raises:
        OSError: namespaces were demanded and are not to be had.
    """
    if wanted == "loopback":
        return Loopback(), "loopback addresses, as asked for"
    missing = [tool for tool in ("ip", "nsenter") if shutil.which(tool) is None]
    try:
        if missing:
            raise OSError(f"no {' and no '.join(missing)} command here")
        unshare_network()
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "bridge0", "address", BRIDGE_MAC, "type", "bridge")
        _ip("addr", "add", f"{SUBNET}.1/24", "dev", "bridge0")
        _ip("link", "set", "bridge0", "up")
    except (OSError, subprocess.SubprocessError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if wanted == "namespaces":
            raise OSError(f"network namespaces cannot be made: {reason}") from None
        return Loopback(), f"loopback addresses, because network namespaces cannot be made here ({reason})"
    return Namespaces(), f"a network namespace for each node (process {os.getpid()} holds the bridge)"
