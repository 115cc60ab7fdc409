"""The leader's part of a witness: holds the lease, drives the `Council` on all witnesses' votes, and commits what it decides.

Every witness runs this; one at a time leads. The council's memory is written with each commit, in the same transaction, so the next
leader goes on from what is durable: after any doubt (lease lost, conflict, ledger out of reach in the middle of a commit) this one
throws its council away and starts again from the ledger.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec
import structlog

from detectors.core.types import ActionResult, Decision
from detectors.witness import numbers
from detectors.witness.council_side import CouncilLike, Teller, by_key
from detectors.witness.draft import Draft
from detectors.witness.journal import Journal
from detectors.witness.judge import Judge
from detectors.witness.ledger import Commit, ConflictError, Control, LeaderState, Ledger, LedgerError
from detectors.witness.memory import COUNCIL_KINDS, Heard, Standing, lasting, standing_orders
from detectors.witness.metrics import Reading
from detectors.witness.numbers import Tally
from detectors.witness.outbox import OutboxRow
from detectors.witness.recoveries import Recoveries
from detectors.witness.words import Said, effects, log_line, words
from outrider.clock import Clock
from outrider.fleet import Fleet
from outrider.signals import Signal

log = structlog.get_logger()

#: At least this often the leader looks for actions past their deadline, seconds.
LOOK_SECONDS = 0.25
#: Signals kept for a council that is being started; more are dropped (they are steps and commits that come again).
SIGNALS_MAX = 10_000
#: Closed incidents beyond this are left to the ledger.
PICTURES_MAX = 5_000


class Leader:
    """Leads when it holds the lease. `make_council(fence)` builds a fresh council.

    `leading` tells whether this witness leads now, `term` in which term; `commits`, `conflicts` and `errors` count.
    """

    def __init__(
        self, name: str, ledger: Ledger, judge: Judge, journal: Journal, clock: Clock,
        make_council: Callable[[int], CouncilLike], lease_seconds: float, fleet: Fleet, heartbeat_seconds: float = 1.0,
    ) -> None:  # fmt: skip
        self._fleet = fleet
        self._ledger, self._judge, self._journal, self._clock = ledger, judge, journal, clock
        self._make_council, self._lease_seconds, self._heartbeat_seconds = make_council, lease_seconds, heartbeat_seconds
        self.holder = name
        self.wake = asyncio.Event()
        self.term = 0
        self.commits = self.conflicts = self.errors = 0
        self._council: CouncilLike | None = None
        self._place = 0
        self._jobs_place = 0
        self._state = LeaderState(fence=0, council=None, verdicts={}, claims={})
        self._pictures: dict[str, dict[str, Any]] = {}
        self._actions: dict[str, OutboxRow] = {}
        self._standing: Standing = {}
        self._signals: list[Signal] = []
        self._heard = Heard()
        self._recoveries, self._teller = Recoveries(), Teller()
        self._memory: Any = {}
        self.tally = Tally()

    @property
    def leading(self) -> bool:
        return self._council is not None

    def signal(self, signal: Signal) -> None:
        """A signal this witness took in; its council, now or once it leads, hears what it may need (see `COUNCIL_KINDS`)."""
        if signal.kind in COUNCIL_KINDS:
            self._heard.take(signal)
        if self._council is None:
            return
        if signal.kind in COUNCIL_KINDS and len(self._signals) < SIGNALS_MAX:
            self._signals.append(signal)
            self.wake.set()
        self._recoveries.hear(signal, self._pictures)

    def readings(self) -> Iterable[Reading]:
        """The council's numbers for `/metrics`; the state of things is shown by whoever leads."""
        yield from self.tally.readings()
        if self._council is not None:
            yield from numbers.open_incidents(self._pictures, self._fleet)
            yield from numbers.state_of_the_fleet(self._fleet, self._pictures, self._memory, self._clock.monotonic())

    async def run(self) -> None:
        """Campaigns and leads until cancelled; gives the lease back when it ends."""
        try:
            while True:
                try:
                    await self._term_of_office()
                except ConflictError as error:
                    self.conflicts += 1
                    log.warning("commit_refused", reason_code=error.reason_code, reason=str(error))
                    self._step_down()
                    await asyncio.sleep(LOOK_SECONDS)  # what is refused again and again must not make us spin
                except LedgerError as error:
                    log.warning("ledger_unreachable", error=str(error))
                    self._step_down()
                    await asyncio.sleep(LOOK_SECONDS)
                except Exception:  # our own bug: counted, told, and the next term starts from what is durable
                    self.errors += 1
                    log.exception("core_error", kind="council")
                    await self._give_back()  # another witness may have more luck
                    await asyncio.sleep(1.0)
        finally:
            if self._council is not None:
                await self._give_back()

    async def _give_back(self) -> None:
        """Leads no more, and lets another lead at once."""
        self._step_down()
        try:
            await self._ledger.resign("leader", self.holder)
        except LedgerError as error:
            log.warning("ledger_unreachable", error=str(error))

    async def _term_of_office(self) -> None:
        """One renewal of the lease and the work until the next."""
        renew_at = self._clock.monotonic() + self._lease_seconds / 3
        lease = await self._ledger.acquire("leader", self.holder)
        if lease is None:
            if self._council is not None:
                self._step_down()
            await self._pause(renew_at)
            return
        if self._council is None or lease.term != self.term:
            self.term = lease.term
            await self._take_over()
        while (now := self._clock.monotonic()) < renew_at:
            await self._work()
            await self._pause(min(renew_at, self._next(now)))

    async def _pause(self, until: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, until - self._clock.monotonic())):  # wait_for of 3.11 may swallow a cancellation
                await self.wake.wait()
        except TimeoutError:
            return
        self.wake.clear()

    def _next(self, now: float) -> float:
        deadline = self._council.next_deadline() if self._council is not None else None
        look = now + LOOK_SECONDS
        return look if deadline is None else max(now + 0.005, min(deadline, look))

    def _step_down(self) -> None:
        if self._council is not None:
            log.info("stepped_down", term=self.term)
        self._council = None
        self._signals.clear()

    async def _take_over(self) -> None:
        """Starts from what the ledger says."""
        state = await self._ledger.leader_state()
        council = self._make_council(state.fence)
        self._memory = msgspec.json.decode(state.council) if state.council is not None else {}
        if state.council is not None:
            council.restore(self._memory)
        # The ledger tells the newest first, a leader keeps the oldest first.
        self._pictures = {picture["incident"]: picture for picture in reversed(await self._ledger.incidents(PICTURES_MAX))}
        self._recoveries.look(self._pictures)
        self._actions = await self._untold()
        self._state, self._place, self._jobs_place, self._standing = state, 0, 0, standing_orders(self._memory)
        self._signals = self._heard.all()
        self._recoveries.clear()
        self._council = council
        log.info("leads", term=self.term, fence=state.fence, restored=state.council is not None)

    async def _untold(self) -> dict[str, OutboxRow]:
        """Rows of whose end the council has not heard."""
        return {row.decision_id: row for row in await self._ledger.list_rows(limit=PICTURES_MAX) if not row.told}

    async def _work(self) -> None:
        """One turn: hears all there is to hear, then commits once."""
        council = self._council
        assert council is not None
        now = self._clock.monotonic()
        decisions: list[Decision] = []
        # Votes are read before the jobs, and heard after them: a job is written before the first vote that concerns it.
        self._place, votes = await self._ledger.read_votes(self._place)
        controls = await self._ledger.controls(self._jobs_place)
        shown: dict[str, dict[str, Any]] = {}
        signals, self._signals = self._jobs(controls, now) + self._signals, []
        for signal in signals:
            decisions += self._teller.tell(council, signal, now)
            shown |= effects(signal, self._actions.values())
        # After the jobs: a new leader that hears an approval first does not know yet which job to restart.
        said, self._standing = words(controls, self._standing)
        for event, _ in said:
            decisions += self._teller.tell(council, event, now)
        for ballot in by_key(votes):
            decisions += self._teller.tell(council, ballot, now)
        results = [result for result in await self._ledger.results() if result.decision_id not in shown]
        if any(result.decision_id not in self._actions for result in results):  # one that was dead, and was tried anew
            self._actions = await self._untold() | self._actions
        heard = [ActionResult(decision_id=result.decision_id, outcome=result.outcome, detail=result.detail) for result in results]
        heard += [ActionResult(decision_id=decision, outcome="done", detail=detail) for decision, detail in shown.items()]
        for result in heard:
            decisions += self._teller.tell(council, result, now)
        decisions += council.advance(self._clock.monotonic())
        if decisions or heard or said or self._recoveries or council.unsaved:
            await self._commit(council, decisions, heard, shown, said)

    def _jobs(self, controls: list[Control], now: float) -> list[Signal]:
        """Jobs that are new in the ledger, as the signals that told of them."""
        fresh = [control for control in controls if control.kind == "job"]
        self._jobs_place = max((control.number for control in fresh), default=self._jobs_place)
        signals = [msgspec.convert({**control.body, "t": now}, Signal) for control in fresh]
        for signal in signals:
            if signal.data.get("over"):
                self._heard.forget(str(signal.job))
            else:
                self._judge.recall(signal)  # the rank map of a restart comes from there
        return signals

    async def _commit(
        self,
        council: CouncilLike,
        decisions: list[Decision],
        heard: list[ActionResult],
        shown: dict[str, dict[str, Any]],
        said: list[Said],
    ) -> None:
        """Writes a turn's decisions in one transaction, then lets the world hear of them."""
        now, wall = self._clock.monotonic(), self._clock.wall()
        draft = Draft(self._state, dict(self._pictures), self._judge.jobs, now, wall, self._heartbeat_seconds)
        for (incident, name), t in self._recoveries.take().items():
            draft.mark(incident, name, t)
        for result in heard:
            draft.result(result, self._actions.get(result.decision_id))
        for event, _ in said:
            draft.word(event)
        for decision in decisions:
            draft.decision(decision)
        draft.tell()
        memory = lasting(council.snapshot(), self._standing)
        commit = Commit(
            term=self.term, fence_before=self._state.fence, fence=draft.fence, verdicts=tuple(draft.verdicts),
            incidents=tuple(draft.incidents), claims=tuple(draft.claims), releases=tuple(draft.releases),
            outbox=tuple(draft.outbox),
            orders=tuple(draft.orders), orders_cleared=tuple(draft.cleared), audit=tuple(draft.audit),
            controls_done=tuple(control.number for _, control in said if control is not None),
            told=tuple(result.decision_id for result in heard), effects=tuple(shown.items()),
            council=msgspec.json.encode(memory),
        )  # fmt: skip
        await self._ledger.commit(commit, self.holder)
        self.commits += 1
        council.saved()
        self._memory = memory
        self._settle(draft, heard, decisions)
        for event, _ in said:
            if (picture := self._pictures.get(event.target)) is not None:
                self.tally.said(event.kind, str(picture.get("fault", "")))

    def _forget_pictures(self) -> None:
        """Keeps the open incidents and the newest closed ones."""
        closed = [name for name, picture in self._pictures.items() if picture.get("state") in ("resolved", "refuted")]
        for name in closed[: max(0, len(closed) - PICTURES_MAX)]:
            del self._pictures[name]

    def _settle(self, draft: Draft, heard: list[ActionResult], decisions: list[Decision]) -> None:
        """What was committed is now so."""
        verdicts = self._state.verdicts | {(w.subject, w.incarnation): w.version_before + 1 for w in draft.verdicts}
        claims = {spare: owner for spare, owner in self._state.claims.items() if spare not in draft.releases}
        claims |= dict(draft.claims)
        self._state = replace(self._state, fence=draft.fence, verdicts=verdicts, claims=claims)
        self._pictures = draft.pictures
        self._forget_pictures()
        self._recoveries.look(self._pictures)
        self._actions |= {row.decision_id: row for row in draft.outbox}
        for result in heard:
            row = self._actions.pop(result.decision_id, None)
            if row is not None:
                self.tally.ended(row.action, result.outcome)
        for decision in decisions:
            self._journal.decision(draft.now, decision)
            self.tally.decided(decision, self._pictures)
            log.info("decision", **log_line(decision))

