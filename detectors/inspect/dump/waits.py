"""What the groups of a job wait for, by flight records: a group, or a pair of ranks, a call, and who came to it. Pure."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from outrider.parsers.flight import Call, RankDump, Status

#: A minority is at most this share of a group.
MINORITY: Final = 0.34


@dataclass(frozen=True, slots=True)
class Dumped:
    """One rank's dump and where it stood."""

    dump: RankDump
    line: int
    file: str | None


@dataclass(slots=True)
class Group:
    """One process group. `calls`: rank -> seq -> call; `status`: how far each rank is; `members`: global ranks."""

    key: str
    name: str
    members: tuple[int, ...] = ()
    status: dict[int, Status] = field(default_factory=dict)
    calls: dict[int, dict[int, Call]] = field(default_factory=lambda: defaultdict(dict))


@dataclass(frozen=True, slots=True)
class Wait:
    """A group (or a pair) whose members wait at `seq`: `absent` did not come, `unknown` have no dump, `waiting` did come."""

    group: str
    seq: int
    op: str
    waiting: tuple[int, ...]
    absent: tuple[int, ...]
    unknown: tuple[int, ...]
    odd: tuple[int, ...] = ()
    mismatch: str = ""


def newest(dumps: list[Dumped]) -> tuple[dict[int, Dumped], bool]:
    """The newest dump of each rank; and whether a rank with several moved on between them, which no hang does."""
    latest: dict[int, Dumped] = {}
    moving = False
    for number, one in enumerate(dumps):
        rank = one.dump.rank if one.dump.rank is not None else number
        before = latest.get(rank)
        if before is not None:
            moving = moving or any(
                status.completed > before.dump.status[key].completed >= 0
                for key, status in one.dump.status.items()
                if key in before.dump.status
            )
        latest[rank] = one
    return latest, moving


def groups_of(latest: dict[int, Dumped]) -> dict[str, Group]:
    """All groups, joined over ranks. Groups of one key but other members (keys are local to a rank) are kept apart."""
    groups: dict[tuple[str, tuple[int, ...]], Group] = {}
    for rank, one in sorted(latest.items()):
        dump = one.dump
        keys = set(dump.members) | set(dump.status) | {call.group for call in dump.calls}
        for key in sorted(keys):
            members = dump.members.get(key, ())
            group = groups.setdefault((key, members), Group(f"{key}/{len(groups)}", dump.names.get(key, key), members))
            group.calls[rank] = {call.seq: call for call in dump.calls if call.group == key and not call.p2p}
            group.status[rank] = _status(dump.status.get(key), group.calls[rank])
    for group in groups.values():
        if not group.members:
            group.members = tuple(sorted(group.status))
    return {group.key: group for group in groups.values()}


def _status(told: Status | None, calls: dict[int, Call]) -> Status:
    """How far a rank is in a group: by its status, completed by the entries where the status does not know."""
    done = max((seq for seq, call in calls.items() if call.state == "completed"), default=-1)
    begun = max((seq for seq, call in calls.items() if call.state in ("started", "completed")), default=-1)
    known = max(calls, default=-1)
    if told is None:
        return Status(enqueued=known, started=begun, completed=done)
    return Status(
        enqueued=max(told.enqueued, known),
        started=told.started if told.started >= 0 else begun,
        completed=told.completed if told.completed >= 0 else done,
    )


def wait_of(group: Group, latest: dict[int, Dumped]) -> Wait | None:
    """What the members of a group wait for, or None: nothing is under way."""
    waiting = {rank: status for rank, status in group.status.items() if status.enqueued > status.completed}
    if not waiting:
        return None
    # The oldest collective that a member has not finished: later ones are only queued behind it.
    seq = min(_pending(group.calls[rank], status) for rank, status in waiting.items())
    seq = _left_alone(group, seq) or seq
    absent = tuple(rank for rank in group.members if rank in group.status and group.status[rank].enqueued < seq)
    unknown = tuple(rank for rank in group.members if rank not in latest)
    here = {rank: group.calls[rank].get(seq) for rank in waiting}
    op = Counter(call.op for call in here.values() if call).most_common(1)
    odd = () if absent else _odd(group, waiting, seq)
    return Wait(
        group=group.name,
        seq=seq,
        op=op[0][0] if op else "collective",
        waiting=tuple(sorted(rank for rank in waiting if rank not in absent)),
        absent=absent,
        unknown=unknown,
        odd=odd,
        mismatch=_mismatch(here),
    )


def _left_alone(group: Group, seq: int) -> int | None:
    """The later collective to which a rank that has finished all its own never came, though others did; or None.

    What one member finished, all have entered: that the others' records do not say "finished" is their recorder's delay (it asks
    the device now and then) or their own device, and neither keeps an idle rank from its next call.
    """
    idle = [status for status in group.status.values() if status.enqueued <= status.completed and status.completed >= seq]
    if not idle:
        return None
    later = min(status.enqueued for status in idle) + 1
    return later if any(status.enqueued >= later for status in group.status.values()) else None


def _pending(calls: dict[int, Call], status: Status) -> int:
    open_ = [seq for seq, call in calls.items() if call.state != "completed" and seq > status.completed]
    return min(open_, default=status.completed + 1)


def _odd(group: Group, waiting: dict[int, Status], seq: int) -> tuple[int, ...]:
    """Where all came: the few that have not even started it, or the few that do not finish what the others finished."""
    count = len(group.members)
    not_started = tuple(
        rank for rank, status in sorted(waiting.items()) if status.started < seq and _state(group, rank, seq) != "started"
    )
    if not_started and len(not_started) < len(waiting) and len(not_started) <= max(1, count * MINORITY):
        return not_started
    not_done = tuple(rank for rank, status in sorted(waiting.items()) if status.completed < seq)
    done = [rank for rank, status in group.status.items() if status.completed >= seq]
    furthest = max(status.enqueued for status in group.status.values())
    # Those of them that never came to what others wait in; the rest did, so that their record may only be behind.
    not_done = tuple(rank for rank in not_done if waiting[rank].enqueued < furthest) or not_done
    return not_done if done and len(not_done) <= max(1, count * MINORITY) else ()


def _state(group: Group, rank: int, seq: int) -> str:
    call = group.calls[rank].get(seq)
    return call.state if call else ""


#: Collectives in which every rank must bring the same sizes.
_EQUAL_SIZES: Final = (
    "all_reduce",
    "allreduce",
    "broadcast",
    "reduce_scatter",
    "_reduce_scatter_base",
    "all_gather",
    "_all_gather_base",
    "reduce",
)


def _mismatch(here: dict[int, Call | None]) -> str:
    """How the calls of one number differ: in operation, or in sizes where they must be equal."""
    calls = {rank: call for rank, call in here.items() if call is not None}
    operations = {call.op for call in calls.values()}
    if len(operations) > 1:
        return f"operations {', '.join(sorted(operations))}"
    shapes = {call.shape for call in calls.values()}
    if len(shapes) > 1 and operations & set(_EQUAL_SIZES):
        return f"sizes {', '.join(sorted(shapes)[:4])}"
    return ""


def pairs_of(groups: dict[str, Group], latest: dict[int, Dumped]) -> list[Wait]:
    """Point-to-point calls that do not end: the end that has not called its side is absent."""
    found = []
    members = {(rank, key.rpartition("/")[0]): group.members for key, group in groups.items() for rank in group.status}
    posted: set[tuple[int, int, str]] = set()
    open_: list[tuple[int, int, int, Call]] = []
    for rank, one in latest.items():
        for call in one.dump.calls:
            if not call.p2p or call.source is None or call.target is None or call.state == "completed":
                continue
            inside = members.get((rank, call.group), ())
            source, target = (inside[end] if end < len(inside) else end for end in (call.source, call.target))
            posted.add((source, target, "recv" if "recv" in call.op else "send"))
            open_.append((rank, source, target, call))
    for rank, source, target, call in open_:
        peer = source if rank == target else target
        side = "send" if rank == target else "recv"
        came = (source, target, side) in posted
        if came or peer == rank:
            continue
        found.append(
            Wait(
                group=f"{source}->{target}",
                seq=call.seq,
                op=call.op,
                waiting=(rank,),
                absent=(peer,) if peer in latest else (),
                unknown=() if peer in latest else (peer,),
            )
        )
    return found


def heads_of(waits: list[Wait], latest: dict[int, Dumped]) -> list[int]:
    """Ranks that others wait for and that wait nowhere themselves."""
    waiting = {rank for one in waits for rank in one.waiting}
    absent = Counter(rank for one in waits for rank in one.absent)
    return sorted(rank for rank in absent if rank not in waiting)


def unknown_heads(waits: list[Wait]) -> list[int]:
    """Ranks without a dump that are the only ones a stuck group can be waiting for."""
    return sorted({rank for one in waits for rank in one.unknown if not one.absent})
