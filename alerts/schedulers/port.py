"""The one interface to job schedulers, and what may come of a call. The contract tests in tests/alerts hold every adapter to it.

Each call may come twice, late, or from a leader that is no more. The scheduler's own objects carry our fence (a node's reason or
annotation, a job's comment or annotation): what is older changes nothing, what is done already is success.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from alerts.bodies import Data, Message

#: `done`: it is so now, by this call. `already`: it was so. `old_fence`, `old_attempt`: somebody later was there, nothing changed.
Status = Literal["done", "already", "old_fence", "old_attempt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A call that needs no second try."""

    status: Status
    note: str
    detail: dict[str, Any] = field(default_factory=dict)


class SchedulerError(Exception):
    """A call that did not work. `again`: a later try makes sense. `code`: `unreachable`, `unauthorised`, `no_such_node`,
    `no_such_job`, `no_such_object`, `no_spare`, `spare_unfit`, `job_over`, `not_supported`, `strange_answer`, `busy`, `unwritable`,
    `unreadable`, `damaged`, `ambiguous`, `unsafe_name`.
    `wait`: seconds after which the scheduler wants to be asked again; None: it did not say."""

    def __init__(self, reason: str, code: str, *, again: bool, wait: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.code, self.again, self.wait = reason, code, again, wait


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One node as the scheduler sees it. `in_service`: takes new work. `ours`: it is out because Outrider said so."""

    node: str
    in_service: bool
    alive: bool
    busy: bool
    ours: bool
    reason: str


class Scheduler(Protocol):
    """One scheduler. Calls raise SchedulerError; every other exception is a bug."""

    name: str

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def quarantine(self, order: Data) -> Done:
        """No new work on the node, with the reason; what runs there ends with its job's restart."""
        ...

    async def drain(self, order: Data) -> Done:
        """No new work on the node; what runs there goes on to its own boundary."""
        ...

    async def release(self, order: Data) -> Done:
        """Takes the node back into service, if it was Outrider that took it out."""
        ...

    async def restart(self, order: Data) -> Done:
        """Ends the order's attempt and starts the next: same slots, nodes changed as `replace` says, rank map written."""
        ...

    async def nodes(self) -> dict[str, NodeState]:
        """All nodes and why they are out."""
        ...


def reason_of(order: Data) -> str:
    """What stands on a node that Outrider took out: one line, the fence in front. `fence_of` reads it."""
    words = " ".join((order.explanation or order.reason or "").split())
    return f"outrider fence={order.fence} incident={order.incident} {order.fault}: {words}"[:200]


def fence_of(text: str | None) -> int | None:
    """The fence in what `reason_of` or a mark wrote; None: it is not ours."""
    parts = (text or "").split()
    if len(parts) < 2 or parts[0] != "outrider" or not parts[1].startswith("fence="):
        return None
    number = parts[1].removeprefix("fence=")
    return int(number) if number.isdecimal() else None


def node_of(order: Data) -> str:
    """The node that the order is about."""
    if not order.node:
        raise SchedulerError("the order names no node", "no_such_node", again=False)
    return order.node


def job_of(order: Data) -> str:
    """The job that the order is about."""
    if not order.job:
        raise SchedulerError("the order names no job", "no_such_job", again=False)
    return order.job


def amends(order: Data, nodes: Iterable[str], *, exact: bool) -> bool:
    """Whether an order about an older attempt counts all the same: what runs now, on `nodes`, is not where it should be.

    A second fault before the job told of its new attempt is ordered for the attempt that the leader knows, under a larger fence.

    Args:
        exact: the scheduler puts slots where the order says; else only the nodes that are to be left count.
    """
    used = set(nodes)
    left = {item.from_ for item in order.replace} - {item.to for item in order.replace}
    wanted = {node for node in order.slots if node} if exact else set()
    return bool(used & left) or (bool(used) and not wanted <= used)


async def carry_out(scheduler: Scheduler, message: Message) -> Done:
    """The call that a webhook means."""
    match message.type:
        case "node.quarantine.requested":
            return await scheduler.quarantine(message.data)
        case "node.drain.requested":
            return await scheduler.drain(message.data)
        case "node.release.requested":
            return await scheduler.release(message.data)
        case "job.restart.requested":
            return await scheduler.restart(message.data)
        case "test":
            return Done(status="done", note=f"{len(await scheduler.nodes())} nodes seen")
        case _:
            return Done(status="already", note=f"{message.type} is no matter of a scheduler")
