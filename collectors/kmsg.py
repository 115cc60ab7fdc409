"""The kernel log: Xids, memory errors, panics, OOM, hung tasks, NIC and disk trouble, the moment the kernel writes them.

Reads /dev/kmsg (else a file, else the journal) from the beginning of the boot at the first start and from where it was after a
restart; nothing twice (boot and sequence number). A flood of one message costs counters and a handful of signals.
Witnesses: `gpu.*` but thermal and slow, `node.panic`, `node.memory`, `job.oom`, `nic.*`, `storage.*`. Cost: nothing while the
kernel is silent, about 10 microseconds a record. Rights: CAP_SYSLOG, or membership in a group that may read the journal.
Source of the meaning: `outrider/parsers/kernel_log*.py`; of the format: the kernel's Documentation/ABI/testing/dev-kmsg.
"""

from collections import Counter
from pathlib import Path
from typing import ClassVar

import msgspec

from collectors.agent.state import replace_file
from collectors.frame.flood import FloodGate
from collectors.frame.identity import Identities
from collectors.frame.types import Collector, CollectorError, Note, NotSupported, Outcome, Place, Readings, Sample
from collectors.kmsg_sources import Source, open_source
from outrider.parsers.kernel_log import KernelLog
from outrider.signals import Signal
from outrider.wire import UNREADABLE

#: Records of one reading; the rest comes with the next, so that others in this child have their turn.
RECORDS_A_TURN = 512
#: Of the first one: what a kernel's buffer holds of the boot so far.
RECORDS_AT_START = 50_000
#: A message older than this when it is read is told with the time at which the kernel wrote it.
LATE_SECONDS = 2.0
#: Distinct Xid series; 16 GPUs with dozens of codes stay far below.
SERIES_MAX = 500
#: Without signals the cursor is written this often: reading a few thousand records again costs nothing.
SAVE_SECONDS = 30.0
#: How often a file that stands for the kernel log is looked at.
FILE_SECONDS = 0.1


class _Cursor(msgspec.Struct, frozen=True):
    boot: str = ""
    place: str = ""


class Kmsg(Collector):
    """See the module."""

    name: ClassVar[str] = "kmsg"
    group: ClassVar[str] = "steady"

    def __init__(self, place: Place, note: Note) -> None:
        super().__init__(place, note)
        self._cursor_path = Path(place.state_dir) / "kmsg.json"
        self._log = KernelLog(user_records=place.section.kmsg_user_records)
        self._gate = FloodGate()
        self._identities = Identities(place.state_dir)
        self._source: Source | None = None
        self._last: Signal | None = None
        self._last_message = ""
        self._saved = _Cursor()
        self._place = ""
        self._save_now, self._saved_at, self._read_at = False, 0.0, 0.0
        self._lines = 0
        self._events: Counter[str] = Counter()
        self._xids: Counter[tuple[str, str, str]] = Counter()

    def supported(self) -> NotSupported | None:
        if self._source is not None:
            return None
        self._saved = self._read_cursor()
        self._place = self._saved.place
        try:
            self._source = open_source(Path(self.place.section.kmsg_path), self.place.section.journalctl, self._place)
        except OSError as error:
            return NotSupported(f"{self.place.section.kmsg_path}: {error.strerror}")
        if self._source.fileno() is None:
            self.interval_seconds = FILE_SECONDS  # type: ignore[misc]
        return None

    def fileno(self) -> int | None:
        return self._source.fileno() if self._source else None

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def read(self, now: float) -> Outcome:
        assert self._source is not None
        signals = []
        try:
            most = RECORDS_A_TURN if self._lines else RECORDS_AT_START
            for place, text in self._source.records(most):
                self._place = place
                self._lines += 1
                signal = self._parse(text)
                if signal is not None and self._admit(signal, now):
                    signals.append(self._finish(signal, place, now))
        except OSError as error:
            self.close()
            raise CollectorError(f"the kernel log cannot be read: {error.strerror}") from None
        signals += [self._finish(signal, self._place, now) for signal in self._gate.due(now)]
        self._save_now = bool(signals) or now - self._saved_at > SAVE_SECONDS
        self._read_at = now
        return Readings(signals=signals, samples=self._samples())

    def _parse(self, text: str) -> Signal | None:
        """What a record says. In a flood of one message only the first is parsed."""
        head, _, message = text.partition(";")
        micros = head.split(",", 3)[2:3]
        if self._last is not None and message == self._last_message and micros and micros[0].isdecimal():
            return msgspec.structs.replace(self._last, t=int(micros[0]) / 1e6)
        self._last, self._last_message = self._log.feed(text), message
        return self._last

    def _admit(self, signal: Signal, now: float) -> bool:
        """Counts a signal; False while the gate holds its kind back."""
        event = str(signal.data.get("event", signal.kind))
        self._events[event] += 1
        if signal.kind in ("xid", "sxid") and len(self._xids) < SERIES_MAX:
            self._xids[signal.kind, signal.pci or "", str(signal.value)] += 1
        key = (signal.kind, event, signal.value, signal.pci, signal.nic, signal.mount, signal.link)
        return self._gate.admit(key, signal, now)

    def _finish(self, signal: Signal, place: str, now: float) -> Signal:
        """The signal with node, boot, number, the GPU's name from the cache, and its time if it is told late."""
        data = {**signal.data, "boot": self.place.boot}
        if place.isdecimal():
            data["sequence"] = int(place)
        if 0.0 < signal.t < now - LATE_SECONDS:
            data["observed_s"] = signal.t
        gpu = self._identities.by_pci(signal.pci)
        return msgspec.structs.replace(
            signal,
            t=now,
            node=self.place.node,
            source=self.name,
            data=data,
            gpu=signal.gpu if signal.gpu is not None or gpu is None else gpu.gpu,
            uuid=signal.uuid or (gpu.uuid if gpu else None),
        )

    def _samples(self) -> list[Sample]:
        samples = [
            Sample("outrider_kernel_log_lines_total", float(self._lines)),
            Sample("outrider_kernel_log_gaps_total", float(self._source.gaps if self._source else 0)),
            Sample("outrider_kernel_log_suppressed_total", float(self._gate.suppressed)),
        ]
        samples += [Sample("outrider_kernel_events_total", float(n), {"event": event}) for event, n in self._events.items()]
        for (kind, pci, code), count in self._xids.items():
            name = "outrider_gpu_xid_errors_total" if kind == "xid" else "outrider_nvswitch_sxid_errors_total"
            samples.append(Sample(name, float(count), {"pci": pci, kind: code}))
        return samples

    def _read_cursor(self) -> _Cursor:
        """Where an earlier start of this boot was. A file that makes no sense is a first start."""
        try:
            cursor = msgspec.json.decode(self._cursor_path.read_bytes(), type=_Cursor)
        except (OSError, *UNREADABLE):
            return _Cursor(self.place.boot)
        return cursor if cursor.boot == self.place.boot else _Cursor(self.place.boot)

    def handed_over(self) -> None:
        """Signals are safe: only now does the cursor move past them."""
        if not self._save_now:
            return
        self._save_now, self._saved_at = False, self._read_at
        cursor = _Cursor(self.place.boot, self._place)
        if cursor != self._saved:
            try:
                replace_file(self._cursor_path, msgspec.json.encode(cursor))
                self._saved = cursor
            except OSError:
                return  # told again after a restart, dropped by the sequence number at the witness
