"""Child processes of the drill: started so that they cannot outlive it, and ended in order."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from drills.cluster.kernel import die_with_parent

#: How long a process may take to end after SIGTERM before SIGKILL, seconds.
END_SECONDS = 5.0


class DrillError(Exception):
    """The drill itself cannot go on: one line that says what and where."""


@contextlib.contextmanager
def _said(program: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DrillError(f"{program}: cannot be run: {error.strerror or error}") from None


async def start(arguments: list[str], log: Path, **kwargs: Any) -> asyncio.subprocess.Process:
    """Starts a child in a session of its own, output to `log`; the kernel kills it if the drill dies.

    Raises:
        DrillError: the program cannot be run, for example an interpreter in another user's home.
    """
    parent = os.getpid()
    with log.open("ab") as output, _said(arguments[0]):
        return await asyncio.create_subprocess_exec(
            *arguments,
            stdout=kwargs.pop("stdout", output),
            stderr=output,
            stdin=kwargs.pop("stdin", subprocess.DEVNULL),
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(parent),
            **kwargs,
        )


async def end(process: asyncio.subprocess.Process) -> None:
    """Ends a child and its whole process group."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        await process.wait()


class Nursery:
    """The process that has torch loaded and forks launchers (see `drills.cluster.nursery`)."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process, self._log = process, log
        self._lock = asyncio.Lock()

    @classmethod
    async def open(cls, log: Path) -> "Nursery":
        """Starts it and waits until torch is loaded.

        Raises:
            DrillError: torch is missing or does not load.
        """
        process = await start(
            [sys.executable, "-m", "drills.cluster.nursery"], log, stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=1 << 20
        )
        nursery = cls(process, log)
        try:
            await nursery._answer("ready", 120.0)
        except DrillError:
            await end(process)
            raise
        return nursery

    async def spawn(self, spec: dict[str, Any]) -> int:
        """Forks one launcher and returns its pid."""
        async with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"spawn": spec}).encode() + b"\n")
            await self._process.stdin.drain()
            return int((await self._answer("spawned", 10.0))["pid"])

    async def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        await end(self._process)

    async def _answer(self, key: str, seconds: float) -> Any:
        """The next answer of kind `key`; others (a launcher's end) are passed over."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                while line := await self._process.stdout.readline():
                    message = json.loads(line)
                    if key in message:
                        return message[key]
        except TimeoutError:
            raise DrillError(f"the nursery gave no answer within {seconds:g} s; see {self._log}") from None
        last = self._log.read_text(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise DrillError(f"the training processes cannot start: {last[0]} (see {self._log})")
