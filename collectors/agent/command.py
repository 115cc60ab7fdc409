"""`outrider agent`: one node's agent, and a single look of its collectors."""

import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

import click

from outrider.cli.options import config_option


@click.command(name="agent")
@config_option
@click.option("--node", help="Which node of [fleet] this is; the host's name if it is not told.")
@click.option("--once", is_flag=True, help="Let every collector read once, print what it sees, and end.")
@click.option("--json", "as_json", is_flag=True, help="With --once: one JSON object a collector.")
def agent(config: Path | None, node: str | None, once: bool, as_json: bool) -> int:
    """Runs the agent of one node, in the foreground, until SIGTERM.

    With --once it only looks: exit status 1 if a collector's source is there but cannot be read.
    """
    node = node or socket.gethostname()
    return _look_once(config, node, as_json=as_json) if once else _become(config, node)


def _become(config: Path | str | None, node: str) -> NoReturn:
    """Turns this process into the agent: a process image of its own, for what the command line has loaded would stand in the memory
    of the agent and all its children; so would the columns that tracebacks point at. Nothing is loaded from here (`-P`)."""
    command = [sys.executable, "-P", "-X", "no_debug_ranges", "-m", "collectors.agent", str(config or ""), node]
    os.execv(sys.executable, command)  # noqa: S606


def serve(config_path: str | None) -> int:
    """The agent as a service of `outrider up`: of the node that has this host's name. Where `[fleet]` has no such node, this is no
    node, and the service only waits to be ended."""
    from outrider.config.fleet import FleetSection
    from outrider.config.site import read_config

    host = socket.gethostname()
    if any(node.node == host for node in read_config(config_path).get(FleetSection).nodes):
        _become(config_path, host)
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    signal.sigwait(ends)
    return 0


def _look_once(config: Path | None, node: str, *, as_json: bool) -> int:
    from collectors.agent.once import look_once, print_json, print_table
    from collectors.frame.found import find_collectors, make_place
    from collectors.frame.nursery import fork_nursery
    from outrider.config.agent import AgentSection
    from outrider.config.site import read_config

    read = read_config(config)
    section = read.get(AgentSection)
    found = find_collectors(section.collectors, section.collect)
    rows = look_once(found, fork_nursery(), make_place(read, node, "", Path()))
    (print_json if as_json else print_table)(rows)
    return int(any(row["state"] in ("broken", "stuck") for row in rows))
