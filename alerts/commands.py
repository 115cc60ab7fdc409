"""Commands of the room `alerts`."""

import click


@click.command()
@click.option("--config", "config_path", type=click.Path(dir_okay=False), help="The site's configuration (TOML).")
def deliver(config_path: str | None) -> int:
    """Drain the outbox: send webhooks to the targets of [alerts]. `outrider up` starts it by itself."""
    from alerts.deliverer import run

    return run(config_path)
