"""Who holds up the collectives, by flight records: follow each waiting group to the rank that it waits for, and on from there.

In TP x PP x DP many groups wait, most of them for ranks that wait themselves in another group. The culprit is the head of the
chain: a rank
that others wait for and that waits for nobody. A rank without a dump is missing *data*; only if every chain ends there is it a
suspect.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.dump.phase import within_phase
from detectors.inspect.findings import EvidenceLine, Finding, finding
from outrider.parsers.flight import Call, RankDump, Status

_NEXT: Final = ("Take that rank's stack (py-spy) and its host's kernel log.",)
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


def judge_flight(dumps: list[Dumped], context: Context) -> list[Finding]:
    """One finding about what stands still, or none."""
    latest, moving = _latest(dumps)
    groups = _groups(latest)
    waits = [one for group in groups.values() if (one := _wait(group, latest)) is not None] + _pairs(groups, latest)
    if not waits or moving or within_phase(context):
        return []
    if bad := [one for one in waits if one.mismatch]:
        return [_desync(bad[0], latest, context)]
    heads = _heads(waits, latest)
    if heads:
        return [_blame(heads, waits, latest, context)]
    unknown = _unknown_heads(waits)
    if unknown:
        return [_silent(unknown, waits, latest, context)]
    odd = sorted({rank for one in waits for rank in one.odd})
    if odd and len({tuple(one.odd) for one in waits if one.odd}) == 1:
        return [_stuck(odd, waits, latest, context)]
    return [_inside(waits, latest, context)]


def _latest(dumps: list[Dumped]) -> tuple[dict[int, Dumped], bool]:
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


def _groups(latest: dict[int, Dumped]) -> dict[str, Group]:
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


def _wait(group: Group, latest: dict[int, Dumped]) -> Wait | None:
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


def _pairs(groups: dict[str, Group], latest: dict[int, Dumped]) -> list[Wait]:
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


def _heads(waits: list[Wait], latest: dict[int, Dumped]) -> list[int]:
    """Ranks that others wait for and that wait nowhere themselves."""
    waiting = {rank for one in waits for rank in one.waiting}
    absent = Counter(rank for one in waits for rank in one.absent)
    return sorted(rank for rank in absent if rank not in waiting)


def _unknown_heads(waits: list[Wait]) -> list[int]:
    """Ranks without a dump that are the only ones a stuck group can be waiting for."""
    return sorted({rank for one in waits for rank in one.unknown if not one.absent})


def _lines(ranks: list[int], lines: dict[int, Dumped], waits: list[Wait]) -> list[EvidenceLine]:
    shown = []
    for rank in ranks[:8]:
        if rank in lines:
            status = ", ".join(
                f"{lines[rank].dump.names.get(key, key)}: enqueued {one.enqueued}, completed {one.completed}"
                for key, one in lines[rank].dump.status.items()
            )
            shown.append(EvidenceLine(line=lines[rank].line, text=f"rank {rank}: {status}", file=lines[rank].file))
    for one in waits[:8]:
        first = next((rank for rank in one.waiting if rank in lines), None)
        if first is not None:
            for_whom = f" for rank {', '.join(map(str, one.absent[:8]))}" if one.absent else ""
            text = f"group {one.group}: ranks {', '.join(map(str, one.waiting[:16]))} wait in {one.op} {one.seq}{for_whom}"
            shown.append(EvidenceLine(line=lines[first].line, text=text, file=lines[first].file))
    return shown


def _subject(ranks: list[int], context: Context) -> dict[str, Any]:
    if len(ranks) == 1:
        return context.rank_subject(ranks[0])
    nodes = {context.ranks[rank][0] for rank in ranks if rank in context.ranks}
    subject: dict[str, Any] = {"job": context.job_name, "rank": ranks[0]}
    if len(nodes) == 1:
        subject["node"] = nodes.pop()
    return subject


def _names(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks[:8]))}{' ..' if len(ranks) > 8 else ''}"


def _blame(heads: list[int], waits: list[Wait], lines: dict[int, Dumped], context: Context) -> Finding:
    direct = [one for one in waits if set(one.absent) & set(heads)]
    first = min(direct, key=lambda one: (len(one.waiting) + len(one.absent), one.group))
    others = len({one.group for one in waits}) - 1
    chain = f" {others} other groups wait further down the chain." if others else ""
    return finding(
        "job.hang",
        _subject(heads, context),
        f"{_names(heads).capitalize()} never came to {first.op} {first.seq} of group {first.group} and waits for nobody: the "
        f"head of the chain.{chain}"
        " The cause lies on its host or in its code, not in the network.",
        evidence=_lines(heads, lines, direct + [one for one in waits if one not in direct]),
        culprit="node",
        response="restart",
        next_steps=_NEXT,
    )


def _silent(ranks: list[int], waits: list[Wait], lines: dict[int, Dumped], context: Context) -> Finding:
    """All that have a dump wait, and what they wait for can only be ranks that have none."""
    total = len({rank for one in waits for rank in (*one.waiting, *one.absent, *one.unknown)})
    nodes = {context.ranks[rank][0] for rank in ranks if rank in context.ranks}
    few = len(ranks) <= max(1, total * MINORITY) or len(nodes) == 1
    if not few:
        return finding(
            "job.hang",
            {"job": context.job_name},
            f"{len(ranks)} ranks have no dump: that is missing data, not a missing rank. Those that have one wait for them.",
            evidence=_lines([], lines, waits),
            next_steps=("Collect the other ranks' dumps and inspect all together.",),
        )
    whole = len(nodes) == 1 and len(ranks) > 1 and set(ranks) == set(context.ranks_on(next(iter(nodes))))
    return finding(
        "node.lost" if whole else "job.hang",
        _subject(ranks, context),
        f"{_names(ranks).capitalize()} left no dump, and all others wait for it: killed or frozen, for a killed rank never dumps.",
        evidence=_lines([], lines, waits),
        culprit="node",
        response="restart",
        layers=("communication",),
        next_steps=("See whether its process and host live.",),
    )


def _stuck(odd: list[int], waits: list[Wait], lines: dict[int, Dumped], context: Context) -> Finding:
    first = next(one for one in waits if one.odd)
    return finding(
        "job.hang",
        _subject(odd, context),
        f"All ranks called {first.op} {first.seq} of group {first.group}, but {_names(odd)} did not start or finish it on the "
        f"GPU: what runs before it there does not end.",
        evidence=_lines(odd, lines, waits),
        culprit="gpu",
        response="restart",
        next_steps=_NEXT,
    )


def _desync(one: Wait, lines: dict[int, Dumped], context: Context) -> Finding:
    kinds: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank in one.waiting:
        for call in lines[rank].dump.calls:
            if call.seq == one.seq and not call.p2p and lines[rank].dump.names.get(call.group, call.group) == one.group:
                kinds[call.op, call.shape].append(rank)
    odd = min(kinds.values(), key=len) if len(kinds) > 1 else []
    alone = len(odd) == 1 and len(one.waiting) > 2
    return finding(
        "job.desync",
        context.rank_subject(odd[0]) if alone else {"job": context.job_name},
        f"At number {one.seq} of group {one.group} the ranks called different {one.mismatch}: the program's order differs "
        f"between ranks.",
        evidence=_lines(odd if alone else list(one.waiting[:4]), lines, [one]),
        response="page",
        next_steps=("Look for branches that depend on the rank or on data around that call.",),
    )


def _inside(waits: list[Wait], lines: dict[int, Dumped], context: Context) -> Finding:
    first = min(waits, key=lambda one: (len(one.waiting), one.group))
    cycle = all(one.absent for one in waits)
    if cycle and len(waits) > 1:
        return finding(
            "job.desync",
            {"job": context.job_name},
            "Groups wait for each other in a circle: ranks call their groups in different orders.",
            evidence=_lines([], lines, waits),
            response="page",
        )
    return finding(
        "job.hang",
        {"job": context.job_name},
        f"All ranks of group {first.group} joined {first.op} {first.seq} with equal sizes, and it does not end: transport "
        f"between them or a GPU, no rank is late.",
        evidence=_lines([], lines, waits),
        response="restart",
        next_steps=("Look at the ports of these nodes and for NCCL WARN lines.",),
    )
