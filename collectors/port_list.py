"""Which network ports a node has: those of RDMA devices, under the device's name, and those of cards without RDMA."""

from pathlib import Path
from typing import NamedTuple

from collectors.frame.files import list_folder
from collectors.frame.types import Place


class PortPlace(NamedTuple):
    """Where a port is. `folder`: of an RDMA port; `interface`: its network interface; `device`: the card's folder in /sys."""

    folder: Path | None
    interface: str
    device: Path


def find_ports(place: Place) -> dict[tuple[str, str], PortPlace]:
    """(device, port) -> where it is. An interface that belongs to an RDMA device is told under that device's name."""
    root = Path(place.section.sysfs_root)
    ib, net = root / "class/infiniband", root / "class/net"
    ports, taken = {}, set()
    for nic in list_folder(ib):
        interfaces = list_folder(ib / nic / "device/net")
        taken.update(interfaces)
        for number, port in enumerate(list_folder(ib / nic / "ports")):
            interface = interfaces[min(number, len(interfaces) - 1)] if interfaces else ""
            ports[nic, port] = PortPlace(ib / nic / "ports" / port, interface, ib / nic / "device")
    for interface in list_folder(net):
        wanted = interface in place.section.interfaces or interface in place.nics
        if interface not in taken and (wanted or (net / interface / "device").exists()):
            ports[interface, "1"] = PortPlace(None, interface, net / interface / "device")
    return ports
