"""Records that name a cause by themselves, and the finding that each makes."""

from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import Finding, finding
from detectors.inspect.train_log.story import Episode, Story, Told

#: CUDA errors by words: (words, fault, culprit, response, repair, what it means). First that fits; the rest is code.
_CUDA: Final[tuple[tuple[tuple[str, ...], str, str, str, str, str], ...]] = (
    (
        ("ecc", "uncorrectable", "containederror"),
        "gpu.ecc_contained",
        "gpu",
        "restart",
        "reset_gpu",
        "an uncorrectable memory error of the GPU",
    ),
    (("nvlink",), "gpu.nvlink", "link", "restart", "check_link", "an NVLink error"),
    (("is lost", "fallen off"), "gpu.fallen_off_bus", "gpu", "restart", "reboot_node", "the GPU is gone"),
    (
        ("hardware", "illegal instruction", "invalid program counter"),
        "gpu.other",
        "gpu",
        "drain",
        "investigate",
        "a hardware error of the GPU",
    ),
    (
        (
            "busy or unavailable",
            "no cuda-capable",
            "no cuda gpus",
            "initialization",
            "not yet initialized",
            "systemnotready",
            "nodevice",
            "devicesunavailable",
            "unknown error",
            "not_initialized",
        ),
        "gpu.missing",
        "node",
        "drain",
        "investigate",
        "this host's GPUs or driver cannot be used",
    ),
    (("launch timed out", "launchtimeout"), "gpu.driver_hang", "gpu", "restart", "reset_gpu", "a kernel did not end"),
)
#: Exit codes that only follow: stopped by the launcher, or aborted by a watchdog.
SECONDARY_EXITS: Final = frozenset({0, -15, -6, -2, 143, 134, 130})
#: Segmentation fault, bus error, illegal instruction, floating point exception.
_CRASHES: Final = frozenset({-11, -7, -4, -8, 139, 135, 132, 136})
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
    return exit_code(one) in _CRASHES


def first_cause(causes: list[Told]) -> Told:
    """The cause: the earliest of those that say most. Of exits, one that names a signal before a plain 1."""
    best = max(tier(one) for one in causes)
    said = [one for one in causes if tier(one) == best]
    if best == 1:
        said = [one for one in said if exit_code(one) != 1] or said
    if all(one.own is not None for one in said):
        return min(said, key=lambda one: (one.own or 0.0, one.order))
    return min(said, key=lambda one: one.order)


def judge_cause(one: Told, episode: Episode, story: Story, context: Context) -> Finding:
    """The finding for the record that is the cause."""
    subject = place(one, episode, story, context)
    follow = [other.evidence() for other in episode.told if other is not one][:6]
    evidence = [one.evidence(), *follow]
    cascade = f" {len(episode.told) - 1} other lines follow from it." if len(episode.told) > 1 else ""
    match one.what:
        case "cuda_oom":
            return finding(
                "job.oom",
                subject,
                "The rank ran out of GPU memory; what the others print is teardown." + cascade,
                evidence=evidence,
                next_steps=("Lower batch or sequence length, or shard more; a restart alone meets it again.",),
            )
        case "host_oom" | "slurm_oom" | "pod_oom" | "pod_pressure" | "shm_full" | "killed":
            return _memory(one, subject, evidence, cascade)
        case "cuda_error" | "device_assert":
            return _cuda(one, subject, evidence, cascade)
        case "loader_killed" | "loader_exited" | "bus_error":
            return _loader(one, subject, evidence, cascade)
        case "storage_error" | "checkpoint_failed":
            return _storage(one, subject, evidence, cascade, episode, story, context)
        case "node_failure" | "cancelled":
            # Slurm's notice of the end is printed by a daemon that lives: the notice about the node names the dead one.
            named = [other for other in episode.of("node_failure") if other.record.node or other.data.get("node2")]
            dead = named[0] if named else one
            node = dead.record.node or dead.data.get("node2")
            return finding(
                "node.lost",
                {"node": node, "job": context.job_name} if node else {"job": context.job_name},
                "The scheduler took the node for dead and ended the job." + cascade,
                evidence=evidence,
            )
        case "nan_local":
            return _nan(one, episode, subject, evidence, context)
        case "elastic_exit" | "task_exit" | "pod_exit":
            return _exit(one, subject, evidence, cascade)
        case _:
            return _exception(one, subject, evidence, cascade, episode, story, context)


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


def _memory(one: Told, subject: dict[str, Any], evidence: Any, cascade: str) -> Finding:
    if one.what == "killed":
        return finding(
            "job.rank_exit",
            subject,
            "A process was killed from outside; without a kernel line nobody can say that it was memory." + cascade,
            evidence=evidence,
            repair="investigate",
            next_steps=("Look in the kernel log of that host for oom-kill.",),
        )
    return finding(
        "job.oom",
        subject,
        "The host (or the container) ran out of memory and a process was killed." + cascade,
        evidence=evidence,
        next_steps=("Look at loader workers, pinned and shared memory; a restart alone meets it again.",),
    )


def _cuda(one: Told, subject: dict[str, Any], evidence: Any, cascade: str) -> Finding:
    text = str(one.data.get("error", "")).lower()
    for words, fault, culprit, response, repair, meaning in _CUDA:
        if any(word in text for word in words):
            known: Any = {"culprit": culprit, "response": response, "repair": repair}
            return finding(
                fault,
                subject,
                f"The rank met {meaning}: {one.data.get('error')}." + cascade,
                evidence=evidence,
                layers=("application",),
                **known,
            )
    return finding(
        "job.app_error",
        subject,
        f"A CUDA error that code makes first of all: {one.data.get('error') or one.data.get('message')}." + cascade,
        evidence=evidence,
        next_steps=(
            "Run the failing step with CUDA_LAUNCH_BLOCKING=1.",
            "If it comes back on this GPU alone with other programs, suspect the GPU.",
        ),
    )


def _loader(one: Told, subject: dict[str, Any], evidence: Any, cascade: str) -> Finding:
    signal = str(one.data.get("signal", ""))
    if "Killed" in signal:
        return finding(
            "job.oom",
            subject,
            "A data-loader worker was killed from outside: most often the host's memory." + cascade,
            evidence=evidence,
            next_steps=("Look in the kernel log of that host for oom-kill.", "Fewer workers or a smaller prefetch."),
        )
    if "Bus" in signal or one.what == "bus_error":
        return finding(
            "job.oom",
            subject,
            "A process died writing shared memory: /dev/shm is too small." + cascade,
            evidence=evidence,
            next_steps=("Give the container more shared memory.",),
        )
    return finding(
        "job.app_error",
        subject,
        "A data-loader worker died." + cascade,
        evidence=evidence,
        culprit="data",
        repair="fix_data",
        next_steps=("Read the worker's own traceback; run it with num_workers=0.",),
    )


def _storage(
    one: Told, subject: dict[str, Any], evidence: Any, cascade: str, episode: Episode, story: Story, context: Context
) -> Finding:
    errno = str(one.data.get("errno", "")) or one.record.text
    if "space left" in errno or "quota" in errno:
        return finding(
            "storage.full",
            subject,
            "A write failed because the file system or quota is full." + cascade,
            evidence=evidence,
            next_steps=("Free space or raise the quota; a restart meets it again.",),
        )
    if one.what == "checkpoint_failed":
        return finding("job.snapshot_failed", subject, "A snapshot could not be written." + cascade, evidence=evidence)
    nodes = {where for other in episode.of("storage_error") if (where := place(other, episode, story, context).get("node"))}
    if len(nodes) == 1 and len(story.nodes_heard | set(context.nodes)) > 1 and len(episode.of("storage_error")) > 1:
        return finding(
            "storage.hang",
            subject,
            f"Only {next(iter(nodes))} fails on storage ({errno}), other nodes do not: its own client.{cascade}",
            evidence=evidence,
            culprit="node",
            response="restart",
            repair="reboot_node",
        )
    return finding(
        "storage.hang",
        subject,
        f"The storage failed an operation: {errno}." + cascade,
        evidence=evidence,
        response="page",
        next_steps=("Check the mount on this host and the file server.",),
    )


def _nan(one: Told, episode: Episode, subject: dict[str, Any], evidence: Any, context: Context) -> Finding:
    ranks = {other.record.rank for other in episode.of("nan_local")}
    alone = len(ranks) == 1
    return finding(
        "job.loss_nan",
        subject if alone else {"job": context.job_name},
        "A rank's own check found NaN before any communication"
        + (": it began here, by its data, its code or its GPU." if alone else ", on several ranks at once."),
        evidence=evidence,
        culprit="data" if "input" in str(one.data.get("where")) or "batch" in str(one.data.get("where")) else "app",
        next_steps=("Repeat the step from the snapshot with this rank on another GPU.",),
    )


def _exit(one: Told, subject: dict[str, Any], evidence: Any, cascade: str) -> Finding:
    code = exit_code(one)
    if code in (-9, 137):
        text = "A rank was killed (SIGKILL) and nobody says by whom: often the host's memory."
        return finding(
            "job.rank_exit",
            subject,
            text + cascade,
            evidence=evidence,
            repair="investigate",
            next_steps=("Look in the kernel log of that host for oom-kill.",),
        )
    if code in _CRASHES:
        return finding("job.app_error", subject, f"A rank crashed (exit {code})." + cascade, evidence=evidence)
    return finding(
        "job.app_error",
        subject,
        f"A rank ended by itself with exit code {code}; its own output says why." + cascade,
        evidence=evidence,
    )


def _exception(
    one: Told, subject: dict[str, Any], evidence: Any, cascade: str, episode: Episode, story: Story, context: Context
) -> Finding:
    kind, name = one.data.get("kind"), one.data.get("type", one.what)
    if kind == "storage":
        return _storage(one, subject, evidence, cascade, episode, story, context)
    if kind == "memory":
        return _memory(one, subject, evidence, cascade)
    on_data = kind == "data"
    return finding(
        "job.app_error",
        subject,
        f"A rank ended with {name}" + (" in its data." if on_data else " in its own code.") + cascade,
        evidence=evidence,
        culprit="data" if on_data else "app",
        repair="fix_data" if on_data else "fix_app",
        next_steps=("Read the traceback above that line; a restart alone meets it again.",),
    )
