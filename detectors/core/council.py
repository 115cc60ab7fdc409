"""The leader's half: votes of all witnesses, deliveries and time in; incidents and actions out.

One incident per cause: a suspicion that a known incident explains joins it, and an incident that turns out to be a
consequence is merged into its cause, whose recovery is amended.
"""

from typing import Any, get_args, get_type_hints

from detectors.core.causes import explains
from detectors.core.door import admit
from detectors.core.identity import short_hash
from detectors.core.incident import OPEN, Incident, State, dump, load, open_incident
from detectors.core.quorum import Ballot, Outcome, Quorum, Tally
from detectors.core.recovery import Recovery
from detectors.core.response import taken_out
from detectors.core.types import ActionResult, Decision, Evidence, OperatorEvent, Verdict, Vote
from detectors.core.world import World
from outrider.catalogue import RESPONSES
from outrider.config.policy import Policy
from outrider.fleet import Fleet
from outrider.signals import Signal

#: Incidents kept; the oldest closed ones leave first.
INCIDENTS_MAX = 4_000
#: Ballots kept; those whose votes have all expired leave.
BALLOTS_MAX = 50_000
#: How often expired votes are looked for.
SWEEP_SECONDS = 1.0
#: What a person may say, as a signal of source `operator` has it.
OPERATOR_KINDS = frozenset(get_args(get_type_hints(OperatorEvent)["kind"]))
Event = Vote | ActionResult | Signal | OperatorEvent
#: What an engine's vote says to the council and not to people.
_INNER = frozenset({"sure", "since", "silence", "replaces", "silence_group"})


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
        self.ballots: dict[str, Ballot] = {}
        self.incidents: dict[str, Incident] = {}
        #: Incidents that are not over, oldest first.
        self.open: dict[str, Incident] = {}
        #: Key of a vote -> incident it belongs to.
        self.by_key: dict[str, str] = {}
        self._ask_again: dict[str, float] = {}
        self._sweep_due = float("inf")

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
                return self._operator(event, now)

    def advance(self, now: float) -> list[Decision]:
        """Counts again where time may have changed the answer."""
        decisions: list[Decision] = []
        for key in sorted(key for key, due in self._ask_again.items() if now >= due):
            del self._ask_again[key]
            if key in self.ballots:
                decisions += self._count(self.ballots[key], now)
        if self.recovery.held:
            for incident in self.recovery.let_go(self.incidents, now):
                decisions += self._act(incident, now)
        decisions += self._unanswered(now)
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
        for vote in votes:
            if vote.reason_code == "view":
                decisions += self._vote(vote, now)
            elif (ballot := self._keep(vote, now)) is not None:
                ballots[ballot.key] = ballot
        for ballot in ballots.values():
            decisions += self._count(ballot, now)
        return decisions

    def _vote(self, vote: Vote, now: float) -> list[Decision]:
        if vote.reason_code == "view" and vote.witness in self.quorum.witnesses:
            self._sweep_due = min(self._sweep_due, now + SWEEP_SECONDS)
            self.quorum.saw(vote, now)
            return self._progress(vote.extra["view"].get("jobs", {}), now)
        ballot = self._keep(vote, now)
        return self._count(ballot, now) if ballot is not None else []

    def _keep(self, vote: Vote, now: float) -> Ballot | None:
        """Puts a vote into its ballot; None if it does not count."""
        if vote.witness not in self.quorum.witnesses:
            self.world.count("vote of an unknown witness")
            return None
        self._sweep_due = min(self._sweep_due, now + SWEEP_SECONDS)
        ballot = self.ballots.get(vote.key)
        if ballot is None:
            if len(self.ballots) >= BALLOTS_MAX:
                self.world.count("ballot dropped: too many")
                return None
            ballot = self.ballots[vote.key] = Ballot(vote.key, now)
        elif vote.verdict is Verdict.FAULTY and not ballot.doubted(now):
            ballot.opened = now
        known = ballot.votes.get(vote.witness)
        # Both on that witness's clock: an older vote that comes late changes nothing. One that has expired stands in no way.
        if known is None or known[0].t <= vote.t or now - known[1] >= known[0].expires_seconds:
            ballot.votes[vote.witness] = (vote, now)
        return ballot

    def _count(self, ballot: Ballot, now: float) -> list[Decision]:
        tally = self.quorum.tally(ballot, now)
        if tally.wait_until is not None:
            self._ask_again[ballot.key] = tally.wait_until
        incident = self.incidents.get(self.by_key.get(ballot.key, ""))
        if incident is not None and incident.state not in OPEN and ballot.opened > incident.changed_t:
            incident = None  # it was over, and now somebody doubts anew
        if incident is None:
            return self._unknown(tally, now)
        if incident.state not in OPEN:
            return []
        if ballot.key != incident.keys[0]:
            if tally.newest is not None and tally.outcome is not Outcome.REFUTED:
                incident.add(tally.newest.evidence)
            return []
        return self._known(incident, tally, now)

    def _unknown(self, tally: Tally, now: float) -> list[Decision]:
        vote = tally.newest
        if vote is None or tally.outcome not in (Outcome.SUSPECTED, Outcome.CONFIRMED):
            return []
        if vote.response == "ignore" or self._settled(vote):
            return []
        incident = open_incident(vote, tally.votes, now)
        self._place(incident, vote)
        host = self._host(incident)
        if host is not None:
            self._join(host, incident)
            return []
        if incident.id in self.incidents:
            # The same fault of the same part in the same attempt was closed before: it has come back.
            incident.id = short_hash(incident.id, now)
        self._make_room()
        self.incidents[incident.id] = self.open[incident.id] = incident
        self.by_key[vote.key] = incident.id
        decisions: list[Decision] = [incident.change(now, "suspected", response="watch")]
        if tally.outcome is Outcome.CONFIRMED:
            decisions += self._confirm(incident, tally, now)
        return decisions

    def _known(self, incident: Incident, tally: Tally, now: float) -> list[Decision]:
        vote = tally.newest
        if incident.state is State.SUSPECTED:
            if vote is not None:
                self._refresh(incident, vote, tally)
            if tally.outcome is Outcome.CONFIRMED:
                return self._confirm(incident, tally, now)
            doubted = self.ballots[incident.keys[0]].doubted(now)
            if tally.outcome in (Outcome.REFUTED, Outcome.NOTHING) and not doubted:
                return self._close(incident, State.REFUTED, vote.reason if vote else "no witness says it any more", now)
            return []
        if tally.outcome is Outcome.REFUTED:
            if self._under_way(incident):
                return []  # it has been fenced and its job is on its way elsewhere: no way back from there
            return self._close(incident, State.RESOLVED, vote.reason if vote else "", now)
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
        self._refresh(incident, vote, tally)
        if graver or (incident.response == "restart" and set(taken_out(incident)) - before):
            return self._told(incident, now)
        return [incident.change(now, "confirmed")]

    def _under_way(self, incident: Incident) -> bool:
        actions = self.recovery.actions
        return any(actions[one].action == "restart" for one in incident.actions if one in actions)

    def _refresh(self, incident: Incident, vote: Vote, tally: Tally) -> None:
        incident.votes = tally.votes
        incident.explanation, incident.reason_code = vote.reason, vote.reason_code
        incident.response, incident.culprit, incident.repair = vote.response, vote.culprit, vote.repair
        incident.asked = vote.response
        incident.subject, incident.decisive = dict(vote.subject), vote.decisive
        incident.add(vote.evidence)
        self._place(incident, vote)

    def _place(self, incident: Incident, vote: Vote) -> None:
        """Which jobs and nodes the incident touches, and what else the vote says of it."""
        node, job = incident.subject.get("node"), incident.subject.get("job")
        named = vote.extra.get("nodes") or ([node] if node in self.world.row else [])
        if incident.state is State.SUSPECTED or not incident.nodes:
            incident.nodes = sorted(named)
        names = {job, *vote.extra.get("jobs", ())}
        names |= {state.name for one in incident.nodes for state in self.world.jobs_on(one)}
        names |= {state.name for one in incident.nodes for state in self.recovery.standing_in(one)}
        for name in sorted(name for name in names if name in self.world.jobs):
            incident.jobs.setdefault(name, int(vote.extra.get("attempt", self.world.jobs[name].attempt)))
        incident.extra.update({name: value for name, value in vote.extra.items() if name not in _INNER})
        rule = self.policy.faults.get(incident.fault)
        if rule is not None and rule.response is not None and RESPONSES.index(incident.response) > 1:
            incident.response = rule.response

    def _settled(self, vote: Vote) -> bool:
        """Votes that open nothing: about a node or domain that is out already, or about an attempt that is over."""
        members = vote.extra.get("members")
        if members and all(node in self.recovery.quarantined for node in members):
            return True
        node = vote.subject.get("node")
        if node in self.recovery.quarantined and ("job" not in vote.subject or vote.fault.startswith("gpu.")):
            return True
        state = self.world.jobs.get(str(vote.subject.get("job")))
        attempt = vote.extra.get("attempt")
        return state is not None and attempt is not None and attempt < state.attempt

    # --- one incident per cause ---

    def _host(self, incident: Incident) -> Incident | None:
        """The open incident that explains this one, the oldest first."""
        for other in self.open.values():
            if other is not incident and other.state is not State.SUSPECTED and explains(other, incident):
                return other
        return None

    def _join(self, host: Incident, incident: Incident) -> None:
        host.keys += incident.keys
        for key in incident.keys:
            self.by_key[key] = host.id
        host.add(incident.evidence)

    def _confirm(self, incident: Incident, tally: Tally, now: float) -> list[Decision]:
        host = self._host(incident)
        if host is not None:
            self._join(host, incident)
            incident.merged_into = host.id
            return self._close(incident, State.REFUTED, f"a consequence of {host.fault} ({host.id})", now)
        if tally.newest is not None:
            self._refresh(incident, tally.newest, tally)
        incident.move(State.CONFIRMED, now)
        incident.confirmed_t = now
        before = {self.by_key.get(key) for key in (tally.newest.replaces() if tally.newest is not None else ())}
        others = [other for other in self.open.values() if other is not incident]
        victims = [other for other in others if other.id in before or explains(incident, other)]
        for other in victims:
            other.merged_into = incident.id
            self._join(incident, other)
        decisions = self._told(incident, now)
        for other in victims:
            state = State.REFUTED if other.state is State.SUSPECTED else State.RESOLVED
            decisions += self._close(other, state, f"a consequence of {incident.fault} ({incident.id})", now)
        return decisions

    def _told(self, incident: Incident, now: float) -> list[Decision]:
        """The incident's line and its actions."""
        if _blinds(incident):
            self.recovery.guard.blind = True
        doubted = self._doubted(incident)
        self.recovery.fit(incident, doubted, now)
        return [incident.change(now, "confirmed"), *self.recovery.act(incident, doubted, now)]

    def _act(self, incident: Incident, now: float) -> list[Decision]:
        doubted = self._doubted(incident)
        self.recovery.fit(incident, doubted, now)
        return list(self.recovery.act(incident, doubted, now))

    def _doubted(self, incident: Incident) -> set[str]:
        """Nodes of the other open incidents: none of them is a spare now."""
        return {node for other in self.open.values() if other is not incident for node in other.nodes}

    def _close(self, incident: Incident, state: State, reason: str, now: float) -> list[Decision]:
        incident.move(state, now)
        self.open.pop(incident.id, None)
        if _blinds(incident):
            self.recovery.guard.blind = any(_blinds(one) for one in self.open.values())
        incident.explanation = f"{incident.explanation}; {state.value}: {reason}" if reason else incident.explanation
        return [incident.change(now, state.value)]

    # --- what else the leader hears ---

    def _result(self, result: ActionResult, now: float) -> list[Decision]:
        action = self.recovery.actions.get(result.decision_id)
        incident = self.incidents.get(action.incident) if action is not None else None
        if action is None or incident is None:
            self.world.count("result of an unknown action")
            return []
        incident.extra.setdefault("results", {})[action.action] = result.outcome
        if result.outcome == "failed" and result.detail.get("reason_code") == "spare_unfit":
            return self._act(incident, now) if self.recovery.unfit_spare(incident, action) else []
        return []

    def _unanswered(self, now: float) -> list[Decision]:
        """Nobody approved or refused in time: the site's default holds."""
        decisions: list[Decision] = []
        for name in self.recovery.safety.approvals.due(now):
            incident = self.open.get(name)
            if incident is None:
                continue
            incident.extra["approval"] = f"nobody answered: {self.policy.approval_default}"
            if self.policy.approval_default == "act":
                self.recovery.guard.approved.add(name)
            decisions += self._act(incident, now)
        return decisions

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
                return self._operator(event, now)
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
                decisions += self._close(incident, State.RESOLVED, "the job steps again", now)
        return decisions

    def _operator(self, event: OperatorEvent, now: float) -> list[Decision]:
        incident, guard = self.incidents.get(event.target), self.recovery.guard
        match event.kind:
            case "pause" | "resume":
                guard.paused = event.kind == "pause"
            case "maintenance_on" | "maintenance_off":
                guard.maintenance[event.target] = event.kind == "maintenance_on"
            case "reset_brake":
                guard.hold_until, guard.blind = float("-inf"), False
            case "release":
                return [self.recovery.release(event, self.incidents, now), *self._released(event.target, event.who, now)]
            case "approve" if incident is not None and incident.state in OPEN:
                if incident.id in self.recovery.safety.approvals.expired:
                    incident.extra["approval"] = f"{event.who} approved too late"
                    return []
                self.recovery.safety.approvals.answered(incident.id)
                guard.approved.add(incident.id)
                return self._act(incident, now)
            case "ack" if incident is not None:
                incident.extra["acknowledged"] = event.who
            case "false_alarm" if incident is not None and incident.state in OPEN:
                incident.extra["false_alarm"] = event.who
                state = State.REFUTED if incident.state is State.SUSPECTED else State.RESOLVED
                return self._close(incident, state, f"a false alarm, says {event.who}: {event.reason}", now)
            case _:
                pass
        return []

    def _released(self, node: str, who: str, now: float) -> list[Decision]:
        """A node that is given back ends what was open about it alone; a job that was hit ends its incident by stepping again."""
        decisions: list[Decision] = []
        for incident in list(self.open.values()):
            alone = incident.nodes == [node] and (incident.response == "drain" or not incident.jobs)
            if alone and incident.state is not State.SUSPECTED:
                decisions += self._close(incident, State.RESOLVED, f"{node} was given back by {who}", now)
        return decisions

    # --- bounds ---

    def _sweep(self, now: float) -> list[Decision]:
        """Lets expired votes go, and suspicions with them; looks for witnesses that say nothing."""
        decisions: list[Decision] = []
        for key, ballot in list(self.ballots.items()):
            if any(now - arrived < vote.expires_seconds for vote, arrived in ballot.votes.values()):
                continue
            incident = self.incidents.get(self.by_key.get(key, ""))
            if incident is not None and incident.state is State.SUSPECTED and key == incident.keys[0]:
                decisions += self._close(incident, State.REFUTED, "no witness says it any more", now)
            del self.ballots[key]
        decisions += self._watch_witnesses(now)
        self._sweep_due = now + SWEEP_SECONDS if self.ballots or self.quorum.views else float("inf")
        return decisions

    def _watch_witnesses(self, now: float) -> list[Decision]:
        """A witness that shows no view while the others do, or that alone finds many nodes late."""
        decisions: list[Decision] = []
        for witness, doubt in self.quorum.doubts(now).items():
            for fault in ("monitor.witness_lost", "monitor.blind"):
                key = f"{fault}|witness={witness}|"
                known = self.open.get(self.by_key.get(key, ""))
                if doubt is not None and doubt[0] == fault and known is None:
                    decisions += self._own(key, fault, witness, doubt[1], now)
                elif known is not None and (doubt is None or doubt[0] != fault):
                    decisions += self._close(known, State.RESOLVED, "it sees like the others again", now)
        return decisions

    def _own(self, key: str, fault: str, witness: str, reason: str, now: float) -> list[Decision]:
        """An incident that the council itself finds: about a witness, told by the others."""
        subject = {"witness": witness}
        piece = Evidence(t=now, kind="witness", subject=subject, effect="confirm", text=reason, layer="operator")
        vote = Vote(
            key=key, witness="council", verdict=Verdict.FAULTY, fault=fault, culprit="monitor", subject=subject, incarnation="",
            response="page", repair="none", layers=("operator",), evidence=(piece,), reason=reason, reason_code="views", t=now,
        )  # fmt: skip
        others = {other: "faulty" for other in self.quorum.witnesses if other != witness}
        incident = open_incident(vote, others, now)
        if incident.id in self.incidents:
            incident.id = short_hash(incident.id, now)
        self.incidents[incident.id] = self.open[incident.id] = incident
        self.by_key[key] = incident.id
        incident.move(State.CONFIRMED, now)
        incident.confirmed_t = now
        return [incident.change(now, "suspected", response="watch"), *self._told(incident, now)]

    def _make_room(self) -> None:
        if len(self.incidents) >= INCIDENTS_MAX:
            closed = [one for one in self.incidents.values() if one.state not in OPEN]
            for incident in sorted(closed, key=lambda one: one.changed_t)[: INCIDENTS_MAX // 4]:
                del self.incidents[incident.id]
                for key in incident.keys:
                    self.by_key.pop(key, None)
                for decision in incident.actions:
                    self.recovery.actions.pop(decision, None)

    # --- a new leader goes on where the old one was ---

    def snapshot(self) -> dict[str, Any]:
        """All that the next leader needs, in a form that JSON can carry. Votes are not in it: they are cast again."""
        return {"incidents": [dump(incident) for incident in self.incidents.values()], "recovery": self.recovery.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where `snapshot` was taken."""
        self.incidents = {one["id"]: load(one) for one in state["incidents"]}
        self.open = {one.id: one for one in self.incidents.values() if one.state in OPEN}
        self.by_key = {key: one.id for one in self.incidents.values() for key in one.keys}
        self.recovery.restore(state["recovery"])


def _runs(seen: Any, attempt: int) -> bool:
    """Whether a view shows a job in a later attempt that has finished a step."""
    return isinstance(seen, list | tuple) and seen[0] > attempt and seen[1] >= 0


def _blinds(incident: Incident) -> bool:
    """Whether nothing can be said of any node while this lasts."""
    return incident.fault == "monitor.blind" and incident.subject.get("fleet") == "all"
