"""The odd one out among the stacks of a job: what it does that the others do not, and whose matter that is. Pure."""

from collections import Counter, defaultdict
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.dump.activity import gil_holder, signature
from detectors.inspect.dump.kernel import KernelWords
from detectors.inspect.dump.seen import ODD_SHARE, Seen, subject_of
from detectors.inspect.findings import Finding, finding
from outrider.parsers.stacks import ProcessStack, Thread


def odd_of(seen: list[Seen], waiting: list[Seen], others: list[Seen]) -> list[Seen]:
    """The few that do something else than the many, or that wait at another place than the many."""
    share = max(1, int(len(seen) * ODD_SHARE))
    if others and len(waiting) > len(others) and (len(others) <= share or len({one.node for one in others}) == 1):
        return others
    if len(waiting) < len(seen) * 0.5:
        kinds = Counter(one.activity for one in seen)
        common, count = kinds.most_common(1)[0]
        rest = [one for one in seen if one.activity != common]
        return rest if rest and count > len(rest) and len(rest) <= share else []
    if others:
        return []
    places: dict[str, list[Seen]] = defaultdict(list)
    for one in waiting:
        places[signature(one.process)].append(one)
    smallest, largest = min(places.values(), key=len), max(places.values(), key=len)
    return smallest if len(places) == 2 and len(smallest) <= share and len(largest) > len(smallest) else []


#: What the odd one does -> (fault, culprit, response, repair, what it means).
_MEANING: Final[dict[str, tuple[str, str, str, str, str]]] = {
    "data": ("job.dataloader_stall", "data", "restart", "fix_data", "waiting for its data loader"),
    "gpu": ("gpu.driver_hang", "gpu", "restart", "investigate", "waiting for its GPU, whose work does not end"),
    "compile": ("job.hang", "app", "restart", "fix_app", "compiling"),
    "eval": ("job.hang", "app", "restart", "fix_app", "in evaluation, where the others are not"),
    "gc": ("job.hang", "app", "restart", "fix_app", "collecting garbage"),
    "debugger": ("job.hang", "app", "page", "fix_app", "standing in a debugger"),
    "sleep": ("job.hang", "app", "restart", "fix_app", "sleeping"),
    "lock": ("job.hang", "app", "restart", "fix_app", "waiting for a lock inside its own process"),
    "network": ("job.hang", "app", "restart", "fix_app", "waiting for a service over the network"),
    "exit": ("job.rank_exit", "app", "restart", "fix_app", "ending"),
    "compute": ("job.hang", "node", "restart", "investigate", "still computing"),
    "storage": ("storage.hang", "storage", "restart", "fix_storage", "waiting for storage"),
    "collective": ("job.desync", "app", "page", "fix_app", "waiting in another collective than the others"),
    "unknown": ("job.hang", "node", "restart", "investigate", "doing something else than the others"),
}


def odd_one(odd: list[Seen], seen: list[Seen], kernel: dict[str, KernelWords], context: Context) -> Finding:
    first = odd[0]
    if holder := gil_holder(first.process):
        return _locked_out(odd, holder, context)
    if first.process.state in ("T", "Z"):
        what = "is stopped (a debugger or SIGSTOP)" if first.process.state == "T" else "is dead and not yet reaped"
        return finding(
            "job.hang" if first.process.state == "T" else "job.rank_exit",
            subject_of(odd, context),
            f"Rank {first.rank} {what}; the others wait for it.",
            evidence=[one.evidence() for one in odd],
            culprit="app",
            response="restart",
        )
    fault, culprit, response, repair, meaning = _MEANING[first.activity]
    nodes = {one.node for one in odd}
    known: Any = {"culprit": culprit, "response": response, "repair": repair}
    if first.activity == "unknown" and _runs_python(first.process):
        known, meaning = known | {"culprit": "app", "repair": "fix_app"}, "running Python code of its own"
    if first.activity == "data" and len(odd) > 1 and len(nodes) > 1:
        known["culprit"] = "storage"
    who = f"Rank {first.rank}" if len(odd) == 1 else f"{len(odd)} ranks on {len(nodes)} node{'s' * (len(nodes) != 1)}"
    where = f" in {first.frame.function} ({first.frame.file})" if first.frame else ""
    words = kernel.get(first.node or "")
    return finding(
        fault,
        subject_of(odd, context),
        f"{who}: {meaning}{where}, while the other {len(seen) - len(odd)} wait: the odd one out.",
        evidence=[one.evidence() for one in odd[:10]] + (words.evidence() if words else []),
        **known,
    )


def _locked_out(odd: list[Seen], holder: Thread, context: Context) -> Finding:
    frame = holder.frames[0] if holder.frames else None
    return finding(
        "job.hang",
        subject_of(odd, context),
        f"Rank {odd[0].rank}: thread {holder.name!r} holds the "
        f"GIL{f' in {frame.function} ({frame.file})' if frame else ''}, so its main thread"
        " cannot join the collective; the others wait.",
        evidence=[one.evidence() for one in odd],
        culprit="app",
        response="restart",
        repair="fix_app",
    )


def _runs_python(process: ProcessStack) -> bool:
    """Whether the process works in Python code, and is not stuck below it."""
    main = process.main
    return (
        main is not None
        and bool(main.frames)
        and main.frames[0].file.endswith(".py")
        and (process.state == "R" or "active" in main.flags)
    )
