"""A gloo process group whose sockets have the address of this rank's node, so that a peer's error names that node."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist

_NAME = "gloo_at"


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


def _bound(address: str, store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
    options._timeout = timeout
    return dist.ProcessGroupGloo(store, rank, size, options)
