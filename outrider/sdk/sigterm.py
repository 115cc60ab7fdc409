"""SIGTERM as the side thread sees it, also while the training thread is stuck and no handler of Python's can run.

The C half of Python's signal handling writes the signal's number into a file descriptor at once; the side thread reads it. The
script's own handler is called as before; if it has one, the process is the script's to end.
"""

import os
import signal
import threading
from types import FrameType
from typing import Any

from outrider.sdk.log import warn_once


class Sigterm:
    """Installed on the main thread, or not at all. `deadly`: nobody but us handles SIGTERM, so the side thread ends the process."""

    def __init__(self) -> None:
        self.deadly = False
        self._before: Any = None
        self._fds: tuple[int, int] | None = None

    def install(self) -> int | None:
        """Begins to listen.

        Returns:
            The descriptor to read the signals' numbers from (it never blocks), or None: SIGTERM stays as it was.
        """
        if threading.current_thread() is not threading.main_thread():
            warn_once("sigterm", "attached outside the main thread: SIGTERM is not watched")
            return None
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        taken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if taken != -1:
            signal.set_wakeup_fd(taken, warn_on_full_buffer=False)
            os.close(reader)
            os.close(writer)
            warn_once("sigterm", "the signals' descriptor is taken (an event loop?): SIGTERM is not watched")
            return None
        self._fds = (reader, writer)
        self._before = signal.getsignal(signal.SIGTERM)
        self.deadly = self._before == signal.SIG_DFL
        signal.signal(signal.SIGTERM, self._handle)
        os.register_at_fork(after_in_child=self.uninstall)  # SIGTERM to a data loader's worker is not meant for its parent
        return reader

    def uninstall(self) -> None:
        """Puts everything back."""
        if self._fds is None or threading.current_thread() is not threading.main_thread():
            return
        signal.signal(signal.SIGTERM, self._before)
        signal.set_wakeup_fd(-1)
        for descriptor in self._fds:
            os.close(descriptor)
        self._fds = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if callable(self._before):
            self._before(number, frame)
