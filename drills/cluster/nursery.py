"""The nursery: one process that has torch loaded and forks the nodes' launchers, so that a rank starts in a fraction of a second.

It reads one JSON object a line on standard input (`{"spawn": {...}}`, see `launcher.LauncherSpec`) and answers on standard output
(`{"ready": true}`, `{"spawned": {"node", "pid"}}`, `{"ended": {"node", "pid", "status"}}`). It ends when its input ends, and
everything it forked ends with it.
"""

import json
import os
import select
import signal
import sys
import traceback
from typing import Any

from drills.cluster import launcher
from drills.cluster.kernel import die_with_parent


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _spawn(spec: dict[str, Any]) -> int:
    nursery = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent(nursery)
        os.setsid()
        code = launcher.run(launcher.LauncherSpec(**spec))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> int:
    """Loads torch, then forks launchers until standard input ends."""
    die_with_parent(os.getppid())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from drills.job import preload

    preload()
    _say({"ready": True})
    nodes: dict[int, str] = {}
    buffer = b""
    while True:
        readable, _, _ = select.select([0], [], [], 0.05)
        if readable:
            chunk = os.read(0, 65536)
            if not chunk:
                break
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in filter(None, lines):
                spec = json.loads(line)["spawn"]
                pid = _spawn(spec)
                nodes[pid] = spec["node"]
                _say({"spawned": {"node": spec["node"], "pid": pid}})
        while nodes:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            _say({"ended": {"node": nodes.pop(pid, "?"), "pid": pid, "status": status}})
    for pid in nodes:
        os.kill(pid, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
