"""The result of a simulation as tables for people."""

from typing import Any

from rich.console import Console
from rich.table import Table

from drills.simulate.simulate import Simulation

#: Width of the tables where no terminal tells one.
PLAIN_WIDTH = 132


def show(simulation: Simulation, result: dict[str, Any]) -> None:
    """Prints classes, baselines, failures and assumptions."""
    console = Console()
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    console.print(_classes(simulation, result))
    console.print(_detectors(result))
    for failure in result["failures"][:10]:
        console.print(
            f"[yellow]episode {failure['episode']}[/] {failure['what']}: {failure['text']}", soft_wrap=True, highlight=False
        )
    if len(result["failures"]) > 10:
        console.print(
            f".. {len(result['failures']) - 10} more with --json; play one again with --seed {result['seed']} --episode N"
        )
    for line in result["assumptions"]:
        console.print(f"[dim]assumed[/] {line}", soft_wrap=True, highlight=False)


def _classes(simulation: Simulation, result: dict[str, Any]) -> Table:
    options = simulation.options
    table = Table(
        title=f"{options.nodes:,} nodes x {options.gpus_per_node} GPUs, {options.days:g} days, seed {options.seed}: seconds from "
        "fault to verdict, precision and recall", title_justify="left",
    )  # fmt: skip
    for name in ("class", "n", "p50", "p95", "p99", "max", "precision", "recall", "place prec.", "place recall"):
        table.add_column(name, justify="left" if name == "class" else "right", no_wrap=name == "class")
    for fault, figures in result["classes"].items():
        times = [_seconds(figures[key]) for key in ("p50_s", "p95_s", "p99_s", "max_s")]
        shares = [_share(figures[key]) for key in ("precision", "recall", "local_precision", "local_recall")]
        table.add_row(fault, str(figures["n"]), *times, *shares)
    return table


def _detectors(result: dict[str, Any]) -> Table:
    table = Table(title="Detectors on the same events; false ones for 1000 node-days (95 % bound)", title_justify="left")
    for name in ("detector", "false restarts", "false pages", "lost steps", "saves each", "ETTR"):
        table.add_column(name, justify="left" if name == "detector" else "right", no_wrap=name == "detector")
    for name, figures in {"outrider": result, **result["baselines"]}.items():
        rates = [
            f"{figures[f'{key}_per_1000_node_days']:.4g} (< {figures[f'{key}_per_1000_node_days_upper_95']:.2g})"
            for key in ("false_restarts", "false_pages")
        ]
        table.add_row(name, *rates, f"{figures['lost_steps']:,}", f"{figures['interval_s']:.0f} s", f"{figures['ettr']:.4f}")
    return table


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
