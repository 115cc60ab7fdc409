"""The finding that a record makes which names a cause by itself."""

from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import Finding, finding
from detectors.inspect.train_log.causes import CRASHES, exit_code, place
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
    if code in CRASHES:
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
