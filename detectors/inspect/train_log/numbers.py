"""Watches the numbers of step lines as they pass: NaN, fields that vanish, jumps, a loss that stands still, slower steps.

One `Series` for each rank that prints (most jobs print from one). Nothing is kept but small windows, so a log may have any length.
Thresholds are about form, not about a model: they were chosen so that the 42 public runs of MLPerf's Llama-3.1-405B have no
finding.
"""

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from detectors.inspect.findings import EvidenceLine
from outrider.parsers.train_log_rule import Record

#: Finite losses remembered to know what is normal.
WINDOW: Final = 64
#: Losses needed before a jump can be told from a beginning.
HISTORY_MIN: Final = 3
#: A jump: above this multiple of the median, and above the median by this many typical changes.
SPIKE_RATIO: Final = 1.3
SPIKE_CHANGES: Final = 8.0
#: So many lines above the jump's limit, to the end of the log, are a loss that does not come back.
DIVERGED_LINES: Final = 3
#: Equal losses in a row that are no chance, by significant digits printed (1e-5 relative change a step is already tiny).
EQUAL_LINES: Final = {1: 200, 2: 100, 3: 40, 4: 10, 5: 5}
EQUAL_LINES_FINE: Final = 4
#: Skipped steps in a row that dynamic loss scaling does not explain: from 2^32 down to 1 is 32 halvings, a start uses a dozen.
SKIPS_MAX: Final = 24
#: The median of the window is taken anew after so many lines: it moves slowly, and costs more than the rest of a line.
CALM_LINES: Final = 8
#: Below this multiple of that median (it may have sunk since) no loss is looked at more closely.
CALM_RATIO: Final = 1.15
#: Attempts whose first bad step is remembered, and printers that are told apart.
ATTEMPTS_MAX: Final = 1000
SERIES_MAX: Final = 20_000


@dataclass(slots=True)
class Mark:
    """A line with a step number."""

    line: int
    file: str | None
    step: int | None
    text: str
    wall: float | None = None

    def evidence(self) -> EvidenceLine:
        return EvidenceLine(line=self.line, text=self.text.strip(), file=self.file)


@dataclass(slots=True)
class Series:
    """What one printer's step lines say. Counters end with the last line; `first_*` are the first lines of their kind."""

    lines: int = 0
    last: Mark | None = None
    losses: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    texts: deque[Mark] = field(default_factory=lambda: deque(maxlen=3))
    calm: float = -math.inf  # no loss below this can be a jump
    since_calm: int = 0
    with_loss: int = 0
    bad: int = 0  # lines with NaN, infinity or a vanished loss
    bad_run: int = 0
    bad_run_longest: int = 0
    missing_first: Mark | None = None
    began: list[int] = field(default_factory=list)  # the first bad step of each attempt
    bad_here: bool = False  # this attempt had a bad step already
    first_bad: Mark | None = None
    bad_reasons: Counter[str] = field(default_factory=Counter)
    skip_run: int = 0
    skip_run_longest: int = 0
    scale: float | None = None
    equal_run: int = 1
    equal_run_longest: int = 1
    equal_first: Mark | None = None
    equal_value: float | None = None
    equal_longest_first: Mark | None = None
    equal_longest_value: float = 0.0
    high_run: int = 0
    spikes: int = 0
    first_high: Mark | None = None
    high_value: float = 0.0
    normal_value: float = 0.0
    after_resume: str | None = None
    high_after_resume: str | None = None
    zero_lr_run: int = 0
    total: int | None = None
    zero_grad_run: int = 0
    times: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    times_before: list[float] = field(default_factory=list)
    walls: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))


class Numbers:
    """All series of a log, and the numeric notices beside them."""

    def __init__(self) -> None:
        self.series: dict[int | None, Series] = {}
        self.notices: Counter[str] = Counter()
        self.first_notice: dict[str, int] = {}
        #: The first evaluation whose loss is not finite.
        self.bad_eval: Mark | None = None

    def told(self, what: str, line: int) -> None:
        """A notice such as an overflow."""
        self.notices[what] += 1
        self.first_notice.setdefault(what, line)

    def resumed(self, what: str, step: Any, line: int) -> None:
        """The job loaded a snapshot, started afresh, or began another attempt."""
        for one in self.series.values():
            one.after_resume = what
            one.equal_run, one.high_run, one.bad_here = 1, 0, False

    def split_times(self) -> None:
        """Trouble began: what was measured so far is the time before it."""
        for one in self.series.values():
            if not one.times_before:
                one.times_before = list(one.times)
                one.times.clear()

    def slower(self) -> float | None:
        """How many times longer steps last since `split_times` than before; None: not known.

        Without a step before the trouble, the first one after it stands for before: most of its time had passed already.
        """
        ratios = []
        for one in self.series.values():
            after = list(one.times)
            before = one.times_before or (after[:1] if len(after) >= 3 else [])
            if not one.times_before:
                after = after[1:]
            if after and before and median(before) > 0:
                ratios.append(median(after) / median(before))
        return max(ratios, default=None)

    def step(self, record: Record, line: int, file: str | None, wall: float | None) -> None:
        """Takes one step line."""
        if record.data.get("eval"):
            if not math.isfinite(record.data.get("loss", 0.0)):
                self.bad_eval = self.bad_eval or Mark(line, file, record.data.get("step"), record.text, wall)
            return
        key = record.rank if record.rank in self.series or len(self.series) < SERIES_MAX else None
        one = self.series.setdefault(key, Series())
        data, mark = record.data, Mark(line, file, record.data.get("step"), record.text, wall)
        if (
            one.last is not None
            and mark.step is not None
            and one.last.step is not None
            and mark.step < one.last.step
            and not one.after_resume
        ):
            one.after_resume = "step went back"
            one.bad_here = False
        one.lines += 1
        one.total = data.get("total", one.total)
        if "step_s" in data:
            one.times.append(data["step_s"])
        if wall is not None:
            one.walls.append(wall)
        _finite(one, data, mark)
        one.last = mark
        one.texts.append(mark)


def _finite(one: Series, data: dict[str, Any], mark: Mark) -> None:
    """NaN, infinity, and fields that vanish; then the value itself."""
    loss, grad = data.get("loss"), data.get("grad_norm")
    skipped = bool(data.get("skipped")) or (data.get("scale", 0) and one.scale and data["scale"] < one.scale)
    one.scale = data.get("scale", one.scale)
    reasons = []
    if loss is not None and not math.isfinite(loss):
        reasons.append(f"the loss is {loss}")
    if grad is not None and not math.isfinite(grad):
        reasons.append(f"the gradient norm is {grad}")
    if loss is None and one.with_loss >= 1 and ("grad_norm" in data or "step_s" in data) and _usually_has_loss(one):
        # Once and alone it is a line that was cut off or a summary; again, or with another sign, it is a value.
        one.missing_first = one.missing_first or mark
        if reasons or one.missing_first is not mark:
            reasons.append("the loss field is missing")
            one.first_bad = one.first_bad or one.missing_first
    elif loss is not None:
        one.missing_first = None
    if data.get("nans"):
        reasons.append("NaN iterations are counted")
    if skipped:
        one.skip_run += 1
        one.skip_run_longest = max(one.skip_run_longest, one.skip_run)
        if not (loss is not None and not math.isfinite(loss)):
            reasons = []  # a skipped step prints no loss and an infinite norm: that is what dynamic loss scaling does
    else:
        one.skip_run = 0
    if reasons:
        _count_bad(one, reasons, mark)
    elif not skipped:
        one.bad_run = 0
    if loss is not None:
        one.with_loss += 1
        if math.isfinite(loss):
            _value(one, loss, data, mark)


def _count_bad(one: Series, reasons: list[str], mark: Mark) -> None:
    one.bad += 1
    if not one.bad_here and mark.step is not None and len(one.began) < ATTEMPTS_MAX:
        one.began.append(mark.step)
    one.bad_here = True
    one.bad_run += 1
    one.bad_run_longest = max(one.bad_run_longest, one.bad_run)
    one.first_bad = one.first_bad or mark
    one.bad_reasons.update(reasons)


def _usually_has_loss(one: Series) -> bool:
    """The lines before this one had a loss (all but those that were bad or skipped already)."""
    return one.with_loss + one.bad + one.skip_run_longest + (one.missing_first is not None) >= one.lines - 1


def _value(one: Series, loss: float, data: dict[str, Any], mark: Mark) -> None:
    """A finite loss: does it stand still, does it jump?"""
    if one.equal_value == loss:
        one.equal_run += 1
        if one.equal_run > one.equal_run_longest:
            one.equal_run_longest, one.equal_longest_first, one.equal_longest_value = one.equal_run, one.equal_first, loss
    else:
        one.equal_run, one.equal_value, one.equal_first = 1, loss, mark
    one.zero_grad_run = one.zero_grad_run + 1 if data.get("grad_norm") == 0 else 0
    one.zero_lr_run = one.zero_lr_run + 1 if data.get("lr") == 0 else 0
    if len(one.losses) >= HISTORY_MIN and loss > one.calm and _is_high(one.losses, loss):
        if one.high_run == 0:
            one.spikes += 1
            one.first_high = mark
            one.normal_value = median(one.losses)
            one.high_after_resume = one.after_resume
        one.high_run += 1
        one.high_value = max(one.high_value, loss)
        return  # a high value does not become what is normal
    one.high_run = 0
    one.after_resume = None
    one.losses.append(loss)
    one.since_calm += 1
    if one.since_calm >= CALM_LINES or len(one.losses) <= CALM_LINES:
        one.calm, one.since_calm = median(one.losses) * CALM_RATIO, 0


def _is_high(losses: deque[float], loss: float) -> bool:
    middle = median(losses)
    changes = [abs(b - a) for a, b in zip(losses, list(losses)[1:], strict=False)]
    typical = max(median(changes), abs(middle) * 0.002)
    return middle > 0 and loss > middle * SPIKE_RATIO and loss > middle + SPIKE_CHANGES * typical and loss - middle > 0.1


def stands_still(one: Series) -> bool:
    """Whether the longest run of equal losses is too long to be chance, by the digits that were printed."""
    if one.equal_longest_first is None:
        return False
    digits = _digits(one.equal_longest_first.text, one.equal_longest_value)
    return one.equal_run_longest >= EQUAL_LINES.get(digits, EQUAL_LINES_FINE)


def _digits(text: str, loss: float) -> int:
    """Significant digits with which the loss was printed, at least as many as its value needs."""
    shown = f"{loss:.15g}".replace(".", "").replace("-", "").lstrip("0").partition("e")[0]
    for word in text.replace("|", " ").replace(",", " ").split():
        cleaned = word.strip("'\"(){}[]:")
        cleaned = cleaned.rpartition("=")[2].rpartition(":")[2]
        try:
            if float(cleaned) == loss:
                mantissa = cleaned.lower().partition("e")[0].replace(".", "").lstrip("+-0")
                return max(len(mantissa), len(shown))
        except ValueError:
            continue
    return len(shown)
