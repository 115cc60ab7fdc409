"""Options that commands share: where the site's settings are, said once for all of them."""

from pathlib import Path
from typing import Final

import click

#: Where the settings are if nobody says where.
DEFAULT_CONFIG: Final = "outrider.toml"


def _here() -> str | None:
    return DEFAULT_CONFIG if Path(DEFAULT_CONFIG).exists() else None


#: Every command that reads settings takes this one, so that all look in the same places in the same order; None: there are none.
config_option = click.option(
    "--config",
    "config",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="OUTRIDER_CONFIG",
    default=_here,
    help=f"The site's TOML file (default: $OUTRIDER_CONFIG, else {DEFAULT_CONFIG} here).",
)
