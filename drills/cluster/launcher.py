"""A node's launcher: parent of its ranks and of its agent. It forks ranks from loaded torch, and tells of every exit at once.

Single-threaded: one selector over the scheduler's stream, the agent's socket and the wake-up pipe of SIGCHLD.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drills.cluster.kernel import die_with_parent, unshare_network
from drills.cluster.lines import LineSocket

#: Exits that wait for an agent to come back; more than a node can have ranks and restarts in a drill.
UNTOLD_MAX = 256


@dataclass(frozen=True, kw_only=True)
class LauncherSpec:
    """What a launcher needs to know. `agent` is the agent's command line; `agent_socket` where it will listen."""

    node: str
    scheduler: tuple[str, int]
    token: str
    namespace: bool
    agent: list[str]
    agent_socket: str
    log_dir: str
    nice: int = 10


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One forked rank."""

    job: str
    attempt: int
    slot: int
    rank: int


@dataclass
class Launcher:
    """State of one launcher; `loop` runs until the scheduler's stream ends."""

    spec: LauncherSpec
    scheduler: LineSocket
    wakeup: int
    agent: LineSocket | None = None
    agent_process: subprocess.Popen[bytes] | None = None
    ranks: dict[int, Rank] = field(default_factory=dict)
    asked_to_end: set[int] = field(default_factory=set)
    untold: list[dict[str, Any]] = field(default_factory=list)

    def loop(self) -> None:
        while not self.scheduler.closed:
            selector = selectors.DefaultSelector()
            selector.register(self.scheduler, selectors.EVENT_READ)
            selector.register(self.wakeup, selectors.EVENT_READ)
            if self.agent is not None:
                selector.register(self.agent, selectors.EVENT_READ)
            selector.select(timeout=0.1)
            selector.close()
            with contextlib.suppress(BlockingIOError):
                os.read(self.wakeup, 4096)
            self._reap()
            for message in self.scheduler.lines():
                self._obey(message)
            self._tend_agent()

    def _obey(self, message: dict[str, Any]) -> None:
        match message:
            case {"start": order}:
                self._start(order)
            case {"kill": {"job": job}}:
                for pid, rank in list(self.ranks.items()):
                    if rank.job == job:
                        self.asked_to_end.add(pid)
                        os.kill(pid, signal.SIGKILL)
            case {"start_agent": _}:
                self.start_agent()

    def start_agent(self) -> None:
        """Starts the agent unless it runs."""
        if self.agent_process is not None and self.agent_process.poll() is None:
            return
        parent = os.getpid()
        with open(Path(self.spec.log_dir) / f"agent-{self.spec.node}.log", "ab") as log:
            self.agent_process = subprocess.Popen(
                self.spec.agent, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509 - single-threaded by design
            )  # fmt: skip
        self.scheduler.send({"agent": {"node": self.spec.node, "pid": self.agent_process.pid}})

    def _start(self, order: dict[str, Any]) -> None:
        self._tell({"job": order["description"]})
        for place in order["ranks"]:
            rank = Rank(job=order["job"], attempt=order["attempt"], slot=place["slot"], rank=place["rank"])
            pid = self._fork(rank, order["env"] | place["env"])
            self.ranks[pid] = rank
            self.scheduler.send({"started": {"node": self.spec.node, "rank": rank.rank, "attempt": rank.attempt, "pid": pid}})

    def _fork(self, rank: Rank, env: dict[str, str]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            die_with_parent(parent)
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            self.scheduler.close()
            if self.agent is not None:
                self.agent.close()
            log = os.open(
                Path(self.spec.log_dir) / f"rank-{rank.rank}.attempt-{rank.attempt}.log",
                os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                0o600,
            )
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.nice(self.spec.nice)
            os.environ.update(env)
            from drills.job.train import main

            code = main(os.environ)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if self.agent_process is not None and pid == self.agent_process.pid:
                self.agent_process.returncode = code
                self.scheduler.send({"agent_exit": {"node": self.spec.node, "pid": pid, "code": code}})
                continue
            rank = self.ranks.pop(pid, None)
            if rank is None:
                continue
            exit_ = {"job": rank.job, "attempt": rank.attempt, "slot": rank.slot, "rank": rank.rank, "pid": pid, "code": code,
                     "reason": "cancelled" if pid in self.asked_to_end else None}  # fmt: skip
            self.asked_to_end.discard(pid)
            self._tell({"exit": exit_})
            self.scheduler.send({"exit": exit_ | {"node": self.spec.node}})

    def _tell(self, message: dict[str, Any]) -> None:
        """Tells the agent, or keeps the word until there is one."""
        if self.agent is not None and not self.agent.closed:
            self.agent.send(message)
        if self.agent is None or self.agent.closed:
            self.untold = [*self.untold, message][-UNTOLD_MAX:]

    def _tend_agent(self) -> None:
        """Keeps a connection to the agent, and says what it missed."""
        if self.agent is not None:
            self.agent.lines()
            if self.agent.closed:
                self.agent.close()
                self.agent = None
        if self.agent is None and Path(self.spec.agent_socket).exists():
            stream = socket.socket(socket.AF_UNIX)
            try:
                stream.settimeout(0.5)
                stream.connect(self.spec.agent_socket)
            except OSError:
                stream.close()
                return
            self.agent = LineSocket(stream)
            self.agent.send({"hello": "launcher", "pid": os.getpid()})
            untold, self.untold = self.untold, []
            for message in untold:
                self._tell(message)


def _connect(address: tuple[str, int], seconds: float = 10.0) -> socket.socket:
    """Connects, trying for `seconds`: a fresh namespace has its link a moment later."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(address, timeout=1.0)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def run(spec: LauncherSpec) -> int:
    """A launcher's whole life. Returns its exit status."""
    if spec.namespace:
        unshare_network()
    reader, writer = os.pipe()
    for end in (reader, writer):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.set_wakeup_fd(writer)
    launcher = Launcher(spec, LineSocket(_connect((spec.scheduler[0], spec.scheduler[1]))), reader)
    launcher.scheduler.send({"hello": spec.node, "token": spec.token, "pid": os.getpid()})
    launcher.start_agent()
    try:
        launcher.loop()
    finally:
        for pid in launcher.ranks:
            os.kill(pid, signal.SIGKILL)
        if launcher.agent_process is not None and launcher.agent_process.poll() is None:
            launcher.agent_process.terminate()
    return 0
