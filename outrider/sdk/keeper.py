"""Takes copies of the state into the copy area: from the side thread while the training thread is stuck, or between two steps.

No collective, and no lock that the training thread would wait for. The mark is read before and after: if the optimizer moved
meanwhile, the copy is made again. Both halves of the area hold whole copies most of the time; the one that is being written to
disk, and else the newest, is never overwritten.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from outrider.sdk.area import CopyArea, Label
from outrider.sdk.device import Device
from outrider.sdk.log import warn_once
from outrider.sdk.subject import Subject
from outrider.snapshots.errors import SnapshotError
from outrider.snapshots.shard import Plan, plan, targets

#: Data positions longer than this stand in the shard alone, not in the MANIFEST, which people read.
_DATA_TEXT_MAX: Final = 4096
#: While the optimizer moves, look again after so many seconds: its step takes milliseconds.
_MOVING_PAUSE: Final = 0.002


class Boundary(NamedTuple):
    """What was taken at the end of a step, on the training thread. `step` -1: before the first."""

    step: int = -1
    data: Any = None
    epoch: int | None = None
    rng: dict[str, Any] | None = None


class AreaTooSmallError(SnapshotError):
    """The state has grown beyond the area. `needed`: bytes of one copy."""

    def __init__(self, needed: int, room: int) -> None:
        super().__init__(f"the state needs {needed} bytes, the copy area has {room}")
        self.needed = needed


class MovingError(SnapshotError):
    """The training goes on too fast for a copy beside it."""


class Keeper:
    """One rank's copies. `wanted`: why the training thread is asked to call `give` at its next step's end (empty: it is not).

    Args:
        subject: what is saved.
        device: how it is copied.
        mark: reads the motion mark (odd: the state moves).
        boundary: reads what was kept at the last step's end.
        facts: of this rank, for the entry beside a shard.
        attempt: which start of the job.
    """

    def __init__(
        self,
        *,
        subject: Subject,
        device: Device,
        mark: Callable[[], int],
        boundary: Callable[[], Boundary],
        facts: Callable[[], dict[str, Any]],
        attempt: int,
    ) -> None:
        self._subject, self._device, self._attempt = subject, device, attempt
        self._mark, self._boundary, self._facts = mark, boundary, facts
        self._area: CopyArea | None = None
        self._turn = threading.Lock()
        self._pinned: dict[int, int] = {}
        self.wanted = ""
        self._given = threading.Event()

    @property
    def area(self) -> CopyArea | None:
        return self._area

    def size(self) -> int:
        """Bytes of a copy now. Raises SnapshotError if the state cannot be saved at all."""
        return self._plan(self._boundary()).total

    def room_to_ask_for(self) -> int:
        """Bytes of one copy to ask the agent for: as it is now, what is to come before the first step, and a little."""
        size = self.size()
        if self._boundary().step < 0:  # the optimizer has no moments yet: two of 4 bytes for each value
            size += 8 * sum(p.numel() for model in self._subject.models.values() for p in model.parameters())
        return size + size // 16 + (1 << 20)

    def use(self, area: CopyArea) -> None:
        """Copies go to this area from now on."""
        try:
            self._device.prepare(area)
        except Exception as error:
            warn_once("prepare", f"the copy area could not be prepared: {error!r}")
        with self._turn:
            self._area = area

    def take(self, cause: str, *, seconds: float) -> Label:
        """A whole copy of the last finished step: the one that is there, or a new one.

        Args:
            cause: why, for the label (at most 32 characters).
            seconds: how long to try while the state moves; 0: once, and only if nobody else copies (training thread).

        Raises:
            SnapshotError: nothing to save yet, the state kept moving, or it cannot be written.
        """
        deadline = time.monotonic() + seconds
        if not (self._turn.acquire(timeout=seconds) if seconds > 0 else self._turn.acquire(blocking=False)):
            raise SnapshotError("another copy is being made")
        try:
            while True:
                mark = self._mark()
                if not mark & 1 and self._device.settled():
                    label = self._take_once(cause, mark)
                    if label is not None:
                        return label
                if time.monotonic() >= deadline:
                    raise MovingError("the state kept moving, or the device lags behind: no copy was made")
                time.sleep(_MOVING_PAUSE)
        finally:
            self._turn.release()

    def ask(self, cause: str, *, seconds: float) -> Label | None:
        """Has the training thread make the copy at its next step's end: for a state that is too big to be copied beside it.

        Args:
            cause: as for `take`.
            seconds: how long to wait for it. From the side thread.
        """
        self._given.clear()
        self.wanted = cause
        given = self._given.wait(seconds)
        self.wanted = ""
        return self.newest() if given else None

    def give(self) -> None:
        """Makes the copy that was asked for. On the training thread, at the end of a step."""
        cause, self.wanted = self.wanted, ""
        try:
            self.take(cause, seconds=0)
        finally:
            self._given.set()

    def newest(self, step: int | None = None) -> Label | None:
        """The newest whole copy of this attempt, or that of a given step."""
        area = self._area
        labels = area.whole() if area else []
        mine = [label for label in labels if label.attempt == self._attempt and step in (None, label.step)]
        return mine[0] if mine else None

    def drop(self) -> None:
        """Forgets the copies, except one that is being written to disk."""
        area = self._area
        for half in (0, 1):
            if area and half not in self._pinned:
                area.mark(Label(half=half))

    def pin(self, half: int) -> None:
        """Keeps a half from being overwritten."""
        self._pinned[half] = self._pinned.get(half, 0) + 1

    def unpin(self, half: int) -> None:
        """Undoes one `pin`."""
        self._pinned[half] -= 1
        if not self._pinned[half]:
            del self._pinned[half]

    def _take_once(self, cause: str, mark: int) -> Label | None:
        """None if the state moved meanwhile."""
        boundary = self._boundary()
        if boundary.step < 0:
            raise SnapshotError("no step is finished yet: nothing to save")
        if (held := self.newest(boundary.step)) is not None:
            return held
        try:
            layout = self._plan(boundary)
        except RuntimeError:  # a dict grew while it was walked: the optimizer made its first moments
            return None
        area = self._room_for(layout.total)
        half = self._free_half(area)
        label = Label(
            half=half, state="writing", attempt=self._attempt, step=boundary.step, length=layout.total,
            taken_ns=time.monotonic_ns(), cause=cause,
        )  # fmt: skip
        area.mark(label)
        self._device.copy(targets(layout, area.memory, area.start(half)))
        if self._mark() != mark:
            return None
        whole = replace(label, state="whole")
        area.mark(whole)
        return whole

    def _room_for(self, size: int) -> CopyArea:
        area = self._area
        if area is None:
            area = self._area = CopyArea.private(size + size // 16)
            self._device.prepare(area)
        if size > area.room:
            raise AreaTooSmallError(size, area.room)
        return area

    def _free_half(self, area: CopyArea) -> int:
        spare = area.spare()
        for half in (spare, 1 - spare):
            if half not in self._pinned:
                return half
        raise SnapshotError("both copies are being written to disk")

    def _plan(self, boundary: Boundary) -> Plan:
        with self._device.reading():
            tree = self._subject.tree()
        tree["data"], tree["rng"] = boundary.data, boundary.rng
        facts = self._facts() | {
            "step": boundary.step,
            "data": _short(boundary.data),
            "sampler_epoch": boundary.epoch,
            "scheduler_step": self._subject.scheduler_step(),
            "scaler": self._subject.has_scaler,
        }
        return plan(tree, facts)


def _short(data: Any) -> Any:
    """The data's position if it is plain and short, else None."""
    try:
        return data if len(json.dumps(data)) <= _DATA_TEXT_MAX else None
    except (TypeError, ValueError):
        return None
