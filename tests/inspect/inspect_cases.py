"""A case: one file's text and the answer that an operator would give; and lines as trainers print them. A helper of the tests."""

# ruff: noqa: E501 (raw machine text is kept as it is printed)

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detectors.inspect.context import make_context
from detectors.inspect.findings import Finding, strongest_first
from detectors.inspect.kinds import judge_of
from detectors.inspect.sources import Source


@dataclass(frozen=True)
class Case:
    """`culprits` empty: nothing above `watch` may be found. `faults`, `subject` empty: whatever they are."""

    name: str
    text: str
    culprits: set[str] = field(default_factory=set)
    responses: set[str] = field(default_factory=set)
    faults: set[str] = field(default_factory=set)
    subject: dict[str, Any] = field(default_factory=dict)
    context: dict[str, Any] = field(default_factory=dict)


def check(case: Case, kind: str, tmp_path: Path) -> None:
    """Judges the case's text as a file of `kind` and compares with the answer."""
    file = tmp_path / "input.txt"
    file.write_text(case.text, encoding="utf-8")
    found = strongest_first(judge_of(kind)([Source(file)], make_context(json.loads(json.dumps(case.context)))))
    _compare(case, found)


def _compare(case: Case, found: list[Finding]) -> None:
    told = [f"{one.response}:{one.fault}:{one.culprit}:{one.subject}: {one.explanation}" for one in found]
    if not case.culprits:
        assert all(one.height <= 1 for one in found), told
        return
    loud = [one for one in found if one.height > 1]
    assert len(loud) == 1, told
    one = loud[0]
    assert one.culprit in case.culprits, told
    assert one.response in case.responses, told
    assert not case.faults or one.fault in case.faults, told
    assert not case.subject or {key: one.subject.get(key) for key in case.subject} == case.subject, told
    assert one.evidence and one.explanation


def nccl_timeout(
    rank: int, seq: int, enqueued: int, completed: int, second: int = 0, op: str = "ALLREDUCE", numel: int = 1024
) -> str:
    tag = f"[rank{rank}]:[E626 04:13:{second:02d}.519304170 ProcessGroupNCCL.cpp"
    return (
        f"{tag}:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={numel}, "
        f"Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n"
        f"{tag}:2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: "
        f"{enqueued}, last completed work: {completed}\n"
    )


def megatron(step: int, loss: str | None = "2.011874E+00", grad: str = "0.311", ms: float = 4400.0, extra: str = "") -> str:
    shown = "" if loss is None else f" lm loss: {loss} |"
    return (
        f" iteration {step:8d}/  190000 | consumed samples: {step * 128:12d} | elapsed time per iteration (ms): {ms:.1f} | learning rate: 2.114E-05 |"
        f"{shown} loss scale: 1.0 | grad norm: {grad} |{extra} number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def steps(first: int, count: int, base: float = 2.0, ms: float = 4400.0) -> str:
    return "".join(megatron(first + n, f"{base + ((n * 7) % 5 - 2) / 200:.6E}", ms=ms + n % 3) for n in range(count))
