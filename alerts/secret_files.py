"""Tokens and addresses that are secrets: read from files, never shown."""

from pathlib import Path

from outrider.errors import InputError


def read_token(path: str) -> str:
    """The token in `path`; empty for an empty path.

    Raises:
        InputError: the file cannot be read or is empty.
    """
    return read_lines(path)[0] if path else ""


def read_lines(path: str) -> tuple[str, ...]:
    """Lines of `path` that are not empty and no comment.

    Raises:
        InputError: the file cannot be read, is open to everybody, or holds nothing.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=path) from None
    if mode & 0o004:
        raise InputError(f"can be read by everybody (mode {mode & 0o777:03o}): chmod 600", file=path)
    lines = tuple(line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    if not lines:
        raise InputError("is empty", file=path)
    return lines
