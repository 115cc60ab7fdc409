"""What is read: a file, gzip or not, or standard input, line by line in bounded memory."""

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from outrider.errors import InputError
from outrider.unknown_keys import Note, quiet

CHUNK_BYTES: Final = 1 << 20
#: A line longer than this is cut: a gigabyte without a newline must not fill the memory. A rank's flight record on one line has
#: some megabytes.
LINE_BYTES_MAX: Final = 16 << 20
HEAD_BYTES: Final = 1 << 16

Progress = Callable[[int], None]


def _ignore(_count: int) -> None:
    pass


class Source:
    """One input. `name` is how people call it; `file` is None when it is the only one, so that evidence stays short; `note` takes
    what a person should know of it."""

    def __init__(self, path: Path | None, *, file: str | None = None, progress: Progress = _ignore) -> None:
        self.path = path
        self.name = str(path) if path else "standard input"
        self.file = file
        self.size = path.stat().st_size if path and path.is_file() else 0
        self._progress: Progress = _ignore
        self.note: Note = quiet
        self._again = path is not None and path.is_file()
        self._stream: BinaryIO | None = None
        stream = self._open()
        with _Telling(self.name):
            self.head = stream.read(HEAD_BYTES)
        if self._again:
            stream.close()
        else:
            self._stream = stream
        self._progress = progress

    def on_progress(self, progress: Progress) -> None:
        """Whom to tell how many (compressed) bytes were read."""
        self._progress = progress

    def _open(self) -> BinaryIO:
        """The stream from its start."""
        try:
            raw: io.RawIOBase = _Counted(self.path.open("rb", buffering=0) if self.path else sys.stdin.buffer, self)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", file=self.name) from None
        stream: Any = io.BufferedReader(raw, HEAD_BYTES)
        with _Telling(self.name):
            packed = stream.peek(2)[:2] == b"\x1f\x8b"
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream) if packed else stream)

    def _take(self) -> tuple[BinaryIO, bytes]:
        """The stream, and what was read of it already. Standard input and pipes can be had only once."""
        if self._again:
            return self._open(), b""
        assert self._stream is not None, "a stream is read once"
        stream, self._stream = self._stream, None
        return stream, self.head

    def told(self, count: int) -> None:
        """Called by the raw stream: `count` more bytes were read."""
        self._progress(count)

    def blocks(self) -> Iterator[bytes]:
        """The content in blocks that end at a newline (but the last, and but lines over `LINE_BYTES_MAX`)."""
        stream, first = self._take()
        with _Telling(self.name), stream:
            rest = b""
            while chunk := first or stream.read(CHUNK_BYTES):
                first = b""
                end = chunk.rfind(b"\n") + 1
                if not end and len(rest) < LINE_BYTES_MAX:
                    rest += chunk
                    continue
                yield rest + chunk[:end] if end else rest + chunk
                rest = chunk[end:] if end else b""
            if rest:
                yield rest

    def lines(self) -> Iterator[str]:
        """The lines without their newline. What is not UTF-8 becomes the replacement character."""
        for block in self.blocks():
            text = block.decode("utf-8", "replace")
            if "\r\n" in text:
                text = text.replace("\r\n", "\n")
            lines = text.split("\n")
            if not lines[-1]:
                lines.pop()
            yield from lines

    def read(self, limit_bytes: int) -> bytes:
        """The whole content.

        Raises:
            InputError: there is more than `limit_bytes`.
        """
        stream, first = self._take()
        with _Telling(self.name), stream:
            content = first + stream.read(limit_bytes + 1)
        if len(content) > limit_bytes:
            raise InputError(f"is larger than {limit_bytes >> 20} MiB", file=self.name)
        return content


class _Counted(io.RawIOBase):
    """Passes reads through and tells how much was read."""

    def __init__(self, raw: Any, owner: Source) -> None:
        self._raw, self._owner = raw, owner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count: int = self._raw.readinto(buffer) or 0
        self._owner.told(count)
        return count

    def close(self) -> None:
        if self._raw is not sys.stdin.buffer:
            self._raw.close()
        super().close()


class _Telling:
    """Turns what reading can throw into one clear line."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
            raise InputError(f"is damaged gzip data: {error}", file=self._name) from None
        if isinstance(error, OSError):
            raise InputError(f"cannot be read: {error.strerror or error}", file=self._name) from None
