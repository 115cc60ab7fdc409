"""Signals on their way: numbered, kept until every witness has acknowledged them, in memory and, if it takes long, on disk.

Memory holds the newest signals, so a disk that hangs holds nobody up. A thread looks each second, and writes to disk what some
witness has not acknowledged for a moment; a healthy site hardly ever writes. What does not fit is dropped oldest first, counted.
"""

import os
import struct
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from collectors.agent.state import replace_file
from outrider.signals import Signal
from outrider.wire import UNREADABLE, signal_id

#: Signals kept in memory: minutes of normal life (tens a second), about 2 MB at 400 bytes each.
MEMORY_SIGNALS_MAX = 5_000
#: Longest signal, bytes; a longer one loses its text and its data. A witness takes batches of megabytes.
SIGNAL_BYTES_MAX = 256 << 10
SEGMENT_BYTES = 1 << 20
#: Pace of looking for what must go to disk while memory is not half full; to wake with each signal would cost more than to write.
LOOK_SECONDS = 1.0
#: Wait before a signal goes to disk: a witness in health acknowledges within some 10 ms.
SETTLE_SECONDS = 0.1

_ENTRY = struct.Struct("<QI")
_encoder = msgspec.msgpack.Encoder()


class Entry(NamedTuple):
    """One signal: its number (grows over restarts) and its wire form."""

    number: int
    body: bytes


class _Segment(NamedTuple):
    path: Path
    first: int
    last: int
    size: int


class Spool:
    """Thread-safe. `dropped` counts signals that no witness got because memory and disk were full or unreadable.

    Args:
        folder: where segments and positions are kept.
        witnesses: names of those who must acknowledge.
        node, boot, start: names of the signals (see `outrider.wire.signal_id`).
        bytes_max: bound of the segments on disk.
    """

    def __init__(self, folder: Path, witnesses: tuple[str, ...], *, node: str, boot: str, start: int, bytes_max: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._bytes_max = folder, bytes_max
        self._name = (node, boot, start)
        self._changed = threading.Condition()
        self._memory: deque[Entry] = deque()
        self._segments = _find_segments(folder)
        self._acked = _read_positions(folder / "positions.json", witnesses)
        self._stored = self._segments[-1].last if self._segments else 0
        # Within a boot numbers never come again, even if what an earlier start left is lost: microseconds since boot grow
        # faster than any node has signals.
        self._number = max([self._stored, time.monotonic_ns() // 1000, *self._acked.values()])
        if not self._segments:
            self._acked = dict.fromkeys(witnesses, self._number)
        self._stopping = False
        #: The disk is to be looked at now.
        self._look = threading.Event()
        #: A segment of an earlier start may end in half an entry: it is read, never appended to.
        self._appending = False
        self.dropped = 0
        self.disk_errors = 0
        self._writer = threading.Thread(target=self._write_forever, name="spool", daemon=True)

    def begin(self) -> None:
        """Starts the thread that writes to disk."""
        self._writer.start()

    def close(self) -> None:
        """Writes what is left, unless the disk hangs."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._look.set()
        self._writer.join(timeout=2.0)

    def add(self, signal: Signal) -> str:
        """Takes a signal, names it, and wakes the senders. Never blocks on a disk. Returns the name."""
        with self._changed:
            self._number += 1
            name = signal_id(*self._name, self._number)
            self._memory.append(Entry(self._number, _encode(msgspec.structs.replace(signal, id=name))))
            if len(self._memory) == MEMORY_SIGNALS_MAX // 2:
                self._look.set()
            if len(self._memory) > MEMORY_SIGNALS_MAX:
                gone = self._memory.popleft()
                if gone.number > self._stored:  # the disk is stuck: nobody keeps it
                    self.dropped += 1
            self._changed.notify_all()
        return name

    def take(self, witness: str, *, count_max: int, bytes_max: int, wait_seconds: float) -> list[Entry]:
        """The next signals for `witness` after those it acknowledged; waits up to `wait_seconds` for the first."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._number > self._acked[witness], wait_seconds)
            after = self._acked[witness]
            if self._memory and self._memory[0].number <= after + 1:
                # Numbers in memory have no gaps, so the place is known.
                place = after + 1 - self._memory[0].number
                chosen = [self._memory[i] for i in range(place, min(place + count_max, len(self._memory)))]
                return _cut(chosen, bytes_max)
            segments = [segment for segment in self._segments if segment.last > after]
            floor = self._memory[0].number if self._memory else self._number + 1
        return self._take_from_disk(witness, after, segments, floor, count_max, bytes_max)

    def acknowledge(self, witness: str, number: int) -> None:
        """All signals up to `number` are safe at `witness`."""
        with self._changed:
            self._acked[witness] = max(self._acked[witness], number)
            done = min(self._acked.values())
            while self._memory and self._memory[0].number <= done:
                self._memory.popleft()

    def waiting(self) -> dict[str, int]:
        """Signals that each witness has not acknowledged yet (segments are counted whole)."""
        with self._changed:
            first = self._memory[0].number if self._memory else self._number + 1
            older = [segment for segment in self._segments if segment.first < first]
            return {
                witness: sum(entry.number > acked for entry in self._memory)
                + sum(segment.last - segment.first + 1 for segment in older if segment.last > acked)
                for witness, acked in self._acked.items()
            }

    def disk_bytes(self) -> int:
        """Size of the segments."""
        with self._changed:
            return sum(segment.size for segment in self._segments)

    def _take_from_disk(
        self, witness: str, after: int, segments: list[_Segment], floor: int, count_max: int, bytes_max: int
    ) -> list[Entry]:
        for segment in segments:
            found = [entry for entry in read_segment(segment.path) if after < entry.number < floor]
            if found:
                return _cut(found[:count_max], bytes_max)
        # Neither in memory nor on disk: dropped before this witness came back. Go on with what there is.
        self.acknowledge(witness, floor - 1)
        return []

    def _write_forever(self) -> None:
        written: dict[str, int] = {}
        while True:
            self._look.wait(LOOK_SECONDS)
            self._look.clear()
            with self._changed:
                stopping = self._stopping
                if not stopping and self._number > min(self._acked.values(), default=self._number):
                    self._changed.wait_for(lambda: self._stopping, SETTLE_SECONDS)
                done = min(self._acked.values(), default=self._number)
                self._stored = max(self._stored, min(done, self._number))
                fresh = [entry for entry in self._memory if entry.number > self._stored]
                positions = dict(self._acked)
            try:
                self._store(fresh)
                self._tidy(done)
                if positions != written and (self._segments or stopping):
                    replace_file(self._folder / "positions.json", msgspec.json.encode(positions))
                    written = positions
            except OSError:
                self.disk_errors += 1
            if stopping:
                return

    def _store(self, fresh: list[Entry]) -> None:
        if not fresh:
            return
        blob = b"".join(_ENTRY.pack(entry.number, len(entry.body)) + entry.body for entry in fresh)
        last = self._segments[-1] if self._segments and self._appending else None
        if last is None or last.size >= SEGMENT_BYTES or last.last + 1 != fresh[0].number:
            last = _Segment(self._folder / f"{fresh[0].number:020d}.signals", fresh[0].number, 0, 0)
            self._appending = True
            with self._changed:
                self._segments.append(last)
        with open(last.path, "ab", buffering=0) as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(blob)
        with self._changed:
            self._segments[-1] = last._replace(last=fresh[-1].number, size=last.size + len(blob))
            self._stored = fresh[-1].number

    def _tidy(self, done: int) -> None:
        """Removes segments that everybody has, and the oldest ones above the bound."""
        while self._segments:
            oldest = self._segments[0]
            full = sum(segment.size for segment in self._segments) > self._bytes_max and len(self._segments) > 1
            if oldest.last > done and not full:
                return
            oldest.path.unlink(missing_ok=True)
            with self._changed:
                self._segments.pop(0)
                self.dropped += max(0, oldest.last - max(done, oldest.first - 1)) if oldest.last > done else 0


def _encode(signal: Signal) -> bytes:
    body = _encoder.encode(signal)
    if len(body) > SIGNAL_BYTES_MAX:
        cut: dict[str, Any] = {"cut_bytes": len(body)}
        if "attempt" in signal.data:
            cut["attempt"] = signal.data["attempt"]
        text = signal.text[:2000] if signal.text else None
        body = _encoder.encode(msgspec.structs.replace(signal, data=cut, text=text))
    return body


def _cut(entries: list[Entry], bytes_max: int) -> list[Entry]:
    total = 0
    for place, entry in enumerate(entries):
        total += len(entry.body)
        if total > bytes_max and place:
            return entries[:place]
    return entries


def read_segment(path: Path) -> list[Entry]:
    """The whole entries of a segment; a tail that a crash cut off is passed over."""
    try:
        blob = path.read_bytes()
    except OSError:
        return []
    entries, at = [], 0
    while at + _ENTRY.size <= len(blob):
        number, size = _ENTRY.unpack_from(blob, at)
        body = blob[at + _ENTRY.size : at + _ENTRY.size + size]
        if len(body) < size or size > 2 * SIGNAL_BYTES_MAX:
            break
        entries.append(Entry(number, body))
        at += _ENTRY.size + size
    return entries


def _find_segments(folder: Path) -> list[_Segment]:
    segments = []
    for path in sorted(folder.glob("*.signals")):
        entries = read_segment(path)
        if entries:
            segments.append(_Segment(path, entries[0].number, entries[-1].number, path.stat().st_size))
        else:
            path.unlink(missing_ok=True)
    return segments


def _read_positions(path: Path, witnesses: tuple[str, ...]) -> dict[str, int]:
    try:
        known = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except (OSError, *UNREADABLE):
        known = {}
    return {witness: known.get(witness, 0) for witness in witnesses}
