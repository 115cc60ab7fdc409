"""The side thread of a rank: looks every 20 ms, whatever the training thread is stuck in.

It obeys the agent's commands, sees the rank's own stall, exception and SIGTERM, makes copies, has them published, and ends the
process when it is told to: signal handlers do not run while the training thread hangs in a collective. It is one of the edges
where any exception is caught: training goes on without it.
"""

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from outrider.sdk import cells, page
from outrider.sdk.area import CopyArea
from outrider.sdk.link import AgentLink, Memory
from outrider.sdk.log import warn_once
from outrider.sdk.saver import Saver
from outrider.sdk.settings import why_not_writable
from outrider.sdk.stall import StallWatch
from outrider.snapshots.errors import SnapshotError

if TYPE_CHECKING:
    from outrider.sdk.run import Run

#: Exit codes of a process that the side thread ends. 75: try again (sysexits.h); 77: no permission any more; 143: SIGTERM.
EXIT_TOLD: Final = 75
EXIT_FENCED: Final = 77
EXIT_SIGTERM: Final = 143
#: Before the process ends, its last events get so long to leave. Seconds.
_FAREWELL_SECONDS: Final = 0.2
#: The same at the orderly end of the run.
_STOP_SECONDS: Final = 1.0


class SideThread(threading.Thread):
    """See above.

    Args:
        run: the run it belongs to.
        wake_fd: where the C signal handler writes the number of a signal, or None.
        end_process: how the process is ended, given the exit code.
    """

    def __init__(self, run: "Run", wake_fd: int | None, end_process: Callable[[int], None] = os._exit) -> None:
        super().__init__(name="outrider-side", daemon=True)
        self._run, self._wake_fd, self._end_process = run, wake_fd, end_process
        self._place, self._limits = run.place, run.plan.limits
        self.wake, self._stop_at = threading.Event(), math.inf
        self._link: AgentLink | None = None
        if self._place.agent:
            self._link = AgentLink(self._place.agent, self._hello, self._limits.reconnect, self._welcome)
        self._page = page.SideWriter(run.memory)
        self._memory: Memory | None = None
        self._watch = StallWatch(self._limits.stall_steps, self._limits.stall_seconds)
        self._known = self._ack = 0
        self._ack_state: cells.Ack = "none"
        self._situation: cells.Situation = "running"
        self._farewell: cells.Farewell = "none"
        self._exit_code, self._text = 0, ""
        self._last_look = time.monotonic()
        self._hold_until: float | None = None
        self._sigterm_until: float | None = None
        self._stall_tried = -1
        self._grow_at = 0.0
        self._saver = Saver(run, self.snapshot_event)

    # What other threads may call.

    def snapshot_event(self, state: str, step: int | None, text: str | None = None, **data: Any) -> None:
        """Tells the agent of a snapshot's state."""
        if self._link is not None:
            self._link.tell("snapshot", step, text, state=state, **data)

    def stop(self, farewell: cells.Farewell, seconds: float) -> None:
        """Ends the thread after its last events and writes are out."""
        self._farewell, self._stop_at = farewell, time.monotonic()
        self.wake.set()
        self.join(seconds)

    # The loop.

    def run(self) -> None:
        """Until the process ends or `stop`."""
        # Here and not on the training thread: a shared file system that hangs must not hold up the training.
        if self._place.root is not None and (why := why_not_writable(self._place.root)):
            warn_once("root", f"OUTRIDER_SNAPSHOTS={self._place.root}: {why}: no snapshot will be written; training goes on")
        while not self._finished(time.monotonic()):
            self.wake.wait(self._limits.poll)
            self.wake.clear()
            try:
                self._look(time.monotonic())
            except Exception as error:  # the SDK's edge
                warn_once("side", f"monitoring stumbled, training goes on: {error!r}")
        self._say_farewell()

    def _finished(self, now: float) -> bool:
        """Whether `stop` was called and nothing is left to do; an agent that does not listen is not waited for long."""
        if now < self._stop_at or self._run.publisher.busy():
            return False
        return self._link is None or self._link.flush(now) or now > self._stop_at + _STOP_SECONDS

    def _look(self, now: float) -> None:
        gap, self._last_look = now - self._last_look, now
        if gap > self._limits.own_freeze:
            self._saver.ask_whether_superseded()
        self._read_signals(now)
        self._saver.collect()
        if self._saver.superseded:
            self._leave(EXIT_FENCED, "fenced", self._saver.superseded)
        if self._link is not None:
            self._link.tick(now)
            self._grow_area(now)
        self._read_command(now)
        self._see_fault(now)
        self._see_stall()
        self._see_endings(now)
        self._show(now)

    # The agent.

    def _hello(self) -> dict[str, Any]:
        place, room = self._place, self._ask(self._run.keeper.room_to_ask_for)
        told = {
            "hello": "rank", "job": place.job, "attempt": place.attempt, "slot": place.slot, "rank": place.rank,
            "world": place.world, "pid": os.getpid(), "fence": place.fence, "copy_bytes": room,
            "gpu": place.gpu, "base": place.base,
        }  # fmt: skip
        return {name: value for name, value in told.items() if value is not None}

    def _ask(self, size: Callable[[], int]) -> int:
        try:
            return size()
        except (SnapshotError, RuntimeError) as error:  # RuntimeError: a dict grew while it was walked
            warn_once("state", f"the state cannot be saved: {error}")
            return 0

    def _welcome(self, memory: Memory) -> None:
        """Goes over to the agent's memory; the same files as before change nothing."""
        if self._memory is not None and self._memory.identity == memory.identity:
            return
        mapped, area = page.open_page(memory.progress), CopyArea.open(memory.copy)
        self._run.move_to(mapped)
        self._page = page.SideWriter(mapped)
        self._run.keeper.use(area)
        self._memory, self._known, self._ack, self._ack_state = memory, 0, 0, "none"

    def _grow_area(self, now: float) -> None:
        """Once the optimizer has its moments the true size is known; a bigger area is asked for if it must be."""
        area = self._run.keeper.area
        if self._memory is None or area is None or self._run.finished < 0 or now < self._grow_at:
            return
        self._grow_at = now + 60.0
        if self._link is not None and self._ask(self._run.keeper.size) > area.room:
            self._link.hello_again()

    def _read_command(self, now: float) -> None:
        command = self._page.command(self._known)
        if command is None:
            return
        self._known = self._ack = command.number
        self._ack_state = "done"
        match command.command:
            case "copy":
                self._ack_state = "done" if self._saver.copy("copy", command.incident) else "failed"
            case "publish":
                self._ack_state = "working" if self._saver.publish_ordered(command, now) else "failed"
            case "drop":
                self._run.keeper.drop()
            case "exit":
                self._leave(EXIT_TOLD, "told", f"told to leave: {command.incident}")
            case "none":
                pass

    # What happens to this rank.

    def _read_signals(self, now: float) -> None:
        if self._wake_fd is None or self._sigterm_until is not None:
            return
        try:
            numbers = os.read(self._wake_fd, 64)
        except BlockingIOError:
            return
        if signal.SIGTERM in numbers:
            self._situation = "sigterm"
            self._saver.copy("sigterm")
            self._sigterm_until = now + (self._limits.grace if self._link is not None else 0.0)

    def _see_fault(self, now: float) -> None:
        fault = self._run.fault
        if fault is None or self._hold_until is not None:
            return
        self._situation, self._text = "exception", fault.text
        if fault.communication and self._link is not None:
            rank, address = self._run.peers.get(f"{fault.peer}:{fault.port}", (None, None))
            self._link.tell(
                "collective_error", None, fault.text, library=fault.library, peer=address or fault.peer, port=fault.port,
                peer_rank=rank, step=self._run.finished + 1,
            )  # fmt: skip
            self._link.tick(now)
        self._saver.copy("exception")
        waits = self._limits.hold if fault.communication and self._link is not None else 0.0
        self._hold_until = now + waits

    def _see_stall(self) -> None:
        run = self._run
        stalled = self._watch.stalled(
            now_ns=time.monotonic_ns(),
            training=run.training,
            step=run.finished,
            since_ns=run.moved_ns,
            durations=run.durations(),
        )
        if self._situation not in ("running", "stalled"):
            return
        self._situation = "stalled" if stalled else "running"
        if stalled and self._stall_tried != run.finished:
            self._stall_tried = run.finished
            self._saver.copy("stall")

    def _see_endings(self, now: float) -> None:
        run, saver = self._run, self._saver
        if self._hold_until is not None and not run.released.is_set():
            communication = run.fault is not None and run.fault.communication
            told = saver.ordered_step >= run.finished >= 0
            if told or not communication or (now >= self._hold_until and saver.alone_is_over(now)):
                run.released.set()
        if self._sigterm_until is not None and run.dies_of_sigterm:
            saved = saver.written >= run.finished
            if saved or (now >= self._sigterm_until and saver.alone_is_over(now)):
                self._leave(EXIT_SIGTERM, "sigterm", "SIGTERM")

    # The end.

    def _leave(self, code: int, farewell: cells.Farewell, text: str) -> None:
        """Ends the process from this thread: the training thread may never come back."""
        self._exit_code, self._farewell, self._text, self._situation = code, farewell, text, "leaving"
        self._say_farewell()
        flush = threading.Thread(target=_flush_output, daemon=True)  # the training thread may hold the streams' locks
        flush.start()
        flush.join(_FAREWELL_SECONDS)
        self._end_process(code)

    def _say_farewell(self) -> None:
        self._show(time.monotonic())
        deadline = time.monotonic() + _FAREWELL_SECONDS
        while self._link is not None and time.monotonic() < deadline and not self._link.flush(time.monotonic()):
            time.sleep(0.005)

    def _show(self, now: float) -> None:
        if self._ack_state == "working" and (done := self._saver.result(self._ack)) is not None:
            self._ack_state = "done" if done else "failed"
        area = self._run.keeper.area
        self._page.write(
            cells.SideCell(
                beat_ns=int(now * 1e9), ack=self._ack, ack_state=self._ack_state, pid=os.getpid(), rank=self._place.rank,
                world=self._place.world, labels=area.steps() if area else (-1, -1), situation=self._situation,
                farewell=self._farewell, exit_code=self._exit_code, median_ns=self._watch.median_ns, text=self._text,
            )
        )  # fmt: skip


def _flush_output() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
