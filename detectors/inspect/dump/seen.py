"""One process of a stack dump with what it does, and whom a finding about some of them is about. Pure."""

from dataclasses import dataclass
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.dump.activity import Activity, activity
from detectors.inspect.dump.kernel import KernelWords
from detectors.inspect.findings import EvidenceLine
from outrider.parsers.stacks import Frame, ProcessStack

#: The odd ones are at most this share of the processes (or all on one node).
ODD_SHARE: Final = 0.26


@dataclass(frozen=True, slots=True)
class Seen:
    """One process with what it does."""

    process: ProcessStack
    activity: Activity
    frame: Frame | None
    node: str | None
    rank: int | None
    file: str | None

    @property
    def blocked(self) -> bool:
        """Whether the kernel has it in an uninterruptible wait."""
        return self.process.state == "D"

    def evidence(self) -> EvidenceLine:
        main = self.process.main
        inner = f"{main.frames[0].function} ({main.frames[0].file})" if main and main.frames else "no frames"
        state = f" state {self.process.state}" if self.process.state else ""
        return EvidenceLine(
            line=self.process.line, text=f"{self.node or '?'} rank {self.rank}{state}: {self.activity}, in {inner}", file=self.file
        )


def see(process: ProcessStack, context: Context, file: str | None) -> Seen:
    what, frame = activity(process)
    node = process.node or (context.ranks[process.rank][0] if process.rank in context.ranks else None) or context.node
    return Seen(process, what, frame, node, process.rank, file)


def subject_of(some: list[Seen], context: Context, *, gpu: bool = False) -> dict[str, Any]:
    """Job, node and rank; several ranks of one node are named by the node and the first of them."""
    first = some[0]
    known = context.rank_subject(first.rank) if first.rank is not None else {"job": context.job_name}
    nodes = {one.node for one in some}
    subject: dict[str, Any] = {
        "job": context.job_name,
        "node": first.node if len(nodes) == 1 else None,
        "rank": first.rank if len(nodes) == 1 else None,
    }
    if gpu or len(some) == 1:
        subject["gpu"] = known.get("gpu")
    return subject


def in_storage(one: Seen, kernel: dict[str, KernelWords]) -> bool:
    """Whether an uninterruptible wait is one for storage: the kernel says so, or the stack reads or writes and no driver is in
    sight."""
    words = kernel.get(one.node or "")
    if words is not None and (words.storage or words.driver):
        return words.storage and not words.driver
    return one.activity in ("data", "unknown", "lock")


def in_driver(one: Seen, kernel: dict[str, KernelWords]) -> bool:
    """In the GPU driver for good: uninterruptible there, or the kernel shows a task stuck inside the driver."""
    words = kernel.get(one.node or "")
    stuck = words is not None and words.driver and (one.process.pid in words.pids or one.blocked)
    return (one.activity == "gpu" and one.blocked) or stuck
