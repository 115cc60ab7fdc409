"""`outrider witness` and `outrider up`: start judges."""

from pathlib import Path

import click

from detectors.witness.logs import set_up_logs
from outrider.cli.options import DEFAULT_CONFIG, config_option, needed
from outrider.config.site import read_config


@click.command()
@config_option
@click.option("--name", required=True, help="Which of the configured witnesses this is.")
def witness(config: Path | None, name: str) -> None:
    """Runs one witness until it is interrupted."""
    from detectors.witness.process import run_witness

    settings = read_config(needed(config))
    set_up_logs()
    run_witness(settings, name)


@click.command()
@config_option
def up(config: Path | None) -> int:
    """Runs the configured witnesses, the ledger and all installed services on this machine.

    Without settings it writes some first: one machine, three witnesses, mode observe.
    """
    from detectors.witness.starter import write_starter
    from detectors.witness.up import up as run

    if config is None:
        config = Path(DEFAULT_CONFIG)
        write_starter(config)
        click.echo(f"wrote {config}: this machine alone, in mode observe")
    return run(read_config(config))


@click.command()
@config_option
@click.option("--node", help="This node's name in [fleet]; without it only the site's settings are checked.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def doctor(config: Path | None, node: str | None, as_json: bool) -> int:
    """Checks this node and its settings before it joins a job. Exit 1 if a check fails."""
    import json
    from dataclasses import asdict

    from detectors.witness.doctor import examine

    colours = {"ok": "green", "warn": "yellow", "fail": "red", "unknown": "magenta"}
    failed = False
    for finding in examine(read_config(needed(config)), node):
        failed = failed or finding.state == "fail"
        if as_json:
            click.echo(json.dumps(asdict(finding)))
        else:
            click.echo(f"{click.style(f'{finding.state:<7}', fg=colours[finding.state])} {finding.check:<14} {finding.text}")
    return int(failed)


@click.command()
@config_option
@click.option("--out", type=click.Path(dir_okay=False), help="Write there, not to standard output.")
def journal(config: Path | None, out: str | None) -> None:
    """Joins the witnesses' journals on this machine into one trace for `outrider replay`."""
    from detectors.witness.journal_merge import merge
    from outrider.config.witness import WitnessSection
    from outrider.errors import InputError

    section = read_config(needed(config)).get(WitnessSection)
    lines = merge(Path(section.state_dir), tuple(member.name for member in section.members))
    first = next(lines)
    try:
        with click.open_file(out or "-", "wb") as stream:
            stream.write(first)
            stream.writelines(lines)
    except BrokenPipeError:  # `| head`: the shell of the command line knows what to do
        raise
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=out) from None
    if out:
        click.echo(f"outrider: wrote {out}", err=True)
