"""Which ranks of a Slurm job sit where, from the environment that Slurm gives each of them. Pure.

Source: Slurm's manual of srun (SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE; block distribution, which is the default).
"""

import re
from collections.abc import Mapping

from outrider.launchers import WORLD_MAX
from outrider.parsers.hostlist import expand

#: Nodes of one job; a list of tasks that means more is none.
NODES_MAX = 20_000
#: Ranks of one node.
TASKS_MAX = 256
_TASKS = re.compile(r"(\d{1,4})(?:\(x(\d{1,5})\))?")


def expand_nodes(expression: str) -> list[str]:
    """Node names of `gpu[0-3,07],login1`; empty if it makes no sense."""
    try:
        return expand(expression)
    except ValueError:
        return []


def expand_tasks(expression: str) -> list[int]:
    """Tasks of each node, of `8(x4),2`; empty if it makes no sense."""
    tasks: list[int] = []
    for item in expression.split(","):
        match = _TASKS.fullmatch(item.strip())
        if match is None or len(tasks) > NODES_MAX:
            return []
        tasks += [int(match[1])] * int(match[2] or 1)
    return tasks


def slots_of(environment: Mapping[str, str]) -> list[tuple[str, int]]:
    """(node, local rank) of every rank, in rank order; empty where the environment does not say enough.

    With torchrun, Slurm starts one task a node and torchrun LOCAL_WORLD_SIZE ranks in it.
    """
    nodes = expand_nodes(environment.get("SLURM_JOB_NODELIST", ""))
    local = environment.get("LOCAL_WORLD_SIZE", "")
    if "RANK" in environment and local.isdecimal() and len(local) < 10:
        tasks = [int(local)] * len(nodes)
    else:
        tasks = expand_tasks(environment.get("SLURM_TASKS_PER_NODE", ""))
    # Summed before it is written out: any process may say that it is one of five million.
    world, ranks = environment.get("WORLD_SIZE") if "RANK" in environment else environment.get("SLURM_NTASKS"), sum(tasks)
    if len(nodes) != len(tasks) or ranks > WORLD_MAX or max(tasks, default=0) > TASKS_MAX or world != str(ranks):
        return []
    return [(node, gpu) for node, count in zip(nodes, tasks, strict=True) for gpu in range(count)]
