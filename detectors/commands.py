"""`outrider witness` and `outrider up`: start judges."""

import click

from detectors.witness.logs import set_up_logs
from outrider.config.site import read_config

config_option = click.option(
    "--config", "config", type=click.Path(dir_okay=False), help="The site's TOML file.", envvar="OUTRIDER_CONFIG"
)


@click.command()
@config_option
@click.option("--name", required=True, help="Which of the configured witnesses this is.")
def witness(config: str | None, name: str) -> None:
    """Runs one witness until it is interrupted."""
    from detectors.witness.service import run_witness

    settings = read_config(config)
    set_up_logs()
    run_witness(settings, name)


@click.command()
@config_option
def up(config: str | None) -> int:
    """Runs the configured witnesses, the ledger and all installed services on this machine."""
    from detectors.witness.up import up as run

    return run(read_config(config))
