"""A change of leader at any moment changes nothing in what is done.

A town (`leader_town`) lives through a script of chance (`leader_script`) under one leader all along, and again under leaders that
are dropped without notice: before a turn, between what they read and their commit, or right after it. What stands in the ledger is
the same, to the last fence, but for two things: votes on an incident that is confirmed already, and the newest snapshot of a job
that has not failed, are kept with the next decision only, and the next leader may not have heard of them.
"""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import structlog
from leader_script import live
from leader_town import NODES, WITNESSES, AtOnce, Drop, Town
from witness_doubles import CaughtUp

from detectors.witness import ledger, ledger_etcd, ledger_etcd_follower, ledger_etcd_replica, ledger_sqlite, ledger_sqlite_schema
from detectors.witness.ledger_etcd import EtcdLedger
from outrider.clock import ManualClock
from outrider.config.ledger import LedgerSection

#: Scripts that are played, six times each, and the first of them; a night may play more.
SCRIPTS, FIRST = int(os.environ.get("TOWN_SCRIPTS", "6")), int(os.environ.get("TOWN_FIRST", "0"))
WAYS: tuple[Drop, ...] = ("before", "lost", "after")
DRASTIC = ("quarantine", "drain", "restart")


async def outcome(town: Town) -> dict[str, Any]:
    """All that leaders wrote into the ledger."""
    state, rows = await town.ledger.leader_state(), await town.ledger.list_rows(limit=10_000)
    recovery = msgspec.json.decode(state.council or b"{}").get("recovery", {})
    pictures = {one["incident"]: {**one, "votes": None} for one in await town.ledger.incidents(10_000)}
    loops = {job: numbers[1:] for job, numbers in recovery.get("loops", {}).items() if numbers[1]}
    return {
        "rows": [(row.id, row.type, row.incident, json.loads(row.body)["data"], row.after, row.state) for row in reversed(rows)],
        "pictures": pictures, "history": {name: await history(town, name) for name in pictures},
        "orders": {node: [(one.id, one.order, one.fence) for one in await town.ledger.read_orders(node, 0)] for node in NODES},
        "audit": (await town.ledger.audit(10_000))[::-1], "claims": state.claims, "fence": state.fence,
        "recovery": {**recovery, "loops": loops},
    }  # fmt: skip


async def history(town: Town, incident: str) -> list[dict[str, Any]]:
    found = await town.ledger.incident(incident)
    return [{**line, "votes": None} for line in found["history"]] if found is not None else []


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of decisions are logged else."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    yield
    structlog.reset_defaults()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The ledger's time is the town's."""
    made = ManualClock(1000.0)
    for module in (ledger, ledger_sqlite, ledger_sqlite_schema, ledger_etcd, ledger_etcd_follower, ledger_etcd_replica):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=made.monotonic, time=made.wall))
    return made


def plans(seed: int, turns: int) -> list[dict[int, Drop]]:
    """Turn -> how the leader is dropped in it: at every turn, each way; and at a few, ways of chance."""
    chance = random.Random(seed)
    every: list[dict[int, Drop]] = [dict.fromkeys(range(1, turns + 1), way) for way in WAYS]
    return [*every, *({turn: chance.choice(WAYS) for turn in chance.sample(range(1, turns), 4)} for _ in range(2))]


async def play(users: list[Any], clock: ManualClock, seed: int, drops: dict[int, Drop]) -> tuple[dict[str, Any], int]:
    """One run: what it left in the ledger, and how many turns it took. `users`: one of each witness, or one of all."""
    clock._now = 1000.0
    for user in users:
        await user.open()
    ways = [CaughtUp(user, users) for user in users] if len(users) > 1 else users * len(WITNESSES)
    town = await live(dict(zip(WITNESSES, ways, strict=True)), clock, seed, drops)
    found = await outcome(town)
    for user in users:
        await user.close()
    return found, town.turns


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SCRIPTS))
async def test_a_change_of_leader_changes_nothing(tmp_path: Path, clock: ManualClock, seed: int) -> None:
    expected, turns = await play([AtOnce(tmp_path / "one")], clock, seed, {})
    fences = [row[3]["fence"] for row in expected["rows"] if row[1].partition(".")[2].partition(".")[0] in DRASTIC]
    assert fences == sorted(set(fences)), "they only grow"
    for number, drops in enumerate(plans(seed, turns)):
        found, _ = await play([AtOnce(tmp_path / str(number))], clock, seed, drops)
        for name, value in expected.items():
            assert found[name] == value, (name, drops if number > 2 else WAYS[number])


@pytest.mark.real
async def test_a_change_of_leader_changes_nothing_on_etcd(etcd: str, tmp_path: Path, clock: ManualClock) -> None:
    """Each witness has a replica of its own, and what stands in all is what one leader on SQLite left."""
    seed = FIRST + 4
    expected, turns = await play([AtOnce(tmp_path / "one")], clock, seed, {})
    drops: dict[int, Drop] = {**dict.fromkeys(range(1, turns, 5), WAYS[1]), **plans(seed, turns)[3]}
    section = LedgerSection(backend="etcd", endpoints=(etcd,), prefix=f"/{tmp_path.name}/", lease_seconds=60.0)
    found, _ = await play([EtcdLedger(section) for _ in WITNESSES], clock, seed, drops)
    for name, value in expected.items():
        assert found[name] == value, name
