"""The agent's own process image: what the command line has loaded would stand in the memory of the agent and all its children.

`python -m collectors.agent CONFIG NODE`; an empty CONFIG: the defaults. Every expected error is one line and exit status 2.
"""

import contextlib
import ctypes
import sys

from collectors.agent.service import Agent
from collectors.frame.found import find_collectors, preload
from collectors.frame.nursery import fork_nursery
from outrider.config.agent import AgentSection
from outrider.config.collectors import CollectorsSection
from outrider.config.site import read_config
from outrider.errors import OutriderError


def run(config: str | None, node: str) -> None:
    """Runs the agent of `node` until SIGTERM. Raises OutriderError."""
    read = read_config(config)
    section = read.get(AgentSection)
    found = find_collectors(section.collectors, section.collect)
    preload(found, read.get(CollectorsSection))
    _spare_memory()
    # Forked when all is loaded that most processes need, so that they share its memory, and before the first thread.
    nursery = fork_nursery()
    Agent(read, node, found, nursery).run()


def _spare_memory() -> None:
    """One heap for all threads: glibc gives each thread one of its own, which keeps what it once held (about 1 MiB here). Other
    libraries of C may not know the word."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX of malloc.h


if __name__ == "__main__":
    try:
        run(sys.argv[1] or None, sys.argv[2])
    except OutriderError as error:
        for line in str(error).splitlines():
            print(f"outrider: {line}", file=sys.stderr)
        sys.exit(2)
