"""Runs a command of the site's: words filled in, no shell, a time-out, its last words kept."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Longest piece of what a command said that is kept.
SAID_MAX = 200


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


async def run_command(words: Sequence[str], seconds: float, text: str = "") -> Ended:
    """Runs it with `text` on its standard input, at most for `seconds`."""
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
    except OSError as error:
        return Ended(None, f"cannot be run: {error.strerror}")
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate(text.encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        return Ended(None, f"did not end within {seconds:g} s")
    return Ended(process.returncode, output.decode("utf-8", "replace").strip().rpartition("\n")[2][-SAID_MAX:])
