"""Hangs in nested groups: where every rank of a large job stands when one of them stops, told as flight records.

Ranks run a step of pipelined microbatches: receive from the stage before, tensor-parallel collectives, send to the next stage,
then the same backwards, then the data-parallel reduction. One rank stops before one of its operations; whoever needs it waits, and
whoever needs those, until nothing moves. The host queues work ahead of the device: `enqueued` runs ahead to the end of the step
(or, in `lockstep`, not at all), `started` and `completed` say where the device is.

Groups are `tp`, `dp`, and `pp` for each pair of neighbouring stages, for a pair has a communicator of its own.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

#: How a rank stops: its host never queues the operation; its device never reaches it; its process is gone and tells nothing; it
#: calls another operation than its group.
Kind = Literal["host_stuck", "device_stuck", "dead", "other_operation"]
KINDS: tuple[Kind, ...] = ("host_stuck", "device_stuck", "dead", "other_operation")
#: Steps done before the hang: sequence numbers are not small.
STEPS_BEFORE = 200


@dataclass(frozen=True, slots=True)
class Layout:
    """How ranks are laid out: tensor fastest, then pipeline, then data."""

    tensor: int = 8
    pipeline: int = 16
    data: int = 128
    microbatches: int = 4
    layers: int = 2

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self.tensor * self.pipeline * self.data

    def groups(self) -> dict[str, list[list[int]]]:
        """Name -> groups of ranks."""
        t, p, d = self.tensor, self.pipeline, self.data
        ranks = np.arange(self.size).reshape(d, p, t)
        pairs = [[int(ranks[i, s, k]), int(ranks[i, s + 1, k])] for i in range(d) for s in range(p - 1) for k in range(t)]
        return {
            "tp": ranks.reshape(-1, t).tolist(),
            "dp": ranks.transpose(1, 2, 0).reshape(-1, d).tolist(),
            "pp": pairs,
        }


class Machine:
    """The program of every rank as arrays, built once for a layout.

    `op[rank, i]`: number of the i-th operation of a rank, -1 past its end; members of one collective share the number.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout, self.members = layout, layout.groups()
        self.programs: list[list[tuple[str, int]]] = [self._program(rank) for rank in range(layout.size)]
        self.length = max(map(len, self.programs))
        numbers: dict[tuple[str, int, int], int] = {}
        self.op: npt.NDArray[np.int64] = np.full((layout.size, self.length), -1, dtype=np.int64)
        #: Sequence number of each operation within its group, counted from 0 in this step; same shape.
        self.seq = np.zeros_like(self.op)
        for rank, program in enumerate(self.programs):
            counts: dict[tuple[str, int], int] = {}
            for place, group in enumerate(program):
                seq = counts[group] = counts.get(group, -1) + 1
                self.op[rank, place] = numbers.setdefault((*group, seq), len(numbers))
                self.seq[rank, place] = seq
        self.count = len(numbers)

    def _program(self, rank: int) -> list[tuple[str, int]]:
        """(group name, group index) of each operation of a rank in one step."""
        lay = self.layout
        t, p = lay.tensor, lay.pipeline
        replica, stage, column = rank // (t * p), rank // t % p, rank % t
        tensor, data = ("tp", rank // t), ("dp", stage * t + column)
        before = ("pp", (replica * (p - 1) + stage - 1) * t + column)
        after = ("pp", (replica * (p - 1) + stage) * t + column)
        first, last = stage == 0, stage == p - 1
        forward = ([] if first else [before]) + [tensor] * lay.layers + ([] if last else [after])
        backward = ([] if last else [after]) + [tensor] * lay.layers + ([] if first else [before])
        return forward * lay.microbatches + backward * lay.microbatches + [data, data, tensor]

    def settle(self, victim: int, stop: int) -> npt.NDArray[np.int64]:
        """Where each rank stands in the end, shape (size,): the place of the operation that it waits in (its length: done).

        The victim never reaches its operation `stop`. Each round finds the operations that some member has not reached and moves
        every rank back to its first one; positions only fall, so it ends.
        """
        valid = self.op >= 0
        places = np.arange(self.length)
        position: npt.NDArray[np.int64] = valid.sum(axis=1)
        reached = position.copy()  # operations 0..reached-1 have been begun
        reached[victim] = position[victim] = stop
        while True:
            missing = valid & (places >= reached[:, None])
            blocked = np.zeros(self.count, dtype=bool)
            blocked[self.op[missing]] = True
            stuck = valid & blocked[np.where(valid, self.op, 0)]
            first = np.where(stuck.any(axis=1), stuck.argmax(axis=1), position)
            first = np.minimum(first, position)
            if (first == position).all():
                return position
            position = first
            reached = np.minimum(reached, np.where(position < valid.sum(axis=1), position + 1, position))
            reached[victim] = min(int(reached[victim]), stop)

    def records(self, kind: Kind, victim: int, stop: int, *, ahead: bool) -> dict[int, dict[str, dict[str, Any]]]:
        """What each rank tells. `ahead`: hosts have queued the whole step before they wait for the device."""
        position = self.settle(victim, stop)
        told: dict[int, dict[str, dict[str, Any]]] = {}
        for rank, program in enumerate(self.programs):
            if rank == victim and kind == "dead":
                continue
            done = int(position[rank])
            begun = done if rank == victim and kind != "other_operation" else min(done + 1, len(program))
            queued = len(program) if ahead else begun
            if rank == victim and kind == "host_stuck":
                queued = stop
            told[rank] = self._record(rank, done, begun, max(queued, begun))
            if rank == victim and kind == "other_operation":
                name = self._name(program[stop])
                told[rank][name]["op"] = "BROADCAST"
        return told

    def _record(self, rank: int, done: int, begun: int, queued: int) -> dict[str, dict[str, Any]]:
        """Sequence numbers go on from the steps before; an operation is named where it is the newest begun one."""
        out: dict[str, dict[str, Any]] = {}
        program = self.programs[rank]
        for group in dict.fromkeys(program):
            base = STEPS_BEFORE * program.count(group) - 1
            upto = [sum(1 for one in program[:end] if one == group) + base for end in (queued, begun, done)]
            out[self._name(group)] = {
                "enqueued": upto[0], "started": upto[1], "completed": upto[2],
                "op": "SENDRECV" if group[0] == "pp" else "ALLREDUCE",
            }  # fmt: skip
        return out

    @staticmethod
    def _name(group: tuple[str, int]) -> str:
        return f"{group[0]}_{group[1]}"
