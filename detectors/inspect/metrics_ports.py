"""Findings about network ports from their series: who makes the errors, and who only suffers them."""

from collections import Counter
from itertools import pairwise
from statistics import median
from typing import Final

from detectors.inspect.context import Context, normal_pci
from detectors.inspect.findings import Finding, State, finding
from detectors.inspect.metrics_modules import judge_modules
from detectors.inspect.metrics_port_errors import judge_errors
from detectors.inspect.metrics_port_finding import downs_of, is_up, leaf_of, port_finding
from detectors.inspect.metrics_table import Device, Table
from outrider.catalogue import Response

#: Times a link went down from which it flaps; fewer are blips.
FLAPS: Final = 3
#: Pause frames a second from which somebody is held up, and how far a sender stands above the others.
PAUSES_PER_SECOND: Final = 100.0
PAUSES_TIMES_OTHERS: Final = 10.0
#: Packets a second that a host drops because it takes them too slowly.
DISCARDS_PER_SECOND: Final = 10.0
#: A port that runs below this share of its peers' rate came up at a lower speed.
RATE_SHARE: Final = 0.9


def judge_ports(table: Table, context: Context) -> list[Finding]:
    """All findings about network ports and the slots of network devices."""
    devices = list(table.ports.values())
    narrow = _narrow(table, context)
    found, held = _congestion(devices, narrow, context)
    for port in devices:
        if id(port) not in held:
            found += _state(port, devices, context)
            found += _rate(port, devices, context)
            found += _discards(port, context)
    found += judge_errors(devices, context)
    found = judge_modules(devices, found, context)
    told = {(one.subject.get("node"), normal_pci(str(one.subject["pci"]))) for one in found if one.subject.get("pci")}
    return found + [one for key, one in narrow.items() if key not in told]


# --- up, down, flapping ------------------------------------------------------------------------------------------------------
def _state(port: Device, devices: list[Device], context: Context) -> list[Finding]:
    scrapes = max((len(series.points) for series in port.series.values()), default=0)
    history = [is_up(port, at) for at in range(scrapes, 0, -1)]
    evidence = port.evidence("state", "physical_state", "up", "carrier", "downed", "carrier_changes")
    downs = max(downs_of(port), sum(1 for before, now in pairwise(history) if before and now is False))
    if history and history[-1] is False:
        was_up = any(history)
        if not was_up and not _is_expected(port, devices, context):
            return []  # a port that was never up and that nobody misses: no cable
        why = "The port went down and is down." if was_up else "The port is down, and its peers on other machines are up."
        return [port_finding("nic.down", port, context, why, evidence, response="restart" if was_up else "drain")]
    if _vanished(port, devices):
        why = "The device's series ended while others of its machine went on: the device is gone."
        return [port_finding("nic.down", port, context, why, [series.evidence() for series in list(port.series.values())[:3]])]
    if downs >= 1:
        flapping = downs >= FLAPS
        why = f"The link went down {downs:.0f} time{'s' * (downs > 1)} and is up."
        state: State = "open" if flapping else "resolved"
        response: Response = "page" if flapping else "watch"
        return [port_finding("link.flapping", port, context, why, evidence, response=response, state=state)]
    return []


def _is_expected(port: Device, devices: list[Device], context: Context) -> bool:
    """Whether the site, or the port's namesakes on other machines, say that it should be up."""
    nic = port.names.get("nic")
    namesakes = [peer for peer in devices if peer is not port and peer.names.get("nic") == nic and peer.node != port.node]
    up = [peer for peer in namesakes if is_up(peer, 1)]
    return leaf_of(port, context) is not None or (len(namesakes) > 0 and len(up) * 2 > len(namesakes))


def _vanished(port: Device, devices: list[Device]) -> bool:
    mine = [peer for peer in devices if peer.node == port.node and peer is not port]
    if not mine:
        return False
    last = max((max(peer.seen_at(), default=0.0) for peer in mine), default=0.0)
    # A module's flag has a series only while it stands: its end is good news.
    seen = {t for (measure, _), series in port.series.items() if measure != "flag" for t, _, _ in series.points}
    return bool(seen) and last > max(seen)


# --- speed -------------------------------------------------------------------------------------------------------------------
def _rate(port: Device, devices: list[Device], context: Context) -> list[Finding]:
    """A port that came up slower than before, or than its namesakes."""
    rate = port.last("rate_bytes")
    if not rate or rate < 0:
        return []
    values = port.one("rate_bytes")
    nic = port.names.get("nic")
    namesakes = [
        value for peer in devices if peer is not port and peer.names.get("nic") == nic and (value := peer.last("rate_bytes"))
    ]
    before = max(values.values) if values else rate
    usual = max(before, median(namesakes) if namesakes else 0.0)
    if rate >= usual * RATE_SHARE:
        return []
    why = f"The port runs at {rate * 8 / 1e9:.0f} Gb/s; {'before' if before >= usual else 'its peers'}: {usual * 8 / 1e9:.0f} Gb/s."
    return [port_finding("nic.degraded", port, context, why, port.evidence("rate_bytes"))]


def _narrow(table: Table, context: Context) -> dict[tuple[str | None, str], Finding]:
    """Devices with fewer PCIe lanes, or slower ones, than they could have."""
    found: dict[tuple[str | None, str], Finding] = {}
    for device in table.pcis.values():
        width, full = device.last("pci_width"), device.last("pci_width_max")
        speed, top = device.last("pci_speed"), device.last("pci_speed_max")
        lanes = width is not None and full is not None and 0 < width < full
        slow = speed is not None and top is not None and 0 < speed < top
        address = str(device.names["pci"])
        owner = next((port for port in table.ports.values() if port.node == device.node and _same_pci(port, address)), None)
        gpu = context.gpu(node=device.node, pci=address)
        if not (lanes or (slow and owner is not None)) or (owner is None and gpu is None):
            continue  # GPUs change their speed to save power, and bridges are what they are
        what = f"{width:.0f} of {full:.0f} PCIe lanes" if lanes else "a slower PCIe link than it can have"
        why = f"The device has {what}: reseat it or look at its riser."
        evidence = device.evidence("pci_width", "pci_width_max") if lanes else device.evidence("pci_speed", "pci_speed_max")
        key = (device.node, normal_pci(address))
        if owner is not None:
            found[key] = port_finding("nic.degraded", owner, context, why, evidence)
        else:
            subject = context.gpu_subject(node=device.node, pci=address)
            found[key] = finding("gpu.slow", subject, why, evidence=evidence, response="page", repair="check_link")
    return found


def _same_pci(port: Device, address: str) -> bool:
    return "pci" in port.names and normal_pci(str(port.names["pci"])) == normal_pci(address)


# --- congestion --------------------------------------------------------------------------------------------------------------
def _congestion(
    devices: list[Device], narrow: dict[tuple[str | None, str], Finding], context: Context
) -> tuple[list[Finding], set[int]]:
    """Who sends the pause frames is who cannot take more; who receives them is held up. Returns the ports explained by it too."""
    senders = [port for port in devices if port.rate("pause_sent") >= PAUSES_PER_SECOND]
    victims = [port for port in devices if port.rate("pause_received") >= PAUSES_PER_SECOND and port not in senders]
    found = []
    for port in senders:
        others = [peer.rate("pause_sent") for peer in devices if peer is not port and peer.all_of("pause_sent")]
        if others and port.rate("pause_sent") < median(others) * PAUSES_TIMES_OTHERS:
            continue
        slot = narrow.get((port.node, normal_pci(str(port.names.get("pci", "")))))
        why = f"This device sends {port.rate('pause_sent'):.0f} pause frames a second: it cannot take more. "
        why += f"{len(victims)} other ports only receive them." if victims else ""
        evidence = port.evidence("pause_sent", "pause_received") + (list(slot.evidence) if slot else [])
        evidence += [line for victim in victims[:4] for line in victim.evidence("pause_received")]
        if slot:
            why += f" The reason: {slot.explanation[0].lower()}{slot.explanation[1:]}"
        found.append(port_finding("nic.congestion", port, context, why, evidence, repair="check_link" if slot else "investigate"))
    if not senders and len(victims) >= 3:
        leaves = Counter(leaf for port in victims if (leaf := leaf_of(port, context)))
        leaf = leaves.most_common(1)[0][0] if leaves and leaves.most_common(1)[0][1] == len(victims) else None
        why = f"{len(victims)} ports are paused and none of the watched ones sends pause frames: the brake is in the fabric."
        evidence = [line for port in victims for line in port.evidence("pause_received")]
        subject = {"switch": leaf} if leaf else {"node": victims[0].node}
        found.append(finding("nic.congestion", subject, why, evidence=evidence, culprit="switch", response="page"))
    return found, {id(port) for port in (*senders, *victims)} if found else set()


def _discards(port: Device, context: Context) -> list[Finding]:
    rate = max(port.rate("receive_discards"), port.rate("out_of_buffer"))
    if rate < DISCARDS_PER_SECOND:
        return []
    why = f"The host drops {rate:.0f} received packets a second: it takes them too slowly."
    return [port_finding("nic.congestion", port, context, why, port.evidence("receive_discards", "out_of_buffer"))]
