"""NCCL RAS answers: dead and missing processes, errors, and ranks that lag in two polls alike."""

from collections import Counter
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding, finding
from outrider.parsers.ras import RasPoll, RasRank

#: A lag of so many operations in one poll is more than launch-ahead makes.
LAG_FAR: Final = 50


def judge_ras(polls: list[RasPoll], context: Context, file: str | None) -> list[Finding]:
    """One finding: dead before missing before failed before lagging."""
    last = polls[-1] if polls else None
    if last is None:
        return []
    if gone := last.dead or last.missing:
        return [_gone(gone, bool(last.dead), context, file)]
    if last.failed:
        one = last.failed[0]
        return [
            finding(
                "job.rank_exit",
                _subject(one, context),
                f"NCCL reports an error at this rank: {one.text}.",
                evidence=_lines(last.failed, file),
                culprit="none",
                repair="investigate",
                layers=("communication",),
            )
        ]
    return _lagging(polls, context, file)


def _gone(gone: list[RasRank], dead: bool, context: Context, file: str | None) -> Finding:
    nodes = {one.node for one in gone if one.node}
    subject = _subject(gone[0], context)
    everything = len(nodes) == 1 and len(gone) > 1
    what = "dead (unreachable for RAS)" if dead else "missing"
    return finding(
        "node.lost" if everything else "job.rank_exit",
        {key: value for key, value in subject.items() if not everything or key not in ("rank", "gpu", "process")},
        f"{len(gone)} process{'es are' if len(gone) > 1 else ' is'} {what}: the others wait for "
        f"{'them' if len(gone) > 1 else 'it'}.",
        evidence=_lines(gone, file),
        culprit="node",
        repair="investigate",
        response="restart" if dead else "page",
        layers=("communication",),
        next_steps=("See whether that host answers.",),
    )


def _lagging(polls: list[RasPoll], context: Context, file: str | None) -> list[Finding]:
    last = polls[-1]
    behind = {(comm, _name(one)): one for comm, ranks in last.lagging.items() for one in ranks}
    if not behind:
        return []
    before = polls[-2] if len(polls) > 1 else None
    same = [
        one
        for (comm, name), one in behind.items()
        if before is not None
        and any(_name(old) == name and old.count == one.count for old in before.lagging.get(comm, []))
        and before.front.get(comm) == last.front.get(comm)
    ]
    if same:
        ranks = Counter(_name(one) for one in same)
        one = same[0]
        alone = len(ranks) == 1
        return [
            finding(
                "job.hang",
                _subject(one, context) if alone else {"job": context.job_name},
                f"{'One rank lags' if alone else f'{len(ranks)} ranks lag'} behind the others by the same count in two polls: "
                f"it does not come.",
                evidence=_lines(same, file),
                culprit="node" if alone else "none",
                response="restart",
                layers=("communication",),
            )
        ]
    one = next(iter(behind.values()))
    return [
        finding(
            "job.straggler",
            _subject(one, context),
            "Ranks differ in launched operations in one poll; healthy jobs do that for a moment. Poll again after 10 s.",
            evidence=_lines(list(behind.values()), file),
            response="watch",
            layers=("communication",),
        )
    ]


def _name(one: RasRank) -> Any:
    return one.rank if one.rank is not None else (one.node, one.pid)


def _subject(one: RasRank, context: Context) -> dict[str, Any]:
    node = (context.node_at(one.node) or one.node) if one.node else None
    at = context.rank_at(node, one.gpu) if one.gpu is not None else None
    rank = one.rank if at is None else at  # a rank in a communicator is the job's rank only in the world's
    known = context.rank_subject(rank) if rank is not None else {"job": context.job_name}
    return {"node": node, "gpu": one.gpu, "process": one.pid} | known


def _lines(ranks: list[RasRank], file: str | None) -> list[EvidenceLine]:
    return [EvidenceLine(line=one.line, text=one.text, file=file) for one in ranks[:12]]
