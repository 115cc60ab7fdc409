"""One witness: sockets, clock and ledger around the pure core.

One event loop, one thread for judgement. The order of a turn after a stall matters: first everything that waited in the sockets is
read, then the engine is told how long this process stood still, and only then may it look at the clock.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import msgspec
import structlog
from aiohttp import web

from detectors.core.council import Council
from detectors.core.engine import Engine
from detectors.witness import routes_agents, routes_people
from detectors.witness.access import Access
from detectors.witness.draft import OPEN_STATES
from detectors.witness.heartbeats import HeartbeatReceiver
from detectors.witness.http import Pages, serve
from detectors.witness.intake import Intake
from detectors.witness.journal import Journal
from detectors.witness.judge import Judge
from detectors.witness.leader import Leader
from detectors.witness.ledger import Control, LedgerError, make_ledger
from detectors.witness.metrics import Metrics, Reading
from detectors.witness.sight import Sight
from detectors.witness.waiting import told
from outrider import __version__
from outrider.catalogue.codes import CodeBook
from outrider.clock import Clock
from outrider.config.agent import AgentSection
from outrider.config.catalogue import CatalogueSection
from outrider.config.fleet import FleetSection
from outrider.config.ledger import LedgerSection
from outrider.config.policy import PolicySection
from outrider.config.security import SecuritySection
from outrider.config.site import Config, SiteSection
from outrider.config.witness import Member, WitnessSection
from outrider.errors import InputError
from outrider.signals import Signal
from outrider.tls import RenewedContext, readings, server_context

log = structlog.get_logger()

#: How often a witness says that it is there, and looks who else is, seconds.
PRESENCE_SECONDS = 1.0
#: After its own start a witness calls no other absent for this long: they start together.
GRACE_SECONDS = 10.0
#: How long a heartbeat that another key signed is told of, seconds: a node beats each second, a chance datagram is soon forgotten.
FORGED_SECONDS = 60.0
#: How long the ledger says that a job is over, seconds: whoever cannot read it for an hour has more to learn than that.
OVER_SECONDS = 3600.0


class Witness:
    """One witness. `run` serves until cancelled."""

    def __init__(self, config: Config, name: str) -> None:
        """Reads everything from `config`, opens nothing.

        Raises:
            InputError: the configuration names no such witness, or a secret cannot be used.
        """
        self.config, self.name, self.member = config, name, _member(config, name)
        self.section = config.get(WitnessSection)
        self.names = tuple(one.name for one in self.section.members)
        site, agent = config.get(SiteSection), config.get(AgentSection)
        policy = config.get(PolicySection).under(site.mode)
        fleet = config.get(FleetSection).fleet(self.names)
        security = config.get(SecuritySection)
        self._keys = security.heartbeat_keys()
        self._ledger_section = config.get(LedgerSection)
        self.ledger = make_ledger(self._ledger_section)
        self.clock: Clock = self.ledger.clock
        self.holder = f"{name}-{time.monotonic_ns():x}"
        self.journal = Journal(Path(self.section.state_dir) / name, fleet, name, self.section.journal_bytes_max)
        engine = Engine(fleet, policy, name, self.names, CodeBook(config.get(CatalogueSection)))
        self.judge = Judge(engine, fleet, self.ledger, self.journal, self.clock, (agent.udp_port, agent.closed_port))
        self.leader = Leader(
            self.holder, self.ledger, self.judge, self.journal, self.clock,
            lambda fence: Council(fleet, policy, self.names, fence=fence), self._ledger_section.lease_seconds,
            fleet, agent.heartbeat_seconds,
        )  # fmt: skip
        self.judge.listeners.append(self.leader.signal)
        self.sight = Sight(fleet, self.clock)
        self.judge.listeners.append(self.sight.signal)
        self.intake = Intake(self.section.nodes_max)
        self.pages = Pages(Access.from_section(security), config, self.ledger, self.status, self.sight)
        self._fleet, self._policy = fleet, policy
        self.receiver: HeartbeatReceiver | None = None
        self.tls: RenewedContext | None = None
        self.board = routes_agents.OrderBoard(self.ledger)
        self.lag_seconds, self.stalls = 0.0, 0
        self.peers: dict[str, bool] = {}
        self._standing: dict[str, Control] = {}
        self._jobs_place = 0

    async def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serves until cancelled. `ready` is called when all sockets listen.

        Raises:
            OutriderError: a port or the ledger cannot be had.
        """
        async with contextlib.AsyncExitStack() as stack:
            await self.ledger.open()
            stack.push_async_callback(self.ledger.close)
            stack.push_async_callback(self.journal.close)
            await self._heed_controls()
            receiver = HeartbeatReceiver(self.member.address, self.member.heartbeat_port, self._keys, self._beat, self.clock)
            self.receiver = receiver
            stack.callback(receiver.close)
            if self.member.tls_cert:
                self.tls = server_context(self.member.tls_cert, self.member.tls_key, log)
            runner = await serve(self._application(), self.member.address, self.member.http_port, self.tls)
            stack.push_async_callback(runner.cleanup)
            receiver.start(asyncio.get_running_loop())
            log.info("witness_ready", witness=self.name, url=self.member.url, heartbeats=receiver.port)
            ready()
            async with asyncio.TaskGroup() as group:
                parts: tuple[Coroutine[Any, Any, None], ...] = (
                    self._tick(), self._follow(), self._presence(), self.judge.run(), self.leader.run(), self.journal.run(),
                )  # fmt: skip
                for part in parts:
                    group.create_task(part)

    def _application(self) -> web.Application:
        metrics = Metrics(self._readings, self.leader.tally.histograms)
        routes_agents.add_routes(self.pages, self.intake, self._hear, self.board, self.clock, self.section.signals_queue_max)
        routes_people.add_routes(self.pages, metrics, self._fleet, self._policy)
        self.pages.add_rooms()
        return self.pages.application(self.section.batch_bytes_max)

    def _beat(self, signal: Signal) -> None:
        self.sight.beat(signal)
        self.judge.observe(signal)

    def _hear(self, signal: Signal) -> None:
        if signal.kind == "job":
            self.sight.part(signal)
        self.judge.observe(signal)

    async def _tick(self) -> None:
        """The own-stall watch and the engine's clock. A tick that comes late tells that this process stood still."""
        tick, expected = self.section.tick_seconds, self.clock.monotonic()
        while True:
            now = self.clock.monotonic()
            self.lag_seconds = max(0.0, now - expected)
            if self.lag_seconds > self.section.stall_seconds:
                self.stalls += 1
                assert self.receiver is not None
                drained = self.receiver.drain()
                self.judge.note_stall(self.lag_seconds)
                log.warning("own_stall", seconds=round(self.lag_seconds, 3), drained=drained)
            self.judge.advance()
            deadline = self.judge.next_deadline()
            # Never later than the watch's own tick, never a busy loop. Counted from before the engine's work: while it works
            # nothing is read, so a long piece of work is a stall like any other.
            pause = tick if deadline is None else min(tick, max(0.001, deadline - self.clock.monotonic()))
            expected = now + pause
            await asyncio.sleep(pause)

    async def _follow(self) -> None:
        """Hears that the ledger changed and wakes those who wait for it."""
        while True:
            if await self.ledger.changed(1.0):
                self.pages.news.set()
            self.leader.wake.set()
            try:
                await self.board.refresh()
                await self._heed_controls()
            except LedgerError as error:
                log.warning("ledger_unreachable", error=str(error))

    async def _heed_controls(self) -> None:
        """Maintenance that began or ended, jobs that other witnesses knew before this one was there, and jobs that are over."""
        for job in self.sight.leave():
            over = self.judge.forget(job)
            await self.ledger.put_control(Control(kind="job", key=job, body=msgspec.to_builtins(over), seconds_left=OVER_SECONDS))
        standing = {}
        for control in await self.ledger.controls(self._jobs_place):
            if control.kind == "maintenance":
                standing[control.key] = control
            elif control.kind == "job":
                self._jobs_place = max(self._jobs_place, control.number)
                if control.body.get("data", {}).get("over"):
                    if self.sight.lives(control.key):
                        self.judge.renew(control.key)
                else:
                    self.judge.recall(msgspec.convert(control.body, Signal))
        for key in standing.keys() ^ self._standing.keys():
            value = "on" if key in standing else "off"
            control = standing.get(key) or self._standing[key]
            subject = {"job": key} if control.body.get("what") == "job" else {"node": key}
            self.judge.observe(
                msgspec.convert(
                    {"t": self.clock.monotonic(), "kind": "maintenance", "value": value, "source": "operator", **subject}, Signal
                )
            )
        self._standing = standing

    async def _presence(self) -> None:
        """Says that this witness is there, and tells the judge who else is."""
        grace_over = self.clock.monotonic() + GRACE_SECONDS
        while True:
            try:
                await self.ledger.acquire(f"witness:{self.name}", self.holder)
                for name in self.names:
                    there = name == self.name or await self.ledger.holder(f"witness:{name}") is not None
                    if not there and name not in self.peers and self.clock.monotonic() < grace_over:
                        continue  # it may be starting as we are: unknown is not absent
                    self.peers[name] = there
                    lag = {"lag_s": self.lag_seconds} if name == self.name else {}
                    now = self.clock.monotonic()
                    self.judge.observe(Signal(t=now, kind="witness", witness=name, data={"up": self.peers[name], **lag}))
            except LedgerError as error:
                log.warning("ledger_unreachable", error=str(error))
            await asyncio.sleep(PRESENCE_SECONDS)

    async def status(self) -> dict[str, Any]:
        """What `outrider status` shows."""
        incidents = await self.ledger.incidents()
        controls = await self.ledger.controls()
        states = Counter(picture.get("state", "unknown") for picture in incidents)
        found = [picture for picture in incidents if picture.get("state") in OPEN_STATES]
        leader = await self.ledger.holder("leader")
        warnings = self.warnings(leader)
        for control in controls:
            if control.kind == "target_gone":  # the deliverer's mark: see alerts/gone.py
                warnings.append(f"target {control.key} answered 410 and is left alone: outrider outbox enable {control.key}")
        return {
            "site": self.config.get(SiteSection).name, "mode": self._policy.mode, "witness": self.name, "version": __version__,
            "leader": leader.rpartition("-")[0] if leader else None, "term": self.leader.term,
            "deliverer": await self.ledger.holder("deliverer") is not None,
            "witnesses": {name: {"up": self.peers.get(name)} for name in self.names}, "warnings": warnings,
            "nodes": len(self._fleet.nodes), "spares": list(self._fleet.spares), "jobs": self.sight.job_lines(),
            "incidents": dict(states), "open": [told(picture, self._policy) for picture in found[:50]],
            "paused": any(control.kind == "pause" for control in controls),
            "maintenance": [control.key for control in controls if control.kind == "maintenance"],
            "heartbeats": self.receiver.received if self.receiver else 0,
            "refused": dict(self.receiver.refused + self.pages.refused if self.receiver else self.pages.refused),
            "signals": dict(self.judge.signals), "lag_seconds": round(self.lag_seconds, 4), "stalls": self.stalls,
        }  # fmt: skip

    def warnings(self, leader: str | None) -> list[str]:
        """What a person should know although nothing has failed yet."""
        said = []
        for vantage, names in self.section.shared_vantages().items():
            word = (
                "admitted by shared_vantage_ok"
                if self.section.shared_vantage_ok
                else "set [witness] shared_vantage_ok = true to admit it"
            )
            said.append(f"witnesses {', '.join(names)} share one vantage point ({vantage}): they fall together; {word}")
        if leader is None:
            said.append("no witness leads now: nothing is decided")
        said += [f"witness {name} is not there" for name in self.names if self.peers.get(name) is False]
        if self.receiver is not None and self.clock.monotonic() - self.receiver.forged_t < FORGED_SECONDS:
            said.append(
                "heartbeats come that another key signed: a node has another [security] heartbeat_key_file, or it is no node"
            )
        if self.judge.errors or self.leader.errors:
            said.append(f"{self.judge.errors + self.leader.errors} errors of our own; see the log")
        said += [f"journal: {ring.error}" for ring in (self.journal.signals, self.journal.decisions) if ring.error]
        return said

    def _readings(self) -> Iterable[Reading]:
        """All numbers of the page, without I/O but a look at the certificate's files."""
        yield "outrider_witness_leader", (), float(self.leader.leading)
        yield "outrider_witness_lag_seconds", (), self.lag_seconds
        for kind, count in self.judge.signals.items():
            yield "outrider_signals_total", (kind,), float(count)
        if self.receiver is not None:
            yield "outrider_heartbeats_total", ("good",), float(self.receiver.received)
            yield "outrider_heartbeats_total", ("forged",), float(self.receiver.refused["signature"])
        for verdict, count in self.judge.verdicts.items():
            yield "outrider_votes_total", (verdict,), float(count)
        yield from self.leader.readings()
        yield from readings("witness", self.tls)


def _member(config: Config, name: str) -> Member:
    section = config.get(WitnessSection)
    member = section.member(name)
    if member is None:
        known = ", ".join(one.name for one in section.members) or "none"
        raise InputError(f"no witness is called {name!r} (configured: {known})", file=str(config.path or ""), key="witness.members")
    return member
