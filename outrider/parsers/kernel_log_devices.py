"""Kernel lines about network devices and PCIe.

Source: Linux `drivers/net/ethernet/mellanox/mlx5/core`, `drivers/net/bonding`, `net/sched/sch_generic.c`, `drivers/pci/pcie`.
"""

import re
from typing import Any, Final

from outrider.parsers.kernel_log_signal import kernel_signal, make_signal
from outrider.signals import Signal

_MLX5: Final = re.compile(
    r"(?:mlx5_core|mlx5_ib) (?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
    r"(?: (?P<name>\w[\w-]*)(?: \([^)]*\))?)?: (?P<rest>.*)"
)
_COMMAND: Final = re.compile(r"mlx5_cmd_(?:out_err|check):\d+:\(pid (\d+)\): (\w+)\((?:0x)?\w+\).*? failed(?:, status ([^(]+))?")
_LINK_STATE: Final = re.compile(
    r"(?:Port: (\d+) )?(?:NIC )?Link(?: is)? (?P<state>UP|DOWN|ACTIVE|Up|Down|up|down|INIT|ARMED)\b", re.IGNORECASE
)
_MODULE: Final = re.compile(r"Port module event(?:\[error\])?: module (\d+), (.*)")
_NIC_BROKEN: Final = re.compile(
    r"device's health compromised|health compromised|[Ff]atal (?:error|failure)|firmware internal error|unrecoverable"
    r"|FW fatal|handle_fatal|health recovery (?:failed|flow aborted)|new health works are not permitted"
    r"|timeout\. Will cause a leak|Failed to recover|device is in error state|cannot (?:re-?)?enable PCI device"
)
_NIC_WEAK: Final = re.compile(
    r"[Hh]igh [Tt]emperature|temperature .*exceed|power budget exceeded|[Bb]us stuck|enforcement|[Uu]nsupported (?:module|cable)"
    r"|TX timeout|syndrome.*timeout"
)
_SLOT_POWER: Final = re.compile(r"insufficient power on the PCIe slot")


def read_nic(text: str) -> Signal | None:
    """A line of an RDMA or Ethernet driver about one device."""
    match = _MLX5.match(text)
    if not match:
        return None
    rest: str = match["rest"]
    keys: dict[str, Any] = {"pci": match["pci"], "nic": match["name"]}
    if command := _COMMAND.search(rest):
        status = (command[3] or "").strip()
        data = {"pid": int(command[1]), "command": command[2], "status": status}
        return kernel_signal("nic_command", text, data=data, **keys)
    if module := _MODULE.search(rest):
        return _read_module(module, text, keys)
    if "link" in rest.lower() and (link := _LINK_STATE.search(rest)):
        up = link["state"].lower() in ("up", "active")
        if link["state"].lower() in ("init", "armed"):
            return None
        return make_signal("link", text, data={"state": "up" if up else "down"}, port=int(link[1]) if link[1] else None, **keys)
    if _NIC_BROKEN.search(rest):
        return kernel_signal("nic_broken", text, **keys)
    if _NIC_WEAK.search(rest):
        return kernel_signal("nic_weak", text, **keys)
    if _SLOT_POWER.search(rest):
        return kernel_signal("nic_power", text, **keys)
    return read_bandwidth(text)


def _read_module(module: re.Match[str], text: str, keys: dict[str, Any]) -> Signal | None:
    """A cable or optical module: `Cable plugged`, `Cable unplugged`, `Cable error, High Temperature`, .."""
    what = module[2].strip()
    if "error" in what.lower() or "error" in module[0].lower():
        return kernel_signal("nic_weak", text, data={"module": int(module[1]), "what": what}, **keys)
    if "unplugged" in what:
        return make_signal("link", text, data={"state": "down", "module": int(module[1])}, **keys)
    return None


_BANDWIDTH: Final = re.compile(
    r"(?P<pci>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]).{0,40}?: (?P<have>[\d.]+) Gb/s available PCIe bandwidth, limited by .*?"
    r"x(?P<width>\d+) link at (?P<at>\S+) \(capable of (?P<can>[\d.]+) Gb/s(?: with .*?x(?P<width_max>\d+))?"
)


def read_bandwidth(text: str) -> Signal | None:
    """`63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link at ..`: a device in a narrow or slow slot."""
    match = _BANDWIDTH.search(text)
    if not match:
        return None
    data: dict[str, Any] = {"width": int(match["width"]), "gbps": float(match["have"]), "gbps_max": float(match["can"])}
    if match["width_max"]:
        data["width_max"] = int(match["width_max"])
    return make_signal("pcie", text, data=data, pci=match["pci"])


_NETDEV_LINK: Final = re.compile(
    r"(?:(?P<driver>\w+) (?P<pci>[0-9a-f:]{10,}\.[0-7]) )?(?P<name>[a-zA-Z][\w.-]{1,15}): "
    r"(?:NIC )?[Ll]ink is (?P<state>[Uu]p|[Dd]own)"
)
_BOND: Final = re.compile(r"(?P<bond>\w+): \(slave (?P<name>[\w.-]+)\): link status (?:definitely )?(?P<state>down|up)")
_WATCHDOG: Final = re.compile(r"NETDEV WATCHDOG: (?:CPU: \d+: )?(?P<name>[\w.-]+) \((?P<driver>\w+)\): transmit queue")


def read_netdev_link(text: str) -> Signal | None:
    """`ens3f0np0: NIC Link is Down`, `bond0: (slave ens3f0np0): link status definitely down`."""
    match = _NETDEV_LINK.match(text) or _BOND.match(text)
    if not match:
        return None
    pci = match.groupdict().get("pci")
    return make_signal("link", text, data={"state": match["state"].lower()}, nic=match["name"], pci=pci)


def read_tx_watchdog(text: str) -> Signal | None:
    match = _WATCHDOG.search(text)
    return match and kernel_signal("nic_weak", text, nic=match["name"])


_PCI: Final = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_AER: Final = re.compile(
    rf"(?P<port>{_PCI}): (?:AER|PCIe Bus Error): .*?(?P<severity>Corrected|Correctable|Uncorrect(?:ed|able))[^:]*?"
    rf"(?P<fatal>\(Fatal\)|\(Non-Fatal\))?(?: error (?:message )?received)?(?:(?: from|:) (?P<device>{_PCI}))?(?:[ ,]|$)"
)
_BUS_ERROR: Final = re.compile(
    rf"(?P<device>{_PCI}): PCIe Bus Error: severity=(?P<severity>Corrected|Uncorrected) ?(?P<fatal>\(Fatal\)|\(Non-Fatal\))?"
)
_DPC: Final = re.compile(rf"(?P<device>{_PCI}): (?:DPC: containment event|pciehp: Slot\(\S+\): (?:Link Down|Card not present))")


def read_aer(text: str) -> Signal | None:
    match = _BUS_ERROR.search(text) or _AER.search(text)
    if not match:
        return None
    corrected = match["severity"].startswith("Correct")
    severity = "corrected" if corrected else "fatal" if match["fatal"] == "(Fatal)" else "nonfatal"
    device = match["device"] or match.groupdict().get("port")
    return make_signal("pcie", text, data={"aer": severity}, pci=device)


def read_dpc(text: str) -> Signal | None:
    match = _DPC.search(text)
    return match and make_signal("pcie", text, data={"aer": "link_down"}, pci=match["device"])
