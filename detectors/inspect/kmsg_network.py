"""Findings about a machine's network devices and PCIe from its kernel log."""

from dataclasses import dataclass, field
from typing import Any, Final

from detectors.inspect.context import Context, Part, normal_pci
from detectors.inspect.findings import EvidenceLine, Finding, State
from detectors.inspect.part import part_finding
from outrider.catalogue import Culprit, Response
from outrider.signals import Signal

Told = list[tuple[Signal, EvidenceLine]]

#: Times that a link went down in one log from which it flaps; fewer are blips (gpud needs 3 in 12 hours as well).
FLAPS: Final = 3
#: A link that was down for less is a blip: the transport's own retries bridge it (7 retries of 1 to 4 s).
BLIP_SECONDS: Final = 10.0
#: Links come up within this after the boot; before it a down link says nothing.
BOOT_SECONDS: Final = 300.0
#: Links that go down within this have one cause.
TOGETHER_SECONDS: Final = 10.0
#: Corrected PCIe errors from which a slot is worth a look.
CORRECTED_MANY: Final = 1000


@dataclass(slots=True)
class _Device:
    """What the log says of one network device."""

    part: Part | None
    pci: str | None
    name: str | None
    lines: Told = field(default_factory=list)
    ups: int = 0
    downs: list[float] = field(default_factory=list)
    last_up: bool | None = None
    longest_down: float = 0.0

    def subject(self, node: str | None, context: Context) -> dict[str, Any]:
        part = self.part or Part()
        nic = part.nic or self.name or part.netdev
        port = next((signal.port for signal, _ in self.lines if signal.port is not None), None)
        subject = {"node": part.node or node, "nic": nic, "pci": self.pci, "port": port, "job": context.job_name}
        return {key: value for key, value in subject.items() if value is not None}

    def see(self, signal: Signal, line: EvidenceLine) -> None:
        self.lines.append((signal, line))
        if signal.kind != "link":
            return
        up = signal.data.get("state") == "up"
        if up:
            self.ups += 1
            if self.last_up is False and self.downs:
                self.longest_down = max(self.longest_down, signal.t - self.downs[-1])
        elif self.last_up is not False and (self.ups or not 0 < signal.t < BOOT_SECONDS):
            self.downs.append(signal.t)
        self.last_up = up


def judge_network(node: str | None, told: Told, context: Context, joined: set[int]) -> list[Finding]:
    """All findings about network devices and PCIe.

    Args:
        node: the machine's name, if known.
        told: signals about links, devices and PCIe with their lines, in order.
        joined: numbers of lines that an incident of a GPU has already taken.
    """
    devices: dict[str, _Device] = {}
    pcie: Told = []
    for signal, line in told:
        if signal.kind == "pcie":
            if line.line not in joined:
                pcie.append((signal, line))
        else:
            key = signal.pci or signal.nic or "unknown"
            part = context.nic(node=node, nic=signal.nic, netdev=signal.nic, pci=signal.pci)
            device = devices.setdefault(key, _Device(part, signal.pci, signal.nic))
            device.name = device.name or signal.nic
            device.see(signal, line)
    broken = [device for device in devices.values() if _is_broken(device)]
    down = [device for device in devices.values() if device not in broken and device.last_up is False and device.downs]
    found = [_broken(node, device, context) for device in broken]
    found += _down(node, [device for device in down if not _is_management(device)], context)
    for device in devices.values():
        if device not in broken and device not in down:
            found += _living(node, device, context)
    return found + _pcie(node, pcie, context)


def _is_management(device: _Device) -> bool:
    return bool(device.part and device.part.role and "management" in device.part.role)


def _is_broken(device: _Device) -> bool:
    return not _is_management(device) and any(signal.data.get("event") == "nic_broken" for signal, _ in device.lines)


def _make(
    fault: str, subject: dict[str, Any], why: str, told: Told, response: Response, context: Context, **changed: Any
) -> Finding:
    return part_finding(fault, subject, why, [line for _, line in told], context, response=response, **changed)


def _broken(node: str | None, device: _Device, context: Context) -> Finding:
    told = [one for one in device.lines if one[0].data.get("event") == "nic_broken"]
    why = "The network device's own firmware or health check failed: it carries no traffic until it is reset."
    return _make("nic.down", device.subject(node, context), why, told, "restart", context, repair="reboot_node", decisive=True)


def _down(node: str | None, devices: list[_Device], context: Context) -> list[Finding]:
    """Links that are down at the end of the log; several at once are one incident."""
    found = []
    left = sorted(devices, key=lambda device: device.downs[-1])
    while left:
        first = left[0]
        group = [device for device in left if device.downs[-1] - first.downs[-1] <= TOGETHER_SECONDS]
        left = [device for device in left if device not in group]
        lines = [one for device in group for one in device.lines]
        subject = first.subject(node, context)
        if len(group) == 1:
            why = "The link went down and stayed down to the end of the log."
            found.append(_make("nic.down", subject, why, lines, "restart", context))
            continue
        leaves = {_leaf(device, context) for device in group}
        names = ", ".join(str(device.subject(node, context).get("nic")) for device in group)
        leaf = leaves.pop() if len(leaves) == 1 else None
        culprit: Culprit = "switch" if leaf else "node"
        why = f"{len(group)} links went down together ({names}): " + (
            f"all end at {leaf}." if leaf else "look for what they share."
        )
        if leaf:
            subject = {"node": subject.get("node"), "switch": leaf}
            found.append(_make("switch.down", subject, why, lines, "page", context))
        else:
            found.append(_make("nic.down", subject, why, lines, "restart", context, culprit=culprit))
    return found


def _leaf(device: _Device, context: Context) -> str | None:
    part = device.part
    if not part or not part.node or not part.nic:
        return None
    return context.nics.get(part.node, {}).get(part.nic)


def _living(node: str | None, device: _Device, context: Context) -> list[Finding]:
    """Flaps, warnings and the noise of a device that works at the end of the log."""
    found = []
    subject = device.subject(node, context)
    links = [one for one in device.lines if one[0].kind == "link"]
    if device.downs and not _is_management(device):
        flapping = len(device.downs) >= FLAPS
        long = device.longest_down > BLIP_SECONDS
        times = f"{len(device.downs)} time{'s' * (len(device.downs) > 1)}"
        why = f"The link went down {times} (longest {device.longest_down:.1f} s) and is up again."
        state: State = "open" if flapping else "resolved"
        response: Response = "page" if flapping else "watch"
        if long and not flapping:
            why += " Long enough to break a collective: look at the cable when there is time."
        found.append(_make("link.flapping", subject, why, links, response, context, state=state))
    weak = [one for one in device.lines if one[0].data.get("event") == "nic_weak"]
    if weak and not _is_management(device):
        found.append(_make("nic.degraded", subject, f"The device warns: {_tail(weak[0][0])}.", weak, "page", context))
    power = [one for one in device.lines if one[0].data.get("event") == "nic_power"]
    if power:
        found.append(
            _make("nic.degraded", subject, "The slot gives the device less power than it asks for.", power, "watch", context)
        )
    return found + _commands(subject, device, context)


def _tail(signal: Signal) -> str:
    return (signal.text or "").rpartition(": ")[2][:120]


def _commands(subject: dict[str, Any], device: _Device, context: Context) -> list[Finding]:
    """Commands that the device refused. A register it does not have is the asker's mistake, however often it asks."""
    told = [one for one in device.lines if one[0].data.get("event") == "nic_command"]
    if not told:
        return []
    asked = {(signal.data["command"], signal.data["pid"]) for signal, _ in told}
    names = {context.processes.get(pid, f"pid {pid}") for _, pid in asked}
    harmless = all("ACCESS_REG" in command for command, _ in asked) or all(s.data["status"].startswith("bad") for s, _ in told)
    commands = ", ".join(sorted({command for command, _ in asked}))
    why = f"The device refused {commands} {len(told)} times, asked by {', '.join(sorted(names))}: "
    why += "the asker reads what this device does not have; the device is well." if harmless else "look at what it refused."
    response: Response = "ignore" if harmless else "watch"
    return [_make("nic.degraded", subject, why, told, response, context, culprit="none" if harmless else "nic", repair="none")]


def _pcie(node: str | None, told: Told, context: Context) -> list[Finding]:
    found = []
    groups: dict[str | None, Told] = {}
    for one in told:
        groups.setdefault(one[0].pci, []).append(one)
    for pci, lines in groups.items():
        narrow = [one for one in lines if "width" in one[0].data]
        bad = [one for one in lines if one[0].data.get("aer") in ("fatal", "link_down")]
        mild = [one for one in lines if one[0].data.get("aer") == "nonfatal"]
        corrected = [one for one in lines if one[0].data.get("aer") == "corrected"]
        fault, subject = _owner(node, pci, context)
        if narrow:
            data = narrow[-1][0].data
            full = f"x{data['width_max']}" if "width_max" in data else f"{data['gbps_max']} Gb/s"
            why = f"The device got x{data['width']} ({data['gbps']} Gb/s) of {full} on the bus: reseat it or look at its riser."
            found.append(
                _make("gpu.slow" if fault == "gpu.other" else fault, subject, why, narrow, "page", context, repair="check_link")
            )
        if bad:
            found.append(
                _make(fault, subject, "The bus reported a fatal error of this device.", bad, "page", context, decisive=False)
            )
        elif mild or len(corrected) >= CORRECTED_MANY:
            why = f"{len(mild) or len(corrected)} {'uncorrected but not fatal' if mild else 'corrected'} bus errors."
            found.append(_make(fault, subject, why, mild or corrected, "watch", context))
    return found


def _owner(node: str | None, pci: str | None, context: Context) -> tuple[str, dict[str, Any]]:
    """Fault class and subject of a PCI device: a GPU or a network device where the inventory says so."""
    if pci and (nic := context.nic(node=node, pci=pci)):
        subject = {"node": nic.node or node, "nic": nic.nic or nic.netdev, "pci": normal_pci(pci)}
        return "nic.degraded", {key: value for key, value in subject.items() if value is not None}
    if pci and context.gpu(node=node, pci=pci):
        return "gpu.other", context.gpu_subject(node=node, pci=pci)
    subject = {"node": node, "pci": normal_pci(pci) if pci else None, "job": context.job_name}
    return "nic.degraded", {key: value for key, value in subject.items() if value is not None}
