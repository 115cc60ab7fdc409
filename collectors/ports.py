"""Network ports: state, rate and counters of RDMA devices and their interfaces; a link that falls is told at once.

Reads /sys/class/infiniband and /sys/class/net, the drivers' ethtool statistics, and rtnetlink's link messages. An interface that
belongs to an RDMA device is told under that device's name. States are looked at each second (RDMA has no messages), counters at
the interval. Witnesses: `nic.*`, `link.*`, `switch.down`. Cost: 8 ports of 40 files take 4 ms. Rights: none.
Source of the meaning: the kernel's Documentation/ABI/stable/sysfs-class-infiniband and testing/sysfs-class-net.
"""

import contextlib
import re
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from collectors.ethtool import read_statistics
from collectors.ethtool_netlink import Cards, Fec, FolderCards, KernelCards
from collectors.frame.changes import Changes, Counters
from collectors.frame.files import list_folder, read_int, read_text
from collectors.frame.types import Collector, Note, NotSupported, Outcome, Place, Readings, Sample
from collectors.netlink import open_link_socket, parse_links
from collectors.port_list import find_ports
from outrider.signals import Signal

#: Pace of looking at states, where the kernel sends no message.
STATE_SECONDS = 2.0
#: Pace of looking for new devices; one that is gone is noticed at once, by its state.
FIND_SECONDS = 10.0
#: Series of one port on the metrics page.
COUNTERS_MAX = 96
#: Counters that a witness judges; the rest (bytes, packets) is for the metrics page only.
#: Corrected blocks grow all the time on a fast link (PAM4): they are no error.
_JUDGED = re.compile(
    r"^(?!fec_corrected)(?:.*)(?:err|discard|drop|downed|recover|pause|wait|timeout|seq|symbol|integrity|overrun|cnp|ecn|nak|crc|fec|carrier|out_of_buffer)"
)
#: Of a driver's hundreds of statistics, those of the wire: one a queue would be no use and much data.
_WIRE = re.compile(r"_phy$|pause|^link_down|discards|out_of_buffer|symbol|^rx_pcs|fec|ecn|module_")
_RATE = re.compile(r"([\d.]+) Gb/sec")


@dataclass(frozen=True)
class PortState:
    """What a port says of itself. `rate_gbps` None: it does not say. `word`: its state as the kernel writes it."""

    up: bool
    rate_gbps: float | None = None
    detail: str = ""
    word: str = ""


@dataclass
class _Port:
    nic: str
    port: str
    folder: Path | None
    interface: str = ""
    state: PortState | None = None
    values: dict[str, int] = field(default_factory=dict)
    fec: Fec | None = None
    lively: bool = False


def parse_ib_state(state: str | None, physical: str | None, rate: str | None) -> PortState | None:
    """State of a port from the texts of its files (`4: ACTIVE`, `5: LinkUp`, `400 Gb/sec (4X NDR)`); None: it makes no sense."""
    number = (state or "").partition(":")[0].strip()
    if not number.isdecimal():
        return None
    match = _RATE.search(rate or "")
    detail = f"{(state or '').partition(':')[2].strip()}, {(physical or '').partition(':')[2].strip()}"
    return PortState(number == "4", float(match[1]) if match else None, detail, state or "")


def read_state(net: Path, folder: Path | None, interface: str) -> PortState | None:
    """State of a port, by its RDMA `folder`, else by its `interface` in `net` (/sys/class/net); None: gone, or senseless."""
    word = read_text(_state_file(net, folder, interface))
    if folder is not None:
        place = str(folder)  # paths as text: joined hundreds of times each round, they would cost as much as the reading
        return parse_ib_state(word, read_text(f"{place}/phys_state"), read_text(f"{place}/rate"))
    place = f"{net}/{interface}"
    if not word:
        return None
    carrier, speed = read_int(f"{place}/carrier"), read_int(f"{place}/speed")
    up = word == "up" or (word == "unknown" and carrier != 0)
    return PortState(up, speed / 1000 if speed and speed > 0 else None, word, word)


def _state_file(net: Path, folder: Path | None, interface: str) -> str:
    return f"{folder}/state" if folder is not None else f"{net}/{interface}/operstate"


class Ports(Collector):
    """See the module."""

    name: ClassVar[str] = "ports"
    interval_seconds: ClassVar[float] = STATE_SECONDS

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        root = Path(place.section.sysfs_root)
        self._ib, self._net = root / "class/infiniband", root / "class/net"
        self._cards: Cards = KernelCards() if place.section.sysfs_root == "/sys" else FolderCards(root)
        self._real_net = place.section.sysfs_root == "/sys"
        self._socket: socket.socket | None = None
        self._ports: dict[tuple[str, str], _Port] = {}
        self._most: dict[tuple[str, str], float] = {}
        self._changes, self._counters = Changes(), Counters()
        #: Ports that were up once: one that never was is an empty socket, not a fault, unless `[fleet]` names it.
        self._seen_up: set[tuple[str, str]] = set()
        self._counted_at = self._found_at = float("-inf")
        self._samples: list[Sample] = []

    def supported(self) -> NotSupported | None:
        if self._socket is None and self._real_net:
            with contextlib.suppress(OSError):
                self._socket = open_link_socket()
        if self._find():
            return None
        return NotSupported(f"no RDMA device in {self._ib}, no network card in {self._net}")

    def fileno(self) -> int | None:
        return self._socket.fileno() if self._socket else None

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._cards.close()

    def read(self, now: float) -> Outcome:
        signals = self._hear(now)
        count = now - self._counted_at >= self.place.section.interval_seconds - STATE_SECONDS / 2
        states = self._read_states(whole=count)
        if now - self._found_at >= FIND_SECONDS or None in states.values():
            self._found_at = now
            signals += self._look_around(now)
            states = {key: states.get(key) or self._state(port) for key, port in self._ports.items()}
        for key, state in states.items():
            if state is not None:
                signals += self._tell_state(key, self._ports[key], state, now)
        if count:
            self._counted_at = now
            self._samples = self._read_counters(now, signals)
        ups = [self._state_sample(port) for port in self._ports.values() if port.state is not None]
        return Readings(signals=signals, samples=[*ups, *self._rates(), *self._samples])

    def _read_states(self, *, whole: bool) -> dict[tuple[str, str], PortState | None]:
        states = {}
        for key, port in self._ports.items():
            self.note("port state", nic=port.nic, port=port.port)
            states[key] = self._state(port, None if whole else port.state)
        return states

    def _look_around(self, now: float) -> list[Signal]:
        """Takes in new devices, and tells of those that are gone."""
        found = self._find()
        gone = (self._ports.keys() - found.keys()) & self._seen_up
        signals = [self._link(self._ports[key], PortState(False, None, "the device is gone"), key, now) for key in sorted(gone)]
        self._seen_up -= gone
        self._ports = found
        self._changes.forget_others(set(found) | {(*key, "counters") for key in found})
        return signals

    def _find(self) -> dict[tuple[str, str], _Port]:
        """The ports that are there now, with what is known of them."""
        return {
            key: self._ports.get(key) or _Port(*key, where.folder, where.interface) for key, where in find_ports(self.place).items()
        }

    def _state(self, port: _Port, before: PortState | None = None) -> PortState | None:
        """`before`: what was read last. A port whose state is the same word as then is read whole with the counters only: a link
        that trains to another rate leaves that state meanwhile."""
        if before is not None and before.word and before.word == read_text(_state_file(self._net, port.folder, port.interface)):
            return before
        return read_state(self._net, port.folder, port.interface)

    def _tell_state(self, key: tuple[str, str], port: _Port, state: PortState, now: float) -> list[Signal]:
        port.state = state
        if state.up or port.nic in self.place.nics:
            self._seen_up.add(key)
        if key not in self._seen_up:
            return []
        if state.up and state.rate_gbps:
            self._most[key] = max(self._most.get(key, 0.0), state.rate_gbps)
        told = (state.up, state.rate_gbps if state.up else None)
        return [self._link(port, state, key, now)] if self._changes.due(key, told, now) else []

    def _link(self, port: _Port, state: PortState, key: tuple[str, str], now: float) -> Signal:
        data: dict[str, object] = {"state": "up" if state.up else "down", "detail": state.detail}
        if state.up and state.rate_gbps:
            data["rate_gbps"] = state.rate_gbps
            data["rate_max_gbps"] = self._most.get(key, state.rate_gbps)
        if port.interface and port.interface != port.nic:
            data["interface"] = port.interface
        return self.signal(now, "link", nic=port.nic, port=port.port, data=data)

    def _hear(self, now: float) -> list[Signal]:
        """Link messages of the kernel since the last reading."""
        if self._socket is None:
            return []
        signals = []
        with contextlib.suppress(OSError):  # nothing more, or the kernel dropped some: the states are read anyway
            for _ in range(64):
                for change in parse_links(self._socket.recv(65536)):
                    for key, port in self._ports.items():
                        if port.interface == change.name and port.folder is None:
                            rate = port.state.rate_gbps if port.state else None
                            state = PortState(change.up, rate if change.up else None, "netlink")
                            signals += self._tell_state(key, port, state, now)
        return signals

    def _read_counters(self, now: float, signals: list[Signal]) -> list[Sample]:
        samples = []
        for key, port in self._ports.items():
            self.note("port counters", nic=port.nic, port=port.port)
            values = self._values(port)
            growth = {name: self._counters.grown((*key, name), value) for name, value in values.items()}
            judged = {name: value for name, value in values.items() if _JUDGED.search(name)}
            grown = sum(growth[name] for name in judged)
            # One reading more after the last growth: a rate that fell to zero is news as well.
            old = self._changes.due((*key, "counters"), 0, now)
            if judged and (grown or port.lively or old):
                signals.append(self.signal(now, "port_counters", nic=port.nic, port=port.port, data=judged))
            port.values, port.lively = values, grown > 0
            labels = {"nic": port.nic, "port": port.port}
            for name, value in list(values.items())[:COUNTERS_MAX]:
                samples.append(Sample("outrider_port_events_total", float(value), {**labels, "counter": name}))
            samples += _fec_samples(port)
            if (carrier := values.get("carrier_changes")) is not None:
                samples.append(Sample("outrider_port_carrier_changes_total", float(carrier), {"nic": port.nic}))
        samples.append(Sample("outrider_port_resets_total", float(self._counters.resets)))
        return samples

    def _values(self, port: _Port) -> dict[str, int]:
        folders = [f"{port.folder}/counters", f"{port.folder}/hw_counters"] if port.folder is not None else []
        values: dict[str, int] = {}
        if port.interface:
            folder = f"{self._net}/{port.interface}"
            folders.append(f"{folder}/statistics")
            if (changes := read_int(f"{folder}/carrier_changes")) is not None:
                values["carrier_changes"] = changes
            port.fec = None
            with contextlib.suppress(OSError):
                port.fec = self._cards.fec(port.interface)
                values |= {f"fec_{name}": value for name, value in port.fec.totals.items()}
            if self._real_net:
                with contextlib.suppress(OSError):
                    values |= {name: value for name, value in read_statistics(port.interface).items() if _WIRE.search(name)}
        for folder in folders:
            for name in list_folder(folder):
                if (value := read_int(f"{folder}/{name}")) is not None and name != "lifespan":
                    values[name] = value
        return values

    @staticmethod
    def _state_sample(port: _Port) -> Sample:
        up = float(port.state is not None and port.state.up)
        return Sample("outrider_port_up", up, {"nic": port.nic, "port": port.port})

    def _rates(self) -> list[Sample]:
        return [
            Sample("outrider_port_rate_bytes_per_second", port.state.rate_gbps * 1e9 / 8, {"nic": port.nic, "port": port.port})
            for port in self._ports.values()
            if port.state is not None and port.state.up and port.state.rate_gbps
        ]


def _fec_samples(port: _Port) -> list[Sample]:
    """The mode of error correction, and what each lane counts; a driver that tells none is shown as that."""
    if not port.interface:
        return []
    labels = {"nic": port.nic, "port": port.port}
    mode = "unsupported" if port.fec is None else port.fec.active or "none"
    samples = [Sample("outrider_port_fec_mode", 1.0, {**labels, "mode": mode})]
    for kind, lanes in port.fec.lanes.items() if port.fec is not None else ():
        for lane, value in enumerate(lanes):
            samples.append(Sample("outrider_port_fec_events_total", float(value), {**labels, "lane": str(lane), "kind": kind}))
    return samples
