"""The Unix socket on which ranks and launchers of this node talk to the agent: JSON lines, peer credentials checked.

A caller can only spoil its own connection: lines are bounded, events limited in number, kinds limited to what a rank may say.
"""

import os
import pwd
import socket
import struct
from pathlib import Path
from typing import Any, Protocol

import msgspec

from collectors.agent.loop import Loop
from collectors.agent.slots import Rank
from outrider.errors import InputError
from outrider.signals import KINDS
from outrider.wire import UNREADABLE

#: A flight record of thousands of groups fits; anything longer is no message of ours.
LINE_BYTES_MAX = 1 << 20
CALLERS_MAX = 512
#: Events of one caller: a burst, and the mean rate above which they are dropped and counted.
EVENTS_BURST = 500.0
EVENTS_PER_SECOND = 50.0

#: What a rank may say: signs of its job. Nobody forges a dying GPU through this socket.
RANK_KINDS = frozenset(kind for kind, layer in KINDS.items() if layer in ("communication", "application"))

_PEER = struct.Struct("3i")


class Hello(msgspec.Struct, kw_only=True):
    """First line of a caller: `hello` is `rank` or `launcher`."""

    hello: str
    job: str = ""
    attempt: int = 1
    slot: int = -1
    rank: int = -1
    world: int = 0
    pid: int = 0
    copy_bytes: int = 0
    fence: int = 0
    gpu: int | None = None
    base: int | None = None


class Event(msgspec.Struct, kw_only=True):
    """What a rank tells."""

    kind: str
    value: float | int | str | None = None
    data: dict[str, Any] = {}
    text: str | None = None


class Exit(msgspec.Struct, kw_only=True):
    """What a launcher tells of a process that ended; `code` < 0: minus the signal."""

    job: str
    attempt: int
    rank: int
    code: int
    slot: int = -1
    pid: int = 0
    reason: str | None = None


class JobNote(msgspec.Struct, kw_only=True):
    """What a launcher tells of a job that starts."""

    job: str
    attempt: int
    slots: list[tuple[str, int]]
    groups: dict[str, list[list[int]]] = {}
    limits: dict[str, float] = {}
    synchronous: bool = True


class _Line(msgspec.Struct, kw_only=True):
    hello: str | None = None
    event: Event | None = None
    exit: Exit | None = None
    job: JobNote | str | None = None


class Agent(Protocol):
    """What the socket needs of the agent."""

    def rank_says_hello(self, rank: Rank, caller: "Caller") -> None: ...

    def rank_tells(self, rank: Rank, event: Event) -> None: ...

    def launcher_tells_exit(self, exit_: Exit) -> None: ...

    def launcher_tells_job(self, job: JobNote) -> None: ...


class Caller:
    """One connection. `rank` is set once it has said hello as one."""

    def __init__(self, server: "LocalServer", connection: socket.socket, peer: tuple[int, int, int]) -> None:
        self._server, self._connection = server, connection
        self.pid, self.uid, self.gid = peer
        self.rank: Rank | None = None
        self.role = ""
        self._buffer = bytearray()
        self._tokens, self._refilled = EVENTS_BURST, server.loop.clock.monotonic()

    def answer(self, message: dict[str, Any]) -> None:
        """Sends one line. A caller that does not read is dropped: answers are short and few."""
        try:
            self._connection.send(msgspec.json.encode(message) + b"\n")
        except OSError:
            self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._server.forget(self)
        self._connection.close()

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> None:
        """Reads what has come and handles its whole lines."""
        try:
            chunk = self._connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
            return
        self._buffer += chunk
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            self._handle(bytes(line))
            if self.fileno() < 0:
                return
        if len(self._buffer) > LINE_BYTES_MAX:
            self._server.bad_lines += 1
            self.close()

    def _handle(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            message = msgspec.json.decode(line, type=_Line)
            if message.hello is not None:
                self._hello(msgspec.json.decode(line, type=Hello))
            elif not self._dispatch(message):
                raise ValueError("a line that this caller may not send")
        except (ValueError, *UNREADABLE) as error:
            self._server.bad_lines += 1
            self.answer({"ok": False, "error": str(error)[:300]})

    def _hello(self, hello: Hello) -> None:
        if hello.hello == "launcher":
            self.role = "launcher"
            self.answer({"ok": True, "node": self._server.node})
        elif hello.hello == "rank":
            if not hello.job or len(hello.job) > 100 or hello.slot < 0 or hello.rank < 0 or hello.copy_bytes < 0:
                raise ValueError("a rank's hello needs job (up to 100 characters), slot, rank and copy_bytes")
            self.role = "rank"
            self.rank = Rank(
                job=hello.job, slot=hello.slot, rank=hello.rank, attempt=hello.attempt, world=hello.world,
                copy_bytes=hello.copy_bytes, fence=hello.fence, gpu=hello.gpu, base=hello.base, pid=self.pid,
                uid=self.uid, gid=self.gid,
            )  # fmt: skip
            self._server.agent.rank_says_hello(self.rank, self)
        else:
            raise ValueError("hello is `rank` or `launcher`")

    def _dispatch(self, message: _Line) -> bool:
        agent = self._server.agent
        match (self.role, message):
            case ("rank", _Line(event=Event() as event)) if self.rank is not None:
                if event.kind not in RANK_KINDS:
                    raise ValueError(f"a rank cannot tell of {event.kind!r}")
                if self._may_tell():
                    agent.rank_tells(self.rank, event)
            case ("launcher", _Line(exit=Exit() as exit_)):
                agent.launcher_tells_exit(exit_)
            case ("launcher", _Line(job=JobNote() as job)):
                agent.launcher_tells_job(job)
            case _:
                return False
        return True

    def _may_tell(self) -> bool:
        now = self._server.loop.clock.monotonic()
        self._tokens = min(EVENTS_BURST, self._tokens + (now - self._refilled) * EVENTS_PER_SECOND)
        self._refilled = now
        if self._tokens < 1.0:
            self._server.events_dropped += 1
            return False
        self._tokens -= 1.0
        return True


class LocalServer:
    """The listening socket. `bad_lines`, `events_dropped`, `strangers`: what was not taken.

    Args:
        loop: where it runs.
        path: of the socket; an old one is replaced (the agent holds the lock of its folder).
        node: name of the node.
        users: names or numbers of users that may call, besides root and the agent's own.
        agent: who hears what callers say.

    Raises:
        InputError: a user is not known, or the socket cannot be made.
    """

    def __init__(self, loop: Loop, path: Path, node: str, users: tuple[str | int, ...], agent: Agent) -> None:
        self.loop, self.node, self.agent = loop, node, agent
        self.bad_lines = self.events_dropped = self.strangers = 0
        self._allowed = {0, os.getuid(), *(_user_number(user) for user in users)}
        self._callers: set[Caller] = set()
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._socket.bind(str(path))
            # Others are let through to the credentials check only where the configuration lists some.
            path.chmod(0o666 if users else 0o600)
            self._socket.listen(64)
        except OSError as error:
            raise InputError(f"cannot listen: {error.strerror or error}", file=str(path)) from None
        loop.watch(self._socket, self._accept)

    def callers(self, role: str) -> int:
        """How many callers of that role are connected."""
        return sum(caller.role == role for caller in self._callers)

    def forget(self, caller: Caller) -> None:
        """Takes a caller off the list."""
        self.loop.unwatch(caller)
        self._callers.discard(caller)

    def close(self) -> None:
        """Ends listening and all connections."""
        self.loop.unwatch(self._socket)
        self._socket.close()
        for caller in list(self._callers):
            caller.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return
        connection.setblocking(False)
        peer = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        if peer[1] not in self._allowed or len(self._callers) >= CALLERS_MAX:
            self.strangers += 1
            connection.close()
            return
        caller = Caller(self, connection, peer)
        self._callers.add(caller)
        self.loop.watch(caller, caller.read)


def _user_number(user: str | int) -> int:
    if isinstance(user, int):
        return user
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise InputError(f"no user {user!r} on this machine", key="agent.users") from None
