"""The leader's half: votes of all witnesses, deliveries and time in; incidents and actions out.

One incident per cause: a suspicion that a known incident explains joins it, and an incident that turns out to be a
consequence is merged into its cause, whose recovery is amended.
"""

from typing import Any, get_args, get_type_hints

from detectors.core.ballots import BallotBox
from detectors.core.door import admit
from detectors.core.incident import Incident, State
from detectors.core.people import People
from detectors.core.quorum import Ballot, Quorum
from detectors.core.recovery import Recovery
from detectors.core.register import Register
from detectors.core.types import ActionResult, Decision, OperatorEvent, Vote
from detectors.core.verdicts import Verdicts
from detectors.core.world import World
from outrider.config.policy import Policy
from outrider.fleet import Fleet
from outrider.signals import Signal

#: How often expired votes are looked for.
SWEEP_SECONDS = 1.0
#: .. and that one is due as soon as a new leader has heard all votes: a suspicion may have none left.
RESTORED = float("-inf")
#: What a person may say, as a signal of source `operator` has it.
OPERATOR_KINDS = frozenset(get_args(get_type_hints(OperatorEvent)["kind"]))
Event = Vote | ActionResult | Signal | OperatorEvent


class Council:
    """What the witnesses decide together.

    Args:
        fleet, policy: as for the engine.
        witnesses: all that are configured; their majority is the quorum.
        fence: the last fencing number that was used; every recovery takes a larger one.
    """

    def __init__(self, fleet: Fleet, policy: Policy, witnesses: tuple[str, ...], *, fence: int = 0) -> None:
        self.policy = policy
        self.world = World(fleet)
        self.quorum = Quorum(witnesses)
        self.recovery = Recovery(fleet, policy, self.world, fence)
        self.box = BallotBox(witnesses, self.world.count)
        self.register = Register(self.world, policy, self.recovery)
        self.people = People(self.register)
        self.verdicts = Verdicts(self.quorum, self.box, self.register)
        self._sweep_due = float("inf")
        #: Doubts that the memory kept last speaks of (see `BallotBox.outlived`), and the time of the last look.
        self._kept: set[str] = set()
        self._looked = 0.0
        #: Witnesses that showed the leader before their view.
        self._shown: set[str] = set()

    @property
    def incidents(self) -> dict[str, Incident]:
        """All incidents that are remembered, by their names."""
        return self.register.incidents

    @property
    def open(self) -> dict[str, Incident]:
        """Those that are not over, oldest first."""
        return self.register.open

    @property
    def unsaved(self) -> bool:
        """Whether something changed that no decision tells of and that the next leader could not learn anew."""
        return self.register.unsaved

    # --- the machine ---

    def observe(self, event: Event, now: float) -> list[Decision]:
        """Takes in a vote, the outcome of an action, a signal of kind snapshot, job, maintenance or phase, or a person's word."""
        match event:
            case Vote():
                return self._vote(event, now)
            case Signal():
                return self._signal(event, now)
            case ActionResult():
                return self._result(event, now)
            case OperatorEvent():
                return self._person(event, now)

    def advance(self, now: float) -> list[Decision]:
        """Counts again where time may have changed the answer."""
        decisions = self.verdicts.recount(now)
        if self.recovery.held:
            for incident in self.recovery.let_go(self.incidents, now):
                decisions += self.register.act(incident, now)
        decisions += self.people.unanswered(now)
        self._all_heard(now)
        if now >= self._sweep_due:
            decisions += self._sweep(now)
        if self.register.spares_moved:
            decisions += self.register.spares_back(now)
        return decisions

    def next_deadline(self) -> float | None:
        """When `advance` has something to do."""
        due = min(self._sweep_due, self.recovery.safety.approvals.next_deadline())
        if self.verdicts.again:
            due = min(due, *self.verdicts.again.values())
        if self.recovery.held and not self.recovery.guard.blind:
            due = min(due, self.recovery.guard.hold_until)
        return None if due == float("inf") else due

    # --- votes ---

    def observe_votes(self, votes: list[Vote], now: float) -> list[Decision]:
        """Takes in votes that arrived together, and counts each ballot once: an incident then shows all of them."""
        decisions: list[Decision] = []
        ballots: dict[str, Ballot] = {}
        self._sweep_due = min(self._sweep_due, _after(now))
        for vote in votes:
            if vote.reason_code == "view":
                decisions += self._vote(vote, now)
            elif (ballot := self.box.keep(vote, now)) is not None:
                ballots[ballot.key] = ballot
        for ballot in ballots.values():
            decisions += self.verdicts.count(ballot, now)
        return decisions

    def _vote(self, vote: Vote, now: float) -> list[Decision]:
        self._sweep_due = min(self._sweep_due, _after(now))
        if vote.reason_code == "view" and vote.witness in self.quorum.witnesses:
            self.quorum.saw(vote, now)
            return self._progress(vote.extra["view"].get("jobs", {}), now)
        ballot = self.box.keep(vote, now)
        return self.verdicts.count(ballot, now) if ballot is not None else []

    # --- what else the leader hears ---

    def _person(self, event: OperatorEvent, now: float) -> list[Decision]:
        if event.kind == "release":  # what is said of a node that is out opens nothing: from now on it may
            self.verdicts.again.update(dict.fromkeys(self.box.ballots, now))
        return self.people.said(event, now)

    def _result(self, result: ActionResult, now: float) -> list[Decision]:
        action = self.recovery.actions.get(result.decision_id)
        incident = self.incidents.get(action.incident) if action is not None else None
        if action is None or incident is None:
            self.world.count("result of an unknown action")
            return []
        incident.extra["results"] = {**incident.extra.get("results", {}), action.action: result.outcome}
        if result.outcome == "failed" and result.detail.get("reason_code") == "spare_unfit":
            return self.register.act(incident, now) if self.recovery.unfit_spare(incident, action) else []
        return []

    def _signal(self, told: Signal, now: float) -> list[Decision]:
        signal, _ = admit(told)
        if signal is None:
            self.world.count("malformed")
            return []
        match signal.kind:
            case "job":
                state = self.world.tell_job(signal, now)
                self.world.restarted.clear()
                self.register.spares_moved = True  # a spare on which a job ran may be free now
                if state is not None:
                    self._restarted(state.name, state.attempt, now)
                elif signal.data.get("over") and signal.job is not None:
                    self.register.unsaved |= self.recovery.forget(signal.job)
            case "phase":
                self.world.phase(signal, now)
                self.world.restarted.clear()  # an engine looks at them; here they would pile up
            case "snapshot":
                if signal.data.get("state") == "committed" and signal.job and isinstance(signal.value, int | float):
                    self.register.unsaved |= self.recovery.committed(signal.job, int(signal.value))
            case "maintenance":
                self.recovery.guard.maintenance[signal.node or signal.job or ""] = signal.value == "on"
            case _ if signal.source == "operator" and signal.kind in OPERATOR_KINDS:
                who, why = str(signal.data.get("who", "")), str(signal.data.get("reason", ""))
                event = OperatorEvent(kind=signal.kind, target=str(signal.value or ""), who=who, reason=why)  # type: ignore[arg-type]
                return self._person(event, now)
            case _:
                pass
        return []

    def _restarted(self, job: str, attempt: int, now: float) -> None:
        for incident in self.open.values():
            if incident.state is State.ACTING and incident.jobs.get(job, attempt) < attempt:
                incident.move(State.RECOVERING, now)

    def _progress(self, jobs: dict[str, Any], now: float) -> list[Decision]:
        """A witness's view of the jobs: a new attempt that steps ends the incidents that stopped the old one."""
        decisions: list[Decision] = []
        for incident in list(self.open.values()):
            if incident.state is State.SUSPECTED or incident.response != "restart":
                continue
            if incident.jobs and all(_runs(jobs.get(job), attempt) for job, attempt in incident.jobs.items()):
                decisions += self.register.close(incident, State.RESOLVED, "the job steps again", now)
        return decisions

    # --- bounds ---

    def _all_heard(self, now: float) -> None:
        """All live votes have been heard: what nobody doubts now is doubted anew when somebody doubts it again."""
        self._looked = now
        if self._sweep_due == RESTORED:
            self._sweep_due = -(-now // SWEEP_SECONDS) * SWEEP_SECONDS
            self.quorum.expect(self._shown, now)
        self.box.before.clear()
        over = {key for key in self._kept if not self.box.doubted(key, now)}
        if over:
            self._kept -= over
            self.register.unsaved = True

    def _sweep(self, now: float) -> list[Decision]:
        """Lets expired votes go, and suspicions with them; looks for witnesses that say nothing."""
        decisions: list[Decision] = []
        self.box.expire(now)
        for incident in list(self.open.values()):  # also one that the leader before had opened, and of which no vote is left
            if incident.state is State.SUSPECTED and incident.keys[0] not in self.box.ballots:
                decisions += self.register.close(incident, State.REFUTED, "no witness says it any more", now)
        decisions += self._watch_witnesses(now)
        self._sweep_due = _after(now) if self.box.ballots or self.quorum.views else float("inf")
        return decisions

    def _watch_witnesses(self, now: float) -> list[Decision]:
        """A witness that shows no view while the others do, or that alone finds many nodes late."""
        decisions: list[Decision] = []
        for witness, doubt in self.quorum.doubts(now).items():
            for fault in ("monitor.witness_lost", "monitor.blind"):
                key = f"{fault}|witness={witness}|"
                known = self.register.open_of(key)
                if doubt is not None and doubt[0] == fault and known is None:
                    others = tuple(other for other in self.quorum.witnesses if other != witness)
                    decisions += self.register.found(fault, witness, others, doubt[1], now)
                elif known is not None and (doubt is None or doubt[0] != fault):
                    decisions += self.register.close(known, State.RESOLVED, "it sees like the others again", now)
        return decisions

    # --- a new leader goes on where the old one was ---

    def snapshot(self) -> dict[str, Any]:
        """All that the next leader needs, in a form that JSON can carry. Votes are not in it: they stand in the ledger."""
        doubted = self.box.outlived(self.register.is_over, self._looked)
        return {
            "incidents": self.register.snapshot(), "past": list(self.register.past), "recovery": self.recovery.snapshot(),
            "doubted": doubted, "shown": sorted(self._shown | self.quorum.views.keys()), "odd": self.quorum.odd,
            "spares_moved": self.register.spares_moved,
        }  # fmt: skip

    def saved(self) -> None:
        """The memory that `snapshot` gave last is kept now."""
        self.register.unsaved = False
        self._kept = set(self.box.outlived(self.register.is_over, self._looked))

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where `snapshot` was taken. All votes that are alive must be heard before the first `advance`."""
        self.register.restore(state["incidents"])
        self.register.past = dict.fromkeys(state.get("past", ()))
        self.recovery.restore(state["recovery"])
        self.box.before = dict(state.get("doubted", {}))
        self._kept = set(self.box.before)
        self.register.spares_moved = bool(state.get("spares_moved"))
        self._shown, self.quorum.odd = set(state.get("shown", ())), dict(state.get("odd", {}))
        self._sweep_due = RESTORED


def _after(now: float) -> float:
    """The next time to sweep, on a grid: the same at every leader, whenever it began to lead."""
    return (now // SWEEP_SECONDS + 1) * SWEEP_SECONDS


def _runs(seen: Any, attempt: int) -> bool:
    """Whether a view shows a job in a later attempt that has finished a step."""
    return isinstance(seen, list | tuple) and seen[0] > attempt and seen[1] >= 0
