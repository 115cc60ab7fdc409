"""Who computed a wrong number: Megatron's rerun state machine, and replicas that should be equal.

A result that is not the same on repetition is wrong arithmetic; one that is the same on another GPU is program or data.
"""

from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding, finding
from detectors.inspect.train_log.story import Story, Told

POISONED: Final = (
    "Stop before the next snapshot is written; later snapshots hold poisoned weights.",
    "Go back to the last snapshot before the first bad step and look at that step's batch.",
    "Repeat that step from the snapshot on other GPUs: the same NaN means program or data, another answer means a device.",
)
#: Repeats of a wrong answer on one device that make it a suspect worth leaving.
REPEATS_TO_DRAIN: Final = 2
#: Devices with one transient error each: from here on the common factor is the program.
DEVICES_TO_BLAME_CODE: Final = 3


def judge_reruns(story: Story, context: Context) -> list[Finding]:
    """The verdicts of the rerun state machine: who computes wrong, if anybody."""
    verdicts = [one for one in story.numeric if one.what == "rerun"]
    mismatch = [one for one in story.numeric if one.what == "replica_mismatch"]
    if not verdicts:
        return _mismatch(mismatch, context) if mismatch else []
    lines = [one.evidence() for one in story.numeric if one.what in ("rerun", "rerun_unexpected", "rerun_same_gpu")]
    kinds = {one.data["verdict"] for one in verdicts}
    if "persistent" in kinds:
        # The line of the second rerun is printed by the other, good device: the suspect is the device of the first.
        place = _place(next((one for one in verdicts if one.data["verdict"] == "repeats_here"), None), story, context)
        return [_sdc(place, lines, "The same step gives another answer on another GPU: the first GPU computes wrong.", "drain")]
    if "correct" in kinds:
        place = _place(next(one for one in verdicts if one.data["verdict"] == "correct"), story, context)
        return [
            finding(
                "job.loss_nan",
                {"job": context.job_name} | {"rank": place.get("rank")},
                evidence=lines,
                response="page",
                explanation="The unexpected result is the same on another GPU: the hardware computes right. The program or "
                "its data makes the NaN.",
                next_steps=POISONED,
            )
        ]
    transient = _transient(verdicts, story, context)
    if transient:
        return _judge_transient(transient, lines, context)
    return [_open(_place(verdicts[0], story, context), lines, context)]


def _open(place: dict[str, Any], lines: list[EvidenceLine], context: Context) -> Finding:
    return finding(
        "job.loss_nan",
        {"job": context.job_name} | {"rank": place.get("rank")},
        evidence=lines,
        response="page",
        repair="investigate",
        explanation="The unexpected result repeats on the same GPU. Only a rerun on another GPU tells a bad device from "
        "program or data.",
        next_steps=("Resume from the snapshot with this rank on another GPU; keep the node out of other jobs until then.",),
    )


def _judge_transient(
    transient: dict[tuple[Any, ...], tuple[dict[str, Any], set[Any]]], lines: list[EvidenceLine], context: Context
) -> list[Finding]:
    place, steps = max(transient.values(), key=lambda value: len(value[1]))
    if len(steps) >= REPEATS_TO_DRAIN:
        return [
            _sdc(
                place,
                lines,
                f"{len(steps)} times a repeated step gave another answer on this one GPU, with the same data and code: wrong "
                f"arithmetic, not bad data.",
                "drain",
            )
        ]
    if len(transient) >= DEVICES_TO_BLAME_CODE:
        return [
            finding(
                "job.loss_nan",
                {"job": context.job_name},
                evidence=lines,
                response="page",
                repair="investigate",
                explanation=f"Results that do not repeat on {len(transient)} GPUs, once each: the common factor is the "
                f"program (a race, an uninitialised"
                " buffer), not one device.",
                next_steps=POISONED,
            )
        ]
    return [
        _sdc(
            place,
            lines,
            "One result that did not repeat on the same GPU. Once proves nothing; a second one on this GPU would.",
            "watch",
        )
    ]


def _transient(verdicts: list[Told], story: Story, context: Context) -> dict[tuple[Any, ...], tuple[dict[str, Any], set[Any]]]:
    """Devices with results that did not repeat, each with the steps at which that happened."""
    devices: dict[tuple[Any, ...], tuple[dict[str, Any], set[Any]]] = {}
    for one in verdicts:
        if one.data["verdict"] != "transient":
            continue
        place = _place(one, story, context)
        key = (place.get("node"), place.get("gpu")) if place.get("gpu") is not None else ("rank", place.get("rank"))
        before = [other for other in story.numeric if other.what == "rerun_unexpected" and other.order < one.order]
        step = one.data.get("step") or (before[-1].data["step"] if before else None)
        devices.setdefault(key, (place, set()))[1].add(step)
    return devices


def _place(one: Told | None, story: Story, context: Context) -> dict[str, Any]:
    """Rank, node and GPU that a rerun line is about; a line that names none belongs to the unexpected result before it."""
    if one is None:
        first = next((other for other in story.numeric if other.what == "rerun_unexpected"), None)
        rank = first.record.rank if first else None
    else:
        rank = one.record.rank
        if rank is None:
            before = [other for other in story.numeric if other.what == "rerun_unexpected" and other.order < one.order]
            rank = before[-1].record.rank if before else None
    known = context.rank_subject(rank) if rank is not None else {"job": context.job_name}
    told = {"node": one.record.node, "gpu": one.record.gpu} if one is not None else {}
    return known | {key: value for key, value in told.items() if value is not None}


def _sdc(place: dict[str, Any], lines: list[EvidenceLine], explanation: str, response: Any) -> Finding:
    return finding(
        "gpu.sdc",
        place,
        explanation,
        evidence=lines,
        response=response,
        next_steps=(
            "Move the job off this GPU at its next boundary.",
            "Run the vendor's diagnostics (long level) and a matrix-multiply check on it.",
        ),
    )


def _mismatch(lines: list[Told], context: Context) -> list[Finding]:
    """Replicas that should be equal differ: one rank named is a suspect."""
    ranks = {one.record.rank for one in lines if one.record.rank is not None}
    evidence = [one.evidence() for one in lines]
    if len(ranks) == 1:
        return [
            _sdc(
                context.rank_subject(ranks.pop()),
                evidence,
                "One rank's weights differ from those of its replicas: a device that computes wrong.",
                "drain",
            )
        ]
    return [
        finding(
            "gpu.sdc",
            {"job": context.job_name},
            "Replicas that should hold equal weights differ; which one is wrong is not told.",
            evidence=evidence,
            response="page",
        )
    ]
