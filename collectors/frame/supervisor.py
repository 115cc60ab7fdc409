"""Keeps the collectors' children: starts them, hears their readings, tells of calls that do not return, and replaces the dead.

A child that is stuck is left alone until its call returns (or is killed, where its collector says that this harms nothing), and
there is no second child of that group meanwhile: calls on a broken device do not pile up. Its series leave the metrics page.
"""

import os
import signal as signals
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from collectors.agent.loop import Loop
from collectors.agent.metrics import Family
from collectors.frame.board import Begun, Board, make_board
from collectors.frame.found import Found
from collectors.frame.health import CollectorState, collector_families
from collectors.frame.nursery import nursery_pipe, start_nursery
from collectors.frame.pipe import Exited, Pipe, PipeError, Read, Spawn, Spawned
from collectors.frame.stuck import StuckChild, StuckMemory
from collectors.frame.types import News, Place
from outrider.signals import Signal

#: Pace at which stuck calls are looked for; with a deadline of 9 s at most they are told within 10.
CHECK_SECONDS = 0.5
#: A call that stays stuck is told again, with its age: soon (the judge believes it from 10 s on), then this often.
STUCK_SOON_SECONDS = 2.5
STUCK_AGAIN_SECONDS = 30.0
#: First and longest wait before a lost child is replaced.
BACKOFF_SECONDS = (1.0, 60.0)


@dataclass
class _Child:
    number: int
    names: list[str]
    pipe: Pipe | None = None
    pid: int = 0
    board: Board | None = None
    #: The call that was told as stuck.
    stuck: Begun | None = None
    told_at: float | None = None
    told: int = 0
    back_at: float = 0.0
    backoff: float = BACKOFF_SECONDS[0]
    starts: int = 0
    #: A child of an earlier agent that still hangs.
    held: StuckChild | None = None

    @property
    def group(self) -> str:
        return "+".join(self.names)

    @property
    def process(self) -> int:
        return self.held.pid if self.held is not None else self.pid


class Supervisor:
    """Runs in the agent's loop.

    Args:
        loop: where it runs.
        nursery: the agent's end of the nursery's socket.
        found: the collectors to run.
        place: where they run; `state_dir` is completed by the collector's name.
        emit: takes each signal.
    """

    def __init__(
        self,
        loop: Loop,
        nursery: socket.socket,
        found: Found,
        place: Place,
        emit: Callable[[Signal], Any],
    ) -> None:
        self._loop, self._targets, self._place, self._emit = loop, found.targets, place, emit
        self._nursery = nursery_pipe(nursery)
        self.states = {name: CollectorState(kind) for name, kind in found.kinds.items()}
        for name, reason in found.broken.items():
            self.states[name] = CollectorState(None, supported=True, success=False, reason=reason, errors=1)
        groups: dict[str, list[str]] = {}
        for name, kind in found.kinds.items():
            unwanted = kind.wanted(place.section)
            if unwanted is not None:
                self.states[name].supported, self.states[name].reason = False, unwanted.reason
                continue
            groups.setdefault(kind.group or name, []).append(name)
        self._children = [_Child(number, names) for number, names in enumerate(groups.values())]
        self._memory = StuckMemory(place.state_dir, place.boot)
        for group, stuck in self._memory.read().items():
            for child in self._children:
                if child.group == group:
                    child.held = stuck
        self._news = News()
        self.restarts = self.nurseries = 0
        self.on_read: Callable[[Read], None] = lambda read: None

    def begin(self) -> None:
        """Starts the children and the watch over them."""
        self._loop.watch(self._nursery, self._hear_nursery)
        self._loop.every(CHECK_SECONDS, self.check)

    def tell(self, news: News) -> None:
        """Tells every collector of the local ranks."""
        self._news = news
        for child in self._children:
            self._send_news(child)

    def close(self) -> None:
        """Lets the children go: they end by themselves when they see that nobody listens."""
        for child in self._children:
            if child.pipe is not None:
                self._let_go(child)
        self._loop.unwatch(self._nursery)
        self._nursery.close()

    def check(self) -> None:
        """Starts what is due, and tells of calls that do not return."""
        now = self._loop.clock.monotonic()
        for child in self._children:
            if child.held is not None:
                if child.held.alive():
                    self._watch_call(child, child.held.begun, now)
                    continue
                self._returned(child)
                child.held = None
                self._memory.remove(child.group)
            if child.pipe is None and child.pid and not _alive(child.pid):
                self._lost(child, "its process is gone")
            if child.pipe is None and not child.pid and now >= child.back_at:
                self._spawn(child, now)
            elif child.board is not None:
                busy = child.board.read()
                if child.stuck is not None and busy != child.stuck:
                    self._returned(child)
                if busy is not None and busy.collector in self.states:
                    self._watch_call(child, busy, now)

    def _spawn(self, child: _Child, now: float) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        board = make_board()
        spawn = Spawn(child=child.number, collectors={name: self._targets[name] for name in child.names}, place=self._place)
        try:
            self._nursery.send(spawn, [theirs.fileno(), board])
        except PipeError:
            ours.close()
            os.close(board)
            self._new_nursery()
            child.back_at = now + child.backoff
            return
        finally:
            theirs.close()
        child.starts += 1
        self.restarts += child.starts > 1
        child.stuck, child.told_at, child.told = None, None, 0
        child.board = Board(board)
        os.close(board)
        child.pipe = Pipe(ours, Read)
        self._loop.watch(child.pipe, lambda: self._hear(child))
        self._send_news(child)

    def _new_nursery(self) -> None:
        """The nursery is lost: its children go on, but nobody reaps them for us any more."""
        self._loop.unwatch(self._nursery)
        self._nursery.close()
        self._nursery = nursery_pipe(start_nursery())
        self._loop.watch(self._nursery, self._hear_nursery)
        self.nurseries += 1

    def _hear_nursery(self) -> None:
        try:
            messages, _ = self._nursery.receive()
        except PipeError:
            self._new_nursery()
            return
        for message in messages:
            child = self._children[message.child]
            if isinstance(message, Spawned):
                child.pid = message.pid
            elif isinstance(message, Exited):
                self._lost(child, f"its process ended with {message.code}")

    def _hear(self, child: _Child) -> None:
        if child.pipe is None:
            return
        try:
            messages, _ = child.pipe.receive()
        except PipeError:
            self._let_go(child)  # its end is told by the nursery
            return
        self._returned(child)
        for message in messages:
            child.backoff = BACKOFF_SECONDS[0]
            self._take(message)

    def _take(self, read: Read) -> None:
        state = self.states.get(read.collector)
        if state is None:
            return
        for signal in state.take(read):
            self._emit(signal)
        self.on_read(read)

    def _watch_call(self, child: _Child, busy: Begun, now: float) -> None:
        kind, age = self.states[busy.collector].kind, now - busy.now
        if kind is None or age < kind.deadline_seconds:
            return
        again = STUCK_SOON_SECONDS if child.told == 1 else STUCK_AGAIN_SECONDS
        if child.told_at is None or now - child.told_at >= again:
            if child.stuck is None and child.pid:
                self._memory.add(child.group, child.pid, busy)
            child.told_at, child.told, child.stuck = now, child.told + 1, busy
            for name in child.names:
                state = self.states[name]
                state.success, state.samples, state.reason = False, [], f"{busy.collector}: {busy.call} does not return"
            self._tell_call(busy, age, now, returned=False)
        if kind.kill_safe and age > 2 * kind.deadline_seconds and child.process > 0:
            self._kill(child)

    def _returned(self, child: _Child) -> None:
        """The child is heard again, or goes on: what was told as stuck has returned."""
        if child.stuck is not None:
            now = self._loop.clock.monotonic()
            self._tell_call(child.stuck, now - child.stuck.now, now, returned=True)
            child.stuck, child.told_at, child.told = None, None, 0
            self._memory.remove(child.group)

    def _tell_call(self, busy: Begun, age: float, now: float, *, returned: bool) -> None:
        data = {"call": busy.call, "collector": busy.collector, "returned": returned, "stuck_s": round(age, 3)}
        value = 0.0 if returned else round(age, 3)
        subject = {key: value for key, value in busy.subject.items() if key in Signal.__struct_fields__}
        self._emit(Signal(t=now, kind="driver_call", node=self._place.node, source="agent", value=value, data=data, **subject))

    def _kill(self, child: _Child) -> None:
        try:
            os.kill(child.process, signals.SIGKILL)  # our own child's child, not reaped by anybody but the nursery
        except ProcessLookupError:
            return

    def _lost(self, child: _Child, why: str) -> None:
        """The process or its socket is gone: a new one comes after a pause that grows."""
        self._returned(child)
        self._let_go(child)
        child.pid = 0
        child.back_at = self._loop.clock.monotonic() + child.backoff
        child.backoff = min(2 * child.backoff, BACKOFF_SECONDS[1])
        for name in child.names:
            state = self.states[name]
            if state.success is not False:
                state.success, state.reason, state.errors = False, why, state.errors + 1
            state.samples = []

    def _let_go(self, child: _Child) -> None:
        if child.pipe is not None:
            self._loop.unwatch(child.pipe)
            child.pipe.close()
            child.pipe = None
        if child.board is not None:
            child.board.close()
            child.board = None

    def _send_news(self, child: _Child) -> None:
        if child.pipe is None or child.stuck is not None:
            return
        try:
            child.pipe.send(self._news)
        except PipeError:
            self._let_go(child)

    def families(self) -> Iterable[Family]:
        """The collectors' own health, and their samples."""
        return collector_families(self.states, self._place.node, self._loop.clock.monotonic())


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
