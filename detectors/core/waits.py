"""Who waits for whom: the ranks that a hung job waits for, from what each rank says of its last collectives.

A rank waits in a group if it has joined a collective there that is not completed. It waits for the members that have not
joined it. Whoever is waited for and waits for nobody is the head of the chain. In nested groups (tensor, pipeline, data) most
ranks wait for ranks that wait themselves; counting complaints alone names one of those.
"""

from collections import Counter, defaultdict
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
    used = _operations(records, groups)
    for name, members in _instances(records, groups, size):
        told = {rank: records[rank][name] for rank in members if name in records.get(rank, {})}
        if not told:
            continue
        joined = _joined(told)
        newest = max(joined.values())
        waiting = [rank for rank, one in told.items() if joined[rank] == newest and _number(one, "completed") < newest]
        if not waiting:
            continue
        late = [rank for rank in told if joined[rank] < newest]
        untold = [rank for rank in members if rank not in told]
        if (other := _odd_op(told, waiting, used[_family(name, groups)])) is not None:
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


def _operations(records: Records, groups: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, Counter[str]]:
    """How many ranks name each operation, by kind of group."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for told in records.values():
        for name, one in told.items():
            used[_family(name, groups)][str(one.get("op"))] += 1
    return used


def _family(name: str, groups: Mapping[str, Sequence[Sequence[int]]]) -> str:
    """`pp` of `pp_17`: groups of one kind call the same operations."""
    base, _, index = name.rpartition("_")
    return base if name not in groups and index.isdecimal() else name


def _odd_op(told: Mapping[int, Mapping[str, Any]], waiting: list[int], used: Counter[str]) -> tuple[int, str, str] | None:
    """One rank that waits in another operation than all the others of its group at the same number.

    A pair has no majority (and a sender and a receiver differ by nature): there the odd one calls what no other rank of any such
    group calls.
    """
    ops: dict[str, list[int]] = defaultdict(list)
    for rank in waiting:
        if told[rank].get("op"):
            ops[str(told[rank]["op"])].append(rank)
    if len(ops) != 2:
        return None
    (few_op, few), (many_op, many) = sorted(ops.items(), key=lambda item: len(item[1]))
    if len(few) == len(many) == 1:
        few_op, few, many_op, many = (few_op, few, many_op, many) if used[few_op] < used[many_op] else (many_op, many, few_op, few)
        return (few[0], few_op, many_op) if used[few_op] == 1 and used[many_op] > 2 else None
    return (few[0], few_op, many_op) if len(few) == 1 and len(many) >= 2 else None


def _joined(told: Mapping[int, Mapping[str, Any]]) -> dict[int, int]:
    """The newest collective that each rank has joined: as its device says where the devices differ, else as its host says.

    Hosts queue work far ahead of their devices: a rank whose device is stuck has queued as much as all others. Where no device
    is behind, the rank whose host has queued less is the one that is missing.
    """
    started = {rank: _number(one, "started") for rank, one in told.items()}
    if min(started.values()) >= 0 and len(set(started.values())) > 1:
        return started
    return {rank: _number(one, "enqueued") for rank, one in told.items()}


def _number(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name)
    return int(value) if isinstance(value, int | float) else -1
