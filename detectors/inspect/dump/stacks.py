"""Stack dumps of a job: the odd one out, what it does, and whether host, GPU, storage, data or program holds it."""

from collections import Counter
from typing import Final

from detectors.inspect.context import Context
from detectors.inspect.dump.kernel import KernelWords, kernel_words
from detectors.inspect.dump.odd import odd_of, odd_one
from detectors.inspect.dump.phase import limit_of, within_phase
from detectors.inspect.dump.seen import ODD_SHARE, Seen, in_driver, in_storage, see, subject_of
from detectors.inspect.findings import EvidenceLine, Finding, finding
from outrider.parsers.stacks import StackDump

#: What a process does that waits for the others.
_WAITING: Final = frozenset({"collective"})


def judge_stacks(dump: StackDump, context: Context, files: dict[int, str | None]) -> list[Finding]:
    """One finding, or none where all is ordinary."""
    seen = [see(one, context, files.get(id(one))) for one in dump.processes]
    kernel = {section.node or "": kernel_words(section) for section in dump.kernels}
    if hardware := [one for words in kernel.values() for one in words.hardware(context)]:
        return [max(hardware, key=lambda one: one.height)]
    early = within_phase(context)
    storage = [one for one in seen if one.activity == "storage" or (one.blocked and in_storage(one, kernel))]
    if early:
        return _early(seen, kernel, context)
    if any(words.answered for words in kernel.values()) and not any(one.blocked for one in seen):
        storage = []  # the server answers again, and nobody is blocked any more
    gpu = [one for one in seen if in_driver(one, kernel)]
    if gpu and (len(gpu) <= max(1, len(seen) * ODD_SHARE) or len({one.node for one in gpu}) == 1):
        return [_driver(gpu, kernel, context)]
    waiting = [one for one in seen if one.activity in _WAITING]
    others = [one for one in seen if one.activity not in _WAITING]
    if storage and (len(others) == len(storage) or any(one.blocked for one in storage)):
        return [_storage(storage, seen, kernel, context)]
    if not seen:
        return _kernel_only(kernel, context)
    if len(seen) == 1:
        return _alone(seen[0], kernel, context)
    odd = odd_of(seen, waiting, others)
    if odd:
        return [odd_one(odd, seen, kernel, context)]
    return _together(seen, waiting, kernel, context)


def _early(seen: list[Seen], kernel: dict[str, KernelWords], context: Context) -> list[Finding]:
    """Within the limit of its phase nothing hangs; tasks that the kernel reports as blocked are worth a note."""
    blocked = [one for one in seen if one.blocked]
    if not blocked or not any(words.hung for words in kernel.values()):
        return []
    return [
        finding(
            "storage.hang",
            subject_of(blocked, context),
            f"Tasks are blocked in the kernel, but the phase {context.phase} ({context.phase_elapsed_s:.0f} s) is within its "
            f"limit of {limit_of(context):.0f} s.",
            evidence=[one.evidence() for one in blocked],
            response="watch",
            state="open",
        )
    ]


def _driver(gpu: list[Seen], kernel: dict[str, KernelWords], context: Context) -> Finding:
    first = gpu[0]
    words = kernel.get(first.node or "")
    several = len(gpu) > 1
    who = f"{len(gpu)} ranks of {first.node} are" if several else f"Rank {first.rank} is"
    return finding(
        "gpu.driver_hang",
        subject_of(gpu, context, gpu=not several),
        f"{who} stuck inside the GPU driver (state {first.process.state or '?'}); the others wait.",
        evidence=[one.evidence() for one in gpu] + (words.evidence() if words else []),
        culprit="node" if several else "gpu",
        layers=("application", "hardware") if words else ("application",),
        next_steps=("Read the kernel log around that task.", "A process in state D cannot be killed: the node needs a reboot."),
    )


def _storage(storage: list[Seen], seen: list[Seen], kernel: dict[str, KernelWords], context: Context) -> Finding:
    """One node alone: its own client. Several nodes: what they share, the storage."""
    blocked = [one for one in storage if one.blocked] or storage
    nodes = {one.node for one in blocked} | {node for node, words in kernel.items() if words.storage and node}
    lines = [one.evidence() for one in blocked[:10]] + [line for words in kernel.values() for line in words.evidence()]
    mount = next((words.place for words in kernel.values() if words.place), {})
    everybody = len({one.node for one in seen})
    fatal = any(one.blocked for one in blocked)
    if len(nodes) == 1 and everybody > 1:
        return finding(
            "storage.hang",
            subject_of(blocked, context) | mount,
            f"Only {next(iter(nodes))} is stuck in storage (rank {blocked[0].rank}{', state D' if fatal else ''}), no other "
            f"node reports it: its own storage client, not the"
            " file server. The others wait for it in a collective.",
            evidence=lines,
            culprit="node",
            response="restart",
            repair="reboot_node" if fatal else "investigate",
            layers=("application", "hardware") if kernel else ("application",),
            next_steps=("State D cannot be killed: fence the node and reboot it.", "Check that other nodes reach the same mount."),
        )
    return finding(
        "storage.hang",
        {"job": context.job_name} | mount | ({"node": next(iter(nodes))} if len(nodes) == 1 else {}),
        f"{len(blocked)} ranks on {len(nodes)} node{'s' * (len(nodes) != 1)} stand in storage operations: what they share is "
        f"the file system, not a node.",
        evidence=lines,
        culprit="storage",
        response="page",
        layers=("application", "hardware") if kernel else ("application",),
        next_steps=("Look at the file server and its network first; draining nodes changes nothing.",),
    )


def _alone(one: Seen, kernel: dict[str, KernelWords], context: Context) -> list[Finding]:
    """A single stack: it says what this process does, not whether that is wrong."""
    words = kernel.get(one.node or "")
    if one.blocked and (words is None or words.hung):
        fault = "gpu.driver_hang" if one.activity == "gpu" or (words and words.driver) else "storage.hang"
        return [
            finding(
                fault,
                subject_of([one], context),
                "The process is in an uninterruptible wait (state D).",
                evidence=[one.evidence(), *(words.evidence() if words else [])],
                culprit="node" if fault == "storage.hang" else "gpu",
                response="restart" if words else "page",
            )
        ]
    return [
        finding(
            "job.hang",
            subject_of([one], context),
            f"One stack only: this process is in {one.activity}. Without the other ranks' stacks nobody is the odd one.",
            evidence=[one.evidence()],
            response="watch",
        )
    ]


def _kernel_only(kernel: dict[str, KernelWords], context: Context) -> list[Finding]:
    hung = {node: words for node, words in kernel.items() if words.hung}
    if not hung:
        return []
    node, words = next(iter(hung.items()))
    fault = "gpu.driver_hang" if words.driver else "storage.hang"
    return [
        finding(
            fault,
            {"node": node or None, "job": context.job_name},
            "The kernel reports tasks that are blocked.",
            evidence=words.evidence(),
            culprit="gpu" if words.driver else "node",
        )
    ]


def _together(seen: list[Seen], waiting: list[Seen], kernel: dict[str, KernelWords], context: Context) -> list[Finding]:
    """No odd one: all wait, or all do the same."""
    lines = [one.evidence() for one in seen[:10]]
    heard = {one.rank for one in seen if one.rank is not None}
    missing = sorted(set(context.ranks) - heard)
    if missing and len(waiting) > len(seen) * 0.6 and len(missing) <= max(1, len(context.ranks) * ODD_SHARE):
        return [_missing(missing, lines, context)]
    if len(waiting) == len(seen):
        return [
            finding(
                "job.hang",
                {"job": context.job_name},
                "All ranks wait in the same collective and nobody is missing: transport or a GPU, not a rank's program.",
                evidence=lines,
                response="restart",
                next_steps=("Get flight records and look for NCCL WARN lines and port counters.",),
            )
        ]
    common, count = Counter(one.activity for one in seen).most_common(1)[0]
    late = _late(context)
    if common in ("data", "storage") and count > len(seen) * 0.5:
        some = [one for one in seen if one.activity == common]
        if len({one.node for one in some}) > 1 or common == "storage":
            return [_storage(some, seen, kernel, context)]
    known = common in ("eval", "compile", "gc", "debugger")
    return [
        finding(
            "job.hang",
            {"job": context.job_name},
            f"{count} of {len(seen)} ranks are in {common}{late}.",
            evidence=lines,
            culprit="app" if known else "none",
            response="page" if late else "watch",
            repair="fix_app" if known else "investigate",
        )
    ]


def _late(context: Context) -> str:
    limit = limit_of(context)
    if limit is None or context.phase_elapsed_s is None:
        return ""
    return f" for {context.phase_elapsed_s:.0f} s, over the limit of {limit:.0f} s"


def _missing(missing: list[int], lines: list[EvidenceLine], context: Context) -> Finding:
    nodes = {context.ranks[rank][0] for rank in missing}
    subject = (
        context.rank_subject(missing[0])
        if len(missing) == 1
        else {"job": context.job_name, "node": nodes.copy().pop() if len(nodes) == 1 else None, "rank": missing[0]}
    )
    whole = len(nodes) == 1 and set(missing) == set(context.ranks_on(next(iter(nodes))))
    return finding(
        "node.lost" if whole and len(missing) > 1 else "job.rank_exit",
        subject,
        f"{'Rank' if len(missing) == 1 else 'Ranks'} {', '.join(map(str, missing[:8]))} gave no stack while all others wait: "
        f"gone, or not to be reached.",
        evidence=lines,
        culprit="node",
        response="restart",
        repair="investigate",
    )
