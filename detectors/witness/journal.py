"""The journal: every signal a witness took in, as a trace that `outrider replay` reads, and every decision beside it.

Two files each (`signals.jsonl.gz`, `decisions.jsonl.gz`), and one older of each; a full file takes the place of the older one.
Writing is gathered, compressed (a tenth) and done off the loop; a disk that fails or hangs costs the journal, never the judgement.
What was written is readable after a crash, up to the last second. `outrider journal` joins the witnesses' files into one trace.
"""

import asyncio
import contextlib
import gzip
from pathlib import Path
from typing import IO, Any

import msgspec

from outrider.fleet import Fleet
from outrider.signals import Signal

#: The signals' file in a witness's folder.
SIGNALS = "signals.jsonl.gz"
#: What may wait for a disk that hangs; more is dropped and counted.
WAITING_BYTES_MAX = 64 << 20

_encoder = msgspec.json.Encoder()


class Journal:
    """One witness's two rings of files. `bytes_max` 0 switches it off."""

    def __init__(self, folder: Path, fleet: Fleet, witness: str, bytes_max: int) -> None:
        header = msgspec.to_builtins(fleet) | {"kind": "fleet"}
        self._to = b',"to":["' + witness.encode() + b'"]}\n'
        self.signals = Ring(folder / SIGNALS, bytes_max, _encoder.encode(header) + b"\n")
        self.decisions = Ring(folder / "decisions.jsonl.gz", bytes_max, b"")

    def signal(self, signal: Signal) -> None:
        """Keeps one signal as a line of a trace: as it was taken in, and by whom."""
        self.signals.add(_encoder.encode(signal)[:-1] + self._to)

    def decision(self, now: float, decision: Any) -> None:
        """Keeps one decision; `type` names it."""
        line = {"t": now, "type": type(decision).__name__, "decision": decision}
        self.decisions.add(_encoder.encode(line) + b"\n")

    async def run(self) -> None:
        """Writes what was gathered, once a second, until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            await self.flush()

    async def flush(self) -> None:
        for ring in (self.signals, self.decisions):
            await ring.flush()

    async def close(self) -> None:
        """Writes the rest."""
        await self.flush()
        for ring in (self.signals, self.decisions):
            ring.close()


class Ring:
    """A file and its predecessor, each at most `bytes_max` and one write more."""

    def __init__(self, path: Path, bytes_max: int, header: bytes) -> None:
        self._path, self._bytes_max, self._header = path, bytes_max, header
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._file: gzip.GzipFile | None = None
        self._raw: IO[bytes] | None = None
        self._busy = False
        self.dropped = 0
        self.error = ""

    def add(self, line: bytes) -> None:
        if not self._bytes_max:
            return
        if self._waiting_bytes + len(line) > WAITING_BYTES_MAX:
            self.dropped += 1
            return
        self._waiting.append(line)
        self._waiting_bytes += len(line)

    async def flush(self) -> None:
        """Writes what waits, off the loop; does nothing while an earlier write has not come back."""
        if self._busy or not self._waiting:
            return
        lines, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self._busy = True
        try:
            await asyncio.to_thread(self._write, b"".join(lines))
            self.error = ""
        except OSError as error:
            self.error = f"{self._path}: {error.strerror}"
            self.dropped += len(lines)
        finally:
            self._busy = False

    def close(self) -> None:
        for file in (self._file, self._raw):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()
        self._file = self._raw = None

    def _write(self, block: bytes) -> None:
        if self._file is None or self._raw is None or self._raw.tell() > self._bytes_max:
            self.close()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                self._path.replace(older(self._path))
            self._raw = self._path.open("wb")
            self._file = gzip.GzipFile(fileobj=self._raw, mode="wb", compresslevel=1)
            self._file.write(self._header)
        self._file.write(block)
        self._file.flush()
        self._raw.flush()


def older(path: Path) -> Path:
    """Where a full file goes: `x.jsonl.gz` becomes `x.1.jsonl.gz`."""
    name, _, kind = path.name.partition(".")
    return path.with_name(f"{name}.1.{kind}")
