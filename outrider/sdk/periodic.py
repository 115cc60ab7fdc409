"""Periodic snapshots, the safety net: copied on the training thread between two steps, written by the publisher meanwhile.

The copy is a memory copy and stops the training for its duration; the writing does not. Every rank that writes saves the same
step, because it counts steps; seconds are allowed where one rank alone writes.
"""

import sys
import time
from typing import TYPE_CHECKING, Final

from outrider.sdk.log import warn_once
from outrider.sdk.publisher import Job
from outrider.sdk.saver import TellSnapshot
from outrider.snapshots.errors import SnapshotError
from outrider.snapshots.publish import Order

if TYPE_CHECKING:
    from outrider.sdk.run import Run

_NEVER: Final = sys.maxsize
#: With seconds as the measure the clock is read at each step's end; it costs 50 ns.
_EVERY_STEP: Final = -1
#: A set that is not complete after so many seconds will not be: a rank is gone.
_DEADLINE: Final = 120.0


class Periodic:
    """`next_at`: the step at whose end `save` is called."""

    def __init__(self, run: "Run", tell_snapshot: TellSnapshot) -> None:
        self._run, self._tell = run, tell_snapshot
        place, plan = run.place, run.plan
        self._alone = run.shards_to_cover == 1
        self._steps, self._seconds = plan.every_steps, plan.every_seconds
        if self._seconds and not self._alone:
            warn_once("seconds", "save_every_seconds needs one rank that holds everything: use save_every_steps")
            self._seconds = None
        self._writes = place.root is not None and (place.slot == 0 or not self._alone)
        if (self._steps or self._seconds) and place.root is None:
            warn_once("root", "OUTRIDER_SNAPSHOTS is not set: no periodic snapshots")
        self._saved_at = time.monotonic()
        self.next_at = _NEVER
        self.plan_next()

    def plan_next(self) -> None:
        """Finds the next step to save."""
        if not self._writes or not (self._steps or self._seconds):
            return
        if self._seconds:
            self.next_at = _EVERY_STEP
        elif self._steps:
            first = self._run.finished + 1
            self.next_at = first + (-(first + 1) % self._steps)

    def save(self, step: int) -> None:
        """Copies the state at the end of `step` if it is due, and has it written. On the training thread."""
        self.plan_next()
        due = bool(self._steps) and (step + 1) % (self._steps or 1) == 0
        now = time.monotonic()
        if self._seconds and now - self._saved_at >= self._seconds:
            due = True
        if not due:
            return
        self._saved_at = now
        run, place = self._run, self._run.place
        if run.publisher.busy():
            self._tell("failed", step, "the snapshot before is still being written", cause="periodic")
            warn_once("periodic", "a periodic snapshot was left out: the one before is still being written")
            return
        try:
            label = run.keeper.take("periodic", seconds=0)
        except SnapshotError as error:
            self._tell("failed", step, str(error), cause="periodic")
            warn_once("periodic", f"a periodic snapshot was left out: {error}")
            return
        assert place.root is not None
        named = [0] if self._alone else range(place.world)
        order = Order(
            root=place.root, job=place.job, fence=place.fence, world=place.world, shards=run.shards_to_cover,
            named=frozenset(named), step=step,
        )  # fmt: skip
        self._tell("begin", step, cause="periodic", fence=place.fence)
        run.publisher.start(
            Job(
                label=label, order=order, slot=place.slot, cause="periodic", deadline=time.monotonic() + _DEADLINE,
                patience=_DEADLINE, keep=run.plan.keep,
            )
        )  # fmt: skip
