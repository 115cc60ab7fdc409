"""The plan as a picture: survival over time, and what each interval costs."""

from pathlib import Path
from typing import Any

from outrider import reliability as law
from outrider.errors import InputError, MissingExtraError
from outrider.plan.reckon import Plan

FORMATS = (".png", ".svg", ".pdf")


def draw(plan: Plan, path: Path) -> None:
    """Writes the picture.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InputError: the ending is not one of `FORMATS`, or the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"must end in one of {', '.join(FORMATS)} (is {path.name!r})", key="--plot")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("--plot", "drills", "matplotlib") from None
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    _survival(left, plan)
    _intervals(right, plan)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from None


def _survival(axes: Any, plan: Plan) -> None:
    horizon = 4 * plan.mttf / law.DAY_SECONDS  # after four MTTF no one is left: e^-4 = 1.8 %
    days = [horizon * i / 200 for i in range(201)]
    axes.plot(days, [law.survival(plan.mttf, day * law.DAY_SECONDS) for day in days], color="tab:blue")
    axes.axvline(plan.mttf / law.DAY_SECONDS, color="grey", linestyle=":", label="MTBF")
    axes.set(xlabel="days", ylabel="chance of no failure", ylim=(0, 1.02), xlim=(0, horizon), title="Survival")
    axes.legend()


def _intervals(axes: Any, plan: Plan) -> None:
    young = law.young_interval(plan.save, plan.mttf) or plan.mttf / 10
    lowest = min(young, plan.interval or young) / 10
    highest = max(young, plan.interval) * 10
    intervals = [lowest * (highest / lowest) ** (i / 200) for i in range(201)]
    shares = {
        "saving": [law.ratio_of(plan.save, t) for t in intervals],
        "lost work": [law.lost_share(t, plan.mttf) for t in intervals],
        "ETTR": [law.expected_ettr(t, plan.save, plan.mttf, plan.overhead) for t in intervals],
    }
    for name, values in shares.items():
        axes.plot([t / 60 for t in intervals], values, label=name, linewidth=2.4 if name == "ETTR" else 1.4)
    axes.axvline(plan.interval / 60, color="grey", linestyle=":", label="interval used")
    axes.set(xscale="log", ylim=(0, 1.02), xlabel="minutes between saves", ylabel="share of the time", title="Interval")
    axes.legend()
