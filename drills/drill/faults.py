"""The faults of the drill: what is done to the cluster, and what must follow."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from drills.drill.processes import DrillError
from drills.drill.records import newest_step
from drills.drill.site import NODES, WITNESSES, WORLD
from drills.drill.stage import PACE_SECONDS, Stage

#: The fault comes when this many steps are done, plus up to ten more by the seed: the stall threshold needs a history of steps.
FAULT_STEP = 35
Injection = Callable[[Stage, random.Random], Awaitable[float]]


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What must follow a fault. Times are seconds after it.

    `incident`: the fault class that must be confirmed, None if none may be (above `watch`). `confirm_s`: the promised bounds of its
    confirmation. `restarts`: how often the job is started again. `replaced`: whether the spare takes the victim's slot.
    `detect_s`: the promised time of the first suspicion, where one is named.
    """

    fault: str
    story: str
    inject: Injection
    incident: str | None
    confirm_s: tuple[float, float] | None = None
    detect_s: float | None = None
    restarts: int = 0
    replaced: bool = False
    wakes: bool = False
    agent_back: bool = False
    relayed: bool = False


def victim_node(chance: random.Random) -> str:
    """A node in use, by chance: that of rank 0, which holds the store, is as good as any."""
    return chance.choice(NODES[:WORLD])


async def _mid_step(chance: random.Random) -> None:
    """Waits for a random part of a step."""
    await asyncio.sleep(chance.uniform(0, PACE_SECONDS))


async def _kill(stage: Stage, chance: random.Random) -> float:
    pid = stage.rank_pid(NODES.index(victim_node(chance)))
    await _mid_step(chance)
    os.kill(pid, signal.SIGKILL)
    return time.monotonic()


async def _node(stage: Stage, chance: random.Random) -> float:
    node = victim_node(chance)
    pids = stage.node_pids(node)
    await _mid_step(chance)
    now = time.monotonic()
    stage.site.network.cut(NODES.index(node))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return now


async def _freeze(stage: Stage, chance: random.Random) -> float:
    node = victim_node(chance)
    state = stage.scheduler.nodes[node]
    stage.frozen = stage.node_pids(node)
    stage.frozen_service = [pid for pid in (state.launcher_pid, state.agent_pid) if pid is not None]
    stage.frozen_pages = sorted((stage.site.run_dir / node / "slots").glob("*.progress"))
    await _mid_step(chance)
    now = time.monotonic()
    for pid in stage.frozen:
        os.kill(pid, signal.SIGSTOP)
    return now


async def _agent(stage: Stage, chance: random.Random) -> float:
    pid = stage.scheduler.nodes[victim_node(chance)].agent_pid
    if pid is None:
        raise DrillError("the victim's agent does not run")
    os.kill(pid, signal.SIGKILL)
    return time.monotonic()


def _jitter(witnesses: tuple[str, ...]) -> Injection:
    async def inject(stage: Stage, _chance: random.Random) -> float:
        relays = [stage.relays[name] for name in witnesses]
        now = time.monotonic()
        for relay in relays:
            relay.lossy = True
        await asyncio.sleep(8.0)
        for relay in relays:
            relay.lossy, relay.delay_seconds = False, 2.0
        return now

    return inject


HUNG_AFTER_SECONDS: Final = 12.0

PROMISES: Final[dict[str, Promise]] = {
    promise.fault: promise
    for promise in (
        Promise(
            fault="kill", story="SIGKILL of one rank in the middle of a step.", inject=_kill,
            incident="job.rank_exit", confirm_s=(0.0, 1.0), restarts=1,
        ),
        Promise(
            fault="node", story="One node's link is cut and its agent, launcher and rank are gone.", inject=_node,
            incident="node.lost", confirm_s=(0.0, 6.0), restarts=1, replaced=True,
        ),
        Promise(
            fault="freeze", story="SIGSTOP of all processes of one node; they are woken later and try to write.", inject=_freeze,
            incident="node.hung", detect_s=5.0, confirm_s=(HUNG_AFTER_SECONDS, HUNG_AFTER_SECONDS + 3.0), restarts=1, replaced=True,
            wakes=True,
        ),
        Promise(
            fault="agent", story="SIGKILL of one agent only.", inject=_agent,
            incident="agent.lost", confirm_s=(0.0, 6.0), agent_back=True,
        ),
        Promise(
            fault="jitter", story="One node's heartbeats are lost for 8 s and then delayed, towards two of the three witnesses.",
            inject=_jitter(WITNESSES[:2]), incident=None, relayed=True,
        ),
        Promise(
            fault="jitter-all", story="One node's heartbeats are lost for 8 s and then delayed, towards all three witnesses.",
            inject=_jitter(WITNESSES), incident=None, relayed=True,
        ),
    )
}  # fmt: skip


async def wait_for_step(stage: Stage, step: int, seconds: float = 60.0) -> None:
    """Waits until every rank has finished `step`. Raises DrillError when that takes too long."""
    deadline = time.monotonic() + seconds
    while newest_step(stage.site.records(), WORLD) < step:
        if time.monotonic() > deadline:
            raise DrillError(f"the job did not reach step {step} within {seconds:g} s; see {stage.site.folder / 'logs'}")
        await asyncio.sleep(0.02)
