"""The local ranks: their memory files, which outlive a rank and an agent, and the words given to them."""

import mmap
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec

from collectors.agent.state import replace_file
from outrider.sdk import area, cells, page
from outrider.wire import UNREADABLE

#: More ranks than any node has; a runaway program must not fill the memory.
SLOTS_MAX = 64
#: Reserving memory takes about a second for 2 GB; below this it is done at once, above in a thread.
RESERVE_NOW_BYTES = 64 << 20


class SlotError(Exception):
    """A rank cannot have memory: one line for its `hello`."""


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """Who a rank said it is. `pid` and `uid` are the kernel's word on its socket. `gpu`: its place on the node, if it knows.

    `base`: the job's start, where `attempt` has the restarts of this node's torchrun on top of it, so that the ranks of a job
    disagree on it; None: `attempt` is the job's.
    """

    job: str
    slot: int
    rank: int
    attempt: int = 1
    world: int = 0
    copy_bytes: int = 0
    fence: int = 0
    gpu: int | None = None
    base: int | None = None
    pid: int = 0
    uid: int = 0
    gid: int = 0
    boot: str = ""
    born: int = 0

    @property
    def key(self) -> tuple[str, int]:
        return (self.job, self.slot)


class Slot:
    """One slot's files, mapped. `gone`: its process has ended; the memory stays for whoever takes the copy."""

    def __init__(self, folder: Path, rank: Rank) -> None:
        base = f"{quote(rank.job, safe='')}.{rank.slot}.{rank.attempt}"
        self.rank = rank
        self.progress, self.copy = folder / f"{base}.progress", folder / f"{base}.copy"
        self.meta = folder / f"{base}.json"
        self.gone = False
        self._memory: mmap.mmap | None = None
        self._stamp = b""

    def make(self) -> None:
        """Fresh files, given to the rank's user. Raises OSError, SlotError."""
        page.create(self.progress, attempt=self.rank.attempt, slot=self.rank.slot)
        area.create(self.copy, copy_bytes=self.rank.copy_bytes)
        for path in (self.progress, self.copy):
            if self.rank.uid != os.getuid():
                os.chown(path, self.rank.uid, self.rank.gid)
        self.open()
        replace_file(self.meta, msgspec.json.encode(self.rank))

    def reserve(self) -> None:
        """Takes the copy area's memory now: a write to memory that is not there would kill the rank. Raises OSError."""
        descriptor = os.open(self.copy, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(descriptor, 0, area.area_bytes(self.rank.copy_bytes))
        finally:
            os.close(descriptor)

    def open(self) -> None:
        """Maps the page that is there. Raises OSError, ValueError."""
        self._memory = page.open_page(self.progress)
        self.reader = page.Reader(self._memory)
        self.writer = page.CommandWriter(self._memory)

    def moved(self) -> bool:
        """Whether the rank has written anything since the last call: a look at two numbers."""
        memory = self._memory
        if memory is None:
            return False
        stamp = memory[page.TRAINER_AT : page.TRAINER_AT + 8] + memory[page.SIDE_AT : page.SIDE_AT + 8]
        moved, self._stamp = stamp != self._stamp, stamp
        return moved

    def side(self) -> cells.SideCell | None:
        """The side thread's cell; None if it is not whole or the slot was given up."""
        return self.reader.side() if self._memory is not None else None

    def remove(self) -> None:
        """Unmaps and unlinks; a process that still has the files mapped keeps its own view and harms nobody."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        for path in (self.progress, self.copy, self.meta):
            path.unlink(missing_ok=True)


class SlotTable:
    """All slots of this node. One attempt of a slot at a time: a newer one replaces an older.

    Args:
        folder: where the files are.
        boot: this boot; files of another boot are removed.
    """

    def __init__(self, folder: Path, boot: str) -> None:
        self._folder, self._boot = folder, boot
        self._slots: dict[tuple[str, int], Slot] = {}

    def __iter__(self) -> Iterator[Slot]:
        return iter(list(self._slots.values()))

    def __len__(self) -> int:
        return len(self._slots)

    def adopt(self) -> list[Slot]:
        """Takes over what an earlier agent left; files that make no sense are removed. Returns the slots."""
        for meta in sorted(self._folder.glob("*.json")):
            slot = self._adopt_one(meta)
            if slot is not None:
                self._slots[slot.rank.key] = slot
        kept = {path for slot in self._slots.values() for path in (slot.progress, slot.copy, slot.meta)}
        for path in self._folder.iterdir():
            if path not in kept and path.is_file():
                path.unlink(missing_ok=True)
        return list(self._slots.values())

    def welcome(self, rank: Rank, done: Callable[[Slot | None, str], None]) -> None:
        """Finds or makes the files for a rank; `done(slot, "")` or `done(None, why)`, perhaps from another thread."""
        try:
            slot = self._find_or_make(rank)
        except SlotError as error:
            done(None, str(error))
            return
        except OSError as error:
            done(None, f"memory file: {error.strerror}")
            return
        if area.area_bytes(rank.copy_bytes) <= RESERVE_NOW_BYTES:
            self._reserve(slot, done)
        else:
            threading.Thread(target=self._reserve, args=(slot, done), name="reserve", daemon=True).start()

    def drop(self, slot: Slot) -> None:
        """Forgets a slot and its memory."""
        if self._slots.get(slot.rank.key) is slot:
            del self._slots[slot.rank.key]
        slot.remove()

    def chosen(self, job: str | None, ranks: tuple[int, ...], attempt: int | None, fence: int) -> list[Slot]:
        """The living ranks that an order is for; a rank that was started under a newer fence is not among them."""
        return [
            slot
            for slot in self._slots.values()
            if not slot.gone
            and job in (None, slot.rank.job)
            and (not ranks or slot.rank.rank in ranks)
            and (attempt is None or slot.rank.attempt <= attempt)
            and (fence == 0 or slot.rank.fence <= fence)
        ]

    def _find_or_make(self, rank: Rank) -> Slot:
        known = self._slots.get(rank.key)
        if known is not None:
            if known.rank.attempt > rank.attempt:
                raise SlotError(f"attempt {known.rank.attempt} holds slot {rank.slot} already")
            same = (known.rank.attempt, known.rank.pid, known.rank.born) == (rank.attempt, rank.pid, rank.born)
            if same and known.rank.copy_bytes >= rank.copy_bytes:
                return known
            self.drop(known)
        if len(self._slots) >= SLOTS_MAX:
            raise SlotError(f"{SLOTS_MAX} slots are in use on this node")
        free = os.statvfs(self._folder)
        if area.area_bytes(rank.copy_bytes) > free.f_bavail * free.f_frsize:
            raise SlotError(f"no room for two copies of {rank.copy_bytes} bytes in {self._folder}")
        slot = Slot(self._folder, rank)
        slot.make()
        self._slots[rank.key] = slot
        return slot

    def _reserve(self, slot: Slot, done: Callable[[Slot | None, str], None]) -> None:
        try:
            slot.reserve()
        except OSError as error:
            done(None, f"no room for two copies of {slot.rank.copy_bytes} bytes: {error.strerror}")
            return
        done(slot, "")

    def _adopt_one(self, meta: Path) -> Slot | None:
        try:
            rank = msgspec.json.decode(meta.read_bytes(), type=Rank)
            slot = Slot(self._folder, rank)
            if rank.boot != self._boot or slot.meta != meta:
                return None
            slot.open()
        except (OSError, ValueError, *UNREADABLE):
            return None
        known = self._slots.get(rank.key)
        return slot if known is None or known.rank.attempt < rank.attempt else None
