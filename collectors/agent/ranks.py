"""What local ranks and launchers say becomes signals; what witnesses order becomes words to local ranks."""

import os
import time
from collections.abc import Callable
from typing import Any

import msgspec

from collectors.agent.exits import exit_code, open_process, process_born
from collectors.agent.local import Caller, Event, Exit, JobNote
from collectors.agent.loop import Loop
from collectors.agent.members import Members
from collectors.agent.pages import PageTeller
from collectors.agent.slots import Rank, Slot, SlotTable
from collectors.frame.types import LocalRank
from outrider.sdk.cells import Command, SideCell
from outrider.signals import Signal
from outrider.wire import Order

#: The launcher, the parent, knows the exit code for certain; the kernel's own word waits this long for it.
LAUNCHER_SECONDS = 0.3
#: Orders to stop that are remembered for ranks that come late.
STOPS_REMEMBERED = 64
#: Exits remembered, so that nobody's is told twice.
EXITS_REMEMBERED = 512
#: Memory of a rank that has ended stays this long for a copy to be taken; then, or at the next attempt, it is freed.
LEFT_MEMORY_SECONDS = 600.0

_COMMANDS: dict[str, Command] = {"copy": "copy", "publish": "publish", "drop": "drop", "stop": "exit"}


class Ranks:
    """The ranks of this node. Runs in the agent's loop.

    Args:
        loop: where it runs.
        node, boot: names.
        table: the slots.
        emit: takes each signal.
        step_seconds: pace of `step` signals.
        launchers: how many launchers are connected now.
        on_change: called when a rank comes or goes.
    """

    def __init__(
        self,
        *,
        loop: Loop,
        node: str,
        boot: str,
        table: SlotTable,
        emit: Callable[[Signal], Any],
        step_seconds: float,
        launchers: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        self._loop, self._node, self._boot, self.table = loop, node, boot, table
        self._emit, self._step_seconds, self._launchers = emit, step_seconds, launchers
        self._on_change = on_change
        self._tellers: dict[int, PageTeller] = {}
        self._told: dict[tuple[str, int, int, int], int | None] = {}
        self._stops: list[Order] = []
        self._members = Members(node, table, emit)
        self.commands = 0

    def adopt(self) -> None:
        """Goes on with what an earlier agent left; a rank that ended meanwhile is told of."""
        for slot in self.table.adopt():
            self._begin(slot)

    # What callers say (see local.Agent).

    def rank_says_hello(self, rank: Rank, caller: Caller) -> None:
        """Gives a rank its memory."""
        rank = msgspec.structs.replace(rank, boot=self._boot, born=process_born(rank.pid))

        def done(slot: Slot | None, why: str) -> None:
            self._loop.post(lambda: self._welcomed(slot, why, caller))

        self.table.welcome(rank, done)

    def _welcomed(self, slot: Slot | None, why: str, caller: Caller) -> None:
        if slot is None:
            caller.answer({"ok": False, "error": why})
            return
        if id(slot) not in self._tellers:
            self._begin(slot)
        caller.answer({"ok": True, "node": self._node, "progress": str(slot.progress), "copy": str(slot.copy)})

    def rank_tells(self, rank: Rank, event: Event) -> None:
        """Sends on what a rank tells."""
        self._emit(
            Signal(
                t=self._loop.clock.monotonic(),
                kind=event.kind,
                value=event.value,
                text=event.text,
                source="sdk",
                data={**event.data, **_tags(rank)},
                **self._subject(rank.job, rank.rank),
            )
        )

    def launcher_tells_exit(self, exit_: Exit) -> None:
        """The parent's word: the exit code for certain."""
        data: dict[str, Any] = {"attempt": exit_.attempt, "slot": exit_.slot, "pid": exit_.pid, "seen_by": "launcher"}
        if exit_.reason:
            data["reason"] = exit_.reason
        self._tell_exit(exit_.job, exit_.attempt, exit_.rank, exit_.pid, exit_.code, data)

    def launcher_tells_job(self, job: JobNote) -> None:
        """A job starts: who its members are."""
        data = {key: value for key, value in msgspec.to_builtins(job).items() if key != "job"}
        now = self._loop.clock.monotonic()
        self._emit(Signal(t=now, kind="job", value=job.attempt, node=self._node, job=job.job, source="launcher", data=data))

    def local(self) -> list[LocalRank]:
        """The ranks that live on this node, for the collectors."""
        return [
            LocalRank(job=slot.rank.job, rank=slot.rank.rank, slot=slot.rank.slot, attempt=slot.rank.attempt, pid=slot.rank.pid)
            for slot in self.table
            if not slot.gone
        ]

    # What pages show.

    def look(self) -> None:
        """Reads every living rank's page and tells what is new."""
        for slot in self.table:
            if not slot.gone and (slot.moved() or self._tellers[id(slot)].waiting):
                self._look_at(slot)
        self._members.tell(self._loop.clock.monotonic())

    def _look_at(self, slot: Slot) -> None:
        for signal in self._tellers[id(slot)].tell(slot.reader.trainer(), slot.reader.side(), self._loop.clock.monotonic()):
            self._emit(signal)

    # What witnesses order.

    def obey(self, order: Order) -> int:
        """Passes an order to the local ranks that it is for. Returns how many."""
        deadline = 0
        if order.deadline_s is not None:
            deadline = time.monotonic_ns() + int(order.deadline_s * 1e9)
        if order.order == "stop":
            self._stops = [*self._stops, order][-STOPS_REMEMBERED:]
        slots = self.table.chosen(order.job, order.ranks, order.attempt, order.fence)
        for slot in slots:
            slot.writer.write(
                _COMMANDS[order.order], step=order.step, fence=order.fence, deadline_ns=deadline,
                incident=order.incident or "", ranks=order.ranks,
            )  # fmt: skip
        self.commands += len(slots)
        return len(slots)

    def _stop_if_late(self, slot: Slot) -> None:
        """A rank of an attempt that was stopped, which says hello only now (it was frozen, or slow): it is told at once."""
        rank = slot.rank
        for order in self._stops:
            older = rank.attempt <= order.attempt if order.attempt is not None else 0 < rank.fence < order.fence
            if older and order.job in (None, rank.job) and (not order.ranks or rank.rank in order.ranks):
                slot.writer.write("exit", fence=order.fence, incident=order.incident or "", ranks=order.ranks)
                self.commands += 1
                return

    # Ends of processes.

    def _begin(self, slot: Slot) -> None:
        rank = slot.rank
        known = {id(one) for one in self.table}
        self._tellers = {key: teller for key, teller in self._tellers.items() if key in known}
        self._tellers[id(slot)] = PageTeller(self._subject(rank.job, rank.rank), _tags(rank), self._step_seconds)
        self._on_change()
        self._members.tell(self._loop.clock.monotonic())  # before its first sign of life: of an unknown job nothing is judged
        self._stop_if_late(slot)
        descriptor = open_process(rank.pid, rank.born)
        if descriptor is None:
            self._ended(slot, None)
            return

        def ended() -> None:
            self._loop.unwatch(descriptor)
            self._ended(slot, descriptor)

        self._loop.watch(descriptor, ended)

    def _ended(self, slot: Slot, descriptor: int | None) -> None:
        if slot in self.table:
            self._look_at(slot)  # its last step is told before its end
        slot.gone = True
        self._on_change()
        wait = LAUNCHER_SECONDS if self._launchers() else 0.0
        side = slot.side()
        self._loop.call_later(wait, lambda: self._told_by_kernel(slot.rank, side, descriptor))
        self._loop.call_later(LEFT_MEMORY_SECONDS, lambda: self.table.drop(slot))

    def _told_by_kernel(self, rank: Rank, side: SideCell | None, descriptor: int | None) -> None:
        code = exit_code(descriptor, rank.pid, rank.born) if descriptor is not None else None
        data: dict[str, Any] = {**_tags(rank), "pid": rank.pid, "seen_by": "kernel"}
        if side is not None:
            data["farewell"] = side.farewell
            if code is None and side.farewell != "none":
                code, data["seen_by"] = side.exit_code, "farewell"
        if descriptor is not None:
            os.close(descriptor)
        self._tell_exit(rank.job, rank.attempt, rank.rank, rank.pid, code, data)

    def _tell_exit(self, job: str, attempt: int, rank: int, pid: int, code: int | None, data: dict[str, Any]) -> None:
        key = (job, attempt, rank, pid)
        if key in self._told and (code is None or self._told[key] is not None):
            return
        now = self._loop.clock.monotonic()
        self._told[key] = code
        while len(self._told) > EXITS_REMEMBERED:
            del self._told[next(iter(self._told))]
        self._emit(
            Signal(
                t=now,
                kind="process_exit",
                value=code,
                process=pid,
                source="agent",
                data=data,
                **self._subject(job, rank),
            )
        )

    def _subject(self, job: str, rank: int) -> dict[str, Any]:
        return {"node": self._node, "job": job, "rank": rank}


def _tags(rank: Rank) -> dict[str, Any]:
    """Where agents of torchrun count apart, a rank's own count says nothing of the job's attempt."""
    return {"slot": rank.slot} if rank.base is not None else {"attempt": rank.attempt, "slot": rank.slot}
