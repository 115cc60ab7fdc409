"""Kills the deliverer with SIGKILL at random points and keeps what its receiver saw. Used by a test and by bench/."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from alerts_doubles import Leader, Receiver, row

#: Forks a deliverer for each line read: the imports are paid once, a new process is there in milliseconds.
NURSERY = """
import os, sys
import alerts.deliverer as deliverer
import alerts.senders, detectors.witness.ledger_sqlite, aiohttp, standardwebhooks.webhooks
import asyncio, logging, structlog
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
for _ in sys.stdin:
    pid = os.fork()
    if pid == 0:
        deliverer.run(sys.argv[1])
        os._exit(0)
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("ended", flush=True)
"""

CONFIG = """
[ledger]
path = "{ledger}"
lease_seconds = 0.5

[alerts]
poll_seconds = 0.01
backoff_seconds = 0.01
backoff_seconds_max = 0.05
breaker_failures = 1000

[[alerts.targets]]
name = "t1"
url = "{url}"
secret_files = ["{secret}"]
timeout_seconds = 0.2
attempts_max = 100000
"""

CHAIN = ("job.snapshot.requested", "node.quarantine.requested", "job.restart.requested")


@dataclass
class Outcome:
    """What was put in, and what the receiver saw."""

    kills: int = 0
    put: list[str] = field(default_factory=list)
    repeats: int = 0
    lost: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)


async def moody(chance: random.Random):
    """A receiver that fails, hangs, and answers late or twice as slow, in turn at random."""

    async def answer(_) -> int:
        mood = chance.random()
        if mood < 0.15:
            return chance.choice([500, 503, 429])
        if mood < 0.20:
            await asyncio.sleep(0.25)  # after the time-out: the effect has happened all the same
        elif mood < 0.4:
            await asyncio.sleep(chance.uniform(0.0, 0.03))
        return 200

    return answer


async def kill_again_and_again(
    leader: Leader, receiver: Receiver, ledger: Path, secret: str, kills: int, chance: random.Random
) -> Outcome:
    """Puts a chain of three actions in before each kill; at the end lets the deliverer finish, and judges."""
    config = ledger.with_name("site.toml")
    config.write_text(CONFIG.format(ledger=ledger, url=receiver.url, secret=secret))
    outcome = Outcome()
    nursery = await asyncio.create_subprocess_exec(
        sys.executable, "-c", NURSERY, str(config), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    try:
        for number in range(kills + 1):
            nursery.stdin.write(b"\n")
            pid = int(await asyncio.wait_for(nursery.stdout.readline(), 30))
            if number < kills:
                await _put_chain(leader, number, outcome)
                await asyncio.sleep(chance.uniform(0.0, 0.12))
                os.kill(pid, signal.SIGKILL)
                outcome.kills += 1
            else:
                await _finish(leader, receiver, outcome)
                os.kill(pid, signal.SIGTERM)
            assert await asyncio.wait_for(nursery.stdout.readline(), 10) == b"ended\n"
            await _see_snapshots(leader)
            if (holder := await leader.ledger.holder("deliverer")) is not None:
                await leader.ledger.resign("deliverer", holder)  # the lease's time is another test's subject
    finally:
        nursery.stdin.close()
        await asyncio.wait_for(nursery.wait(), 10)
    _judge(receiver, outcome)
    return outcome


async def _put_chain(leader: Leader, number: int, outcome: Outcome) -> None:
    names = [f"{number}-{place}" for place in range(3)]
    await leader.put(
        *(
            row(name, CHAIN[place], incident=f"i{number}", after=tuple(names[:place]), deadline=600.0)
            for place, name in enumerate(names)
        )
    )
    outcome.put += [f"{name}.t1" for name in names]


async def _see_snapshots(leader: Leader) -> None:
    for found in await leader.ledger.list_rows(state="sent", limit=10_000):
        await leader.see_snapshot(found.id)


async def _finish(leader: Leader, receiver: Receiver, outcome: Outcome) -> None:
    # A busy machine may kill most deliverers before their first delivery: the last one then has nearly everything to do.
    async with asyncio.timeout(60 + len(outcome.put) / 20):
        while not set(outcome.put) <= receiver.effects.keys():
            await _see_snapshots(leader)
            await asyncio.sleep(0.05)
        while any(state != "done" for state in (await leader.states()).values()):
            await _see_snapshots(leader)
            await asyncio.sleep(0.05)


def _judge(receiver: Receiver, outcome: Outcome) -> None:
    """At least once; the effect once (the receiver keeps one a `webhook-id`); a successor never before its predecessor's effect."""
    outcome.lost = [name for name in outcome.put if name not in receiver.effects]
    outcome.repeats = len(receiver.got) - len(receiver.effects)
    place = {name: number for number, name in enumerate(receiver.effects)}
    first = {}
    for number, name in enumerate(receiver.ids):
        first.setdefault(name, number)
    for name in outcome.put:
        incident, step = name.removesuffix(".t1").split("-")
        before = f"{incident}-{int(step) - 1}.t1"
        if before in place and (place[name] < place[before] or first[name] < first[before]):
            outcome.out_of_order.append(name)
