"""Runs a command of the site's: words filled in, no shell, a time-out, its last words kept."""

import asyncio
import contextlib
import os
import re
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

#: Longest piece of what a command said that is kept.
SAID_MAX = 200


#: What may be filled into a command: nothing, or a word that begins with no dash and holds no space and nothing a shell acts on.
_WORD: Final = re.compile(r"(?:[\w.:@/+=,%\[\]][\w.:@/+=,%\[\]-]*)?")


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended. `status` None: it could not be run, or did not end in time; `said` tells which."""

    status: int | None
    said: str

    @property
    def why(self) -> str | None:
        """Why it failed; None: it did not."""
        if self.status == 0:
            return None
        return self.said if self.status is None else f"ended with {self.status}: {self.said}"


def filled(command: Sequence[str], values: Mapping[str, object]) -> list[str]:
    """The words of a command with `{name}` replaced; other braces stay as they are."""
    words = []
    for word in command:
        for name, value in values.items():
            word = word.replace("{" + name + "}", str(value))  # noqa: PLW2901
        words.append(word)
    return words


def unsafe(command: Sequence[str], values: Mapping[str, object]) -> str | None:
    """Why these may not be filled into a command: who names a job must choose no option of it, and nothing that a shell behind ssh
    would run. None: they may."""
    for name, value in values.items():
        if any("{" + name + "}" in word for word in command) and not _WORD.fullmatch(str(value)):
            return f"the {name} {str(value)[:60]!r} could be taken for an option or read by a shell: no command is run with it"
    return None


async def run_command(words: Sequence[str], seconds: float, text: str = "") -> Ended:
    """Runs it with `text` on its standard input, at most for `seconds`; it is over when it ends itself, whatever it left running.

    Files and no pipes: a pipe is open for as long as anything that it started holds it (ssh's shared connection, a daemon).
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        try:
            given.write(text.encode())
            given.seek(0)
            process = await asyncio.create_subprocess_exec(
                *words, stdin=given, stdout=said, stderr=asyncio.subprocess.STDOUT, start_new_session=True
            )
        except (OSError, ValueError) as error:  # ValueError: a zero byte in a word
            return Ended(None, f"cannot be run: {getattr(error, 'strerror', None) or error}")
        try:
            async with asyncio.timeout(seconds):
                status = await process.wait()
        except TimeoutError:
            return Ended(None, f"did not end within {seconds:g} s")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # with what it started: a session of its own
                await process.wait()
        said.seek(max(0, said.seek(0, os.SEEK_END) - 4 * SAID_MAX))  # 4: bytes of a letter in UTF-8, at most
        return Ended(status, said.read().decode("utf-8", "replace").strip().rpartition("\n")[2][-SAID_MAX:])
