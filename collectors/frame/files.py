"""Small files of /sys and /proc: read bounded, and as None where there is nothing that makes sense."""

import os
from pathlib import Path

#: No file of this kind is longer; a runaway one must not fill the memory.
BYTES_MAX = 64 << 10


def read_text(path: Path | str) -> str | None:
    """The file's text without the newline at its end; None if it is not there or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return os.read(descriptor, BYTES_MAX).decode("utf-8", "replace").strip()
    except OSError:
        return None  # files of a device that is going away answer with an error
    finally:
        os.close(descriptor)


def read_int(path: Path | str) -> int | None:
    """The file's whole number of up to 64 bits, also in hexadecimal with 0x; None if there is none."""
    text = read_text(path)
    if not text:
        return None
    try:
        number = int(text[:40], 16 if text[:2].lower() == "0x" else 10)
    except ValueError:
        return None
    return number if abs(number) < 1 << 64 else None


def list_folder(path: Path | str) -> list[str]:
    """Names in a folder, in order; empty if it is not there."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []
