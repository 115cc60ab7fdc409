"""The agent's loop: timers, sockets and words from other threads, one after another in one thread.

Nothing that may block runs here, so that heartbeats go out each second whatever hangs elsewhere. Smaller than asyncio by
about 8 MB of memory a node, and all that an agent needs.
"""

import contextlib
import heapq
import itertools
import os
import selectors
import signal
from collections import deque
from collections.abc import Callable
from typing import Any

from outrider.clock import Clock, SystemClock

Callback = Callable[[], None]


class Loop:
    """One thread's loop. `failed` counts callbacks that raised; each is told to `on_failure` and the loop goes on."""

    def __init__(self, on_failure: Callable[[BaseException], None], clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.failed = 0
        #: How late the loop ran its latest timer, seconds (>= 0): the agent's own health.
        self.lag_seconds = 0.0
        self._on_failure = on_failure
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callback]] = []
        self._order = itertools.count()
        self._posted: deque[Callback] = deque()
        self._running = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._drain)

    def call_at(self, when: float, callback: Callback) -> None:
        """Runs `callback` once, at `when` (monotonic seconds) or soon after."""
        heapq.heappush(self._timers, (when, next(self._order), callback))

    def call_later(self, seconds: float, callback: Callback) -> None:
        """Runs `callback` once, after `seconds`."""
        self.call_at(self.clock.monotonic() + seconds, callback)

    def every(self, seconds: float, callback: Callback) -> None:
        """Runs `callback` now and then every `seconds`, on a fixed schedule; beats missed in a stall are not made up.

        The schedule is the clock's multiples of `seconds`: timers whose paces fit together wake the loop together, for a wake costs
        more than what is done in it.
        """
        now = self.clock.monotonic()
        due = now - now % seconds

        def turn() -> None:
            nonlocal due
            try:
                callback()
            finally:
                due = max(due + seconds, self.clock.monotonic() - seconds)
                self.call_at(due, turn)

        self.call_at(now, turn)

    def post(self, callback: Callback) -> None:
        """Runs `callback` in the loop's thread; may be called from any thread."""
        self._posted.append(callback)
        with contextlib.suppress(OSError):  # the pipe is full, so the loop wakes anyway; or the loop is closed
            os.write(self._wake_write, b"w")

    def watch(self, source: Any, callback: Callback) -> None:
        """Runs `callback` whenever `source` (a socket or descriptor) can be read."""
        self._selector.register(source, selectors.EVENT_READ, callback)

    def unwatch(self, source: Any) -> None:
        """Forgets a source; no error if it is not watched."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(source)

    def stop_on_signals(self) -> None:
        """SIGTERM and SIGINT end the loop."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())

    def stop(self) -> None:
        """Ends `run` after the callback that runs now."""
        self._running = False
        self.post(lambda: None)

    def run(self) -> None:
        """Runs until `stop`."""
        self._running = True
        while self._running:
            timeout = max(0.0, self._timers[0][0] - self.clock.monotonic()) if self._timers else None
            ready = self._selector.select(timeout)
            # Sockets before timers: after a stall of our own the world is heard before it is judged.
            for key, _ in ready:
                self._call(key.data)
            while self._posted:
                self._call(self._posted.popleft())
            self._run_timers()

    def close(self) -> None:
        """Gives back what the loop holds."""
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _run_timers(self) -> None:
        now = self.clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            when, _, callback = heapq.heappop(self._timers)
            self.lag_seconds = now - when
            self._call(callback)

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Exception as error:
            self.failed += 1
            self._on_failure(error)

    def _drain(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            pass
