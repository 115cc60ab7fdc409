"""How Slurm's answers read: records of nodes and jobs from any version of its JSON, or from scontrol's lines. Pure."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from alerts.schedulers.port import SchedulerError, fence_of
from outrider.parsers.hostlist import expand

T = TypeVar("T")
#: States of a job that is over for good, and was not ended by a failing node.
OVER: Final = frozenset({"COMPLETED", "CANCELLED", "TIMEOUT", "DEADLINE"})
#: States in which a job holds its nodes.
RUNNING: Final = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED", "STAGE_OUT"})
#: What scontrol says -> (code, a later try makes sense).
_WORDS: Final = (
    ("invalid job id", "no_such_job", False), ("invalid node name", "no_such_node", False),
    ("not found", "no_such_node", False),
    # All that slurmrestd 22.05 says to a token that is wrong or expired (with status 500).
    ("unspecified error", "unauthorised", True),
    ("unable to contact", "unreachable", True), ("connection refused", "unreachable", True),
    ("connect failure", "unreachable", True),
    ("permission denied", "unauthorised", True), ("authentication", "unauthorised", True), ("protocol", "unauthorised", True),
    ("expired", "unauthorised", True), ("job has already finished", "job_over", False), ("already completed", "job_over", False),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """`states`: base state and flags, upper case (`IDLE`, `DRAIN`, `DOWN`, `NOT_RESPONDING`, ..)."""

    name: str
    states: frozenset[str]
    reason: str
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """`nodes`: of the running allocation, in Slurm's order. `restarts`: how often it was requeued."""

    job_id: int
    name: str
    states: frozenset[str]
    nodes: tuple[str, ...]
    restarts: int
    comment: str
    partition: str
    tasks_per_node: int
    tasks: int
    held: bool
    #: False: it was submitted with `--no-requeue`, and Slurm starts it no second time.
    requeue: bool = True


def failure(text: str) -> SchedulerError:
    """What scontrol said, as an error with a code."""
    said = " ".join(text.split())[:300]
    lowered = said.lower()
    for word, code, again in _WORDS:
        if word in lowered:
            return SchedulerError(said, code, again=again)
    return SchedulerError(said or "scontrol failed and said nothing", "strange_answer", again=True)


def read_node(found: dict[str, Any]) -> SlurmNode:
    """A node as any version of the API has it: `state` is a word with `state_flags`, or a list of words."""
    partitions = found.get("partitions") or ()
    return SlurmNode(
        name=str(found.get("name")), states=_states(found.get("state")) | _states(found.get("state_flags")),
        reason=str(found.get("reason") or ""), partitions=tuple(partitions) if isinstance(partitions, list) else (str(partitions),),
    )  # fmt: skip


def read_job(found: dict[str, Any]) -> SlurmJob:
    """A job as any version of the API has it: numbers may be wrapped, the state may be a list."""
    priority = found.get("priority")
    return SlurmJob(
        job_id=_number(found.get("job_id")), name=str(found.get("name") or ""), states=_states(found.get("job_state")),
        nodes=tuple(expand(str(found.get("nodes") or ""))), restarts=_number(found.get("restart_cnt")),
        comment=str(found.get("comment") or ""), partition=str(found.get("partition") or ""),
        tasks_per_node=_number(found.get("tasks_per_node")), tasks=_number(found.get("tasks")),
        held=priority is not None and _number(priority) == 0, requeue=bool(_number(found.get("requeue", 1))),
    )  # fmt: skip


#: What scontrol's lines call it -> what its JSON calls it.
_NAMES: Final = {
    "NodeName": "name", "State": "state", "Reason": "reason", "Partitions": "partitions", "JobId": "job_id", "JobName": "name",
    "JobState": "job_state", "NodeList": "nodes", "Restarts": "restart_cnt", "Comment": "comment", "Partition": "partition",
    "NumTasks": "tasks", "Priority": "priority", "Requeue": "requeue", "NTasksPerN:B:S:C": "tasks_per_node",
}  # fmt: skip


def read_lines(text: str) -> list[dict[str, Any]]:
    """`scontrol --oneliner show ..`: a record a line, `Key=value`; a value may hold spaces, but no word of it looks like `Key=`."""
    records = []
    for line in text.splitlines():
        pairs = (part.partition("=") for part in re.split(r"\s+(?=[A-Z][\w:/.-]*=)", line.strip()))
        found: dict[str, Any] = {_NAMES[key]: value for key, _, value in pairs if key in _NAMES}
        if not found:
            continue
        if "partitions" in found:
            found["partitions"] = found["partitions"].split(",")
        if "reason" in found:
            found["reason"] = re.sub(r"\s*\[[^\[\]]*@[^\[\]]*\]$", "", found["reason"])
        if found.get("nodes") == "(null)":
            found["nodes"] = ""
        each = str(found.get("tasks_per_node", "")).partition(":")[0]
        found["tasks_per_node"] = int(each) if each.isdecimal() else 0
        records.append(found)
    return records


def _states(value: Any) -> frozenset[str]:
    words = value if isinstance(value, list) else str(value or "").replace("+", " ").split()
    return frozenset(str(word).strip("*").upper() for word in words)


def _number(value: Any) -> int:
    if isinstance(value, dict):
        return int(value.get("number") or 0) if value.get("set", True) else 0
    return int(value or 0)


def records(text: str, key: str, who: str) -> list[dict[str, Any]]:
    try:
        answer = json.loads(text)
        errors = [str(one.get("error") or one.get("description") or one) for one in answer.get("errors") or ()]
        records = answer.get(key)
    except (ValueError, AttributeError, RecursionError):
        raise SchedulerError(f"{who} answered no JSON", "strange_answer", again=True) from None
    if errors:
        raise failure("; ".join(errors))
    if not isinstance(records, list):
        raise SchedulerError(f"{who}'s answer has no {key}", "strange_answer", again=True)
    return records


def that_one(named: list[SlurmJob], nodes: set[str]) -> SlurmJob:
    """Of jobs with one name the one that is meant: it lives, it is on `nodes`, it carries our mark, it has run before (a successor
    that waits in the queue has not). What no job shows tells nothing.

    Raises:
        SchedulerError: there is more than one still; nobody's job is ended by guess.
    """
    live = [job for job in named if job.states & {*RUNNING, "PENDING"} and not job.states & OVER]
    # One that a failing node ended may still come back; Slurm shows it for minutes beside the one that has taken its place.
    live = live or [max(named, key=lambda job: (not job.states & OVER, job.job_id))]
    signs: tuple[Callable[[SlurmJob], bool], ...] = (
        lambda job: bool(nodes & set(job.nodes)), lambda job: fence_of(job.comment) is not None,
        lambda job: bool(job.restarts or job.states & RUNNING),
    )  # fmt: skip
    for sign in signs:
        live = [job for job in live if sign(job)] or live
    if len(live) > 1:
        numbers = ", ".join(str(job.job_id) for job in live[:5])
        words = f"{len(live)} jobs are called {live[0].name} ({numbers}): say which one it is in [alerts.slurm] jobs"
        raise SchedulerError(words, "ambiguous", again=False)
    return live[0]


def only(found: list[T], words: str, code: str) -> T:
    if not found:
        raise SchedulerError(words, code, again=False)
    return found[0]
