"""Cables, optical modules and cards: temperature, supply, laser bias, light, and what the module itself complains of.

Reads each module's memory over ethtool netlink, and the temperatures that a card shows in hwmon (mlx5: the chip and its modules,
InfiniBand too). A module sits on a slow bus: one port a turn, each about once a minute, in a child of its own. A complaint is told
when it stands in two readings running, for modules latch them. Witnesses: `nic.degraded`. Cost: 1 to 4 half pages a port a minute.
Rights: root. Source of the meaning: `collectors/module_pages.py`; the kernel's Documentation/hwmon/sysfs-interface.rst.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from collectors.ethtool_netlink import Cards, FolderCards, KernelCards
from collectors.frame.changes import Changes
from collectors.frame.files import list_folder, read_int, read_text
from collectors.frame.types import Collector, Note, NotSupported, Outcome, Place, Readings, Sample
from collectors.module_pages import Module, read_module
from collectors.port_list import PortPlace, find_ports
from collectors.ports import read_state
from outrider.signals import Signal

#: Each module is read about this often: its values drift within minutes.
ROUND_SECONDS = 60.0
#: The first turn looks at as many ports as fit into this; the deadline of a reading is 8 s.
FIRST_TURN_SECONDS = 4.0
#: Sensors of one card.
SENSORS_MAX = 16


@dataclass
class _Port:
    where: PortPlace
    module: Module | None = None
    #: Why the module cannot be read.
    reason: str = ""
    #: Sensor -> (degrees Celsius, its critical value).
    sensors: dict[str, tuple[float, float | None]] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    alarms: list[str] = field(default_factory=list)
    read_at: float = float("-inf")


class Modules(Collector):
    """See the module."""

    name: ClassVar[str] = "modules"
    group: ClassVar[str] = "services"
    interval_seconds: ClassVar[float] = ROUND_SECONDS

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        root = Path(place.section.sysfs_root)
        self._net = root / "class/net"
        self._cards: Cards = KernelCards() if place.section.sysfs_root == "/sys" else FolderCards(root)
        self._ports: dict[tuple[str, str], _Port] = {}
        self._changes = Changes()
        #: Ports that a witness holds to be ill: it is to hear of their recovery too.
        self._told_bad: frozenset[tuple[str, str]] = frozenset()

    def supported(self) -> NotSupported | None:
        return None if find_ports(self.place) else NotSupported(f"no network card in {self.place.section.sysfs_root}")

    def close(self) -> None:
        self._cards.close()

    def read(self, now: float) -> Outcome:
        found = find_ports(self.place)
        self._ports = {key: self._ports.get(key) or _Port(where) for key, where in found.items()}
        self._changes.forget_others(set(found))
        self.interval_seconds = max(1.0, ROUND_SECONDS / max(1, len(found)))  # type: ignore[misc]
        signals, until = [], time.monotonic() + FIRST_TURN_SECONDS
        for key, port in sorted(self._ports.items(), key=lambda pair: pair[1].read_at):
            fresh = port.read_at == float("-inf")
            signals += self._read_port(key, port, now)
            if not fresh or time.monotonic() > until:
                break
        if not any(port.module or port.sensors for port in self._ports.values()):
            reasons = ", ".join(sorted({f"{nic}: {port.reason}" for (nic, _), port in self._ports.items()}))
            return NotSupported(f"no card shows its module or its temperature ({reasons[:200]})")
        return Readings(signals=signals, samples=[one for key, port in self._ports.items() for one in _samples(key, port)])

    def _read_port(self, key: tuple[str, str], port: _Port, now: float) -> list[Signal]:
        nic, number = key
        port.read_at = now
        self.note("module memory", nic=nic, port=number)
        port.module, port.reason = None, "it has no interface"
        if port.where.interface:
            try:
                port.module = read_module(lambda page, at, address: self._cards.module(port.where.interface, page, at, address))
            except OSError as error:
                port.reason = (error.strerror or str(error)).lower()
            except ValueError as error:
                port.reason = str(error)
        self.note("card temperature", nic=nic, port=number)
        port.sensors = read_sensors(port.where.device)
        flags = frozenset(port.module.flags if port.module else ())
        standing, port.flags = flags & port.flags, flags
        hot = [
            f"{name}_temperature_high_alarm" for name, (now_is, critical) in port.sensors.items() if critical and now_is >= critical
        ]
        port.alarms = sorted(standing) + sorted(hot)
        # Warnings are for the page: vendors set them close, and a lane in the dark has no light to receive.
        told = [one for one in port.alarms if one.endswith("_alarm")]
        if not told and key not in self._told_bad:
            return []
        self._told_bad = self._told_bad | {key} if told else self._told_bad - {key}
        state = read_state(self._net, port.where.folder, port.where.interface)
        up = state.up if state is not None else None
        if not self._changes.due(key, (told, up), now):
            return []
        data: dict[str, Any] = {"module_alarms": told, "up": up}
        words = ", ".join(one.replace("_", " ") for one in told) or "no alarm any more"
        which = ""
        if port.module is not None:
            data["module"] = {"vendor": port.module.vendor, "part": port.module.part, "serial": port.module.serial}
            which = f" ({port.module.vendor} {port.module.part}, serial {port.module.serial})"
        return [self.signal(now, "port_counters", nic=nic, port=number, data=data, text=f"module of {nic}{which}: {words}")]


def read_sensors(device: Path) -> dict[str, tuple[float, float | None]]:
    """Sensor -> (temperature, critical temperature or None), of the card's hwmon folders."""
    sensors: dict[str, tuple[float, float | None]] = {}
    for folder in list_folder(device / "hwmon"):
        for name in list_folder(device / "hwmon" / folder):
            if not (name.startswith("temp") and name.endswith("_input")) or len(sensors) >= SENSORS_MAX:
                continue
            stem = device / "hwmon" / folder / name.removesuffix("_input")
            value, critical = read_int(f"{stem}_input"), read_int(f"{stem}_crit")
            if value is not None:
                label = (read_text(f"{stem}_label") or stem.name)[:32].lower().replace(" ", "_")
                sensors[label] = (value / 1000, critical / 1000 if critical else None)
    return sensors


def _samples(key: tuple[str, str], port: _Port) -> list[Sample]:
    labels = {"nic": key[0], "port": key[1]}
    samples = [Sample("outrider_module_supported", float(port.module is not None), labels)]
    for sensor, (value, _) in port.sensors.items():
        samples.append(Sample("outrider_nic_temperature_celsius", value, {"nic": key[0], "sensor": sensor}))
    module = port.module
    if module is not None:
        info = {"kind": module.kind, "vendor": module.vendor, "part": module.part, "serial": module.serial}
        samples.append(Sample("outrider_module_info", 1.0, {**labels, **info}))
        for name, one in (("temperature_celsius", module.temperature), ("supply_volts", module.supply)):
            if one is not None:
                samples.append(Sample(f"outrider_module_{name}", one, labels))
        for name, lanes in (("laser_bias_amperes", module.bias), ("transmit_power_watts", module.sent),
                            ("receive_power_watts", module.received)):  # fmt: skip
            for lane, one in enumerate(lanes):
                samples.append(Sample(f"outrider_module_{name}", one, {**labels, "lane": str(lane)}))
    samples += [Sample("outrider_module_flag", 1.0, {**labels, "flag": flag}) for flag in port.alarms]
    return samples
