"""What the judges of network ports share: whose finding it is, which leaf it hangs on, whether it is up, how often it was not."""

from typing import Any, Final

from detectors.inspect.context import Context, normal_pci
from detectors.inspect.findings import EvidenceLine, Finding
from detectors.inspect.metrics_table import Device
from detectors.inspect.part import part_finding

#: Port states of InfiniBand (sysfs `state`): 1 down, 2 init, 3 armed, 4 active, 5 active deferred.
_ACTIVE: Final = (4, 5)
_DOWN: Final = 1


def port_subject(port: Device, context: Context) -> dict[str, Any]:
    pci = port.names.get("pci")
    number = port.names.get("port")
    subject = {
        "node": port.node,
        "nic": port.names.get("nic"),
        "port": number,
        "pci": normal_pci(str(pci)) if pci else None,
        "job": context.job_name,
    }
    return {key: value for key, value in subject.items() if value is not None}


def leaf_of(port: Device, context: Context) -> str | None:
    return context.nics.get(port.node or "", {}).get(str(port.names.get("nic")))


def port_finding(fault: str, port: Device, context: Context, why: str, evidence: list[EvidenceLine], **changed: Any) -> Finding:
    return part_finding(fault, port_subject(port, context), why, evidence, context, **changed)


def is_up(port: Device, at: int) -> bool | None:
    """Whether the port was up at a scrape (counted from the end); None: not told, or on its way up (init, armed)."""
    for measure in ("state", "up", "carrier"):
        series = port.one(measure)
        if series is None or len(series.points) < at:
            continue
        value = series.points[-at][1]
        if value is None:
            return None
        if measure == "state":
            return True if value in _ACTIVE else False if value == _DOWN else None
        return value > 0
    return None


def downs_of(port: Device) -> float:
    """How often the port's own counters say that it went down; a carrier that went and came back is two changes."""
    return max(port.growth("downed"), port.growth("carrier_changes") // 2)
