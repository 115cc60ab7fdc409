"""Follows many growing files: new, rotated and truncated ones, lines of megabytes. Reads only what is new, bounded a turn."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from glob import iglob
from itertools import islice
from pathlib import Path

import msgspec

from collectors.agent.state import replace_file
from outrider.wire import UNREADABLE

#: Files followed; a node has tens of ranks, each with a handful.
FILES_MAX = 512
#: Bytes of one file in one turn: a log that was far behind does not hold up the others.
BLOCK_BYTES = 256 << 10


class Place(msgspec.Struct):
    """How far a file was read: inode and offset; `skip`: in the middle of a line that is too long."""

    inode: int
    offset: int
    skip: bool = False


@dataclass(frozen=True)
class Block:
    """Whole lines that are new in a file."""

    path: str
    body: bytes


class Tails:
    """Follows the files that the patterns match.

    A file that is there at the first start is read from its end, for what stands in it is old; one that appears later from its
    beginning; after a restart each goes on where it was.

    Args:
        patterns: glob patterns.
        memory: file that remembers places over a restart.
    """

    def __init__(self, patterns: list[str], memory: Path) -> None:
        self._patterns, self._memory = patterns, memory
        self._places = self._read_memory()
        self._first = not self._places
        self._saved = msgspec.json.encode(self._places)
        self.files = 0

    def blocks(self) -> Iterator[Block]:
        """New whole lines of every file, at most one block a file and turn."""
        paths = list(islice((path for pattern in self._patterns for path in iglob(pattern, recursive=True)), FILES_MAX))
        self.files = len(paths)
        for path in paths:
            block = self._read(path)
            if block is not None:
                yield block
        self._first = False
        gone = self._places.keys() - set(paths)
        for path in gone:
            del self._places[path]

    def save(self) -> None:
        """Remembers the places; called when what was read is safe."""
        body = msgspec.json.encode(self._places)
        if body != self._saved:
            try:
                replace_file(self._memory, body)
                self._saved = body
            except OSError:
                return  # told again after a restart

    def _read(self, path: str) -> Block | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            place = self._places.get(path)
            if place is None or place.inode != status.st_ino:  # new, or rotated
                place = Place(status.st_ino, status.st_size if self._first and place is None else 0)
                self._places[path] = place
            elif status.st_size < place.offset:  # truncated
                place.offset, place.skip = 0, False
            if status.st_size == place.offset:
                return None
            return self._whole_lines(path, place, os.pread(descriptor, BLOCK_BYTES, place.offset))
        except OSError:
            return None
        finally:
            os.close(descriptor)

    @staticmethod
    def _whole_lines(path: str, place: Place, chunk: bytes) -> Block | None:
        end = chunk.rfind(b"\n") + 1
        if end == 0:
            if len(chunk) < BLOCK_BYTES:
                return None  # the line is not whole yet
            # A line longer than a block: its beginning is read as a line, the rest is passed over.
            place.offset += len(chunk)
            body, place.skip = (b"" if place.skip else chunk + b"\n"), True
        else:
            place.offset += end
            body = chunk[:end]
            if place.skip:
                body, place.skip = body[body.find(b"\n") + 1 :], False
        return Block(path, body) if body else None

    def _read_memory(self) -> dict[str, Place]:
        try:
            return msgspec.json.decode(self._memory.read_bytes(), type=dict[str, Place])
        except (OSError, *UNREADABLE):
            return {}
