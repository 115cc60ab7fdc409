"""A gloo process group whose sockets have the address of this rank's node, so that a peer's error names that node."""

import os
import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist

_NAME = "gloo_at"
#: Asked after 1 s of quiet, each second, given up after two questions without an answer.
_KEEP_ALIVE: Final = {socket.TCP_KEEPIDLE: 1, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 2}


def join(env: Mapping[str, str], timeout_seconds: float) -> None:
    """Joins the job's process group.

    Args:
        env: `RANK WORLD_SIZE MASTER_ADDR MASTER_PORT`, and `DRILL_ADDRESS`: the address to bind to (absent: gloo's choice).
        timeout_seconds: of the meeting and of every collective. Long: a rank whose peer is gone is to hang, as in real life.
    """
    address = env.get("DRILL_ADDRESS")
    backend = "gloo"
    if address:
        backend = _NAME
        if not hasattr(dist.Backend, _NAME.upper()):
            dist.Backend.register_backend(_NAME, lambda *place: _bound(address, *place), devices=["cpu"])
    store = f"tcp://{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    dist.init_process_group(
        backend,
        init_method=store,
        rank=int(env["RANK"]),
        world_size=int(env["WORLD_SIZE"]),
        timeout=timedelta(seconds=timeout_seconds),
    )
    _keep_alive()


def _keep_alive() -> None:
    """Has the kernel ask idle peers for a sign of life, so that a host that vanished shows as a transport error within 4 s.

    A rank that only waits has nothing unacknowledged, and TCP alone would then never tell it that the other side is gone; RDMA
    tells by its retry limit. A stopped process is no error: its kernel still answers.
    """
    for name in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    for option, value in _KEEP_ALIVE.items():
                        one.setsockopt(socket.IPPROTO_TCP, option, value)
        except OSError:  # no socket, or closed meanwhile
            continue


def _bound(address: str, store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
    options._timeout = timeout
    return dist.ProcessGroupGloo(store, rank, size, options)
