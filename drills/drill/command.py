"""`outrider drill`."""

import asyncio
import json
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import click

from outrider.errors import InputError, OutriderError

NAMES = ("kill", "node", "freeze", "agent", "jitter")
#: A fault that is played as several runs, each with its own promise.
PARTS = {"jitter": ("jitter", "jitter-all")}


@click.command()
@click.option(
    "--fault", "faults", multiple=True, help=f"One of {', '.join(NAMES)}, or all (the default). May be given several times."
)
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1, 1000), help="Runs of each fault.")
@click.option("--seed", default=7, show_default=True, type=int, help="Of the job, of the victims and of the moments.")
@click.option("--strict", is_flag=True, help="Hold the promised times themselves, not three times as much.")
@click.option("--network", default="auto", show_default=True, type=click.Choice(["auto", "namespaces", "loopback"]),
              help="How nodes get addresses of their own.")  # fmt: skip
@click.option(
    "--out", default="out/drill", show_default=True, type=click.Path(file_okay=False), help="Folder of report, records and logs."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a fault on standard output.")
def drill(faults: tuple[str, ...], repeat: int, seed: int, strict: bool, network: str, out: str, as_json: bool) -> int:
    """A real training job, a real fault, a real recovery; prints how long each part took and whether training is the same."""
    chosen = _chosen(faults)
    try:
        import torch  # noqa: F401 - said here, in one line, rather than by four dying ranks
    except ImportError as error:
        raise OutriderError(f"the drill trains a real model and needs torch ({error}): make drill installs it") from None
    folder = _fresh_folder(Path(out).absolute())
    try:
        outcomes, about = asyncio.run(_all(chosen, repeat, seed, strict, network, folder, as_json))
    except (KeyboardInterrupt, asyncio.CancelledError):
        click.echo("outrider: interrupted; everything that was started has ended", err=True)
        return 130
    from drills.drill.report import write_report

    page = write_report(folder, outcomes, about)
    if not as_json:
        _table(outcomes)
        click.echo(f"\nReport: {page}")
    return 0 if all(outcome.ok for outcome in outcomes) else 1


def _chosen(faults: tuple[str, ...]) -> list[str]:
    wanted = [name for given in faults for name in given.split(",")] or ["all"]
    if "all" in wanted:
        wanted = list(NAMES)
    for name in wanted:
        if name not in NAMES:
            raise InputError(f"no fault is called {name!r}; there are {', '.join(NAMES)} and all", key="--fault")
    return wanted


def _fresh_folder(folder: Path) -> Path:
    """The drill's folder, emptied of an older drill's files (and only those)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        marker = folder / ".outrider-drill"
        if any(folder.iterdir()) and not marker.exists():
            raise InputError("is not empty and not a drill's folder; name another", file=str(folder), key="--out")
        for entry in folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        marker.touch()
    except OSError as error:
        raise InputError(f"cannot be used: {error.strerror}", file=error.filename or str(folder), key="--out") from None
    return folder


async def _all(
    chosen: list[str], repeat: int, seed: int, strict: bool, network: str, folder: Path, as_json: bool
) -> tuple[list[Any], dict[str, Any]]:
    from drills.cluster.network import make_network
    from drills.drill.processes import DrillError, Nursery
    from drills.drill.run import Setting, cancel_on_interrupt, run_baseline

    task = asyncio.current_task()
    assert task is not None
    cancel_on_interrupt(asyncio.get_running_loop(), task)
    begin = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"[{time.monotonic() - begin:6.1f} s] {text}", err=True)

    try:
        net, why = make_network(network)
    except OSError as error:
        raise InputError(str(error), key="--network") from None
    say(f"network: {why}")
    nursery = None
    try:
        nursery = await Nursery.open(folder / "nursery.log")
        setting = Setting(folder=folder, network=net, nursery=nursery, seed=seed, strict=strict, say=say)
        say("the undisturbed run, for comparison")
        baseline, wrong = await run_baseline(setting)
        outcomes = await _faults(setting, chosen, repeat, baseline, as_json)
    except DrillError as error:
        raise OutriderError(str(error)) from None
    finally:
        if nursery is not None:
            await nursery.close()
    for outcome in outcomes:
        outcome.failures += wrong
        outcome.ok = outcome.ok and not wrong
    about = {"network": why, "seed": seed, "repeat": repeat, "strict": strict, "took_s": round(time.monotonic() - begin, 1)}
    return outcomes, about | {"undisturbed_median_step_ms": round(baseline.median_step_s() * 1e3, 1)}


async def _faults(setting: Any, chosen: list[str], repeat: int, baseline: Any, as_json: bool) -> list[Any]:
    from drills.drill.run import run_fault

    outcomes = []
    for number in range(repeat):
        for name in chosen:
            parts = [await run_fault(setting, part, number, baseline) for part in PARTS.get(name, (name,))]
            outcome = parts[0]
            for other in parts[1:]:
                outcome.absorb(other)
            setting.say(f"{name}: {'right' if outcome.ok else 'WRONG: ' + '; '.join(outcome.failures)}")
            outcomes.append(outcome)
            if as_json:
                click.echo(json.dumps(outcome.to_json()))
                sys.stdout.flush()
    return outcomes


def _table(outcomes: list[Any]) -> None:
    """The table for people; with several runs of a fault a second one of medians and worst cases."""
    from rich.console import Console
    from rich.table import Table

    from drills.drill.result import FIGURES

    console = Console(width=None if sys.stdout.isatty() else 150)
    table = Table(title="Outrider drill (seconds after the fault)")
    table.add_column("fault")
    for title in FIGURES.values():
        table.add_column(title, justify="right")
    table.add_column("verdict")
    for outcome in outcomes:
        verdict = "[green]right[/]" if outcome.ok else "[bold red]WRONG[/]"
        table.add_row(outcome.fault, *(outcome.cell(key) for key in FIGURES), verdict)
    console.print(table)
    for outcome in outcomes:
        for failure in outcome.failures:
            console.print(f"[red]{outcome.fault}[/]: {failure}", highlight=False)
    names = list(dict.fromkeys(outcome.fault for outcome in outcomes))
    if len(names) < len(outcomes):
        console.print(_spread(names, outcomes))


def _spread(names: list[str], outcomes: list[Any]) -> Any:
    from rich.table import Table

    from drills.drill.result import FIGURES

    table = Table(title="Median and worst of all runs")
    table.add_column("fault")
    keys = [key for key in FIGURES if key.endswith("_s") or key == "lost_steps"]
    for key in keys:
        table.add_column(FIGURES[key], justify="right")
    table.add_column("right", justify="right")
    for name in names:
        runs = [outcome for outcome in outcomes if outcome.fault == name]
        cells = []
        for key in keys:
            values = [value for run in runs if (value := getattr(run, key)) is not None]
            cells.append(f"{statistics.median(values):.2f} / {max(values):.2f}" if values else "-")
        table.add_row(name, *cells, f"{sum(run.ok for run in runs)} of {len(runs)}")
    return table
