"""A child of the agent: runs the collectors of one group, each at its pace or when its source has news, and tells the agent.

If a call does not return, only this process stands still: the agent has been told which call it is.
"""

import importlib
import selectors
import time
from dataclasses import dataclass
from typing import Any

from collectors.frame.board import Begun, Board
from collectors.frame.pipe import Pipe, PipeError, Read, Spawn
from collectors.frame.types import Collector, CollectorError, News, Note, NotSupported, Outcome, Readings

#: A source that this node does not have is looked for again this often: devices come and go.
LOOK_AGAIN_SECONDS = 30.0
#: Signals of one reading; a collector that makes more has no flood gate, and the rest is lost.
SIGNALS_MAX = 1_000
#: After a reading by event the next one waits this long, so that a storm of events costs a bounded share of the processor.
EVENT_PAUSE_SECONDS = 0.005


#: A reading that says what the last one said is sent no more often than this.
SAME_SECONDS = 5.0


class _BoardNote(Note):
    def __init__(self, board: Board, collector: str) -> None:
        self._board, self._collector = board, collector

    def __call__(self, call: str, **subject: Any) -> None:
        self._board.write(Begun(collector=self._collector, call=call, now=time.monotonic(), subject=subject))


@dataclass
class _Member:
    collector: Collector
    due: float = 0.0
    descriptor: int | None = None
    supported: bool = False
    quiet_until: float = 0.0
    read_at: float = 0.0
    healthy: bool = True
    sent: tuple[Outcome | None, str | None] = (None, None)
    sent_at: float = float("-inf")


def run(pipe: Pipe, board: Board, spawn: Spawn) -> None:
    """A child's whole life; returns when the agent is gone."""
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ, None)
    try:
        members = [_Member(_build(name, target, spawn, board)) for name, target in spawn.collectors.items()]
        while True:
            timeout = max(0.0, min(member.due for member in members) - time.monotonic())
            for key, _ in selector.select(timeout):
                if key.data is None:
                    _hear(pipe, members)
                elif key.data.due > key.data.quiet_until:
                    key.data.due = key.data.quiet_until
            now = time.monotonic()
            for member in members:
                if member.due <= now:
                    _turn(pipe, board, member)
                    _plan(selector, member)
                    if time.monotonic() - now >= member.collector.deadline_seconds:
                        for one in members:  # the agent has let go of all that this child said: it is said whole again
                            one.sent = (None, None)
    except PipeError:
        return


def _build(name: str, target: str, spawn: Spawn, board: Board) -> Collector:
    module, _, attribute = target.partition(":")
    kind = getattr(importlib.import_module(module), attribute)
    collector: Collector = kind(spawn.place, _BoardNote(board, name))
    return collector


def _hear(pipe: Pipe, members: list[_Member]) -> None:
    for news in pipe.receive()[0]:
        if isinstance(news, News):
            for member in members:
                member.collector.told(news)


def _turn(pipe: Pipe, board: Board, member: _Member) -> None:
    """One reading, told to the agent if it says anything new."""
    name, now = member.collector.name, time.monotonic()
    board.write(Begun(collector=name, call="read", now=now))
    outcome: Outcome | None = None
    error = None
    try:
        outcome = member.collector.supported() if not member.supported else None
        member.supported = outcome is None
        if outcome is None:
            outcome = member.collector.read(now)
    except CollectorError as wrong:
        error = str(wrong)[:300]
    except Exception as wrong:
        error = f"failed: {wrong!r}"[:300]
    board.write(None)
    if isinstance(outcome, NotSupported):
        member.supported = False
    if isinstance(outcome, Readings) and len(outcome.signals) > SIGNALS_MAX:
        outcome = Readings(signals=outcome.signals[:SIGNALS_MAX], samples=outcome.samples)
    member.read_at = done = time.monotonic()
    member.healthy = error is None
    quiet = not (isinstance(outcome, Readings) and outcome.signals)
    same = quiet and (outcome, error) == member.sent and error is None
    if not same or done - member.sent_at >= SAME_SECONDS:
        pipe.send(Read(collector=name, seconds=done - now, now=done, outcome=None if same else outcome, error=error, same=same))
        member.sent, member.sent_at = (outcome, error), done
    member.collector.handed_over()


def _plan(selector: selectors.BaseSelector, member: _Member) -> None:
    """When to read again; a source that fails is not watched until its next turn, or it would keep us busy."""
    pace = member.collector.interval_seconds if member.supported else LOOK_AGAIN_SECONDS
    # On the clock's multiples of the pace: what wakes together finds warm caches, and a wake costs more than what is done in it.
    member.due = member.read_at - member.read_at % pace + pace
    if member.due - member.read_at < pace / 2:
        member.due += pace
    member.quiet_until = member.read_at + EVENT_PAUSE_SECONDS
    wanted = member.collector.fileno() if member.healthy and member.supported else None
    if wanted == member.descriptor:
        return
    if member.descriptor is not None:
        selector.unregister(member.descriptor)
    if wanted is not None:
        selector.register(wanted, selectors.EVENT_READ, member)
    member.descriptor = wanted
