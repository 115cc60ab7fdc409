"""`outrider agent`: one node's agent, and a single look of its collectors."""

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outrider.cli.options import config_option

if TYPE_CHECKING:
    from collectors.frame.found import Found
    from outrider.config.site import Config


@click.command(name="agent")
@config_option
@click.option("--node", help="Which node of [fleet] this is; the host's name if it is not told.")
@click.option("--once", is_flag=True, help="Let every collector read once, print what it sees, and end.")
@click.option("--json", "as_json", is_flag=True, help="With --once: one JSON object a collector.")
def agent(config: Path | None, node: str | None, once: bool, as_json: bool) -> int:
    """Runs the agent of one node, in the foreground, until SIGTERM.

    With --once it only looks: exit status 1 if a collector's source is there but cannot be read.
    """
    from collectors.agent.service import Agent
    from collectors.frame.found import find_collectors, preload
    from collectors.frame.nursery import fork_nursery
    from outrider.config.agent import AgentSection
    from outrider.config.collectors import CollectorsSection
    from outrider.config.site import read_config

    read = read_config(config)
    section = read.get(AgentSection)
    found = find_collectors(section.collectors, section.collect)
    preload(found, read.get(CollectorsSection))
    _spare_memory()
    # Forked when all is loaded that most processes need, so that they share its memory, and before the first thread.
    nursery = fork_nursery()
    node = node or socket.gethostname()
    if once:
        return _look_once(read, node, found, nursery, as_json=as_json)
    Agent(read, node, found, nursery).run()
    return 0


def _spare_memory() -> None:
    """One heap for all threads: glibc gives each thread one of its own, which keeps what it once held (about 1 MiB here). Other
    libraries of C may not know the word."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX of malloc.h


def serve(config_path: str | None) -> int:
    """The agent as a service of `outrider up`: of the node that has this host's name. Where `[fleet]` has no such node, this is no
    node, and the service only waits to be ended."""
    from outrider.config.fleet import FleetSection
    from outrider.config.site import read_config

    host = socket.gethostname()
    if any(node.node == host for node in read_config(config_path).get(FleetSection).nodes):
        # A process image of its own: what the caller has loaded would stand in the memory of the agent and all its children.
        command = [sys.executable, "-m", "outrider.cli.shell", "agent", "--node", host]
        os.execv(sys.executable, [*command, "--config", config_path] if config_path else command)  # noqa: S606
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    signal.sigwait(ends)
    return 0


def _look_once(config: "Config", node: str, found: "Found", nursery: socket.socket, *, as_json: bool) -> int:
    from collectors.agent.once import look_once, print_json, print_table
    from collectors.frame.found import make_place

    rows = look_once(found, nursery, make_place(config, node, "", Path()))
    (print_json if as_json else print_table)(rows)
    return int(any(row["state"] in ("broken", "stuck") for row in rows))
