"""A job as the local scheduler knows it, and the orders that start its ranks: the slot is the rank, whatever node holds it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A training job of one rank a node.

    `address_of` gives a node's address, `agent_socket_of` the path of its agent's socket. `env` goes to every rank.
    `limits` are the job's own seconds for its phases (see the trace contract).
    """

    job: str
    snapshot_root: str
    address_of: Callable[[str], str]
    agent_socket_of: Callable[[str], str]
    env: dict[str, str] = field(default_factory=dict)
    limits: dict[str, float] = field(default_factory=dict)


def rank_orders(spec: JobSpec, slots: list[str], attempt: int, fence: int, port: int) -> dict[str, dict[str, Any]]:
    """One `start` order for each node that holds a slot."""
    world = len(slots)
    common = spec.env | {
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": spec.address_of(slots[0]),
        "MASTER_PORT": str(port),
        "OUTRIDER_JOB": spec.job,
        "OUTRIDER_ATTEMPT": str(attempt),
        "OUTRIDER_FENCE": str(fence),
        "OUTRIDER_SNAPSHOTS": spec.snapshot_root,
    }
    description = {
        "job": spec.job, "attempt": attempt, "slots": [[node, 0] for node in slots], "groups": {"dp": [list(range(world))]},
        "limits": spec.limits, "synchronous": True,
    }  # fmt: skip
    orders: dict[str, dict[str, Any]] = {}
    for slot, node in enumerate(slots):
        order = orders.setdefault(
            node, {"job": spec.job, "attempt": attempt, "env": common, "description": description, "ranks": []}
        )
        env = {"RANK": str(slot), "LOCAL_RANK": str(len(order["ranks"])), "OUTRIDER_SLOT": str(slot),
               "OUTRIDER_AGENT": spec.agent_socket_of(node), "DRILL_ADDRESS": spec.address_of(node)}  # fmt: skip
        order["ranks"].append({"slot": slot, "rank": slot, "env": env})
    return orders
