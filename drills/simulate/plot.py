"""The result of a simulation as a picture: detection times per class, and the detectors side by side."""

from pathlib import Path
from typing import Any

from drills.simulate.simulate import Simulation
from outrider.errors import InputError, MissingExtraError

FORMATS = (".png", ".svg", ".pdf")


def check_path(path: Path) -> None:
    """Raises InputError if no picture can be written there, before the long run."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"must end in one of {', '.join(FORMATS)} (is {path.name!r})", key="--plot")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {str(path.parent)!r}", key="--plot")


def draw(simulation: Simulation, path: Path) -> None:
    """Writes the picture.

    Raises:
        MissingExtraError: matplotlib is not installed.
        InputError: the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("--plot", "drills", "matplotlib") from None
    figure = Figure(figsize=(13, 5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _times(left, simulation)
    _detectors(right, simulation)
    options = simulation.options
    figure.suptitle(f"{options.nodes:,} nodes, {options.days:g} days, mix {simulation.mix.name}, jitter {simulation.jitter.name}, "
                    f"seed {options.seed}")  # fmt: skip
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from None


def _times(axes: Any, simulation: Simulation) -> None:
    classes = {name: one for name, one in sorted(simulation.totals["outrider"].classes.items()) if one.seconds}
    for name, entry in classes.items():
        times = sorted(entry.seconds)
        shares = [(index + 1) / entry.n for index in range(len(times))]
        axes.step([times[0], *times], [0, *shares], where="post", label=f"{name} ({entry.n})")
    axes.set(xscale="log", xlabel="seconds from fault to verdict", ylabel="share found", ylim=(0, 1.02), title="Detection")
    if classes:
        axes.legend(fontsize="x-small", ncols=2)


def _detectors(axes: Any, simulation: Simulation) -> None:
    names = list(simulation.totals)
    ettr = [simulation.totals[name].account.total()[0] for name in names]
    rates = [simulation.totals[name].false_restarts / simulation.options.node_days * 1_000 for name in names]
    bars = axes.barh(names, ettr, color=["tab:green"] + ["tab:grey"] * (len(names) - 1))
    labels = [f"{value:.4f}; {rate:.3g} false restarts / 1000 node-days" for value, rate in zip(ettr, rates, strict=True)]
    axes.bar_label(bars, labels=labels, padding=-4, fontsize="x-small", label_type="center", color="white")
    axes.set(xlim=(max(0.0, min(ettr) - 0.05), 1), xlabel="ETTR", title="Detectors on the same events")
    axes.invert_yaxis()
