"""The command `outrider plan`."""

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from outrider.cli.options import config_option
from outrider.config.plan import PlanSection
from outrider.config.site import read_config
from outrider.plan.reckon import figures, reckon


@click.command("plan")
@click.option("--gpus", type=float, help="Cards in the job.")
@click.option("--gpus-per-node", type=float, help="Cards in a node [8].")
@click.option("--afr", type=float, help="Rate: share of cards that fail in a year (0.01 = 1 %).")
@click.option("--failures-per-1000-node-days", type=float, help="Rate: failures that stop a job.")
@click.option("--mtbf-hours", type=float, help="Rate: hours between two failures of the whole job.")
@click.option("--observed-failures", type=float, help="Rate: failures counted, with --observed-days.")
@click.option("--observed-days", type=float, help="Days in which they were counted.")
@click.option("--save-seconds", type=float, help="Time for which a save holds training up [from size and bandwidth, or 60].")
@click.option("--interval-seconds", type=float, help="Training between two saves [Young's].")
@click.option("--restart-seconds", type=float, help="From the decision to the first new step [300].")
@click.option("--detect-seconds", type=float, help="From the failure to the decision [0].")
@click.option("--days", type=float, help="Days over which survival is asked [7].")
@click.option("--repair-hours", type=float, help="How long a failed node is away [0.12 % of the time].")
@click.option("--spare-target", type=float, help="Chance with which the spares suffice [0.99].")
@click.option("--parameters", type=float, help="Parameters of the model (405e9).")
@click.option("--bytes-per-parameter", type=float, help="State for each parameter [12: Adam in float32].")
@click.option("--bandwidth-gbytes", type=float, help="Gigabytes a second that the storage takes from the whole job.")
@click.option("--step-seconds", type=float, help="One step: shows what a snapshot at the fault is worth.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write a picture (.png, .svg, .pdf).")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(plot: Path | None, config: Path | None, as_json: bool, **options: Any) -> int:
    """Reckons failures, save interval, overhead, availability and ETTR of a fleet. [plan] of the settings sets what no option sets.

    Times in the JSON are seconds, shares lie between 0 and 1. `overhead` = `save_overhead` + `lost_overhead`; restart and
    detection stand in `ettr` (Meta's E[ETTR]) and `availability` (MTBF / (MTBF + restart + detection)). `interval_s` is the
    interval given, else Young's, which is least for this overhead. `mtbf_s` is the job's.
    """
    reckoned = reckon(_section(config, options))
    result = figures(reckoned)
    if plot is not None:
        from outrider.plan.plot import draw

        draw(reckoned, plot)
    if as_json:
        click.echo(json.dumps(result))
    else:
        from outrider.plan.show import show

        show(reckoned, result)
    return 0


def _section(config: Path | None, options: dict[str, Any]) -> PlanSection:
    section = PlanSection()
    if config is not None:
        section = read_config(config).get(PlanSection)
    told = {name: value for name, value in options.items() if value is not None}
    rates = {"afr", "failures_per_1000_node_days", "mtbf_hours", "observed_failures", "observed_days"}
    if rates & told.keys():  # a rate on the command line takes the place of the file's
        section = msgspec.structs.replace(section, **dict.fromkeys(rates))
    return msgspec.structs.replace(section, **told)
