"""The register of incidents: one per cause. What joins which, whom it touches, what is said of it, and when it is over."""

from typing import Any

from detectors.core.causes import explains
from detectors.core.identity import short_hash, vote_key
from detectors.core.incident import OPEN, Incident, State, dump, load, open_incident
from detectors.core.quorum import Tally
from detectors.core.recovery import Recovery
from detectors.core.types import Decision, Evidence, Verdict, Vote
from detectors.core.world import World
from outrider.catalogue import RESPONSES
from outrider.config.policy import Policy

#: Incidents kept; the oldest closed ones leave first.
INCIDENTS_MAX = 4_000
#: Names of incidents remembered that are not kept any more: what comes back gets another name, or nobody would be told of it.
PAST_MAX = 4_000
#: What an engine's vote says to the council and not to people.
_INNER = frozenset({"sure", "since", "silence", "replaces", "silence_group"})


class Register:
    """All incidents that are known.

    Args:
        world, policy: jobs and slots; what the site says of a class.
        recovery: carries out what an incident asks for.
    """

    def __init__(self, world: World, policy: Policy, recovery: Recovery) -> None:
        self.world, self.policy, self.recovery = world, policy, recovery
        self.incidents: dict[str, Incident] = {}
        #: Incidents that are not over, oldest first.
        self.open: dict[str, Incident] = {}
        #: Key of a vote -> incident it belongs to.
        self.by_key: dict[str, str] = {}
        #: Names of incidents that were let go, oldest first.
        self.past: dict[str, None] = {}
        #: A vote's key changed its incident, and no decision tells of it.
        self.unsaved = False
        #: A node was given back or is doubted no more: it may be the spare that an incident waits for.
        self.spares_moved = False

    def of_key(self, key: str) -> Incident | None:
        """The incident that a vote's key belongs to."""
        return self.incidents.get(self.by_key.get(key, ""))

    def open_of(self, key: str) -> Incident | None:
        """The same, if it is not over."""
        return self.open.get(self.by_key.get(key, ""))

    def is_over(self, key: str) -> bool:
        """Whether a vote's key belongs to an incident that is over."""
        incident = self.of_key(key)
        return incident is not None and incident.state not in OPEN

    def take(self, incident: Incident, now: float) -> None:
        """Takes a new incident in."""
        if incident.id in self.incidents or incident.id in self.past:
            # The same fault of the same part in the same attempt was closed before: it has come back.
            incident.id = short_hash(incident.id, now)
        self._make_room()
        self.incidents[incident.id] = self.open[incident.id] = incident
        for key in incident.keys:
            self.by_key[key] = incident.id

    def refresh(self, incident: Incident, vote: Vote, tally: Tally) -> None:
        """Takes over what the fullest vote says."""
        incident.votes = tally.votes
        incident.explanation, incident.reason_code = vote.reason, vote.reason_code
        incident.response, incident.culprit, incident.repair = vote.response, vote.culprit, vote.repair
        incident.asked = vote.response
        incident.subject, incident.decisive = dict(vote.subject), vote.decisive
        incident.add(vote.evidence)
        self.place(incident, vote)

    def place(self, incident: Incident, vote: Vote) -> None:
        """Which jobs and nodes the incident touches, and what else the vote says of it."""
        node, job = incident.subject.get("node"), incident.subject.get("job")
        named = vote.extra.get("nodes") or ([node] if node in self.world.row else [])
        if incident.state is State.SUSPECTED or not incident.nodes:
            incident.nodes = sorted(named)
        names = {job, *vote.extra.get("jobs", ())}
        if not incident.fault.startswith("job."):  # what one job does on a machine is nothing to another job's ranks on it
            names |= {state.name for one in incident.nodes for state in self.world.jobs_on(one)}
            names |= {state.name for one in incident.nodes for state in self.recovery.standing_in(one)}
        for name in sorted(name for name in names if name in self.world.jobs):
            incident.jobs.setdefault(name, int(vote.extra.get("attempt", self.world.jobs[name].attempt)))
        incident.extra.update({name: value for name, value in vote.extra.items() if name not in _INNER})
        rule = self.policy.faults.get(incident.fault)
        if rule is not None and rule.response is not None and RESPONSES.index(incident.response) > 1:
            incident.response = rule.response

    def settled(self, vote: Vote) -> bool:
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

    def host(self, incident: Incident) -> Incident | None:
        """The open incident that explains this one, the oldest first."""
        for other in self.open.values():
            if other is not incident and other.state is not State.SUSPECTED and explains(other, incident):
                return other
        return None

    def join(self, host: Incident, incident: Incident) -> None:
        """Makes an incident a part of its host: its votes and its evidence are the host's from now on."""
        host.keys += incident.keys
        for key in incident.keys:
            self.by_key[key] = host.id
        host.add(incident.evidence)
        self.unsaved = True

    def outgrows(self, host: Incident, vote: Vote) -> bool:
        """Whether what joined a host now asks for more than the host, and the host does not explain that too."""
        if RESPONSES.index(vote.response) <= RESPONSES.index(host.response) or self.settled(vote):
            return False
        incident = open_incident(vote, {}, vote.t)
        incident.opened_t = host.opened_t  # its beginning is as near to the host's as it was when it joined
        self.place(incident, vote)
        return not explains(host, incident)

    def part(self, host: Incident, key: str) -> None:
        """Takes a vote's key out of its host again: it stands by itself."""
        host.keys.remove(key)
        self.by_key.pop(key, None)
        self.unsaved = True

    def told(self, incident: Incident, now: float) -> list[Decision]:
        """The incident's line and its actions."""
        if _blinds(incident):
            self.recovery.guard.blind = True
        doubted = self._doubted(incident)
        self.recovery.fit(incident, doubted, now)
        return [incident.change(now, "confirmed"), *self.recovery.act(incident, doubted, now)]

    def act(self, incident: Incident, now: float) -> list[Decision]:
        """The orders that an incident asks for now."""
        doubted = self._doubted(incident)
        self.recovery.fit(incident, doubted, now)
        return list(self.recovery.act(incident, doubted, now))

    def spares_back(self, now: float) -> list[Decision]:
        """Orders what was refused for want of spares, where there are enough of them now; not while a person has stopped all."""
        if self.recovery.guard.paused:
            return []
        self.spares_moved = False
        decisions: list[Decision] = []
        for incident in [one for one in self.open.values() if "short_of_spares" in one.extra]:
            leaving = sum(one.response == "drain" and not one.held_back for one in self.open.values())
            if self._waits(incident) and not self.recovery.short(incident, self._doubted(incident), now, leaving):
                incident.explanation += "; spares are free again"
                decisions += self.told(incident, now)
        return decisions

    def _waits(self, incident: Incident) -> bool:
        """Whether what was refused is still wanted: a job that was brought back meanwhile needs no restart."""
        jobs = [(self.world.jobs.get(name), attempt) for name, attempt in incident.jobs.items()]
        return incident.response == "drain" or all(job is not None and job.attempt == attempt for job, attempt in jobs)

    def _doubted(self, incident: Incident) -> set[str]:
        """Nodes of the other open incidents: none of them is a spare now."""
        return {node for other in self.open.values() if other is not incident for node in other.nodes}

    def close(self, incident: Incident, state: State, reason: str, now: float) -> list[Decision]:
        """Ends an incident, and says why."""
        incident.move(state, now)
        self.open.pop(incident.id, None)
        self.spares_moved = True
        if _blinds(incident):
            self.recovery.guard.blind = any(_blinds(one) for one in self.open.values())
        if reason:
            said = f": {reason}" if reason not in incident.explanation else ""  # nothing is said twice
            incident.explanation = f"{incident.explanation}; {state.value}{said}"
        return [incident.change(now, state.value)]

    def under_way(self, incident: Incident) -> bool:
        """Whether a restart was ordered for it."""
        actions = self.recovery.actions
        return any(actions[one].action == "restart" for one in incident.actions if one in actions)

    def _make_room(self) -> None:
        if len(self.incidents) >= INCIDENTS_MAX:
            closed = [one for one in self.incidents.values() if one.state not in OPEN]
            for incident in sorted(closed, key=lambda one: one.changed_t)[: INCIDENTS_MAX // 4]:
                del self.incidents[incident.id]
                self.past[incident.id] = None
                for key in incident.keys:
                    self.by_key.pop(key, None)
                for decision in incident.actions:
                    self.recovery.actions.pop(decision, None)
            for name in list(self.past)[: max(0, len(self.past) - PAST_MAX)]:
                del self.past[name]

    def victims(self, incident: Incident, vote: Vote | None) -> list[Incident]:
        """Open incidents that this one explains, or takes the place of."""
        before = {self.by_key.get(key) for key in (vote.replaces() if vote is not None else ())}
        others = [other for other in self.open.values() if other is not incident]
        return [other for other in others if other.id in before or explains(incident, other)]

    def found(self, fault: str, witness: str, others: tuple[str, ...], reason: str, now: float) -> list[Decision]:
        """An incident that the council itself finds: about a witness, told by the others."""
        subject = {"witness": witness}
        piece = Evidence(t=now, kind="witness", subject=subject, effect="confirm", text=reason, layer="operator")
        vote = Vote(
            key=vote_key(fault, subject, ""), witness="council", verdict=Verdict.FAULTY, fault=fault, culprit="monitor",
            subject=subject, incarnation="", response="page", repair="none", layers=("operator",), evidence=(piece,),
            reason=reason, reason_code="views", t=now,
        )  # fmt: skip
        incident = open_incident(vote, dict.fromkeys(others, "faulty"), now)
        self.take(incident, now)
        incident.move(State.CONFIRMED, now)
        incident.confirmed_t = now
        return [incident.change(now, "suspected", response="watch"), *self.told(incident, now)]

    # --- a new leader goes on where the old one was ---

    def snapshot(self) -> list[Any]:
        """All incidents, in a form that JSON can carry."""
        return [dump(incident) for incident in self.incidents.values()]

    def restore(self, told: list[Any]) -> None:
        """Reads what `snapshot` wrote."""
        self.incidents = {one["id"]: load(one) for one in told}
        self.open = {one.id: one for one in self.incidents.values() if one.state in OPEN}
        self.by_key = {key: one.id for one in self.incidents.values() for key in one.keys}


def _blinds(incident: Incident) -> bool:
    """Whether nothing can be said of any node while this lasts."""
    return incident.fault == "monitor.blind" and incident.subject.get("fleet") == "all"
