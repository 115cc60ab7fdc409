"""`outrider agent`: one node's agent."""

from pathlib import Path

import click


@click.command(name="agent")
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="The site's configuration (TOML).")
@click.option("--node", required=True, help="Which node of [fleet] this is.")
def agent(config_path: Path | None, node: str) -> int:
    """Runs the agent of one node, in the foreground, until SIGTERM."""
    from collectors.frame.nursery import fork_nursery

    nursery = fork_nursery()  # before anything heavy is loaded: its children share what is here now

    from collectors.agent.log import configure
    from collectors.agent.service import Agent
    from outrider.config.site import read_config

    configure()
    Agent(read_config(config_path), node, nursery).run()
    return 0
