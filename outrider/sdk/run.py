"""The two lines in a training script: `run = outrider.attach(..)` and `with run.step():`.

What runs on the training thread is here, and it is little: a few words into shared memory, the seeds of the generators, the
data's position. All else is the side thread's. Whatever goes wrong in monitoring is logged once and never stops the training.
"""

import collections
import contextlib
import math
import mmap
import os
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

from outrider.sdk import cells, page, resume
from outrider.sdk.device import device_of
from outrider.sdk.faults import StepFault, describe
from outrider.sdk.figures import plain
from outrider.sdk.keeper import Boundary, Keeper
from outrider.sdk.log import warn_once
from outrider.sdk.periodic import Periodic
from outrider.sdk.publisher import Publisher
from outrider.sdk.randomness import Randomness
from outrider.sdk.settings import Place, Plan
from outrider.sdk.side import SideThread
from outrider.sdk.sigterm import Sigterm
from outrider.sdk.step import Step
from outrider.sdk.subject import Subject

#: Durations of the last steps, from which the median comes.
_STEPS_REMEMBERED: Final = 64
_TRAIN: Final = cells.PHASE_CODES.index("train")
_NAN: Final = math.nan
_NOTHING: Final = (_NAN,) * 7


class Run:
    """One rank's run, made by `attach`.

    Attributes:
        finished: the last finished step, also if an earlier attempt finished it; -1: none.
        place, plan: where this rank stands, and what the job wants.
    """

    def __init__(self, subject: Subject, place: Place, plan: Plan, randomness: Randomness) -> None:
        self.place, self.plan = place, plan
        self.memory: mmap.mmap = page.private_page()
        self.finished = -1
        self.fault: StepFault | None = None
        self.peers: dict[str, tuple[int, str | None]] = {}
        self.released = threading.Event()
        self._subject, self._randomness = subject, randomness
        self._writer = page.Writer(self.memory)
        self._device = device_of(p for model in subject.models.values() for p in model.parameters())
        self._boundary = Boundary()
        self._figures: tuple[float, ...] = _NOTHING
        self._durations: collections.deque[int] = collections.deque(maxlen=_STEPS_REMEMBERED)
        self._step, self._begun, self._rested = Step(self), 0, 0
        self._held: BaseException | None = None
        self._closed, self._pid = False, os.getpid()  # a forked child inherits the run and must not speak for it
        self.keeper = Keeper(
            subject=subject, device=self._device, mark=lambda: self._writer.motion, boundary=lambda: self._boundary,
            facts=self._facts, attempt=place.attempt,
        )  # fmt: skip
        self.publisher = Publisher(self.keeper)
        self._sigterm = Sigterm()
        self._side = SideThread(self, self._sigterm.install())
        self.periodic = Periodic(self, self._side.snapshot_event)
        self._hooks = [optimizer.register_step_pre_hook(self._moving) for optimizer in subject.optimizers.values()]
        self._writer.tell_phase("init", time.monotonic_ns())
        if randomness.reseeds:
            randomness.seed_all(0)
        self._side.start()

    # What a training script calls.

    @property
    def next_step(self) -> int:
        """The number of the next step, or of the one in flight."""
        return self.finished + 1

    def step(self) -> Step:
        """A context around one optimizer step: forward, backward, optimizer, scheduler, scaler."""
        return self._step

    def report(
        self,
        *,
        loss: float = _NAN,
        grad_norm: float = _NAN,
        lr: float = _NAN,
        tokens: float = _NAN,
        data_s: float = _NAN,
        compute_s: float = _NAN,
        wait_s: float = _NAN,
    ) -> None:
        """Figures of the step in flight: plain numbers, or tensors of one number on the CPU. A tensor on a device is passed over:
        to read it would make the training wait for it here.

        `lr` and `data_s` (seconds between two steps) are measured if they are not given. Seconds and tokens are this rank's own.
        What a second call in the same step does not name stays as the first one said.
        """
        told: tuple[float, ...] = (
            plain("loss", loss), plain("grad_norm", grad_norm), plain("lr", lr), plain("tokens", tokens),
            plain("data_s", data_s), plain("compute_s", compute_s), plain("wait_s", wait_s),
        )  # fmt: skip
        if self._figures is not _NOTHING:
            told = tuple(old if math.isnan(new) else new for old, new in zip(self._figures, told, strict=True))
        self._figures = told

    def phase(self, name: cells.Phase) -> None:
        """Another phase begins: `init compile train data checkpoint eval idle end`; again: something moves in it.

        A step begins `train` by itself. Stalls are looked for in `train` only.
        """
        if name not in cells.PHASE_CODES:
            raise ValueError(f"unknown phase {name!r}: one of {', '.join(cells.PHASE_CODES)}")
        now = time.monotonic_ns()
        if name == "train" and self._writer.phase != _TRAIN:
            self._enter_train(now)
        else:
            self._writer.tell_phase(name, now)

    def restore(self) -> int | None:
        """Loads the newest snapshot that may be loaded, before the first step.

        Returns:
            Its step, after which the training goes on; None if there is none to load.

        Raises:
            RestoreError: there is one, and it does not fit or all are damaged.
            StaleFenceError: this attempt is over; a newer one runs.
        """
        return resume.restore(self)

    def close(self) -> None:
        """The run is over: waits for a snapshot that is being written, and says farewell."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._writer.tell_phase("end", time.monotonic_ns())
        for hook in self._hooks:
            hook.remove()
        self._side.stop("exception" if self.fault else "end", self.plan.limits.publish)
        self._sigterm.uninstall()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._failed(error)
        self.close()

    # What the side thread asks.

    @property
    def training(self) -> bool:
        """Whether the phase is `train`."""
        return self._writer.phase == _TRAIN

    @property
    def moved_ns(self) -> int:
        """When the last step ended or the phase began, whichever was later."""
        return max(self._writer.end_ns, self._writer.phase_ns)

    @property
    def shards_to_cover(self) -> int:
        """How many different shards make a whole: without reseeding every slot's own random state is needed."""
        return self.plan.shards if self._randomness.reseeds else self.place.world

    @property
    def dies_of_sigterm(self) -> bool:
        """Whether SIGTERM ends this process, or the script has a handler of its own."""
        return self._sigterm.deadly

    def durations(self) -> Sequence[int]:
        """Nanoseconds of the last steps of this attempt."""
        return list(self._durations)

    def move_to(self, memory: mmap.mmap) -> None:
        """Goes over to the agent's page."""
        self._writer.move_to(memory)
        self.memory = memory

    # The training thread's part.

    def _begin(self) -> None:
        try:
            writer = self._writer
            step = self.finished + 1
            now = time.monotonic_ns()
            if writer.phase != _TRAIN:
                self._enter_train(now)
            if self._randomness.reseeds:
                self._randomness.seed_step(step)
            self._begun = now
            writer.begin(step, now)
        except Exception as error:  # the SDK's edge
            warn_once("begin", f"monitoring of steps stumbled, training goes on: {error!r}")

    def _end(self) -> None:
        step = self.finished + 1
        try:
            writer = self._writer
            writer.moving()
            data, epoch = self._subject.remember()
            random = None if self._randomness.reseeds else self._randomness.save()
            self._boundary = Boundary(step, data, epoch, random)
            self._device.step_ended()
            self.finished = step
            now = time.monotonic_ns()
            writer.end(step, self._begun, now, self._told_figures())
            self._durations.append(now - (self._rested or self._begun))
            self._rested = now
            if random is None:
                self._randomness.seed_all(step + 1)
            if step >= self.periodic.next_at:
                self.periodic.save(step)
            if self.keeper.wanted:
                self.keeper.give()
        except Exception as error:  # the SDK's edge
            self.finished = step
            warn_once("end", f"monitoring of steps stumbled, training goes on: {error!r}")

    def _told_figures(self) -> tuple[float, ...]:
        loss, grad_norm, lr, tokens, data_s, compute_s, wait_s = self._figures
        self._figures = _NOTHING
        if math.isnan(lr):
            lr = self._subject.learning_rate()
        if self._rested and math.isnan(data_s):
            data_s = (self._begun - self._rested) * 1e-9
        return (loss, grad_norm, lr, tokens, data_s, compute_s, wait_s)

    def _enter_train(self, now: int) -> None:
        """From another phase into `train`: what drew random numbers there must not be seen in the next step."""
        self._writer.tell_phase("train", now)
        self._rested = 0
        if self._randomness.reseeds:
            self._randomness.seed_all(self.finished + 1)

    def _moving(self, *_: Any) -> None:
        self._writer.moving()

    def _failed(self, error: BaseException) -> None:
        """An exception leaves the step: the side thread saves; this thread waits until it may go on dying."""
        if not isinstance(error, Exception) or self._held is not None or os.getpid() != self._pid:
            return
        self._held = error
        with contextlib.suppress(Exception):
            self.fault = describe(error)
            self._side.wake.set()
            limit = time.monotonic() + self.plan.limits.hold + 3 * self.plan.limits.publish
            while self._side.is_alive() and time.monotonic() < limit and not self.released.wait(0.1):
                continue

    def _resumed(self, step: int, boundary: Boundary) -> None:
        """A snapshot was loaded: the next step is the one after it."""
        self._boundary, self.finished = boundary, step
        if self._randomness.reseeds:
            self._randomness.seed_all(step + 1)
        self.periodic.plan_next()

    def _facts(self) -> dict[str, Any]:
        import torch

        return {
            "attempt": self.place.attempt,
            "world_size": self.place.world,
            "rank": self.place.rank,
            "threads": torch.get_num_threads(),
            "layout": {"shards": self.plan.shards},
            "rng": self._randomness.mode,
            "rng_kinds": self._randomness.kinds(),
        }
