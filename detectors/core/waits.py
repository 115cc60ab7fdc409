"""Who waits for whom: the ranks that a hung job waits for, from what each rank says of its last collectives.

A rank waits in a group if it has enqueued a collective there that is not completed. It waits for the members that have
not enqueued it. Whoever is waited for and waits for nobody is the head of the chain. In nested groups (tensor, pipeline,
data) most ranks wait for ranks that wait themselves; counting complaints alone names one of those.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: rank -> group name -> {"enqueued", "started", "completed", "op"}.
Records = Mapping[int, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Head:
    """The head of the chain. `ranks`: whom all wait for; `missing`: they told nothing at all (dead or deaf, not "late");
    `desync`: they called another collective than their group; `waiting`: how many ranks wait."""

    ranks: tuple[int, ...]
    missing: bool
    desync: bool
    waiting: int
    text: str


def head_of_chain(records: Records, groups: Mapping[str, Sequence[Sequence[int]]], size: int) -> Head | None:
    """Finds the ranks that a hung job waits for; None if the records do not tell.

    Args:
        records: what each rank said; a rank that is not in it said nothing.
        groups: name -> the groups of that name, each a list of ranks. Empty: one group of all ranks per name told.
        size: number of ranks in the job.
    """
    absent: dict[int, str] = {}
    waits: dict[int, set[int]] = defaultdict(set)
    silent: dict[int, str] = {}
    odd: dict[int, str] = {}
    for name, members in _instances(records, groups, size):
        told = {rank: records[rank][name] for rank in members if name in records.get(rank, {})}
        if not told:
            continue
        newest = max(_number(one, "enqueued") for one in told.values())
        waiting = [rank for rank, one in told.items() if _number(one, "enqueued") == newest and _number(one, "completed") < newest]
        if not waiting:
            continue
        late = [rank for rank, one in told.items() if _number(one, "enqueued") < newest]
        untold = [rank for rank in members if rank not in told]
        if (other := _odd_op(told, waiting)) is not None:
            odd[other[0]] = f"{other[1]} in {name} where the others call {other[2]}"
        for rank in waiting:
            waits[rank].update(late or untold)
        for rank in late:
            absent.setdefault(rank, f"has not joined collective {newest} of {name}")
        if not late:
            for rank in untold:
                silent.setdefault(rank, f"says nothing while {name} waits in collective {newest}")
    return _head(absent, waits, silent, odd)


def _head(absent: dict[int, str], waits: dict[int, set[int]], silent: dict[int, str], odd: dict[int, str]) -> Head | None:
    total = sum(1 for targets in waits.values() if targets)
    if odd:
        ranks = tuple(sorted(odd))
        return Head(ranks, False, True, len(waits), f"rank {ranks[0]} calls {odd[ranks[0]]}")
    heads = sorted(rank for rank in absent if not waits.get(rank))
    if not heads and silent:
        # Every late rank waits itself, or nobody is late: the chain ends at a rank that told nothing.
        ranks = tuple(sorted(rank for rank in silent if not waits.get(rank)))
        return Head(ranks, True, False, total, f"rank {ranks[0]} {silent[ranks[0]]}") if ranks else None
    if not heads:
        return None
    return Head(tuple(heads), False, False, total, f"rank {heads[0]} {absent[heads[0]]}")


def _instances(records: Records, groups: Mapping[str, Sequence[Sequence[int]]], size: int) -> list[tuple[str, Sequence[int]]]:
    found: list[tuple[str, Sequence[int]]] = []
    names = sorted({name for one in records.values() for name in one})
    for name in names:
        base, _, index = name.rpartition("_") if name not in groups else (name, "", "")
        if name in groups:
            found += [(name, members) for members in groups[name]]
        elif base in groups and index.isdecimal() and int(index) < len(groups[base]):
            found.append((name, groups[base][int(index)]))
        else:
            told = sorted(rank for rank, one in records.items() if name in one)
            found.append((name, told if len(told) < size / 2 else range(size)))
    return found


def _odd_op(told: Mapping[int, Mapping[str, Any]], waiting: list[int]) -> tuple[int, str, str] | None:
    """One rank that waits in another operation than all the others of its group at the same number."""
    ops: dict[str, list[int]] = defaultdict(list)
    for rank in waiting:
        if told[rank].get("op"):
            ops[str(told[rank]["op"])].append(rank)
    if len(ops) != 2:
        return None
    (few_op, few), (many_op, many) = sorted(ops.items(), key=lambda item: len(item[1]))
    return (few[0], few_op, many_op) if len(few) == 1 and len(many) >= 2 else None


def _number(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name)
    return int(value) if isinstance(value, int | float) else -1
