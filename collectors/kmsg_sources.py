"""Where kernel messages come from: /dev/kmsg, a file that stands for it, or the journal. Each gives raw records and a place."""

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

#: Longest record: the kernel's is 8 KiB; a line of megabytes in a file is no record.
RECORD_BYTES_MAX = 16 << 10


class Source(Protocol):
    """`gaps` counts records that were lost before they could be read."""

    gaps: int

    def fileno(self) -> int | None:
        """A descriptor to wait on, or None: look now and then."""
        ...

    def records(self, most: int) -> Iterator[tuple[str, str]]:
        """Up to `most` new records: (place, text). A place is what `open_source` takes to go on after it."""
        ...

    def close(self) -> None: ...


class DeviceSource:
    """/dev/kmsg: one record a read, numbered by the kernel since boot."""

    def __init__(self, path: Path, after: str) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._last = int(after) if after.isdecimal() else None
        self.gaps = 0

    def fileno(self) -> int | None:
        return self._descriptor

    def records(self, most: int) -> Iterator[tuple[str, str]]:
        for _ in range(most):
            try:
                record = os.read(self._descriptor, RECORD_BYTES_MAX)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # overwritten while we were away; the next number shows how many
            number = _sequence(record)
            if number is None:
                continue
            if self._last is not None:
                if number <= self._last:
                    continue
                self.gaps += number - self._last - 1
            self._last = number
            yield str(number), record.decode("utf-8", "replace")

    def close(self) -> None:
        os.close(self._descriptor)


class FileSource:
    """A file of records, one a line, that grows: tests, drills, and a kernel log that something else writes out."""

    def __init__(self, path: Path, after: str) -> None:
        self._path, self._last = path, int(after) if after.isdecimal() else None
        self._file = open(path, "rb")  # noqa: SIM115 - stays open
        self._rest = b""
        self.gaps = 0

    def fileno(self) -> int | None:
        return None

    def records(self, most: int) -> Iterator[tuple[str, str]]:
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_ino != os.fstat(self._file.fileno()).st_ino or (
                os.stat(self._path).st_size < self._file.tell()
            ):
                self._file.close()
                self._file, self._rest = open(self._path, "rb"), b""  # noqa: SIM115
        for _ in range(most):
            line = self._rest + self._file.readline(RECORD_BYTES_MAX)
            if not line.endswith(b"\n") and len(line) < RECORD_BYTES_MAX:
                self._rest = line  # not whole yet
                return
            self._rest = b""
            number = _sequence(line)
            if number is None or (self._last is not None and number <= self._last):
                continue
            if self._last is not None:
                self.gaps += number - self._last - 1
            self._last = number
            yield str(number), line.rstrip(b"\n").decode("utf-8", "replace")

    def close(self) -> None:
        self._file.close()


class JournalSource:
    """`journalctl -k -f -o json`: where the kernel log itself may not be read. The journal's cursor is the place."""

    def __init__(self, command: str, after: str) -> None:
        arguments = [command, "-k", "-b", "-f", "-o", "json", "--no-pager"]
        arguments += ["--after-cursor", after] if after.startswith("s=") else ["-n", "all"]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        assert self._process.stdout is not None
        self._descriptor = self._process.stdout.fileno()
        os.set_blocking(self._descriptor, False)
        self._rest = b""
        self.gaps = 0

    def fileno(self) -> int | None:
        return self._descriptor

    def records(self, most: int) -> Iterator[tuple[str, str]]:
        try:
            chunk = os.read(self._descriptor, most * 512)
        except BlockingIOError:
            return
        if not chunk:
            raise OSError(0, "journalctl has ended")
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._rest = self._rest[-RECORD_BYTES_MAX:]
        for line in lines:
            with contextlib.suppress(msgspec.MsgspecError):
                yield msgspec.json.decode(line, type=_JournalEntry).cursor, line.decode("utf-8", "replace")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class _JournalEntry(msgspec.Struct):
    cursor: str = msgspec.field(default="", name="__CURSOR")


def open_source(path: Path, journalctl: str, after: str) -> Source:
    """The best source there is, going on after the place `after` (empty: from the beginning of the boot).

    Raises:
        OSError: neither the kernel log nor the journal can be read.
    """
    try:
        return DeviceSource(path, after) if stat.S_ISCHR(os.stat(path).st_mode) else FileSource(path, after)
    except OSError:
        if not journalctl or shutil.which(journalctl) is None:
            raise
        return JournalSource(journalctl, after)


def _sequence(record: bytes) -> int | None:
    number = record[:40].split(b",", 2)[1:2]
    return int(number[0]) if number and number[0].isdigit() else None
