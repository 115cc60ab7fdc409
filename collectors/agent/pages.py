"""From progress pages to `step` and `phase` signals: pure, told only of changes.

Fault classes it can witness: all of `job.*`, and the life of a node (a step finished after a silence). Cost: about 10
microseconds a page and look. Rights: none, the pages are the agent's own.
"""

import math
from typing import Any

from outrider.sdk.cells import SideCell, TrainerCell
from outrider.signals import Signal

_FIGURES = ("loss", "grad_norm", "lr", "tokens", "data_s", "compute_s", "wait_s")
#: Progress within one phase is told this often: it only has to show that something moves.
PROGRESS_SECONDS = 1.0
#: Looks come on a grid: a step that is seen by this share of the pace too early is told then, not one look later. The next one is
#: not earlier for it.
EARLY_SHARE = 0.1


class PageTeller:
    """What has been told of one rank's page, and what is new.

    Args:
        subject: node, job, rank of the signals.
        data: what every signal of this rank carries (attempt, slot).
        step_seconds: at most one `step` signal in this time.
    """

    def __init__(self, subject: dict[str, Any], data: dict[str, Any], step_seconds: float) -> None:
        self._subject, self._data, self._step_seconds = subject, data, step_seconds
        self._step = -1
        self._step_due = self._phase_told = -math.inf
        self._place: tuple[str, str] = ("", "")
        self._progress = -1
        #: Something is held back by the pace: look again even if the page does not change.
        self.waiting = False

    def tell(self, trainer: TrainerCell | None, side: SideCell | None, now: float) -> list[Signal]:
        """The signals for what changed since the last call. Args: the page's cells, monotonic seconds."""
        if trainer is None:
            return []
        signals = []
        self.waiting = trainer.step > self._step
        if self.waiting and now >= self._step_due - EARLY_SHARE * self._step_seconds:
            self.waiting = False
            self._step, self._step_due = trainer.step, max(self._step_due, now) + self._step_seconds
            signals.append(self._signal("step", trainer.step, _step_data(trainer, now), now))
        place = (trainer.phase, side.situation if side else "running")
        self.waiting = self.waiting or (trainer.progress != self._progress and trainer.phase != "train")
        moved = trainer.progress != self._progress and now - self._phase_told >= PROGRESS_SECONDS and not signals
        started = trainer.phase_ns > 0 or trainer.progress > 0 or place[1] != "running"
        if started and (place != self._place or (moved and trainer.phase != "train")):
            self._place, self._phase_told = place, now
            signals.append(self._signal("phase", trainer.phase, _phase_data(trainer, side, now), now))
        if signals:
            self._progress = trainer.progress
        return signals

    def _signal(self, kind: str, value: int | str, data: dict[str, Any], now: float) -> Signal:
        return Signal(t=now, kind=kind, value=value, source="page", data={**self._data, **data}, **self._subject)


def _step_data(trainer: TrainerCell, now: float) -> dict[str, Any]:
    data: dict[str, Any] = {
        "step_s": round((trainer.end_ns - trainer.begin_ns) / 1e9, 6),
        "age_s": round(max(0.0, now - trainer.end_ns / 1e9), 6),
        "progress": trainer.progress,
    }
    for name in _FIGURES:
        value = getattr(trainer, name)
        if (name == "loss" and math.isinf(value)) or not math.isnan(value):
            data[name] = value
    return data


def _phase_data(trainer: TrainerCell, side: SideCell | None, now: float) -> dict[str, Any]:
    data: dict[str, Any] = {"progress": trainer.progress}
    if trainer.phase_ns:
        data["age_s"] = round(max(0.0, now - trainer.phase_ns / 1e9), 6)
    if trainer.open >= 0:
        data["open_step"] = trainer.open
        data["open_s"] = round(max(0.0, now - trainer.open_begin_ns / 1e9), 6)
    if side is not None:
        data["situation"] = side.situation
        data["copies"] = [step for step in side.labels if step >= 0]
    return data
