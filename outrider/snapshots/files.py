"""Files that appear whole: temporary name, sync, then a link that fails if the name exists (or a rename that replaces)."""

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

Chunk = bytes | memoryview


def write_new(path: Path, chunks: Iterable[Chunk]) -> None:
    """Makes `path` with the given content, all or nothing.

    Raises:
        FileExistsError: something of that name is there already; it is left alone.
        OSError: no space, no right, no folder.
    """
    temporary = _write_temporary(path, chunks)
    try:
        os.link(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    sync_folder(path.parent)


def replace(path: Path, content: bytes) -> None:
    """Puts `content` at `path` in one step, whatever stood there."""
    temporary = _write_temporary(path, [content])
    try:
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable; a file system that cannot is left as it is."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write_temporary(path: Path, chunks: Iterable[Chunk]) -> Path:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            for chunk in chunks:
                _write_all(file.fileno(), chunk)
            os.fchmod(file.fileno(), 0o644)
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return temporary


def _write_all(descriptor: int, chunk: Chunk) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]
