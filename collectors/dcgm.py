"""dcgm-exporter's page: for nodes where NVML is not read, and as a second voice on XIDs where it is.

An exporter that is gone or stuck is an error of this collector, never a healthy GPU. The XID gauge keeps its last code for ever: it
is an event only when it changes after the first page. Witnesses: `gpu.*`. Cost: one page of about 100 kB each interval. Rights:
none. Source of the meaning: `outrider/parsers/dcgm.py`; of the counters file: `deploy/dcgm-counters.csv`.
"""

from typing import Any, ClassVar

from collectors.frame.changes import Changes
from collectors.frame.identity import Identities, normal_pci
from collectors.frame.types import Collector, CollectorError, Note, NotSupported, Outcome, Place, Readings, Sample
from collectors.http_text import Fetcher, libraries
from outrider.config.collectors import CollectorsSection
from outrider.parsers.dcgm import GpuLabels, gpu_labels, gpu_measure
from outrider.parsers.exposition import BadSampleError, ExpositionReader
from outrider.signals import Signal

#: The exporter itself refreshes its values each 30 s by default, and answers within some 10 ms.
FETCH_SECONDS = 5.0
#: Lines of a page that may be broken before the page as a whole is held to be junk.
BAD_SHARE_MAX = 0.5
#: Measure -> (kind of signal, its key in `data`).
_STATE = ("temp_c", "power_w", "power_limit_w", "util", "sm_mhz", "sm_mhz_max")
_KINDS: dict[str, tuple[str, str]] = {
    "remap_corrected": ("row_remap", "corrected"),
    "remap_uncorrected": ("row_remap", "uncorrected"),
    "remap_pending": ("row_remap", "pending"),
    "remap_failed": ("row_remap", "failed"),
    "nvlink_crc": ("nvlink", "crc"),
    "nvlink_replay": ("nvlink", "replay"),
    "nvlink_recovery": ("nvlink", "recovery"),
    "pcie_replay": ("pcie", "replay"),
    "pcie_width": ("pcie", "width"),
    "pcie_width_max": ("pcie", "width_max"),
    "ecc_corrected": ("ecc volatile", "corrected"),
    "ecc_uncorrected": ("ecc volatile", "uncorrected"),
    "ecc_corrected_life": ("ecc aggregate", "corrected"),
    "ecc_uncorrected_life": ("ecc aggregate", "uncorrected"),
}


class GpuPage:
    """What one page says of one GPU: measure -> part -> value."""

    def __init__(self, who: GpuLabels) -> None:
        self.who = who
        self.values: dict[str, dict[str, float]] = {}

    def total(self, measure: str) -> float | None:
        """The sum over the measure's parts; None if the page does not know it."""
        parts = self.values.get(measure)
        return sum(parts.values()) if parts else None


def parse_page(text: str, reader: ExpositionReader) -> tuple[dict[str, GpuPage], int, int]:
    """(GPUs by UUID or index, series, broken lines) of a page. A last line without its end is not read: it may be cut."""
    gpus: dict[str, GpuPage] = {}
    series = bad = 0
    for line in text[: text.rfind("\n") + 1].split("\n"):
        try:
            sample = reader.feed(line)
        except BadSampleError:
            bad += 1
            continue
        if sample is None:
            continue
        series += 1
        found = gpu_measure(sample.name, sample.labels)
        if found is None or sample.value is None:
            continue
        measure, part, factor = found
        who = gpu_labels(sample.labels)
        key = who.uuid or (str(who.gpu) if who.gpu is not None else "")
        if key:
            page = gpus.setdefault(key, GpuPage(who))
            page.values.setdefault(measure, {})[part] = sample.value * factor
    return gpus, series, bad


class Dcgm(Collector):
    """See the module."""

    name: ClassVar[str] = "dcgm"
    group: ClassVar[str] = "services"

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        self.interval_seconds = place.section.interval_seconds  # type: ignore[misc]
        self._fetcher = Fetcher(FETCH_SECONDS)
        self._reader = ExpositionReader()
        self._identities = Identities(place.state_dir)
        self._changes = Changes()
        #: Last XID code and count of each GPU; None in the first page, for what stands there is not new.
        self._xids: dict[str, tuple[float, dict[str, float]]] | None = None

    @classmethod
    def wanted(cls, section: CollectorsSection) -> NotSupported | None:
        return None if section.dcgm_url else NotSupported("[collectors] dcgm_url is not set")

    @classmethod
    def preload(cls) -> None:
        libraries()

    def supported(self) -> NotSupported | None:
        return self.wanted(self.place.section)

    def close(self) -> None:
        self._fetcher.close()

    def read(self, now: float) -> Outcome:
        self.note("dcgm-exporter")
        gpus, series, bad = parse_page(self._fetcher.get(self.place.section.dcgm_url) or "", self._reader)
        if not series or bad > BAD_SHARE_MAX * (bad + series):
            raise CollectorError(f"{self.place.section.dcgm_url}: {series} series and {bad} lines that make no sense")
        signals = self._tell_xids(gpus, now)
        if not self._identities.all():  # else NVML tells the same, fresher
            for key, page in gpus.items():
                signals += self._tell(key, page, now)
        samples = [Sample("outrider_dcgm_gpus", float(len(gpus))), Sample("outrider_dcgm_series", float(series))]
        return Readings(signals=signals, samples=samples)

    def _who(self, page: GpuPage) -> dict[str, Any]:
        known = self._identities.by_uuid(page.who.uuid)
        pci = normal_pci(page.who.pci) if page.who.pci else known and known.pci
        return {"gpu": page.who.gpu, "uuid": page.who.uuid, "pci": pci or None}

    def _tell_xids(self, gpus: dict[str, GpuPage], now: float) -> list[Signal]:
        signals = []
        before, self._xids = self._xids, {}
        for key, page in gpus.items():
            last = page.total("xid_last") or 0.0
            counts = page.values.get("xid_count", {})
            self._xids[key] = (last, counts)
            if before is None or key not in before:
                continue
            was_last, was_counts = before[key]
            # The counter names every new code; the gauge only that the last one is another.
            codes = {code for code, count in counts.items() if code.isdecimal() and count > was_counts.get(code, 0.0)}
            if last not in (was_last, 0.0):
                codes.add(str(int(last)))
            data = {"boot": self.place.boot, "by": "exporter"}
            signals += [self.signal(now, "xid", int(code), data=data, **self._who(page)) for code in sorted(codes, key=int)]
        return signals

    def _tell(self, key: str, page: GpuPage, now: float) -> list[Signal]:
        who = self._who(page)
        state = {name: total for name in _STATE if (total := page.total(name)) is not None}
        signals = [self.signal(now, "gpu_state", data=state, **who)] if state else []
        groups: dict[str, dict[str, float]] = {}
        for measure, (kind, name) in _KINDS.items():
            if (total := page.total(measure)) is not None:
                groups.setdefault(kind, {})[name] = int(total)
        for kind, values in groups.items():
            if self._changes.due((key, kind), values, now):
                word, _, scope = kind.partition(" ")
                data: dict[str, Any] = {**values, "scope": scope, "where": "all"} if scope else dict(values)
                signals.append(self.signal(now, word, data=data, **who))
        return signals
