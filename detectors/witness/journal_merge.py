"""Joins the journals of several witnesses into one trace, so that `outrider replay` sees what each of them saw."""

import gzip
import heapq
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from detectors.witness.journal import SIGNALS, older
from outrider.errors import InputError
from outrider.wire import UNREADABLE


class _Time(msgspec.Struct):
    t: float


_decoder = msgspec.json.Decoder(_Time)


def merge(folder: Path, names: tuple[str, ...]) -> Iterator[bytes]:
    """Lines of one trace: the header once, then every witness's signals in time order.

    Only files of one clock are joined: an older file whose times lie behind those of the newer is of another boot, and is left out.

    Raises:
        InputError: no journal is there, or one cannot be read.
    """
    header, files = b"", []
    for name in names:
        newest, before_it = folder / name / SIGNALS, older(folder / name / SIGNALS)
        if not newest.exists():
            continue
        header = _header(newest)
        start = _first_time(newest)
        if before_it.exists() and start is not None and (before := _first_time(before_it)) is not None and before <= start:
            files.append(before_it)
        files.append(newest)
    if not files:
        raise InputError("holds no journal of a configured witness", file=str(folder))
    yield header
    for _, line in heapq.merge(*(_timed(path) for path in files), key=lambda pair: pair[0]):
        yield line


def _timed(path: Path) -> Iterator[tuple[float, bytes]]:
    """Signals with their times, never falling (a witness writes in the order of taking in); a torn line is left out."""
    latest = 0.0
    try:
        with gzip.open(path, "rb") as file:
            next(file, b"")
            for line in file:
                try:
                    latest = max(latest, _decoder.decode(line).t)
                except UNREADABLE:
                    continue
                yield latest, line if line.endswith(b"\n") else line + b"\n"
    except (EOFError, zlib.error):  # still being written, or cut off by a crash: what came before stands
        return
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=str(path)) from None


def _first_time(path: Path) -> float | None:
    return next((time for time, _ in _timed(path)), None)


def _header(path: Path) -> bytes:
    try:
        with gzip.open(path, "rb") as file:
            return file.readline()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=str(path)) from None
