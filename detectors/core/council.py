"""The leader's half: votes of all witnesses, deliveries and time in; incidents and actions out.

One incident per cause: a suspicion that a known incident explains joins it, and an incident that turns out to be a
consequence is merged into its cause, whose recovery is amended.
"""

from typing import Any, get_args, get_type_hints

from detectors.core.ballots import BallotBox
from detectors.core.door import admit
from detectors.core.incident import OPEN, Incident, State, open_incident
from detectors.core.people import People
from detectors.core.quorum import Ballot, Outcome, Quorum, Tally
from detectors.core.recovery import Recovery
from detectors.core.register import Register
from detectors.core.response import taken_out
from detectors.core.types import ActionResult, Decision, OperatorEvent, Vote
from detectors.core.world import World
from outrider.catalogue import RESPONSES
from outrider.config.policy import Policy
from outrider.fleet import Fleet
from outrider.signals import Signal

#: How often expired votes are looked for.
SWEEP_SECONDS = 1.0
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
        self._ask_again: dict[str, float] = {}
        self._sweep_due = float("inf")

    @property
    def incidents(self) -> dict[str, Incident]:
        """All incidents that are remembered, by their names."""
        return self.register.incidents

    @property
    def open(self) -> dict[str, Incident]:
        """Those that are not over, oldest first."""
        return self.register.open

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
                return self.people.said(event, now)

    def advance(self, now: float) -> list[Decision]:
        """Counts again where time may have changed the answer."""
        decisions: list[Decision] = []
        for key in sorted(key for key, due in self._ask_again.items() if now >= due):
            del self._ask_again[key]
            if key in self.box.ballots:
                decisions += self._count(self.box.ballots[key], now)
        if self.recovery.held:
            for incident in self.recovery.let_go(self.incidents, now):
                decisions += self.register.act(incident, now)
        decisions += self.people.unanswered(now)
        if now >= self._sweep_due:
            decisions += self._sweep(now)
        return decisions

    def next_deadline(self) -> float | None:
        """When `advance` has something to do."""
        due = min(self._sweep_due, self.recovery.safety.approvals.next_deadline())
        if self._ask_again:
            due = min(due, *self._ask_again.values())
        if self.recovery.held and not self.recovery.guard.blind:
            due = min(due, self.recovery.guard.hold_until)
        return None if due == float("inf") else due

    # --- votes ---

    def observe_votes(self, votes: list[Vote], now: float) -> list[Decision]:
        """Takes in votes that arrived together, and counts each ballot once: an incident then shows all of them."""
        decisions: list[Decision] = []
        ballots: dict[str, Ballot] = {}
        self._sweep_due = min(self._sweep_due, now + SWEEP_SECONDS)
        for vote in votes:
            if vote.reason_code == "view":
                decisions += self._vote(vote, now)
            elif (ballot := self.box.keep(vote, now)) is not None:
                ballots[ballot.key] = ballot
        for ballot in ballots.values():
            decisions += self._count(ballot, now)
        return decisions

    def _vote(self, vote: Vote, now: float) -> list[Decision]:
        self._sweep_due = min(self._sweep_due, now + SWEEP_SECONDS)
        if vote.reason_code == "view" and vote.witness in self.quorum.witnesses:
            self.quorum.saw(vote, now)
            return self._progress(vote.extra["view"].get("jobs", {}), now)
        ballot = self.box.keep(vote, now)
        return self._count(ballot, now) if ballot is not None else []

    def _count(self, ballot: Ballot, now: float) -> list[Decision]:
        tally = self.quorum.tally(ballot, now)
        if tally.wait_until is not None:
            self._ask_again[ballot.key] = tally.wait_until
        incident = self.register.of_key(ballot.key)
        if incident is not None and incident.state not in OPEN and ballot.opened > incident.changed_t:
            incident = None  # it was over, and now somebody doubts anew
        if incident is None:
            return self._unknown(tally, now)
        if incident.state not in OPEN:
            return self._outlives(incident, ballot, tally, now)
        if ballot.key != incident.keys[0]:
            if tally.outcome is Outcome.CONFIRMED and tally.newest is not None and self.register.outgrows(incident, tally.newest):
                self.register.part(incident, ballot.key)
                return self._unknown(tally, now)
            if tally.newest is not None and tally.outcome is not Outcome.REFUTED:
                incident.add(tally.newest.evidence)
            return []
        return self._known(incident, tally, now)

    def _outlives(self, host: Incident, ballot: Ballot, tally: Tally, now: float) -> list[Decision]:
        """What joined an incident that is over: confirmed still, and asking for more than that did, it stands by itself."""
        vote = tally.newest
        if ballot.key == host.keys[0] or vote is None or tally.outcome is not Outcome.CONFIRMED or vote.t < host.changed_t:
            return []
        if RESPONSES.index(vote.response) <= RESPONSES.index(host.asked) or self.register.under_way(host):
            return []
        self.register.part(host, ballot.key)
        return self._unknown(tally, now)

    def _unknown(self, tally: Tally, now: float) -> list[Decision]:
        vote = tally.newest
        if vote is None or tally.outcome not in (Outcome.SUSPECTED, Outcome.CONFIRMED):
            return []
        if vote.response == "ignore" or self.register.settled(vote):
            return []
        incident = open_incident(vote, tally.votes, now)
        self.register.place(incident, vote)
        host = self.register.host(incident)
        if host is not None:
            self.register.join(host, incident)
            return []
        self.register.take(incident, now)
        decisions: list[Decision] = [incident.change(now, "suspected", response="watch")]
        if tally.outcome is Outcome.CONFIRMED:
            decisions += self._confirm(incident, tally, now)
        return decisions

    def _known(self, incident: Incident, tally: Tally, now: float) -> list[Decision]:
        vote = tally.newest
        if incident.state is State.SUSPECTED:
            if vote is not None:
                self.register.refresh(incident, vote, tally)
            if tally.outcome is Outcome.CONFIRMED:
                return self._confirm(incident, tally, now)
            doubted = self.box.ballots[incident.keys[0]].doubted(now)
            if tally.outcome in (Outcome.REFUTED, Outcome.NOTHING) and not doubted:
                return self.register.close(incident, State.REFUTED, vote.reason if vote else "no witness says it any more", now)
            return []
        if tally.outcome is Outcome.REFUTED:
            if self.register.under_way(incident):
                return []  # it has been fenced and its job is on its way elsewhere: no way back from there
            return self.register.close(incident, State.RESOLVED, vote.reason if vote else "", now)
        if vote is not None and tally.outcome in (Outcome.SUSPECTED, Outcome.CONFIRMED):
            incident.votes.update(tally.votes)
            incident.add(vote.evidence)
            if tally.outcome is Outcome.CONFIRMED:
                return self._deepen(incident, vote, tally, now)
        return []

    def _deepen(self, incident: Incident, vote: Vote, tally: Tally, now: float) -> list[Decision]:
        """More is known of a confirmed incident: it asks for more, or it is now known where it is."""
        graver = RESPONSES.index(vote.response) > RESPONSES.index(incident.asked)
        placed = tally.agreed and (vote.culprit != incident.culprit or set(vote.subject) > set(incident.subject))
        if not graver and not placed:
            return []
        before = set(taken_out(incident))
        self.register.refresh(incident, vote, tally)
        if graver or (incident.response == "restart" and set(taken_out(incident)) - before):
            return self._tell(incident, vote, now)
        return [incident.change(now, "confirmed")]

    # --- one incident per cause ---

    def _confirm(self, incident: Incident, tally: Tally, now: float) -> list[Decision]:
        host = self.register.host(incident)
        if host is not None:
            self.register.join(host, incident)
            incident.merged_into = host.id
            return self.register.close(incident, State.REFUTED, f"a consequence of {host.fault} ({host.id})", now)
        if tally.newest is not None:
            self.register.refresh(incident, tally.newest, tally)
        incident.move(State.CONFIRMED, now)
        incident.confirmed_t = now
        return self._tell(incident, tally.newest, now)

    def _tell(self, incident: Incident, vote: Vote | None, now: float) -> list[Decision]:
        """Tells of an incident that has become sure or graver, and takes in those that it explains now."""
        victims = self.register.victims(incident, vote)
        for other in victims:
            other.merged_into = incident.id
            self.register.join(incident, other)
        decisions = self.register.told(incident, now)
        for other in victims:
            state = State.REFUTED if other.state is State.SUSPECTED else State.RESOLVED
            decisions += self.register.close(other, state, f"a consequence of {incident.fault} ({incident.id})", now)
        return decisions

    # --- what else the leader hears ---

    def _result(self, result: ActionResult, now: float) -> list[Decision]:
        action = self.recovery.actions.get(result.decision_id)
        incident = self.incidents.get(action.incident) if action is not None else None
        if action is None or incident is None:
            self.world.count("result of an unknown action")
            return []
        incident.extra.setdefault("results", {})[action.action] = result.outcome
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
                if state is not None:
                    self._restarted(state.name, state.attempt, now)
            case "phase":
                self.world.phase(signal, now)
            case "snapshot":
                if signal.data.get("state") == "committed" and signal.job and isinstance(signal.value, int | float):
                    self.recovery.committed(signal.job, int(signal.value))
            case "maintenance":
                self.recovery.guard.maintenance[signal.node or signal.job or ""] = signal.value == "on"
            case _ if signal.source == "operator" and signal.kind in OPERATOR_KINDS:
                who, why = str(signal.data.get("who", "")), str(signal.data.get("reason", ""))
                event = OperatorEvent(kind=signal.kind, target=str(signal.value or ""), who=who, reason=why)  # type: ignore[arg-type]
                return self.people.said(event, now)
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

    def _sweep(self, now: float) -> list[Decision]:
        """Lets expired votes go, and suspicions with them; looks for witnesses that say nothing."""
        decisions: list[Decision] = []
        for key in self.box.expired(now):
            incident = self.register.of_key(key)
            if incident is not None and incident.state is State.SUSPECTED and key == incident.keys[0]:
                decisions += self.register.close(incident, State.REFUTED, "no witness says it any more", now)
        decisions += self._watch_witnesses(now)
        self._sweep_due = now + SWEEP_SECONDS if self.box.ballots or self.quorum.views else float("inf")
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
        """All that the next leader needs, in a form that JSON can carry. Votes are not in it: they are cast again."""
        return {"incidents": self.register.snapshot(), "recovery": self.recovery.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where `snapshot` was taken."""
        self.register.restore(state["incidents"])
        self.recovery.restore(state["recovery"])


def _runs(seen: Any, attempt: int) -> bool:
    """Whether a view shows a job in a later attempt that has finished a step."""
    return isinstance(seen, list | tuple) and seen[0] > attempt and seen[1] >= 0
