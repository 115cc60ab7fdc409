"""The command `outrider simulate`."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from drills.simulate.mix import names
from drills.simulate.options import Options, PauseKind
from drills.simulate.simulate import Simulation, one, prepare, run
from outrider.cli.options import config_option
from outrider.config.loader import load_struct, read_toml
from outrider.config.policy import Policy
from outrider.config.site import read_config


@click.command("simulate")
@click.option("--nodes", type=int, default=128, show_default=True)
@click.option("--gpus-per-node", type=int, default=8, show_default=True)
@click.option("--days", type=float, default=30.0, show_default=True)
@click.option("--mix", default="llama3_405b_2024", show_default=True, help="A mix's name, CLASS=WEIGHT,.., or none.")
@click.option("--failures-per-1000-node-days", "rate", type=float, help="Rate of the mix [as published with it, else 3.79].")
@click.option("--jitter", default="J", show_default=True, help="J, none, pause_scenario, pause_scenario_long, or a file.")
@click.option("--pause", type=click.Choice(["agent", "node", "host"]), default="agent", show_default=True,
              help="What a pause of a scenario stops.")  # fmt: skip
@click.option("--restart-seconds", type=float, default=120.0, show_default=True)
@click.option(
    "--policy", "policy_file", type=click.Path(path_type=Path), help="TOML file: the section [policy], or its keys alone."
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--witnesses", type=int, default=3, show_default=True)
@click.option("--step-seconds", type=float, default=5.0, show_default=True)
@click.option("--save-seconds", type=float, default=5.0, show_default=True, help="What a periodic snapshot costs the job.")
@click.option("--interval-seconds", type=float, help="Between periodic snapshots [best for each detector].")
@click.option("--replicated/--not-replicated", default=True, show_default=True, help="A lost node's shard lives on elsewhere.")
@click.option("--rack-size", type=int, default=8, show_default=True)
@click.option("--lemon-share", type=float, default=0.01, show_default=True, help="Share of nodes that are lemons ..")
@click.option("--lemon-factor", type=float, default=10.0, show_default=True, help=".. and fail so many times as often.")
@click.option("--correlated-share", type=float, default=0.01, show_default=True, help="Share of faults that strike a rack.")
@click.option("--episode", type=int, help="Play one episode again and print what was decided.")
@click.option("--list-mixes", is_flag=True, help="Print the names of the mixes and end.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write a picture (.png, .svg, .pdf).")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(
    policy_file: Path | None, config: Path | None, episode: int | None, list_mixes: bool, plot: Path | None, as_json: bool,
    **asked: Any,
) -> int:  # fmt: skip
    """Plays a fleet under faults and jitter against the real judge, in virtual time.

    Per fault class: seconds from the fault to the confirmed verdict, precision and recall of verdict and place; false restarts
    and pages for 1000 node-days with their 95 % bound; lost steps and ETTR; the same for the baselines on the same events.
    [policy] of the settings is used, or that of --policy.
    """
    if list_mixes:
        click.echo("\n".join(names()))
        return 0
    if plot is not None:
        from drills.simulate.plot import check_path

        check_path(plot)
    simulation = prepare(_options(asked), _policy(policy_file, config))
    if episode is not None:
        return _again(simulation, episode)
    _run(simulation, quiet=as_json and not sys.stderr.isatty())
    result = figures(simulation)
    if plot is not None:
        from drills.simulate.plot import draw

        draw(simulation, plot)
    if as_json:
        click.echo(json.dumps(result))
    else:
        from drills.simulate.show import show

        show(simulation, result)
    return 0


def figures(simulation: Simulation) -> dict[str, Any]:
    """The contract's object: Outrider's figures, the baselines', and what they rest on."""
    options, timeline = simulation.options, simulation.timeline
    totals = {name: totals.figures() for name, totals in simulation.totals.items()}
    mine = totals.pop("outrider")
    return {
        "seed": options.seed,
        **mine,
        "baselines": totals,
        "failures": simulation.totals["outrider"].failures,
        "node_days": options.node_days,
        "episodes": simulation.episodes,
        "events": len(timeline.events),
        "skipped_freezes": timeline.skipped,
        "lemons": timeline.lemons,
        "heartbeats": simulation.heartbeats,
        "simulated_seconds": simulation.simulated_seconds,
        "assumptions": assumptions(simulation),
    }


def assumptions(simulation: Simulation) -> list[str]:
    """What the figures rest on, one sentence each."""
    options, jitter = simulation.options, simulation.jitter
    shards = "exist" if options.replicated else "do not exist"
    rate = simulation.mix.rate if options.rate is None else options.rate
    often = "each detector saves as often as is best for it" if options.interval is None else f"one each {options.interval:g} s"
    return [
        f"mix {simulation.mix.name} at {rate:.3g} faults for 1000 node-days, {options.correlated_share:.0%} of them a whole rack; "
        f"{timeline_words(simulation)}",
        f"jitter {jitter.name}: loss {jitter.loss:.2%}, bursts {jitter.burst:.2%} of {jitter.burst_range[0]} to "
        f"{jitter.burst_range[1]} s, {jitter.freezes_per_node_year:g} freezes a node-year (lognormal, median "
        f"{jitter.freeze_median} s, sigma {jitter.freeze_sigma})",
        "a freeze stops the whole host and answers no probe; its law is assumed until a site has measured its own",
        f"one job on all nodes, steps of {options.step:g} s, restart {options.restart:g} s, spares suffice",
        f"a periodic snapshot costs {options.save:g} s; {often}; copies of a lost node's shards {shards} elsewhere",
        "a job-stopping fault without a verdict is found by the training's own time-out of 600 s, or by its launcher",
        "baselines restart from the last periodic snapshot; what they do not see is found by the training's own time-out",
    ]


def timeline_words(simulation: Simulation) -> str:
    """How many lemons there are."""
    options = simulation.options
    return f"{simulation.timeline.lemons} lemon nodes fail {options.lemon_factor:g} times as often"


def _options(asked: dict[str, Any]) -> Options:
    pause: PauseKind = asked.pop("pause")
    return Options(
        restart=asked.pop("restart_seconds"), step=asked.pop("step_seconds"), save=asked.pop("save_seconds"),
        interval=asked.pop("interval_seconds"), rack=asked.pop("rack_size"), pause_kind=pause, **asked,
    )  # fmt: skip


def _policy(path: Path | None, site: Path | None) -> Policy:
    if path is None:
        return read_config(site).get(Policy)
    table, text = read_toml(path)
    if "policy" in table:
        return load_struct(table["policy"], Policy, str(path), text, ("policy",))
    return load_struct(table, Policy, str(path), text)  # a file that holds nothing but a policy may leave the section's name out


def _run(simulation: Simulation, *, quiet: bool) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("events"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task("events", total=len(simulation.timeline.events))
        run(simulation, lambda done, _total: bar.update(task, completed=done))


def _again(simulation: Simulation, number: int) -> int:
    """Prints one episode: what happened, and every decision on it, one JSON object a line."""
    events, record = one(simulation, number)
    for event in events:
        click.echo(
            json.dumps({"event": event.kind, "what": event.what, "t": event.t, "node": event.node, "seconds": event.seconds})
        )
    for truth in record.truths:
        click.echo(
            json.dumps({"truth": truth.fault, "t": truth.t, "place": {key: str(value) for key, value in truth.place.items()}})
        )
    for change in record.changes:
        told: dict[str, Any] = {"t": round(change.t, 6), "event": change.event, "incident": change.incident, "fault": change.fault}
        told |= {"subject": change.subject, "response": change.response, "votes": change.votes, "explanation": change.explanation}
        click.echo(json.dumps(told))
    for action in record.actions:
        told = {"t": round(action.t, 6), "action": action.action, "target": action.target, "refused": action.refused}
        click.echo(json.dumps({**told, "reason": action.reason}))
    return 0
