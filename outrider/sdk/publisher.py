"""Writes copies to disk in threads of their own, so that storage that hangs stops neither the training nor the side thread."""

import collections
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from outrider.sdk.area import CopyArea, Label
from outrider.sdk.keeper import Keeper
from outrider.snapshots.digest import digest
from outrider.snapshots.entry import Entry
from outrider.snapshots.errors import SnapshotError, StaleFenceError
from outrider.snapshots.layout import FORMAT_VERSION, shard_name
from outrider.snapshots.publish import Order, prune, try_complete, write_shard
from outrider.snapshots.shard import checksums, read_facts

#: Threads at a time: one periodic snapshot that hangs in storage, and an emergency beside it.
_THREADS_MAX = 2
_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One copy to publish. `number`: of the agent's command, 0 if it was nobody's order; times are monotonic seconds."""

    label: Label
    order: Order
    slot: int
    cause: str
    incident: str = ""
    deadline: float
    patience: float
    keep: int
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a job: `manifest` of the committed set, or `error`. `seconds` it took."""

    job: Job
    seconds: float
    manifest: Path | None = None
    error: str = ""
    fenced: bool = False


class Publisher:
    """Starts jobs and collects outcomes. Called by the side thread and, to start a periodic snapshot, by the training thread."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._threads: list[threading.Thread] = []
        self._outcomes: collections.deque[Outcome] = collections.deque(maxlen=64)

    def busy(self) -> bool:
        """Whether a job is being written now."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        return bool(self._threads)

    def start(self, job: Job) -> bool:
        """Begins to write a copy. False: too many are hanging already."""
        area = self._keeper.area
        if area is None or (self.busy() and len(self._threads) >= _THREADS_MAX):
            return False
        self._keeper.pin(job.label.half)
        thread = threading.Thread(target=self._run, args=(area, job), name="outrider-publish", daemon=True)
        self._threads.append(thread)
        thread.start()
        return True

    def outcomes(self) -> list[Outcome]:
        """The outcomes since the last call."""
        found = []
        while self._outcomes:
            found.append(self._outcomes.popleft())
        return found

    def _run(self, area: CopyArea, job: Job) -> None:
        began = time.monotonic()
        manifest, error, fenced = None, "", False
        try:
            manifest = _publish(area, job, began)
        except StaleFenceError as stale:
            error, fenced = str(stale), True
        except SnapshotError as refused:
            error = str(refused)
        except OSError as trouble:
            error = f"{trouble.filename or job.order.folder}: {trouble.strerror}"
        except Exception as bug:  # the SDK's edge: training goes on whatever happens here
            error = repr(bug)
        finally:
            self._keeper.unpin(job.label.half)
        seconds = time.monotonic() - began
        self._outcomes.append(Outcome(job=job, seconds=seconds, manifest=manifest, error=error, fenced=fenced))


def _publish(area: CopyArea, job: Job, began: float) -> Path:
    with area.view(job.label) as data:
        write_shard(job.order, _entry(data, job), data)
    patience_over = began + min(job.patience, max(0.0, job.deadline - began) / 2)
    while True:
        now = time.monotonic()
        manifest = try_complete(job.order, patience_over=now >= patience_over)
        if manifest is not None:
            _prune(job)
            return manifest
        if now >= job.deadline:
            raise SnapshotError(f"step {job.label.step}: the set was not complete in time")
        time.sleep(_LOOK_SECONDS)


def _prune(job: Job) -> None:
    try:
        prune(job.order, job.label.step, job.keep)
    except (OSError, SnapshotError):
        return  # the snapshot stands; the old ones go another time


def _entry(data: memoryview, job: Job) -> Entry:
    facts = read_facts(data)
    facts |= {
        "format": FORMAT_VERSION,
        "job": job.order.job,
        "fence": job.order.fence,
        "cause": job.cause,
        "incident": job.incident,
        "slot": job.slot,
        "file": shard_name(job.slot, job.order.fence),
        "bytes": len(data),
        "digest": digest(data),
        "checksums": checksums(data, ("model/", "optimizer/")),
        "wall_time": time.time(),
    }
    return cast(Entry, facts)
