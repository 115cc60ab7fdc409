"""Which ranks of which jobs are on this node, as they said themselves: the parts of which witnesses make a whole job."""

from collections.abc import Callable
from operator import is_
from typing import Any

from collectors.agent.slots import Slot, SlotTable
from collectors.frame.changes import Changes
from outrider.signals import Signal

#: Where no slot came or went, what was told is looked at again this often: it is told anew each five minutes (`Changes`).
AGAIN_SECONDS = 10.0


class Members:
    """`tell` sends a `job` signal for each job whose ranks here have changed, and now and then for those that have not.

    Whoever started the ranks (torchrun, Slurm, Kubernetes, a shell), the job becomes known by it. That it is synchronous its ranks
    do not say; a launcher that describes the job is believed before them (`detectors/witness/launched.py`).

    Args:
        node: this node.
        table: its slots.
        emit: takes each signal.
    """

    def __init__(self, node: str, table: SlotTable, emit: Callable[[Signal], Any]) -> None:
        self._node, self._table, self._emit = node, table, emit
        self._changes = Changes()
        self._living: list[Slot] = []
        self._again = 0.0

    def tell(self, now: float) -> None:
        """Args: now, monotonic seconds. Called with every look, so it first sees whether the same slots live as before."""
        living = [slot for slot in self._table if not slot.gone]
        if now < self._again and len(living) == len(self._living) and all(map(is_, living, self._living)):
            return
        self._living, self._again = living, now + AGAIN_SECONDS
        jobs: dict[str, list[Slot]] = {}
        for slot in living:
            jobs.setdefault(slot.rank.job, []).append(slot)
        self._changes.forget_others(set(jobs))
        for job, slots in sorted(jobs.items()):
            attempt = max(slot.rank.attempt for slot in slots)
            ranks = {slot.rank.rank: slot.rank for slot in slots if slot.rank.attempt == attempt}
            world, base = max(rank.world for rank in ranks.values()), next(iter(ranks.values())).base
            members = [
                (number, place if ranks[number].gpu is None else ranks[number].gpu) for place, number in enumerate(sorted(ranks))
            ]
            if world < 1 or not self._changes.due(job, (attempt, base, world, members), now):
                continue
            data: dict[str, Any] = {
                "attempt": attempt, "world": world, "members": members, "synchronous": False, "told_by": "rank",
            }  # fmt: skip
            if base is not None:
                data["base"] = base
            self._emit(Signal(t=now, kind="job", value=attempt, node=self._node, job=job, source="agent", data=data))
