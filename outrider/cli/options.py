"""Options that commands share: where the site's settings are, said once for all of them."""

from pathlib import Path
from typing import Final

import click

from outrider.errors import InputError

#: Where the settings are if nobody says where.
DEFAULT_CONFIG: Final = "outrider.toml"
#: What a command says that is nothing without them.
NO_SETTINGS: Final = f"no {DEFAULT_CONFIG} here: name one with --config, or let `outrider up` write one for this machine"


def _here() -> str | None:
    return DEFAULT_CONFIG if Path(DEFAULT_CONFIG).exists() else None


_PATH: Final = click.Path(dir_okay=False, path_type=Path)
_HELP: Final = f"The site's TOML file (default: $OUTRIDER_CONFIG, else {DEFAULT_CONFIG} here)."

#: Every command that reads settings takes this one, so that all look in the same places in the same order; None: there are none.
config_option = click.option("--config", "config", type=_PATH, envvar="OUTRIDER_CONFIG", default=_here, help=_HELP)


def _told_before(context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path | None:
    return context.obj if value is None else value


#: The same for a command of a group that takes `config_option` and keeps its value as `context.obj`: it may stand before the
#: command's name or after it; what stands after goes first.
config_again = click.option("--config", "config", type=_PATH, callback=_told_before, help=_HELP)


def needed(config: Path | None) -> Path:
    """The settings, for a command that would do nothing without them, or judge or write what is not the site's.

    Raises:
        InputError: there are none.
    """
    if config is None:
        raise InputError(NO_SETTINGS)
    return config
