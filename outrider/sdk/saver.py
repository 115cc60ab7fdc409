"""Copies and snapshots as the side thread makes them: at the agent's word, or on the rank's own account.

Tells the agent what became of each.
"""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from outrider.sdk.area import Label
from outrider.sdk.cells import CommandCell
from outrider.sdk.keeper import MovingError
from outrider.sdk.log import tell, warn_once
from outrider.sdk.publisher import Job, Outcome
from outrider.snapshots.errors import SnapshotError, StaleFenceError
from outrider.snapshots.fence import check_fence
from outrider.snapshots.publish import Order

if TYPE_CHECKING:
    from outrider.sdk.run import Run

#: A copy is tried for so long while the optimizer moves. Seconds.
_COPY_SECONDS: Final = 1.0
#: Number of a job that nobody ordered.
ALONE: Final = -1


class TellSnapshot(Protocol):
    """Tells the agent of a snapshot's state."""

    def __call__(self, state: str, step: int | None, text: str | None = None, **data: Any) -> None: ...


class Saver:
    """One rank's snapshots.

    `written`: newest step known to be committed; `ordered_step`: newest copy published by an order; `superseded`: why this rank
    may write nothing any more (empty: it may).
    """

    def __init__(self, run: "Run", tell_snapshot: TellSnapshot) -> None:
        self._run, self._tell = run, tell_snapshot
        self._place, self._limits = run.place, run.plan.limits
        self.written = self.ordered_step = -1
        self.superseded = ""
        self._results: dict[int, bool] = {}
        self._alone_until: float | None = None

    def copy(self, cause: str, incident: str = "") -> Label | None:
        """A whole copy of the last finished step; None: there is none, and the reason was told."""
        began, known = time.monotonic(), self._run.keeper.newest()
        try:
            label = self._take(cause)
        except SnapshotError as error:
            step = self._run.finished if self._run.finished >= 0 else None
            self._tell("failed", step, str(error), cause=cause, incident=incident or None)
            warn_once(f"copy {cause}", f"no copy of the state: {error}")
            return None
        if label != known:
            seconds = round(time.monotonic() - began, 4)
            self._tell("staged", label.step, cause=cause, incident=incident or None, seconds=seconds)
        return label

    def _take(self, cause: str) -> Label:
        keeper = self._run.keeper
        try:
            return keeper.take(cause, seconds=_COPY_SECONDS)
        except MovingError:
            label = keeper.ask(cause, seconds=_COPY_SECONDS)
            if label is None:
                raise
            return label

    def publish_ordered(self, command: CommandCell, now: float) -> bool:
        """Begins what the agent ordered; `result` tells what became of it."""
        deadline = command.deadline_ns / 1e9 if command.deadline_ns else now + self._limits.publish
        label = None
        if command.step in (None, self._run.finished):
            label = self.copy("publish", command.incident)
        label = label or self._run.keeper.newest(command.step)
        fence = command.fence or self._place.fence
        named = command.ranks or range(self._place.world)
        if label is None:
            self._tell("failed", command.step, "no copy of that step", incident=command.incident, fence=fence)
            return False
        step = None if fence > self._place.fence else label.step
        return self._start(label, fence, named, step, deadline, command.number, command.incident)

    def publish_alone(self, now: float) -> bool:
        """Nobody gave an order in time: the state is saved under the attempt's own fence, or refused if it is over."""
        label = self.copy("alone") or self._run.keeper.newest()
        if label is None:
            return False
        named = [self._place.slot] if self._run.shards_to_cover == 1 else range(self._place.world)
        return self._start(label, self._place.fence, named, label.step, now + self._limits.publish, ALONE, "")

    def alone_is_over(self, now: float) -> bool:
        """Saves on the rank's own account, once; True when that is done, has failed or cannot be."""
        if self._alone_until is None:
            self._alone_until = now + 2 * self._limits.publish
            return self.written >= self._run.finished or not self.publish_alone(now)
        return now >= self._alone_until or not self._run.publisher.busy()

    def ask_whether_superseded(self) -> None:
        """After a freeze of its own a rank may belong to the past: it tries to save, and learns that it may not."""
        if self._place.root is None:
            return
        try:
            check_fence(self._place.root, self._place.job, self._place.fence)
        except StaleFenceError as stale:
            if not self.publish_alone(time.monotonic()):
                self.superseded = str(stale)
        except SnapshotError as error:
            warn_once("fence", str(error))

    def collect(self) -> None:
        """Takes in what became of the publications."""
        for outcome in self._run.publisher.outcomes():
            self._take_in(outcome)

    def result(self, number: int) -> bool | None:
        """Whether the ordered publication succeeded; None: not over."""
        return self._results.pop(number, None)

    def _start(
        self, label: Label, fence: int, named: Iterable[int], step: int | None, deadline: float, number: int, incident: str
    ) -> bool:
        about: dict[str, Any] = {"cause": "emergency", "incident": incident or None, "fence": fence}
        self._tell("begin", label.step, **about)
        why = "OUTRIDER_SNAPSHOTS is not set"
        if (root := self._place.root) is not None:
            order = Order(
                root=root, job=self._place.job, fence=fence, world=self._place.world, shards=self._run.shards_to_cover,
                named=frozenset(named), step=step,
            )  # fmt: skip
            job = Job(
                label=label, order=order, slot=self._place.slot, cause="emergency", incident=incident, deadline=deadline,
                patience=self._limits.patience, keep=self._run.plan.keep, number=number,
            )  # fmt: skip
            if self._run.publisher.start(job):
                return True
            why = "earlier snapshots are still being written"
        self._tell("failed", label.step, why, **about)
        warn_once("emergency", f"snapshot of step {label.step} failed: {why}")
        return False

    def _take_in(self, outcome: Outcome) -> None:
        job = outcome.job
        about: dict[str, Any] = {"cause": job.cause, "incident": job.incident or None, "fence": job.order.fence}
        about["seconds"] = round(outcome.seconds, 4)
        if job.number > 0:
            self._results = {job.number: outcome.manifest is not None}
        if outcome.manifest is not None:
            step = int(outcome.manifest.parent.name.removeprefix("step-"))
            self.written = max(self.written, step)
            if job.number > 0:
                self.ordered_step = job.label.step
            self._tell("committed", step, manifest=str(outcome.manifest), **about)
            tell(f"snapshot of step {step} committed ({job.cause})")
            return
        self._tell("failed", job.label.step, outcome.error, reason="fenced" if outcome.fenced else None, **about)
        warn_once(f"publish {job.cause}", f"snapshot of step {job.label.step} failed: {outcome.error}")
        if outcome.fenced and job.order.fence <= self._place.fence:
            self.superseded = outcome.error
