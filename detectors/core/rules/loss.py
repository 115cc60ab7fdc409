"""What the numbers of training say: not a number, missing, jumping, standing still. A loss alone never moves a node."""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from detectors.core.docket import Docket
from detectors.core.types import Evidence
from detectors.core.window import Median
from detectors.core.world import JobState, World
from outrider.signals import Signal

#: Steps with exactly the same loss that are no chance: in 42 public runs the longest are two.
STAGNANT_STEPS = 8
#: Steps without a loss, in a job that told it, before its absence is a value.
MISSING_STEPS = 3
#: A gradient norm that is not finite for this many steps; single ones are how loss scaling works.
NORM_STEPS = 3
#: History before jumps are judged, and how far above it a loss must be: deviations (median absolute, of the steps between
#: neighbours) and share of the loss itself. The largest jump in the 42 runs is 5.3 deviations.
HISTORY, DEVIATIONS, SHARE = 20, 10.0, 0.15
#: A loss this many steps above its history does not come back by itself.
DIVERGED_STEPS = 25
#: Flat against its own history: so many steps whose spread is this share of what it was.
FLAT_STEPS, FLAT_SHARE = 50, 0.02
#: Fewer ranks that agree are no majority against one.
REPLICAS_MIN = 4

#: What one rank tells of a step: loss and gradient norm.
_Told = tuple[float, float | None]


@dataclass(slots=True)
class _Series:
    attempt: int
    step: int = -1
    told_loss: int = 0
    missing: int = 0
    equal: int = 0
    last: float | None = None
    bad_norm: int = 0
    above: int = 0
    losses: Median = field(default_factory=lambda: Median(64))
    moves: Median = field(default_factory=lambda: Median(64))
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=FLAT_STEPS))
    first_moves: float | None = None
    nan: tuple[int, int | None] | None = None
    #: What each rank told of the present step; for how many steps in a row all ranks told the same.
    ranks: dict[int, _Told] = field(default_factory=dict)
    agreed: dict[str, int] = field(default_factory=dict)


class LossRule:
    """Judges the loss of jobs for one witness."""

    def __init__(self, world: World, docket: Docket) -> None:
        self.world, self.docket = world, docket
        self._series: dict[str, _Series] = {}

    def knows(self, job: str) -> bool:
        """Whether the job has told numbers before, so that their absence says something."""
        return job in self._series

    def step(self, state: JobState, signal: Signal, now: float) -> None:
        """One finished step, told by one rank or for the whole job."""
        data, step = signal.data, signal.value
        series = self._series.get(state.name)
        if series is None or series.attempt != state.attempt:
            series = self._series[state.name] = _Series(state.attempt)
        if not isinstance(step, int | float):
            return
        has_loss = "loss" in data
        loss = _number(data["loss"]) if has_loss else None
        norm = _number(data["grad_norm"]) if "grad_norm" in data else None
        if (has_loss and (loss is None or not math.isfinite(loss))) or (norm is not None and not math.isfinite(norm)):
            self._not_finite(state, series, signal, loss, has_loss, now)
        if loss is not None and math.isfinite(loss) and signal.rank is not None:
            finite = norm if norm is not None and math.isfinite(norm) else None
            self._replica(state, series, int(step), signal.rank, (loss, finite), now)
        if step <= series.step:
            return
        series.step = int(step)
        if has_loss:
            series.told_loss += 1
            series.missing = 0
            if loss is not None and math.isfinite(loss):
                self._value(state, series, loss, now)
        elif series.told_loss >= HISTORY // 4 and (signal.rank is None or not series.ranks):
            series.missing += 1
            if series.missing == MISSING_STEPS:
                text = f"no loss is told any more since step {int(step) - MISSING_STEPS + 1}; steps go on"
                self._accuse(state, "job.loss_nan", now, text, "loss_missing", None)

    # --- not a number ---

    def _not_finite(self, state: JobState, series: _Series, signal: Signal, loss: float | None, has_loss: bool, now: float) -> None:
        step = int(signal.value or 0)
        bad_loss = has_loss and (loss is None or not math.isfinite(loss))
        if not bad_loss:
            series.bad_norm = series.bad_norm + 1 if step > series.step else series.bad_norm
            if series.bad_norm < NORM_STEPS:
                return
        if series.nan is None:
            series.nan = (step, signal.rank)
        elif series.nan[0] == step and series.nan[1] != signal.rank:
            series.nan = (step, None)  # several ranks in one step: the sum was poisoned, nobody can be named
        what = "loss" if bad_loss else f"gradient norm for {NORM_STEPS} steps"
        first = series.nan[1]
        text = f"the {what} is not finite, first at step {series.nan[0]}" + (f" on rank {first}" if first is not None else "")
        self._accuse(state, "job.loss_nan", now, text, "not_finite", first)

    # --- the series ---

    def _value(self, state: JobState, series: _Series, loss: float, now: float) -> None:
        series.bad_norm = 0
        if series.last is not None:
            series.equal = series.equal + 1 if loss == series.last else 0
            self._stagnant(state, series, now)
            self._jump(state, series, loss, now)
            if series.above == 0:
                series.moves.add(abs(loss - series.last))
        if series.above == 0 or series.above > DIVERGED_STEPS * 4:
            series.losses.add(loss)
        series.last = loss
        series.recent.append(loss)
        self._flat(state, series, now)

    def _stagnant(self, state: JobState, series: _Series, now: float) -> None:
        moved = len(series.moves) >= HISTORY // 2 and bool(series.moves.value)
        if series.equal + 1 == STAGNANT_STEPS and moved:
            text = f"the loss has been exactly {series.last} for {STAGNANT_STEPS} steps"
            self._accuse(state, "job.loss_stagnant", now, text, "exactly_equal", None)
        elif series.equal + 1 == FLAT_STEPS and not moved:  # a loss that is told in few digits may never seem to move
            text = f"the loss has been {series.last} for {FLAT_STEPS} steps, and has hardly moved before"
            self._accuse(state, "job.loss_stagnant", now, text, "never_moved", None, response="watch")
        elif series.equal == 0:
            self._clear(state, "job.loss_stagnant", now, "the loss moves again")

    def _flat(self, state: JobState, series: _Series, now: float) -> None:
        moves = series.moves.value
        if moves is None or len(series.moves) < HISTORY:
            return
        if series.first_moves is None and len(series.moves) >= HISTORY * 2:
            series.first_moves = moves
        if series.first_moves and len(series.recent) == FLAT_STEPS and 0 < moves < FLAT_SHARE * series.first_moves:
            text = f"the loss moves {moves / series.first_moves:.1%} of what it moved in the beginning"
            self._accuse(state, "job.loss_stagnant", now, text, "flat", None, response="watch")

    def _jump(self, state: JobState, series: _Series, loss: float, now: float) -> None:
        middle, moves = series.losses.value, series.moves.value
        if middle is None or moves is None or len(series.losses) < HISTORY:
            return
        if loss - middle > max(DEVIATIONS * moves, SHARE * abs(middle)):
            series.above += 1
            text = f"the loss is {loss:.4g}, its usual value {middle:.4g}"
            diverged = series.above >= DIVERGED_STEPS
            self._accuse(
                state, "job.loss_spike", now, text + (f", for {series.above} steps" if diverged else ""),
                "diverged" if diverged else "spike", None, response="page" if diverged else "watch",
            )  # fmt: skip
        elif series.above:
            series.above = 0
            self._clear(state, "job.loss_spike", now, "the loss is back")

    # --- replicas ---

    def _replica(self, state: JobState, series: _Series, step: int, rank: int, told: _Told, now: float) -> None:
        """Ranks that always tell one loss, or one gradient norm, are replicas of one number: one that differs computes wrongly.

        Agents tell the step in which their look finds a rank: a rank told of a step before the others' is no other replica.
        """
        if step < series.step:
            return
        if step > series.step:
            for place, what in enumerate(("loss", "gradient norm")):
                values = {rank: value for rank, one in series.ranks.items() if (value := one[place]) is not None}
                if len(values) >= REPLICAS_MIN:
                    self._compare(state, series, what, values, now)
            series.ranks = {}
        series.ranks[rank] = told

    def _compare(self, state: JobState, series: _Series, what: str, values: dict[int, float], now: float) -> None:
        counts: dict[float, list[int]] = {}
        for rank, value in values.items():
            counts.setdefault(value, []).append(rank)
        agreed = series.agreed.get(what, 0)
        series.agreed[what] = agreed + 1 if len(counts) == 1 else 0
        odd = min(counts.values(), key=len)
        if agreed >= STAGNANT_STEPS and len(odd) == 1 and len(counts) == 2 and odd[0] < state.size:
            text = f"rank {odd[0]} has another {what} than all its replicas, which always agreed"
            self._accuse(state, "gpu.sdc", now, text, "replica_differs", odd[0], response="page")

    # --- helpers ---

    def _accuse(
        self, state: JobState, fault: str, now: float, text: str, code: str, rank: int | None, response: str | None = None
    ) -> None:
        subject: dict[str, Any] = {"job": state.name}
        if rank is not None and 0 <= rank < state.size:
            node, gpu = state.slots[rank]
            subject |= {"rank": rank, "node": node, "gpu": gpu}
        piece = Evidence(t=now, kind="step", subject=subject, effect="confirm", text=text, layer="application")
        known = self.docket.find(fault, {"job": state.name}, str(state.attempt))
        self.docket.accuse(
            fault, subject, key_subject={"job": state.name}, now=now, incarnation=str(state.attempt), reason=text, reason_code=code,
            evidence=() if known is not None and known.reason_code == code else (piece,), response=response, decisive=True,
            extra={"attempt": state.attempt, "sticky": True},
        )  # fmt: skip

    def _clear(self, state: JobState, fault: str, now: float, reason: str) -> None:
        self.docket.clear_subject(fault, {"job": state.name}, now, reason, str(state.attempt))


def _number(value: Any) -> float | None:
    """A number, also when it was written as a text ("NaN"); None if it is none."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
