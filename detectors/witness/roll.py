"""Calls the roll of jobs that nobody describes whole: each node's agent tells its ranks, here they become the job's slots. Pure.

Under torchrun (and in Kubernetes) a rank's environment says how many ranks there are and which are here, never where the others
sit. When every rank has been told by some node, the job is known. Its attempt is what its ranks say; a node that says less has
ranks of an older start. Several agents of torchrun count restarts each for itself and disagree (`data.base` is the start that they
share), so the restarts of all nodes are added: the attempt grows whenever any count does.
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
#: Every node tells its part again this often; the whole is told again as seldom, not with each of a thousand parts.
REFRESH_SECONDS = 300.0
#: A large job that was told rests so long for each rank above the first 500 before it is told again: to tell 10,000 ranks costs a
#: witness some 15 ms, and where agents of torchrun count apart, a restart is a thousand changes within seconds.
REST_SECONDS_A_RANK = 2e-4
REST_RANKS_FREE = 500


@dataclass
class _Called:
    """`places`: rank -> (node, its place among the node's GPUs); `nodes`: node -> the same by node, without what has moved on."""

    world: int
    #: The start that its nodes share, and the lowest attempt that it may have: above what an older start had told.
    start: int = 0
    floor: int = 0
    places: dict[int, tuple[str, int]] = field(default_factory=dict)
    nodes: dict[str, dict[int, int]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    total: int = 0
    changed: bool = True
    told_at: float = float("-inf")
    #: The newest change, which waits until the job has rested.
    held: Signal | None = None

    def hear(self, node: str, members: dict[int, int], attempt: int) -> None:
        """Takes in what one node says; costs as much as it says, however large the job is."""
        before = self.nodes.get(node, {})
        if before != members:
            self.changed = True
            for rank in before.keys() - members.keys():
                del self.places[rank]
            for rank, gpu in members.items():
                other = self.places.get(rank)
                if other is not None and other[0] != node:
                    del self.nodes[other[0]][rank]  # it has moved here; that node's count stays part of the sum
                self.places[rank] = (node, gpu)
            self.nodes[node] = dict(members)
        if self.attempts.get(node) != attempt:
            self.changed = True
            self.total += attempt - self.attempts.get(node, 0)
            self.attempts[node] = attempt

    @property
    def attempt(self) -> int:
        return max(self.start, self.floor) + self.total

    @property
    def whole(self) -> bool:
        return len(self.places) == self.world

    @property
    def rested_at(self) -> float:
        return self.told_at + max(0, self.world - REST_RANKS_FREE) * REST_SECONDS_A_RANK

    def tell(self, signal: Signal) -> Signal:
        """The whole job, as news of `signal`'s time."""
        self.changed, self.told_at, self.held = False, signal.t, None
        slots = [list(self.places[rank]) for rank in range(self.world)]
        whole = {key: value for key, value in signal.data.items() if key not in ("members", "world", "base")} | {"slots": slots}
        return msgspec.structs.replace(signal, value=self.attempt, data=whole | {"attempt": self.attempt})


class Roll:
    """`take` gives the whole job's signal as soon as every rank has a place, when that changes, and now and then when it does not;
    `due` gives those that changed again before they had rested. `waiting`: jobs that lack ranks."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, _Called] = OrderedDict()

    @property
    def waiting(self) -> int:
        return sum(1 for called in self._jobs.values() if not called.whole)

    def take(self, signal: Signal) -> Signal | None:
        """A `job` signal with `data.members` in; out comes one with `data.slots`, or None: ranks are missing, or it is no news."""
        data = signal.data
        members, world, attempt = _members(data.get("members")), data.get("world"), signal.value
        if signal.job is None or signal.node is None or not members or type(world) is not int or type(attempt) is not int:
            return None
        if not (len(members) <= world <= WORLD_MAX and max(members) < world and 0 <= attempt <= ATTEMPT_MAX):
            return None
        start = data.get("base", attempt)
        if type(start) is not int or not 0 <= start <= attempt:
            return None
        called = self._jobs.get(signal.job)
        if called is not None and called.world == world and start < called.start:
            return None  # a rank of an older start that has not gone yet
        if called is None or (called.world, called.start) != (world, start):  # another start: whoever was there may be gone
            floor = called.attempt + 1 if called is not None and called.total and "base" in data else 0
            called = self._jobs[signal.job] = _Called(world, start, floor)
            while len(self._jobs) > JOBS_MAX:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(signal.job)
        called.hear(signal.node, members, attempt - start)
        if not called.whole or not (called.changed or signal.t - called.told_at >= REFRESH_SECONDS):
            return None
        if signal.t < called.rested_at:
            called.held = signal
            return None
        return called.tell(signal)

    def due(self, now: float) -> list[Signal]:
        """The jobs that have rested and were heard of meanwhile. A job that lacks ranks again waits for them."""
        ready = [one for one in self._jobs.values() if one.held is not None and now >= one.rested_at]
        told = [one.tell(msgspec.structs.replace(one.held, t=now)) for one in ready if one.held is not None and one.whole]
        for one in ready:
            one.held = None
        return told

    def next_due(self) -> float | None:
        """When `due` has something to give, monotonic seconds."""
        return min((one.rested_at for one in self._jobs.values() if one.held is not None), default=None)

    def forget(self, job: str) -> None:
        """The job has ended: who starts it next may count anew."""
        self._jobs.pop(job, None)


def _members(raw: Any) -> dict[int, int]:
    """rank -> gpu; empty if it makes no sense."""
    if not isinstance(raw, list | tuple) or len(raw) > 1024:
        return {}
    pairs = [one for one in raw if isinstance(one, list | tuple) and len(one) == 2 and all(type(part) is int for part in one)]
    found = {rank: gpu for rank, gpu in pairs if rank >= 0 and gpu >= 0}
    return found if len(found) == len(raw) else {}
