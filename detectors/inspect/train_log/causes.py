"""Records that name a cause by themselves: how much each says, and where it is."""

from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.train_log.story import Episode, Story, Told

#: Exit codes that only follow: stopped by the launcher, or aborted by a watchdog.
SECONDARY_EXITS: Final = frozenset({0, -15, -6, -2, 143, 134, 130})
#: Segmentation fault, bus error, illegal instruction, floating point exception.
CRASHES: Final = frozenset({-11, -7, -4, -8, 139, 135, 132, 136})
#: Kinds that are causes, and how much they say: 2 names the cause, 1 only that this rank ended by itself.
_TIER: Final = {
    "cuda_oom": 2,
    "cuda_error": 2,
    "device_assert": 2,
    "loader_killed": 2,
    "loader_exited": 2,
    "segfault": 2,
    "bus_error": 2,
    "host_oom": 2,
    "slurm_oom": 2,
    "pod_oom": 2,
    "pod_pressure": 2,
    "storage_error": 2,
    "nan_local": 2,
    "shm_full": 2,
    "config_network": 2,
    "config_version": 2,
    "node_failure": 2,
    "checkpoint_failed": 2,
    "code_mismatch": 2,
    "killed": 1,
    "elastic_exit": 1,
    "task_exit": 1,
    "pod_exit": 1,
}


def tier(one: Told) -> int:
    """2: names a cause; 1: says that a rank ended by itself; 0: follows, or is no cause."""
    if one.what == "exception":
        return 2 if one.data.get("kind") not in ("secondary", "user") else 0
    if one.what in ("elastic_exit", "task_exit", "pod_exit"):
        return 0 if exit_code(one) in SECONDARY_EXITS else 1
    if one.what == "cancelled":
        return 2 if one.data.get("kind") in ("node_failure", "oom") else 0
    if one.what == "loader_killed" and "Terminated" in str(one.data.get("signal")):
        return 0
    return _TIER.get(one.what, 0)


def exit_code(one: Told) -> int | None:
    """The exit code, or minus the signal, of a line about an exit."""
    words = {
        "Killed": -9,
        "Segmentation fault": -11,
        "Bus error": -7,
        "Aborted": -6,
        "Terminated": -15,
        "Out Of Memory": -9,
        "Floating point exception": -8,
    }
    reason = str(one.data.get("reason", ""))
    return (
        one.data["exitcode"]
        if "exitcode" in one.data
        else next((code for word, code in words.items() if reason.startswith(word)), None)
    )


def is_crash(one: Told) -> bool:
    """A process that broke by itself: no launcher and no watchdog sends these signals."""
    return exit_code(one) in CRASHES


def first_cause(causes: list[Told]) -> Told:
    """The cause: the earliest of those that say most. Of exits, one that names a signal before a plain 1."""
    best = max(tier(one) for one in causes)
    said = [one for one in causes if tier(one) == best]
    if best == 1:
        said = [one for one in said if exit_code(one) != 1] or said
    if all(one.own is not None for one in said):
        return min(said, key=lambda one: (one.own or 0.0, one.order))
    return min(said, key=lambda one: one.order)


def place(one: Told, episode: Episode, story: Story, context: Context) -> dict[str, Any]:
    """Job, rank, node and GPU of the record, as far as the line, the context and other lines of the same process tell."""
    record = one.record
    rank, node, gpu = record.rank, record.node or context.node, record.gpu
    if rank is None and record.pid is not None:
        twins = [other for other in episode.told if other.record.pid == record.pid and other.record.rank is not None]
        rank = twins[0].record.rank if twins else None
        local = next(
            (
                other.record.local_rank
                for other in episode.told
                if other.record.pid == record.pid and other.record.local_rank is not None
            ),
            None,
        )
        if rank is None and node is not None and local is not None:
            rank = context.rank_at(node, local)
    if rank is None and node is not None and record.local_rank is not None:
        rank, gpu = context.rank_at(node, record.local_rank), record.local_rank if gpu is None else gpu
    if rank is None and node is not None and gpu is not None:
        rank = context.rank_at(node, gpu)
    if rank is None and len(tasks := one.data.get("tasks") or []) == 1:
        rank = tasks[0] if not context.ranks or tasks[0] in context.ranks else None
    known = context.rank_subject(rank) if rank is not None else {"job": context.job_name}
    named = record.node if record.node in context.nodes or "node" not in known else None  # a pod's name is no node's
    return {"node": node, "gpu": gpu} | known | ({"node": named} if named else {})
