"""What happens in a `leader_town`: faults that come and go, people, silent witnesses; by chance, and the same for the same seed.

A helper of the tests, not a test.
"""

import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

from leader_town import FLEET, LIFE, NODES, WITNESSES, Doubt, Drop, Town

from detectors.core.types import Evidence, Verdict, Vote
from detectors.witness.ledger import Control
from outrider.clock import ManualClock
from outrider.config.policy import Policy
from outrider.signals import Signal

#: Events of one script: two minutes on average.
EVENTS = 24
#: What can be doubted: fault -> (culprit, response, decisive).
FAULTS: dict[str, tuple[str, str, bool]] = {
    "gpu.fallen_off_bus": ("gpu", "restart", True), "gpu.ecc_contained": ("gpu", "drain", True),
    "gpu.thermal": ("gpu", "watch", False), "node.lost": ("node", "restart", True), "node.memory": ("node", "page", False),
    "agent.lost": ("node", "page", False), "job.rank_exit": ("app", "restart", True), "job.loss_nan": ("app", "restart", True),
    "job.hang": ("app", "page", False), "switch.down": ("switch", "page", True), "domain.lost": ("switch", "restart", True),
}  # fmt: skip
Event = Callable[[Town, random.Random], Awaitable[None]]


async def live(ledgers: dict[str, Any], clock: ManualClock, seed: int, drops: dict[int, Drop]) -> Town:
    """One run of the script of `seed`. `ledgers`: each witness's way to the one ledger; `drops`: turn -> how the leader goes."""
    chance = random.Random(seed)
    policy = Policy(
        mode=chance.choice(("act", "act", "advise")), approval_seconds=20.0, approval_default=chance.choice(("refuse", "act")),
        brake_nodes=chance.choice((1, 3)), brake_hold_seconds=15.0, crash_loop_attempts=chance.choice((1, 3)),
        lemon_count=2, cluster_actions_per_hour=chance.choice((0, 12)),
    )  # fmt: skip
    town = Town(ledgers, clock, policy, seed)
    await town.begin()
    script = [(chance.choice((0, 1, 2, 5, 12, 40)), chance.choice(MENU), chance.random()) for _ in range(EVENTS)]
    for wait, event, luck in script:
        for _ in range(wait):
            await town.tick(drops)
        await event(town, random.Random(luck))
    for _ in range(80):
        await town.tick(drops)
    return town


async def fault(town: Town, chance: random.Random) -> None:
    witnesses = list(WITNESSES) if chance.random() < 0.7 else chance.sample(WITNESSES, chance.choice((1, 2)))
    _accuse(town, chance.choice(sorted(FAULTS)), chance.choice(NODES), witnesses, sure=chance.random() < 0.85)


async def graver(town: Town, chance: random.Random) -> None:
    """All witnesses ask for a restart now."""
    if town.doubts:
        vote = town.doubts[chance.choice(sorted(town.doubts))].vote
        _accuse(town, vote.fault, str(vote.subject.get("node", "n1")), list(WITNESSES), sure=True, response="restart")


async def withdrawn(town: Town, chance: random.Random) -> None:
    if town.doubts:
        doubt = town.doubts[chance.choice(sorted(town.doubts))]
        doubt.clear, doubt.cast, doubt.ends = True, float("-inf"), town.clock.monotonic() + LIFE


async def lapsed(town: Town, chance: random.Random) -> None:
    if town.doubts:
        del town.doubts[chance.choice(sorted(town.doubts))]


async def word(town: Town, chance: random.Random) -> None:
    """A person's word on an open incident; now and then it is given twice."""
    found = sorted(one["incident"] for one in await town.ledger.incidents() if one["state"] not in ("resolved", "refuted"))
    if found:
        kind = chance.choice(("approve", "approve", "false_alarm", "ack"))
        await _say(town, kind, chance.choice(found), 300.0)


async def release(town: Town, chance: random.Random) -> None:
    rows = await town.ledger.list_rows(limit=10_000)
    taken = {json.loads(row.body)["data"]["node"] for row in rows if row.action in ("quarantine", "drain")}
    if taken := taken | set((await town.ledger.leader_state()).claims):
        await _say(town, "release", chance.choice(sorted(taken)), 300.0)


async def standing_order(town: Town, chance: random.Random) -> None:
    """It ends by itself, also while nobody leads."""
    kind, key = chance.choice((("pause", "*"), ("maintenance", "j1"), ("maintenance", chance.choice(NODES))))
    await _say(town, kind, key, chance.choice((1.0, 3.0, 15.0)))


async def reset_brake(town: Town, chance: random.Random) -> None:
    await _say(town, "reset_brake", "*", 300.0)


async def progress(town: Town, chance: random.Random) -> None:
    """A periodic snapshot, or a phase, of a job."""
    job = chance.choice(sorted(town.courses))
    if chance.random() < 0.6:
        await town.committed(job, fence=0)()
    else:
        data = {"attempt": town.courses[job].attempt}
        town.hear(Signal(t=town.clock.monotonic(), kind="phase", job=job, value="train", data=data))


async def begins_again(town: Town, chance: random.Random) -> None:
    """A job restarts by itself."""
    job = chance.choice(sorted(town.courses))
    await town.restarted({"job": job, "attempt": town.courses[job].attempt, "replace": []})()


async def a_witness_is_silent(town: Town, chance: random.Random) -> None:
    """For less than the time after which it is missed: that time begins anew with a leader."""
    town.silent = {chance.choice(WITNESSES)}
    town.later.append((town.clock.monotonic() + 8.0, town.all_speak))


async def nobody_leads(town: Town, chance: random.Random) -> None:
    town.leaderless = town.clock.monotonic() + chance.choice((1.0, 3.0, 6.0))


MENU: list[Event] = [
    *[fault] * 8, graver, *[withdrawn] * 2, lapsed, *[word] * 4, *[release] * 2, *[standing_order] * 2, reset_brake,
    *[progress] * 2, begins_again, a_witness_is_silent, nobody_leads,
]  # fmt: skip


async def _say(town: Town, kind: str, key: str, seconds: float) -> None:
    await town.ledger.put_control(Control(kind=kind, key=key, body={"who": "ann", "reason": "so"}, seconds_left=seconds))


def _accuse(town: Town, fault: str, node: str, witnesses: list[str], *, sure: bool, response: str | None = None) -> None:
    now = town.clock.monotonic()
    subject, extra = _about(town, fault, node)
    if subject is None:
        return
    culprit, usual, decisive = FAULTS[fault]
    incarnation = str(extra.get("attempt", "b1"))
    text = ",".join(f"{name}={value}" for name, value in subject.items())
    key = f"{fault}|{text}|{incarnation}"
    piece = Evidence(t=now, kind="xid", subject=subject, effect="confirm", text=f"{fault} of {text}")
    vote = Vote(
        key=key, witness="", verdict=Verdict.FAULTY, fault=fault, culprit=culprit, subject=subject, incarnation=incarnation,
        response=response or usual, repair="none", layers=("hardware", "application"), evidence=(piece,), reason=piece.text,
        reason_code="r", t=now, expires_seconds=LIFE, decisive=decisive, extra={**extra, "sure": sure},
    )  # fmt: skip
    town.doubts[key] = Doubt(vote, witnesses, town.doubts[key].since if key in town.doubts else now)


def _about(town: Town, fault: str, node: str) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Subject and `extra` of the votes; no subject where the fault is a job's and none runs there."""
    job = next((name for name, course in town.courses.items() if node in course.slots), None)
    if fault in ("switch.down", "domain.lost"):
        rack = FLEET.nodes[NODES.index(node)].rack
        nodes = [one.node for one in FLEET.nodes if one.rack == rack]
        if fault == "switch.down":
            return {"switch": f"s-{rack}"}, {"nodes": nodes}
        return {"rack": rack}, {"nodes": nodes, "members": nodes}
    if not fault.startswith("job."):
        return {"node": node}, {}
    if job is None:
        return None, {}
    attempt = town.courses[job].attempt
    if fault != "job.rank_exit":
        return {"job": job}, {"attempt": attempt}
    rank = town.courses[job].slots.index(node)
    return {"job": job, "rank": rank, "node": node}, {"attempt": attempt, "dead_ranks": {job: [rank]}}
