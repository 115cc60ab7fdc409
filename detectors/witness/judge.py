"""Drives one witness's `Engine`: signals in, time in, own stalls told; its decisions go to the ledger.

Everything here runs on the event loop's one thread, so the engine sees one thing after another and its clock never goes back.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import structlog

from detectors.core.types import CopyRequest, Decision, ProbeRequest, Vote
from detectors.witness.journal import Journal
from detectors.witness.launched import Launched
from detectors.witness.ledger import Control, Ledger, LedgerError, OrderTo
from detectors.witness.roll import Roll
from detectors.witness.translate import copy_orders, probe_orders
from outrider.clock import Clock
from outrider.fleet import Fleet, Job
from outrider.signals import KINDS, Signal

log = structlog.get_logger()

#: Votes and orders that may wait for a ledger that does not answer; a vote replaces its predecessor, so this is one a suspicion.
WAITING_MAX = 50_000
#: Jobs remembered; a site has hundreds.
JOBS_MAX = 10_000
#: Wait before the ledger is tried again, seconds.
RETRY_SECONDS = 0.2


class EngineLike(Protocol):
    """What the edge needs of an engine."""

    def observe(self, signal: Signal, now: float) -> list[Decision]: ...

    def advance(self, now: float) -> list[Decision]: ...

    def next_deadline(self) -> float | None: ...

    def note_stall(self, seconds: float, now: float) -> None: ...


class Judge:
    """One engine and the way of its decisions.

    `ports` are the agents' UDP port and the port on which nothing listens, for probes. Counters: `signals` by kind, `errors` of the
    core (our own bugs: counted, logged, and life goes on), `dropped` votes.
    """

    def __init__(
        self, engine: EngineLike, fleet: Fleet, ledger: Ledger, journal: Journal, clock: Clock, ports: tuple[int, int]
    ) -> None:
        self._engine, self._ledger, self._journal, self._clock = engine, ledger, journal, clock
        self._fleet, self._ports = fleet, ports
        self.jobs: dict[str, Job] = {job.job: job for job in fleet.jobs}
        self.signals: Counter[str] = Counter()
        self.verdicts: Counter[str] = Counter()
        self.errors = 0
        self.dropped = 0
        self.job_signals: dict[str, Signal] = {}
        self._roll, self._launched = Roll(), Launched(fleet.jobs)
        self._new_jobs: dict[str, Signal] = {}
        self._votes: dict[tuple[str, str], Vote] = {}
        self._orders: list[OrderTo] = []
        self._ready = asyncio.Event()
        self.listeners: list[Callable[[Signal], None]] = []

    def observe(self, signal: Signal) -> None:
        """Takes one signal in."""
        now = self._clock.monotonic()
        self.signals[signal.kind if signal.kind in KINDS else "unknown"] += 1
        if signal.kind == "job":
            whole = self._roll.take(signal) if "members" in signal.data else signal
            self._job(whole, now)
        elif self._feed(signal, now) and signal.kind != "heartbeat":
            self._pass_on(signal)

    def _job(self, whole: Signal | None, now: float) -> None:
        """A whole job, if what was told makes one and is to be believed."""
        told = self._launched.take(whole) if whole is not None else None
        if told is not None and self._feed(told, now):
            self._know(told)
            self._pass_on(told)

    def _pass_on(self, signal: Signal) -> None:
        for listener in self.listeners:
            listener(signal)

    def _feed(self, signal: Signal, now: float) -> bool:
        """Gives the engine one signal. False: it failed on it."""
        self._journal.signal(signal)
        try:
            decisions = self._engine.observe(signal, now)
        except Exception:  # our own bug must not end the witness: it is counted and told
            self.errors += 1
            log.exception("core_error", kind=signal.kind, node=signal.node)
            return False
        if decisions:
            self._out(decisions, now)
        return True

    def recall(self, job: Signal) -> None:
        """A job as another witness wrote it down; one that is known in that attempt or a later one stays as it is."""
        known = self.jobs.get(job.job or "")
        if known is not None and isinstance(job.value, int) and known.attempt >= job.value:
            return
        self.observe(msgspec.structs.replace(job, t=self._clock.monotonic()))
        self._new_jobs.pop(job.job or "", None)

    def forget(self, job: str) -> Signal:
        """A job that is over, or of which nobody has heard for long: it is kept nowhere, and who starts one of that name may count
        its starts anew. Returns what the others are to be told."""
        now, known = self._clock.monotonic(), self.jobs.get(job)
        over = Signal(t=now, kind="job", job=job, value=known.attempt if known else 0, source="witness", data={"over": True})
        self._feed(over, now)
        tables: tuple[dict[str, Any], ...] = (self.jobs, self.job_signals, self._new_jobs)
        for table in tables:
            table.pop(job, None)
        self._roll.forget(job)
        self._launched.forget(job)
        return over

    def renew(self, job: str) -> None:
        """Another witness says that a job is over whose ranks are heard of here: it is written down again."""
        if job in self.job_signals:
            self._new_jobs[job] = self.job_signals[job]
            self._ready.set()

    def advance(self) -> None:
        """Lets time do its work."""
        now = self._clock.monotonic()
        for whole in self._roll.due(now):
            self._job(whole, now)
        try:
            decisions = self._engine.advance(now)
        except Exception:  # as in `observe`
            self.errors += 1
            log.exception("core_error", kind="advance")
            return
        if decisions:
            self._out(decisions, now)

    def note_stall(self, seconds: float) -> None:
        """This process stood still for `seconds`; what waited in the sockets has been read."""
        self._engine.note_stall(seconds, self._clock.monotonic())

    def next_deadline(self) -> float | None:
        """When `advance` has something to do; None: not of itself."""
        return min((due for due in (self._engine.next_deadline(), self._roll.next_due()) if due is not None), default=None)

    async def run(self) -> None:
        """Writes votes and orders to the ledger until cancelled; what the ledger does not take is kept and tried again."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            votes, self._votes = self._votes, {}
            orders, self._orders = self._orders, []
            jobs, self._new_jobs = self._new_jobs, {}
            try:
                # Jobs go first: whoever leads must know a job before it hears a vote that concerns it.
                for name, told in jobs.items():
                    await self._ledger.put_control(Control(kind="job", key=name, body=msgspec.to_builtins(told)))
                jobs = {}
                if orders:
                    await self._ledger.put_orders(orders)
                    orders = []
                if votes:
                    await self._ledger.put_votes(list(votes.values()))
            except LedgerError as error:
                log.warning("ledger_unreachable", error=str(error))
                self._new_jobs = jobs | self._new_jobs
                self._votes = votes | self._votes
                self._orders = (orders + self._orders)[-WAITING_MAX:]
                self._ready.set()
                await asyncio.sleep(RETRY_SECONDS)

    def _out(self, decisions: list[Decision], now: float) -> None:
        for decision in decisions:
            self._journal.decision(now, decision)
            match decision:
                case Vote():
                    if len(self._votes) >= WAITING_MAX:
                        self.dropped += 1
                        continue
                    self.verdicts[decision.verdict.value] += 1
                    self._votes[decision.key, decision.witness] = decision
                    log.debug("vote", key=decision.key, verdict=str(decision.verdict), reason=decision.reason)
                case ProbeRequest():
                    self._orders += probe_orders(decision, self._fleet, self._ports)
                case CopyRequest():
                    self._orders += copy_orders(decision, self.jobs.get(decision.job))
                case _:
                    log.error("core_error", kind=f"an engine may not decide {type(decision).__name__}")
                    self.errors += 1
        self._ready.set()

    def _know(self, signal: Signal) -> None:
        """Remembers where a job's ranks are: orders need it, and so do a new leader and a witness that starts again."""
        slots = signal.data.get("slots")
        if signal.job is None or not isinstance(slots, list | tuple):
            return
        pairs = [(str(slot[0]), slot[1]) for slot in slots if isinstance(slot, list | tuple) and len(slot) == 2]
        attempt = signal.value if isinstance(signal.value, int) else 1
        known = self.jobs.get(signal.job)
        if (known is not None and attempt < known.attempt) or (known is None and len(self.jobs) >= JOBS_MAX):
            return
        before = self.job_signals.get(signal.job)
        if before is None or (before.value, before.data) != (signal.value, signal.data):
            self._new_jobs[signal.job] = signal
            self._ready.set()
        self.job_signals[signal.job] = signal
        self.jobs[signal.job] = Job(job=signal.job, slots=tuple((node, int(gpu)) for node, gpu in pairs), attempt=attempt)
