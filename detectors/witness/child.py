"""`python -m detectors.witness.child SERVICE [CONFIG]`: one service of `outrider up`, in a process that ends with its parent.

SERVICE is `witness:NAME`, or a name of the entry-point group `outrider.services`: a function `(config_path: str | None) -> int`
that serves until SIGTERM or SIGINT.
"""

import ctypes
import os
import signal
import sys
from importlib.metadata import entry_points

from detectors.witness.logs import set_up_logs
from outrider.config.site import read_config
from outrider.errors import OutriderError

#: prctl(2): the kernel sends this process a signal when its parent dies.
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Asks the kernel for SIGTERM when the parent dies, however it dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == 1:  # it died before we asked
        sys.exit(1)


def run_service(name: str, config_path: str | None) -> int:
    """Runs one service until it ends. Raises OutriderError when it cannot start."""
    kind, _, witness = name.partition(":")
    if kind == "witness":
        from detectors.witness.process import run_witness

        run_witness(read_config(config_path), witness)
        return 0
    for point in entry_points(group="outrider.services", name=name):
        return int(point.load()(config_path) or 0)
    raise OutriderError(f"no service is called {name!r}")


def main(arguments: list[str]) -> int:
    end_with_parent()
    set_up_logs()
    try:
        return run_service(arguments[0], arguments[1] if len(arguments) > 1 else None)
    except OutriderError as error:
        for line in str(error).splitlines():
            print(f"outrider: {arguments[0]}: {line}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
