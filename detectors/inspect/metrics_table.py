"""Scrapes as series: who, which measure, how it went. Bounded: known measures only, and so many points a series.

A fall of a counter is a reset (boot, driver load, a new exporter). What stands after it may be the noise of the start, so it is
not growth; only where the counter is known to begin at nothing (errors since driver load) it is asked for with `since_reset`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from detectors.inspect.context import Context, normal_pci
from detectors.inspect.findings import EvidenceLine
from detectors.inspect.sources import Source
from outrider.errors import InputError
from outrider.parsers import dcgm, ports
from outrider.parsers.exposition import BadSampleError, ExpositionReader, Sample

#: Points kept of one series: a day of scrapes each half minute. Growth is summed before points are let go.
_POINTS_MAX: Final = 3000
#: Changes of a GPU's user that are remembered.
_USERS_MAX: Final = 200
_SERIES_MAX: Final = 400_000
_IP: Final = re.compile(r"[\d.]+|\[?[0-9a-fA-F:]+\]?|localhost")


@dataclass(slots=True)
class Series:
    """One measure of one device over the scrapes. Points hold (time in s, value or None, line number)."""

    file: str | None
    first_line: int
    points: list[tuple[float, float | None, int]] = field(default_factory=list)
    growth: float = 0.0
    after_reset: float = 0.0
    text: str = ""
    _latest: float | None = None
    _peak: float = 0.0

    def add(self, t: float, value: float | None, line: int, text: str) -> None:
        if value is not None:
            if self._latest is not None:
                self._grow(value, self._latest)
            self._latest, self._peak = value, max(self._peak, value)
        if len(self.points) >= _POINTS_MAX:
            del self.points[1 : _POINTS_MAX // 2]
        self.points.append((t, value, line))
        self.text = text

    def _grow(self, value: float, before: float) -> None:
        if value < before:
            self.after_reset += value
        elif not (value == self._peak and before < self._peak):  # back at its old value: only the exporter had started anew
            self.growth += value - before

    @property
    def values(self) -> list[float]:
        """The known values, in order."""
        return [value for _, value, _ in self.points if value is not None]

    @property
    def last(self) -> float | None:
        """The latest value; None if it is not known (now)."""
        return self.points[-1][1]

    @property
    def seconds(self) -> float:
        return self.points[-1][0] - self.points[0][0]

    @property
    def rate(self) -> float:
        """Growth a second; of a single scrape nothing is known: 0."""
        return self.growth / self.seconds if self.seconds > 0 else 0.0

    def rates(self) -> list[float]:
        """Growth a second between each two scrapes; a fall counts as none."""
        known = [(t, value) for t, value, _ in self.points if value is not None]
        return [max(0.0, now - before) / (t - since) for (since, before), (t, now) in pairwise(known) if t > since]

    def evidence(self) -> EvidenceLine:
        first, last = next(iter(self.values), None), self.last
        moved = f"   (first {first:g}, last {last:g})" if first is not None and last is not None and len(self.points) > 1 else ""
        return EvidenceLine(line=self.points[-1][2], text=self.text[:300] + moved, file=self.file)


@dataclass(slots=True)
class Device:
    """A GPU, a port, a PCIe device or a machine: its names, and its series by measure and part."""

    node: str | None
    names: dict[str, str | int]
    series: dict[tuple[str, str], Series] = field(default_factory=dict)
    #: Who used a GPU from when on: (time in s, pod or container); "" is nobody. The newest of a long file.
    users: list[tuple[float, str]] = field(default_factory=list)

    def user_at(self, t: float) -> str | None:
        """Who used the GPU at that time; None: nobody, or nobody said."""
        return next((user for since, user in reversed(self.users) if since <= t), "") or None

    def all_of(self, measure: str) -> list[Series]:
        return [series for (name, _), series in self.series.items() if name == measure]

    def one(self, measure: str) -> Series | None:
        """The series of a measure; of several (two sources of one fact) the first."""
        return next(iter(self.all_of(measure)), None)

    def growth(self, measure: str) -> float:
        """How much a counter grew; of several series of one measure the largest: they are sources of one fact, or parts."""
        return max((series.growth for series in self.all_of(measure)), default=0.0)

    def since_reset(self, measure: str) -> float:
        """Growth, and what stands after resets, of a counter that begins at 0 with each driver load."""
        return max((series.growth + series.after_reset for series in self.all_of(measure)), default=0.0)

    def rate(self, measure: str) -> float:
        return max((series.rate for series in self.all_of(measure)), default=0.0)

    def last(self, measure: str) -> float | None:
        series = self.one(measure)
        return series.last if series else None

    def seen_at(self) -> set[float]:
        return {t for series in self.series.values() for t, _, _ in series.points}

    def evidence(self, *measures: str) -> list[EvidenceLine]:
        return [series.evidence() for measure in measures for series in self.all_of(measure)]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the samples of one name and label block belong."""

    labels: dict[str, str]
    device: Device | None
    key: tuple[str, str]
    factor: float
    user: str


@dataclass(slots=True)
class Table:
    """All that the pages say."""

    context: Context
    gpus: dict[tuple[str | None, str | int], Device] = field(default_factory=dict)
    ports: dict[tuple[str | None, str, str], Device] = field(default_factory=dict)
    pcis: dict[tuple[str | None, str], Device] = field(default_factory=dict)
    hosts: dict[str | None, Device] = field(default_factory=dict)
    scrapes: list[float] = field(default_factory=list)
    samples: int = 0
    bad: int = 0
    kept: int = 0
    dropped: int = 0
    _by_uuid: dict[str, Device] = field(default_factory=dict)
    #: The reader hands out one labels object for one label block: what it meant the first time it means again.
    _places: dict[tuple[str, int], _Place] = field(default_factory=dict)

    def add(self, sample: Sample, t: float, line: int, text: str, file: str | None) -> None:
        self.samples += 1
        if not self.scrapes or self.scrapes[-1] != t:
            self.scrapes.append(t)
        place = self._places.get((sample.name, id(sample.labels)))
        if place is None or place.labels is not sample.labels:
            user = (dcgm.gpu_labels(sample.labels).workload or "") if "gpu" in sample.labels else ""
            place = _Place(sample.labels, *self._resolve(sample.name, sample.labels), user)
            if len(self._places) >= _SERIES_MAX:
                self._places.clear()
            self._places[sample.name, id(sample.labels)] = place
        if place.device is None:
            return
        if place.user != (place.device.users[-1][1] if place.device.users else ""):
            place.device.users.append((t, place.user))
            del place.device.users[:-_USERS_MAX]
        value = sample.value
        if value is not None:
            value = value * place.factor if math.isfinite(value) else None  # nothing that is measured here is without end
        self._keep(place.device, place.key, t, value, line, text, file)

    def _resolve(self, name: str, labels: dict[str, str]) -> tuple[Device | None, tuple[str, str], float]:
        """Whose series this is, which measure and part, and the factor to the measure's unit; no device: not one of ours."""
        if gpu := dcgm.gpu_measure(name, labels):
            measure, part, factor = gpu
            return self._gpu(dcgm.gpu_labels(labels)), (measure, part), factor
        if port := ports.port_measure(name, labels):
            return self._port(labels), (port, ports.port_part(name, labels)), 1.0
        if pci := ports.pci_measure(name):
            node, address = self._node(labels), ports.pci_address(labels)
            return self.pcis.setdefault((node, address), Device(node, {"pci": address})), (pci, ""), 1.0
        if host := ports.host_measure(name, labels):
            node = self._node(labels)
            return self.hosts.setdefault(node, Device(node, {})), host, 1.0
        if name == "node_ethtool_info" and labels.get("bus_info"):
            self._port(labels).names["pci"] = labels["bus_info"]
        if name == "outrider_module_info":
            said = " ".join(filter(None, (labels.get("vendor"), labels.get("part"))))
            serial = f"serial {labels['serial']}" if labels.get("serial") else ""
            self._port(labels).names["module"] = ", ".join(filter(None, (said, serial)))
        return None, ("", ""), 1.0

    def _keep(
        self, device: Device, key: tuple[str, str], t: float, value: float | None, line: int, text: str, file: str | None
    ) -> None:
        series = device.series.get(key)
        if series is None:
            if self.kept >= _SERIES_MAX:
                self.dropped += 1
                return
            self.kept += 1
            series = device.series[key] = Series(file, line)
        series.add(t, value, line, text)

    def _node(self, labels: dict[str, str], host: str | None = None) -> str | None:
        """The machine behind a series: the site's map of scrape addresses first, then what the exporter says."""
        context, instance = self.context, labels.get("instance", "")
        if found := context.instances.get(instance):
            return found
        address = instance.rpartition(":")[0] or instance
        if found := context.addresses.get(address):
            return found
        named = labels.get("node") or (address if address and not _IP.fullmatch(address) else None) or host
        if named and (named in context.nodes or not context.node):
            return named
        return context.node or named or address or None

    def _gpu(self, labels: dcgm.GpuLabels) -> Device:
        """One GPU, by UUID, else by bus address, else by number; an exporter in a pod may call its machine by the pod's name."""
        context, pci = self.context, normal_pci(labels.pci) if labels.pci else None
        part = context.gpu(uuid=labels.uuid) if labels.uuid else None
        node = part.node if part and part.node else self._node({"instance": labels.instance or ""}, labels.host)
        part = part or context.gpu(node=node, pci=pci)
        uuid = labels.uuid or (part.uuid if part else None)
        name: str | int = uuid or pci or (labels.gpu if labels.gpu is not None else "?")
        device = self._by_uuid.get(uuid or "") or self.gpus.get((node, name))
        if device is None:
            device = self.gpus[node, name] = Device(node, {})
            if uuid:  # the machine's name may change under an exporter that is started anew; the GPU's own does not
                self._by_uuid[uuid] = device
        for key, value in (("gpu", labels.gpu), ("uuid", uuid), ("pci", pci)):
            if value is not None:
                device.names.setdefault(key, value)
        return device

    def _port(self, labels: dict[str, str]) -> Device:
        """One network device: RDMA name and network interface of the same card are one where the inventory joins them."""
        node, name = self._node(labels), labels.get("device") or labels.get("nic") or "?"
        port = labels.get("port", "")
        part = self.context.nic(node=node, nic=name, netdev=name)
        if part and part.nic:
            key: tuple[str | None, str, str] = (node, part.nic, "")
        else:
            key = (node, name, "")
        device = self.ports.get(key)
        if device is None:
            device = self.ports[key] = Device(node, {"nic": part.nic if part and part.nic else name})
            if part and part.pci:
                device.names["pci"] = part.pci + (f".{part.function}" if part.function else "")
        if port:
            device.names.setdefault("port", port)
        return device


def read_table(sources: Sequence[Source], context: Context) -> Table:
    """Reads all pages into one table.

    Raises:
        InputError: there is no sample at all in a file.
    """
    table = Table(context)
    for source in sources:
        reader, before = ExpositionReader(), table.samples
        for number, line in enumerate(source.lines(), 1):
            try:
                sample = reader.feed(line)
            except BadSampleError:
                table.bad += 1
                continue
            if sample is not None:
                table.add(sample, reader.t, number, line.strip(), source.file)
        if table.samples == before:
            raise InputError("holds no sample of a Prometheus page", file=source.name)
    table.scrapes = sorted(set(table.scrapes))
    _join_by_pci(table)
    return table


def _join_by_pci(table: Table) -> None:
    """Series that name a GPU by its bus address alone join the GPU whose other series name both."""
    by_pci = {
        (device.node, device.names["pci"]): device
        for device in table.gpus.values()
        if "uuid" in device.names and "pci" in device.names
    }
    for key, device in list(table.gpus.items()):
        home = by_pci.get((device.node, device.names.get("pci", "")))
        if home is not None and home is not device:
            home.series.update(device.series)
            del table.gpus[key]
