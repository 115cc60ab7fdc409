"""`outrider up`: every service of one machine as a child process, started, watched, started again, and ended together."""

import asyncio
import contextlib
import http.client
import signal
import socket
import sys
import urllib.request
from importlib.metadata import entry_points
from pathlib import Path

import click

from detectors.witness.client import open_straight
from outrider.config.security import SecuritySection, write_secret
from outrider.config.site import Config
from outrider.config.witness import Member, WitnessSection
from outrider.errors import InputError

#: How long a child may take to end after SIGTERM before it is killed, seconds.
END_SECONDS = 5.0
#: A child that ends is started again after this, seconds.
AGAIN_SECONDS = 1.0
#: Between two looks whether a witness answers, and how long one may take, seconds.
LOOK_SECONDS, ANSWER_SECONDS = 0.1, 1.0
#: Exit status of bad input: another try would fail as well.
BAD_INPUT = 2


def services(config: Config) -> list[str]:
    """What `up` starts: each configured witness, and every installed service."""
    witnesses = [f"witness:{member.name}" for member in config.get(WitnessSection).members]
    return [*witnesses, *sorted(point.name for point in entry_points(group="outrider.services"))]


def check(config: Config) -> list[str]:
    """Makes secrets that are configured but not there yet. Returns warnings.

    Raises:
        OutriderError: nothing could be started so.
    """
    section = config.get(WitnessSection)
    if not section.members:
        raise InputError("names no witness", file=str(config.path or "the configuration"), key="witness.members")
    security = config.get(SecuritySection)
    for name in security.__struct_fields__:
        path = getattr(security, name)
        if path:
            try:
                write_secret(Path(path))
            except OSError as error:
                raise InputError(f"cannot be written: {error.strerror}", file=path, key=f"security.{name}") from None
    _hold_ports(section.members, str(config.path or "the configuration"))
    if section.shared_vantage_ok:
        return []
    return [
        f"warning: witnesses {', '.join(names)} share one vantage point ({vantage}): they fall together"
        " (shared_vantage_ok = true admits it)"
        for vantage, names in section.shared_vantages().items()
    ]


def _hold_ports(members: tuple[Member, ...], file: str) -> None:
    """Binds every witness's port once. Found later, a port that another program has (most often another `outrider up`) would be
    told after "witness w1 at .." had been said of what answers there. Raises InputError: one is taken."""
    with contextlib.ExitStack() as held:
        for place, member in enumerate(members):
            family = socket.AF_INET6 if ":" in member.address else socket.AF_INET
            for key, kind in (("http_port", socket.SOCK_STREAM), ("heartbeat_port", socket.SOCK_DGRAM)):
                one, port = held.enter_context(socket.socket(family, kind)), getattr(member, key)
                try:
                    if kind is socket.SOCK_DGRAM:
                        one.bind((member.address, port))
                    else:  # as the server does: connections of the one before may still linger
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                        one.bind((member.address, port))
                        one.listen(1)  # two that only bind could share it
                except OSError as error:
                    raise InputError(
                        f"port {port} at {member.address}: {error.strerror}", file=file, key=f"witness.members[{place}].{key}"
                    ) from None


class Up:
    """The children of one `outrider up`."""

    def __init__(self, config: Config, names: list[str]) -> None:
        self._path = str(config.path) if config.path else None
        self._names, self._members = names, config.get(WitnessSection).members
        self._children: dict[str, asyncio.subprocess.Process] = {}

    async def run(self) -> int:
        """Runs all until SIGINT or SIGTERM (0), or until one of them cannot start (its exit status)."""
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        telling = asyncio.create_task(self._tell())
        watchers = [asyncio.create_task(self._keep(name)) for name in self._names]
        stopped = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([stopped, *watchers], return_when=asyncio.FIRST_COMPLETED)
            failed = [task.result() for task in watchers if task in done]
            return failed[0] if failed else 0
        finally:
            for task in (stopped, telling, *watchers):
                task.cancel()
            await self._end()

    async def _tell(self) -> None:
        """Says of each witness that it is there, once it answers."""
        await asyncio.gather(*(self._tell_one(member) for member in self._members))

    async def _tell_one(self, member: Member) -> None:
        request = urllib.request.Request(f"{member.url}/healthz")  # noqa: S310 - the scheme is ours
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):  # not yet
                await asyncio.to_thread(lambda: open_straight(request, ANSWER_SECONDS, member.trust()).close())
                click.echo(f"witness {member.name} at {member.url}, heartbeats at {member.address}:{member.heartbeat_port}/udp")
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _keep(self, name: str) -> int:
        """Starts one child and starts it again when it ends; returns when it says that its input is bad."""
        arguments = [sys.executable, "-m", "detectors.witness.child", name, *([self._path] if self._path else [])]
        while True:
            child = await asyncio.create_subprocess_exec(*arguments, stdin=asyncio.subprocess.DEVNULL)
            self._children[name] = child
            status = await child.wait()
            if status == BAD_INPUT:
                return status
            click.echo(f"outrider: {name} ended ({status}); it is started again", err=True)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _end(self) -> None:
        living = [child for child in self._children.values() if child.returncode is None]
        for child in living:
            with contextlib.suppress(ProcessLookupError):
                child.terminate()
        waits = [asyncio.create_task(child.wait()) for child in living]
        if waits:
            _, late = await asyncio.wait(waits, timeout=END_SECONDS)
            for child in living:
                if child.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        child.kill()
            if late:
                await asyncio.wait(late)


def up(config: Config) -> int:
    """Starts everything and waits. Raises OutriderError for bad settings."""
    for warning in check(config):
        click.echo(f"outrider: {warning}", err=True)
    names = services(config)
    click.echo(f"starting {', '.join(names)}; Ctrl-C ends all of them")
    return asyncio.run(Up(config, names).run())
