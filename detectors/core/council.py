"""The leader's half: votes of all witnesses, deliveries and time in; incidents and actions out.

One incident per cause: a suspicion that a known incident explains joins it, and an incident that turns out to be a
consequence is merged into its cause, whose recovery is amended.
"""

from typing import Any, get_args, get_type_hints

from detectors.core.causes import explains
from detectors.core.identity import short_hash
from detectors.core.incident import OPEN, Incident, State, dump, load, open_incident
from detectors.core.policy import DRASTIC, Guard
from detectors.core.quorum import Ballot, Outcome, Quorum, Tally
from detectors.core.response import Planned, Spares, wanted
from detectors.core.types import Action, ActionResult, Decision, OperatorEvent, Vote
from detectors.core.world import World
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


class Council:
    """What the witnesses decide together.

    Args:
        fleet, policy: as for the engine.
        witnesses: all that are configured; their majority is the quorum.
        fence: the last fencing number that was used; every recovery takes a larger one.
    """

    def __init__(self, fleet: Fleet, policy: Policy, witnesses: tuple[str, ...], *, fence: int = 0) -> None:
        self.policy, self.fence = policy, fence
        self.world = World(fleet)
        self.quorum = Quorum(witnesses)
        self.guard = Guard(policy)
        self.spares = Spares(fleet.spares)
        self.ballots: dict[str, Ballot] = {}
        self.incidents: dict[str, Incident] = {}
        #: Key of a vote -> incident it belongs to.
        self.by_key: dict[str, str] = {}
        #: Nodes taken out -> incident that did it.
        self.quarantined: dict[str, str] = {}
        self.actions: dict[str, Action] = {}
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
        if now >= self._sweep_due:
            decisions += self._sweep(now)
        return decisions

    def next_deadline(self) -> float | None:
        """When `advance` has something to do."""
        due = min((*self._ask_again.values(), self._sweep_due))
        return None if due == float("inf") else due

    # --- votes ---

    def _vote(self, vote: Vote, now: float) -> list[Decision]:
        if vote.witness not in self.quorum.witnesses:
            self.world.count("vote of an unknown witness")
            return []
        if vote.reason_code == "view":
            self.quorum.saw(vote, now)
            return self._progress(vote.extra["view"].get("jobs", {}), now)
        ballot = self.ballots.get(vote.key)
        if ballot is None:
            if len(self.ballots) >= BALLOTS_MAX:
                self.world.count("ballot dropped: too many")
                return []
            ballot = self.ballots[vote.key] = Ballot(vote.key, now)
        ballot.votes[vote.witness] = (vote, now)
        self._sweep_due = min(self._sweep_due, now + SWEEP_SECONDS)
        return self._count(ballot, now)

    def _count(self, ballot: Ballot, now: float) -> list[Decision]:
        tally = self.quorum.tally(ballot, now)
        if tally.wait_until is not None:
            self._ask_again[ballot.key] = tally.wait_until
        known = self.by_key.get(ballot.key)
        incident = self.incidents.get(known) if known is not None else None
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
        if incident.id in self.incidents:
            # The same fault of the same part in the same attempt was closed before: it has come back.
            incident.id = short_hash(incident.id, now)
        host = self._host(incident)
        if host is not None:
            self._join(host, incident)
            return []
        self._make_room()
        self.incidents[incident.id] = incident
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
            if tally.outcome in (Outcome.REFUTED, Outcome.NOTHING) and not self._still_doubted(incident, now):
                return self._close(incident, State.REFUTED, vote.reason if vote else "no witness says it any more", now)
            return []
        if tally.outcome is Outcome.REFUTED:
            return self._close(incident, State.RESOLVED, vote.reason if vote else "", now)
        if vote is not None and tally.outcome is not Outcome.NOTHING:
            incident.votes.update(tally.votes)
            incident.add(vote.evidence)
            if self._stronger(vote.response, incident.response):
                self._refresh(incident, vote, tally)
                return [incident.change(now, "confirmed"), *self._act(incident, now)]
        return []

    def _still_doubted(self, incident: Incident, now: float) -> bool:
        """A single witness still doubts: the suspicion stands until it, too, takes it back or its vote expires."""
        votes = self.ballots[incident.keys[0]].votes.values() if incident.keys[0] in self.ballots else ()
        return any(vote.verdict == "faulty" and now - arrived < vote.expires_seconds for vote, arrived in votes)

    def _refresh(self, incident: Incident, vote: Vote, tally: Tally) -> None:
        incident.votes = tally.votes
        incident.explanation, incident.reason_code = vote.reason, vote.reason_code
        incident.response, incident.culprit, incident.repair = vote.response, vote.culprit, vote.repair
        incident.subject, incident.decisive = dict(vote.subject), vote.decisive
        incident.extra.update({name: value for name, value in vote.extra.items() if name not in ("sure", "since", "silence")})
        incident.add(vote.evidence)
        self._place(incident, vote)

    def _place(self, incident: Incident, vote: Vote) -> None:
        """Which jobs and nodes the incident touches."""
        node, job = incident.subject.get("node"), incident.subject.get("job")
        named = vote.extra.get("nodes") or ([node] if node in self.world.row else [])
        if incident.state is State.SUSPECTED or not incident.nodes:
            incident.nodes = sorted(named)
        states = [self.world.jobs[job]] if job in self.world.jobs else []
        states += [state for one in incident.nodes for state in self.world.jobs_on(one) if state not in states]
        states += [self.world.jobs[name] for name in vote.extra.get("jobs", ()) if name in self.world.jobs]
        for state in states:
            incident.jobs.setdefault(state.name, int(vote.extra.get("attempt", state.attempt)))
        incident.extra.update({name: value for name, value in vote.extra.items() if name not in ("sure", "since", "silence")})

    def _settled(self, vote: Vote) -> bool:
        """Votes that open nothing: about a node that is out already, or about an attempt that is over."""
        node = vote.subject.get("node")
        if node in self.quarantined and "job" not in vote.subject:
            return True
        state = self.world.jobs.get(str(vote.subject.get("job")))
        attempt = vote.extra.get("attempt")
        return state is not None and attempt is not None and attempt < state.attempt

    # --- one incident per cause ---

    def _host(self, incident: Incident) -> Incident | None:
        """The open incident that explains this one, the oldest first."""
        for other in self.incidents.values():
            if other.id != incident.id and other.state in OPEN and other.state is not State.SUSPECTED and explains(other, incident):
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
        decisions: list[Decision] = []
        victims = [
            other for other in self.incidents.values()
            if other.id != incident.id and other.state in OPEN and explains(incident, other)
        ]  # fmt: skip
        for other in victims:
            other.merged_into = incident.id
            self._join(incident, other)
        decisions.append(incident.change(now, "confirmed"))
        for other in victims:
            state = State.REFUTED if other.state is State.SUSPECTED else State.RESOLVED
            decisions += self._close(other, state, f"a consequence of {incident.fault} ({incident.id})", now)
        return decisions + self._act(incident, now)

    def _close(self, incident: Incident, state: State, reason: str, now: float) -> list[Decision]:
        incident.move(state, now)
        incident.explanation = f"{incident.explanation}; {state.value}: {reason}" if reason else incident.explanation
        return [incident.change(now, state.value)]

    # --- actions ---

    def _act(self, incident: Incident, now: float) -> list[Decision]:
        plan = wanted(incident, self.world, self.spares, self._unfit())
        if not plan:
            return []
        decisions: list[Decision] = []
        after: tuple[str, ...] = ()
        let_through = False
        for item in plan:
            if item.action in DRASTIC or item.action == "snapshot":
                # One number each: what a rank still writes under the snapshot's must be old once the next attempt runs.
                self.fence += 1
            incident.fence = self.fence
            action = self._order(incident, item, after, now)
            decisions.append(action)
            if action.refused is None:
                incident.actions.append(action.decision_id)
                self.actions[action.decision_id] = action
                let_through = let_through or item.action in DRASTIC
                if item.action != "page":
                    after = (*after, action.decision_id)
                if item.action == "quarantine":
                    self.quarantined[item.target["node"]] = incident.id
            else:
                self._give_back(item)
        if let_through:
            self.guard.count(sorted(incident.jobs), any(item.action == "restart" for item in plan), now)
        if incident.state is State.CONFIRMED:
            incident.move(State.ACTING, now)
        return decisions

    def _order(self, incident: Incident, item: Planned, after: tuple[str, ...], now: float) -> Action:
        nodes = [*incident.nodes, *item.nodes]
        refused = self.guard.refuses(item.action, fault=incident.fault, jobs=item.jobs, nodes=nodes, now=now)
        snapshot = item.action == "snapshot"
        deadline = self.policy.snapshot_deadline_seconds if snapshot else self.policy.action_deadline_seconds
        return Action(
            t=now, decision_id=short_hash(incident.id, item.action, sorted(item.target.items(), key=str), self.fence),
            incident=incident.id, action=item.action, target=item.target, fence=incident.fence, deadline_seconds=deadline,
            after=after, reason=incident.explanation, refused=refused, dry_run=refused is not None,
        )  # fmt: skip

    def _give_back(self, item: Planned) -> None:
        for one in item.target.get("replace", ()):
            self.spares.claimed.pop(one["to"], None)

    def _unfit(self) -> set[str]:
        doubted = {
            node for other in self.incidents.values() if other.state in OPEN for node in other.nodes
        }  # fmt: skip
        return doubted | set(self.quarantined)

    # --- what else the leader hears ---

    def _result(self, result: ActionResult, now: float) -> list[Decision]:
        action = self.actions.get(result.decision_id)
        incident = self.incidents.get(action.incident) if action is not None else None
        if action is None or incident is None:
            self.world.count("result of an unknown action")
            return []
        incident.extra.setdefault("results", {})[action.action] = result.outcome
        return []

    def _signal(self, signal: Signal, now: float) -> list[Decision]:
        match signal.kind:
            case "job":
                state = self.world.tell_job(signal, now)
                if state is not None:
                    self._restarted(state.name, state.attempt, now)
            case "phase":
                self.world.phase(signal, now)
            case "maintenance":
                self.guard.maintenance[signal.node or signal.job or ""] = signal.value == "on"
            case _ if signal.source == "operator" and signal.kind in OPERATOR_KINDS:
                who, why = str(signal.data.get("who", "")), str(signal.data.get("reason", ""))
                event = OperatorEvent(kind=signal.kind, target=str(signal.value or ""), who=who, reason=why)  # type: ignore[arg-type]
                return self._operator(event, now)
            case _:
                pass
        return []

    def _restarted(self, job: str, attempt: int, now: float) -> None:
        for incident in self.incidents.values():
            if incident.state is State.ACTING and incident.jobs.get(job, attempt) < attempt:
                incident.move(State.RECOVERING, now)

    def _progress(self, jobs: dict[str, Any], now: float) -> list[Decision]:
        """A witness's view of the jobs: a new attempt that steps ends the incidents that stopped the old one."""
        decisions: list[Decision] = []
        for incident in list(self.incidents.values()):
            if incident.state not in OPEN or incident.state is State.SUSPECTED or incident.response != "restart":
                continue
            if incident.jobs and all(_runs(jobs.get(job), attempt) for job, attempt in incident.jobs.items()):
                decisions += self._close(incident, State.RESOLVED, "the job steps again", now)
        return decisions

    def _operator(self, event: OperatorEvent, now: float) -> list[Decision]:
        incident = self.incidents.get(event.target)
        match event.kind:
            case "pause" | "resume":
                self.guard.paused = event.kind == "pause"
            case "maintenance_on" | "maintenance_off":
                self.guard.maintenance[event.target] = event.kind == "maintenance_on"
            case "reset_brake":
                self.guard.hold_until, self.guard.blind = float("-inf"), False
            case "release":
                self.quarantined.pop(event.target, None)
                self.spares.claimed.pop(event.target, None)
            case "ack" if incident is not None:
                incident.extra["acknowledged"] = event.who
            case "false_alarm" if incident is not None and incident.state in OPEN:
                incident.extra["false_alarm"] = event.who
                state = State.REFUTED if incident.state is State.SUSPECTED else State.RESOLVED
                return self._close(incident, state, f"a false alarm, says {event.who}: {event.reason}", now)
            case _:
                pass
        return []

    # --- bounds ---

    def _sweep(self, now: float) -> list[Decision]:
        """Lets expired votes go, and suspicions with them."""
        decisions: list[Decision] = []
        for key, ballot in list(self.ballots.items()):
            if any(now - arrived < vote.expires_seconds for vote, arrived in ballot.votes.values()):
                continue
            incident = self.incidents.get(self.by_key.get(key, ""))
            if incident is not None and incident.state is State.SUSPECTED and key == incident.keys[0]:
                decisions += self._close(incident, State.REFUTED, "no witness says it any more", now)
            del self.ballots[key]
        self._sweep_due = now + SWEEP_SECONDS if self.ballots else float("inf")
        return decisions

    def _make_room(self) -> None:
        if len(self.incidents) >= INCIDENTS_MAX:
            closed = [one for one in self.incidents.values() if one.state not in OPEN]
            for incident in sorted(closed, key=lambda one: one.changed_t)[: INCIDENTS_MAX // 4]:
                del self.incidents[incident.id]
                for key in incident.keys:
                    self.by_key.pop(key, None)
                for decision in incident.actions:
                    self.actions.pop(decision, None)

    # --- a new leader goes on where the old one was ---

    def snapshot(self) -> dict[str, Any]:
        """All that the next leader needs, in a form that JSON can carry. Votes are not in it: they are cast again."""
        return {
            "fence": self.fence, "incidents": [dump(incident) for incident in self.incidents.values()],
            "claimed": dict(self.spares.claimed), "quarantined": dict(self.quarantined), "guard": self.guard.snapshot(),
        }  # fmt: skip

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on where `snapshot` was taken. The fence never goes back."""
        self.fence = max(self.fence, int(state["fence"]))
        self.incidents = {one["id"]: load(one) for one in state["incidents"]}
        self.by_key = {key: one.id for one in self.incidents.values() for key in one.keys}
        self.spares.claimed, self.quarantined = dict(state["claimed"]), dict(state["quarantined"])
        self.guard.restore(state["guard"])

    @staticmethod
    def _stronger(new: str, old: str) -> bool:
        ladder = ("ignore", "watch", "page", "drain", "restart")
        return ladder.index(new) > ladder.index(old)


def _runs(seen: Any, attempt: int) -> bool:
    """Whether a view shows a job in a later attempt that has finished a step."""
    return isinstance(seen, list | tuple) and seen[0] > attempt and seen[1] >= 0
