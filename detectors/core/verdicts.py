"""What the count of one ballot means: an incident begins, becomes sure or graver, or is over. One incident per cause."""

from detectors.core.ballots import BallotBox
from detectors.core.incident import OPEN, Incident, State, open_incident
from detectors.core.quorum import Ballot, Outcome, Quorum, Tally
from detectors.core.register import Register
from detectors.core.response import taken_out
from detectors.core.types import Decision, Vote
from outrider.catalogue import RESPONSES


class Verdicts:
    """Counts ballots, and moves incidents by what they say.

    Args:
        quorum: counts the votes.
        box: the ballots.
        register: the incidents.
    """

    def __init__(self, quorum: Quorum, box: BallotBox, register: Register) -> None:
        self.quorum, self.box, self.register = quorum, box, register
        #: Ballots to be counted again -> when: time or a person's word may have changed the answer.
        self.again: dict[str, float] = {}

    def recount(self, now: float) -> list[Decision]:
        """Counts again what is due."""
        decisions: list[Decision] = []
        for key in sorted(key for key, due in self.again.items() if now >= due):
            del self.again[key]
            if key in self.box.ballots:
                decisions += self.count(self.box.ballots[key], now)
        return decisions

    def count(self, ballot: Ballot, now: float) -> list[Decision]:
        """What one ballot says now."""
        tally = self.quorum.tally(ballot, now)
        if tally.wait_until is not None:
            self.again[ballot.key] = tally.wait_until
        elif (ends := ballot.changes_at(now)) is not None:
            self.again[ballot.key] = ends
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
