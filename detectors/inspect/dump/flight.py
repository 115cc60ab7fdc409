"""Who holds up the collectives, by flight records: follow each waiting group to the rank that it waits for, and on from there.

In TP x PP x DP many groups wait, most of them for ranks that wait themselves in another group. The culprit is the head of the
chain: a rank
that others wait for and that waits for nobody. A rank without a dump is missing *data*; only if every chain ends there is it a
suspect.
"""

from collections import defaultdict
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.dump.phase import within_phase
from detectors.inspect.dump.waits import MINORITY, Dumped, Wait, groups_of, heads_of, newest, pairs_of, unknown_heads, wait_of
from detectors.inspect.findings import EvidenceLine, Finding, finding

_NEXT: Final = ("Take that rank's stack (py-spy) and its host's kernel log.",)


def judge_flight(dumps: list[Dumped], context: Context) -> list[Finding]:
    """One finding about what stands still, or none."""
    latest, moving = newest(dumps)
    groups = groups_of(latest)
    waits = [one for group in groups.values() if (one := wait_of(group, latest)) is not None] + pairs_of(groups, latest)
    if not waits or moving or within_phase(context):
        return []
    if bad := [one for one in waits if one.mismatch]:
        return [_desync(bad[0], latest, context)]
    heads = heads_of(waits, latest)
    if heads:
        return [_blame(heads, waits, latest, context)]
    unknown = unknown_heads(waits)
    if unknown:
        return [_silent(unknown, waits, latest, context)]
    odd = sorted({rank for one in waits for rank in one.odd})
    if odd and len({tuple(one.odd) for one in waits if one.odd}) == 1:
        return [_stuck(odd, waits, latest, context)]
    return [_inside(waits, latest, context)]


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
