"""What a person should know although the command goes on."""

import click


def warn(text: str) -> None:
    """One line on standard error, beside whatever the command answers on standard output."""
    click.echo(f"outrider: warning: {text}", err=True)
