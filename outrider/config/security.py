"""`[security]`: files that hold keys and tokens. A secret never stands in the configuration, nor in a message."""

import os
import secrets
from pathlib import Path

import msgspec

from outrider.config.paths import SitePath
from outrider.errors import InputError


class SecuritySection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each file holds secrets in hexadecimal, one a line (16 to 32 bytes each); the first signs, all are accepted.

    heartbeat_key_file: key of the heartbeats' BLAKE2s, shared by agents and witnesses.
    agent_token_file: bearer token with which agents send signals and fetch orders.
    operator_token_file: bearer token of people who may approve, acknowledge and pause.
    viewer_token_file: bearer token of people and programs that only look.
    """

    heartbeat_key_file: SitePath = ""
    agent_token_file: SitePath = ""
    operator_token_file: SitePath = ""
    viewer_token_file: SitePath = ""

    def heartbeat_keys(self) -> tuple[bytes, ...]:
        """The keys, the signing one first. Raises InputError."""
        return tuple(bytes.fromhex(line) for line in self._lines("heartbeat_key_file"))

    def agent_tokens(self) -> tuple[str, ...]:
        """The agents' tokens, the one to send first. Raises InputError."""
        return self._lines("agent_token_file")

    def operator_tokens(self) -> tuple[str, ...]:
        """The operators' tokens. Raises InputError."""
        return self._lines("operator_token_file")

    def viewer_tokens(self) -> tuple[str, ...]:
        """The viewers' tokens. Raises InputError."""
        return self._lines("viewer_token_file")

    def _lines(self, name: str) -> tuple[str, ...]:
        path = getattr(self, name)
        if not path:
            raise InputError("is not set", key=f"security.{name}")
        return read_secrets(Path(path))


def read_secrets(path: Path) -> tuple[str, ...]:
    """The secrets in `path`. The message of an error never shows one.

    Raises:
        InputError: unreadable, open to everybody, empty, or not hexadecimal of 16 to 32 bytes.
    """
    try:
        text = path.read_text(encoding="ascii")
        mode = path.stat().st_mode
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from None
    except UnicodeDecodeError:
        raise InputError("is not hexadecimal", file=str(path)) from None
    if mode & 0o007:
        raise InputError(f"is open to everybody (mode {mode & 0o777:03o}): chmod 600", file=str(path))
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not lines:
        raise InputError("holds no secret", file=str(path))
    for number, line in enumerate(lines, 1):
        try:
            size = len(bytes.fromhex(line))
        except ValueError:
            raise InputError("is not hexadecimal", file=str(path), line=number) from None
        if not 16 <= size <= 32:
            raise InputError(f"is {size} bytes, a secret has 16 to 32 bytes", file=str(path), line=number)
    return lines


def write_secret(path: Path) -> None:
    """Makes a new secret of 32 bytes at `path`, mode 0600; one that is there already stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32) + "\n")
