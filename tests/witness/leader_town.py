"""A town in virtual time: witnesses that vote, receivers that answer, a job launcher; and leaders that may be dropped at any turn.

A helper of the tests, not a test; what happens in it stands in `leader_script`.

Everything outside the leader follows from the script and from what the outbox says, so two runs differ only if the leaders do.
"""

import contextlib
import json
import random
import zlib
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from witness_doubles import FakeEngine

from detectors.core.council import Council
from detectors.core.types import Verdict, Vote
from detectors.witness.journal import Journal
from detectors.witness.judge import Judge
from detectors.witness.leader import Leader
from detectors.witness.ledger import Commit, Control, LedgerError
from detectors.witness.ledger_sqlite import SqliteLedger
from outrider.clock import ManualClock
from outrider.config.ledger import LedgerSection
from outrider.config.policy import Policy
from outrider.fleet import Fleet, Job, Node
from outrider.signals import Signal

WITNESSES = ("w1", "w2", "w3")
NODES = [f"n{number}" for number in range(1, 13)]
JOBS = {"j1": NODES[:4], "j2": NODES[4:7], "j3": NODES[7:9]}
SPARES = tuple(NODES[9:])
FLEET = Fleet(
    nodes=tuple(Node(node=name, rack=f"r{index // 2}", gpus=1, address=f"10.0.0.{index}") for index, name in enumerate(NODES)),
    jobs=tuple(Job(job=job, slots=tuple((node, 0) for node in nodes)) for job, nodes in JOBS.items()),
    witnesses=WITNESSES, spares=SPARES,
)  # fmt: skip
#: A turn each half second; votes live ten seconds and are cast again after four, views come each second.
TICK, RENEW, LIFE = 0.5, 4.0, 10.0
Drop = Literal["before", "lost", "after"]


class Inline(Executor):
    """Runs at once: the order of things is the script's."""

    def submit(self, fn: Any, /, *args: Any, **named: Any) -> Any:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **named))
        except Exception as error:
            future.set_exception(error)
        return future


class AtOnce(SqliteLedger):
    """The real one, without threads."""

    def __init__(self, path: Path) -> None:
        super().__init__(LedgerSection(path=str(path), lease_seconds=60.0))
        self._pool = self._lease_pool = Inline()  # type: ignore[assignment]

    async def open(self) -> None:
        self._open()

    async def close(self) -> None:
        for database in (self._database, self._lease_database):
            if database is not None:
                database.close()


class Lossy:
    """A witness's way to the ledger, on which a commit may be lost."""

    lose_commit = False

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def commit(self, commit: Commit, holder: str) -> None:
        if self.lose_commit:
            raise LedgerError("the commit was lost")
        await self._ledger.commit(commit, holder)


@dataclass
class Doubt:
    """What some witnesses say of one thing, until they withdraw it (`clear`) or fall silent about it."""

    vote: Vote
    witnesses: list[str]
    since: float
    clear: bool = False
    ends: float = float("inf")
    cast: float = float("-inf")


@dataclass
class Course:
    """A job as its launcher has it."""

    attempt: int = 1
    step: int = 10
    slots: list[str] = field(default_factory=list)
    steps_from: float = 0.0


class Town:
    """One run. `step` does what the script says; `turn` lets whoever leads take a turn, and changes the leader as told."""

    def __init__(self, ledgers: dict[str, Any], clock: ManualClock, policy: Policy, seed: int) -> None:
        self.clock, self.policy, self.seed = clock, policy, seed
        self.ways = {name: Lossy(ledger) for name, ledger in ledgers.items()}
        self.ledger: Any = ledgers["w1"]
        self.replicas = list(ledgers.values()) if len({*ledgers.values()}) > 1 else []
        self.doubts: dict[str, Doubt] = {}
        self.courses = {job: Course(slots=list(nodes)) for job, nodes in JOBS.items()}
        self.silent: set[str] = set()
        self.seen: set[str] = set()
        self.later: list[tuple[float, Any]] = []
        self.changes = self.turns = 0
        self.viewed = float("-inf")
        #: Until then nobody leads.
        self.leaderless = float("-inf")

    async def begin(self) -> None:
        self.leaders = {name: self._leader(name) for name in WITNESSES}
        self.name = "w1"
        await self._take_over()
        for job in JOBS:
            await self._tell_job(job)

    def _leader(self, name: str) -> Leader:
        journal = Journal(Path(), FLEET, name, 0)
        ledger: Any = self.ways[name]
        judge = Judge(FakeEngine(), FLEET, ledger, journal, self.clock, (1, 2))
        made = Leader(
            name, ledger, judge, journal, self.clock,
            lambda fence: Council(FLEET, self.policy, WITNESSES, fence=fence), 60.0, FLEET,
        )  # fmt: skip
        judge.listeners.append(made.signal)
        return made

    async def _take_over(self) -> None:
        lease = await self.ways[self.name].acquire("leader", self.name)
        assert lease is not None
        leader = self.leaders[self.name]
        leader.term = lease.term
        await leader._take_over()

    async def change(self) -> None:
        """The leader is gone without notice; every other time its process starts anew, else it only lost the lease."""
        self.changes += 1
        await self.ways[self.name].resign("leader", self.name)
        if self.changes % 2:
            self.leaders[self.name] = self._leader(self.name)
        else:
            self.leaders[self.name]._step_down()
        self.name = WITNESSES[(WITNESSES.index(self.name) + 1) % 3]
        await self._take_over()

    async def turn(self, drop: Drop | None) -> None:
        if self.clock.monotonic() < self.leaderless:
            return
        leader = self.leaders[self.name]
        await self.ways[self.name].acquire("leader", self.name)
        if drop == "before":
            await self.change()
        elif drop == "lost":
            self.ways[self.name].lose_commit = True
            with contextlib.suppress(LedgerError):
                await leader._work()
            self.ways[self.name].lose_commit = False
            await self.change()
        elif drop == "after":
            await leader._work()
            await self.change()
        await self.leaders[self.name]._work()

    async def tick(self, drops: dict[int, Drop]) -> None:
        """Half a second: what was to come later, votes and views, deliveries, then the leader's turn."""
        await self._all_hear()
        self.clock.advance(TICK)
        self.turns += 1
        now = self.clock.monotonic()
        due, self.later = [one for one in self.later if one[0] <= now], [one for one in self.later if one[0] > now]
        for _, call in due:
            await call()
        await self._vote(now)
        await self._deliver(now)
        await self.turn(drops.get(self.turns))
        await self._all_hear()

    async def _all_hear(self) -> None:
        """Before time goes on: a deadline begins when a replica hears of it."""
        for ledger in self.replicas:
            await ledger.holder("leader")

    async def _vote(self, now: float) -> None:
        votes: list[Vote] = []
        for key, doubt in list(self.doubts.items()):
            if now >= doubt.ends:
                del self.doubts[key]
            elif now - doubt.cast >= RENEW:
                doubt.cast = now
                verdict = Verdict.CLEAR if doubt.clear else Verdict.FAULTY
                extra = doubt.vote.extra | {"since": doubt.since, "sure": doubt.vote.extra["sure"] and not doubt.clear}
                votes += [
                    replace(doubt.vote, witness=name, t=now, verdict=verdict, extra=extra)
                    for name in doubt.witnesses if name not in self.silent
                ]  # fmt: skip
        if now - self.viewed >= 1.0:
            self.viewed = now
            votes += [self._view(name, now) for name in WITNESSES if name not in self.silent]
        await self.ledger.put_votes(votes)

    def _view(self, name: str, now: float) -> Vote:
        jobs = {job: [one.attempt, one.step] for job, one in self.courses.items() if now >= one.steps_from}
        view = {"quiet": [], "quiet_count": 0, "late_count": 0, "known": len(NODES), "abstains": False, "jobs": jobs}
        return Vote(
            key=f"view|witness={name}|", witness=name, verdict=Verdict.CLEAR, fault="monitor.witness_lost", culprit="monitor",
            subject={"witness": name}, incarnation="", response="watch", repair="none", layers=(), evidence=(), reason="view",
            reason_code="view", t=now, expires_seconds=LIFE, extra={"view": view},
        )  # fmt: skip

    # --- the world's answers ---

    async def _deliver(self, now: float) -> None:
        """Each row is answered a while after it stands there: mostly done, sometimes dead; by what it says, not by its number."""
        for row in await self.ledger.due(now):
            if row.id in self.seen:
                continue
            self.seen.add(row.id)
            chance = random.Random(zlib.crc32(f"{self.seed} {len(self.seen)} {row.type}".encode()))
            self.later.append((now + chance.choice((0.5, 1.0, 3.0)), self._answer(row, chance.random())))

    def _answer(self, row: Any, luck: float) -> Any:
        async def answer() -> None:
            data = json.loads(row.body)["data"]
            now = self.clock.monotonic()
            if row.type == "job.snapshot.requested":
                await self.ledger.mark_sent(row.id)
                if luck > 0.3:
                    self.later.append((now + 1.0, self.committed(data["job"], data["fence"])))
            elif row.type == "job.restart.requested" and luck < 0.15 and data["replace"]:
                await self.ledger.mark_dead(row.id, "the spare failed its check", {"reason_code": "spare_unfit"})
            elif luck < 0.1 and row.type != "job.restart.requested":
                await self.ledger.mark_dead(row.id, "nobody there")
            else:
                await self.ledger.mark_done(row.id)
                if row.type == "job.restart.requested":
                    self.later.append((now + 2.0, self.restarted(data)))

        return answer

    def committed(self, job: str, fence: int) -> Any:
        async def committed() -> None:
            self.courses[job].step += 1
            data = {"state": "committed", "fence": fence}
            self.hear(Signal(t=self.clock.monotonic(), kind="snapshot", job=job, value=self.courses[job].step, data=data))

        return committed

    def restarted(self, data: dict[str, Any]) -> Any:
        async def restarted() -> None:
            job = self.courses[data["job"]]
            if data["attempt"] != job.attempt:
                return
            job.attempt += 1
            for item in data["replace"]:
                job.slots[item["slot"]] = item["to"] or item["from"]
            job.steps_from = self.clock.monotonic() + 5.0
            for key in [key for key, one in self.doubts.items() if one.vote.subject.get("job") == data["job"]]:
                del self.doubts[key]
            await self._tell_job(data["job"])

        return restarted

    async def _tell_job(self, job: str) -> None:
        """The witness that hears it first writes it down; the others' processes hear it only by the ledger."""
        course = self.courses[job]
        slots = [[node, 0] for node in course.slots]
        told = Signal(t=self.clock.monotonic(), kind="job", job=job, value=course.attempt, data={"slots": slots})
        for name, leader in self.leaders.items():
            if name == WITNESSES[course.attempt % 3]:
                leader._judge.observe(told)
        body = {"t": told.t, "kind": "job", "job": job, "value": told.value, "data": told.data}
        await self.ledger.put_control(Control(kind="job", key=job, body=body))

    async def all_speak(self) -> None:
        self.silent.clear()

    def hear(self, signal: Signal) -> None:
        for leader in self.leaders.values():
            leader._judge.observe(signal)
