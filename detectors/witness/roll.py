"""Calls the roll of jobs that nobody describes whole: each node's agent tells its ranks, here they become the job's slots. Pure.

Under torchrun (and in Kubernetes) a rank's environment says how many ranks there are and which are here, never where the others
sit. When every rank has been told by some node, the job is known. Agents of torchrun count restarts each for itself and disagree,
so the job's attempt is the sum of what its nodes count: it grows whenever any of them does.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import msgspec

from outrider.signals import Signal

#: Jobs whose roll is called; the one heard least recently goes first.
JOBS_MAX = 256
#: Ranks of one job; a world that is larger is a broken environment.
WORLD_MAX = 200_000
ATTEMPT_MAX = 1 << 30


@dataclass
class _Called:
    world: int
    #: node -> rank -> its place among the node's GPUs.
    nodes: dict[str, dict[int, int]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)


class Roll:
    """`take` gives the whole job's signal as soon as, and whenever, every rank has a place. `waiting`: jobs that lack some."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, _Called] = OrderedDict()

    @property
    def waiting(self) -> int:
        return sum(1 for called in self._jobs.values() if self._slots(called) is None)

    def take(self, signal: Signal) -> Signal | None:
        """A `job` signal with `data.members` in; out comes one with `data.slots`, or None while ranks are missing."""
        data = signal.data
        members, world, attempt = _members(data.get("members")), data.get("world"), signal.value
        if signal.job is None or signal.node is None or not members or type(world) is not int or type(attempt) is not int:
            return None
        if not (len(members) <= world <= WORLD_MAX and max(members) < world and 0 <= attempt <= ATTEMPT_MAX):
            return None
        called = self._jobs.get(signal.job)
        if called is None or called.world != world:  # another world is another start: whoever was there may be gone
            called = self._jobs[signal.job] = _Called(world)
            while len(self._jobs) > JOBS_MAX:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(signal.job)
        for node, ranks in list(called.nodes.items()):
            left = {rank: gpu for rank, gpu in ranks.items() if rank not in members}
            if node != signal.node and len(left) < len(ranks):  # its ranks have moved here; its count stays part of the sum
                called.nodes[node] = left
        called.nodes[signal.node] = members
        called.attempts[signal.node] = attempt
        slots = self._slots(called)
        if slots is None:
            return None
        whole = {key: value for key, value in data.items() if key not in ("members", "world")} | {"slots": slots}
        total = sum(called.attempts.values())
        return msgspec.structs.replace(signal, value=total, data=whole | {"attempt": total})

    @staticmethod
    def _slots(called: _Called) -> list[list[Any]] | None:
        places = {rank: [node, gpu] for node, ranks in called.nodes.items() for rank, gpu in ranks.items()}
        return [places[rank] for rank in range(called.world)] if len(places) == called.world else None


def _members(raw: Any) -> dict[int, int]:
    """rank -> gpu; empty if it makes no sense."""
    if not isinstance(raw, list | tuple) or len(raw) > 1024:
        return {}
    pairs = [one for one in raw if isinstance(one, list | tuple) and len(one) == 2 and all(type(part) is int for part in one)]
    found = {rank: gpu for rank, gpu in pairs if rank >= 0 and gpu >= 0}
    return found if len(found) == len(raw) else {}
