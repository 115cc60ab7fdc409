"""A witness as a process of its own."""

import asyncio
import contextlib
import resource
import signal

from detectors.witness.service import Witness
from outrider.config.site import Config


def run_witness(config: Config, name: str) -> None:
    """The witness as a process: serves until SIGTERM or SIGINT.

    Raises:
        OutriderError: it cannot start.
    """
    witness = Witness(config, name)
    _allow_many_connections()

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await witness.run()

    asyncio.run(main())


def _allow_many_connections() -> None:
    """Every agent holds a long poll open; the usual soft limit of 1,024 files would end at a thousand nodes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
