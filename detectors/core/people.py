"""What people tell the leader: seen, go on, stop, that was nothing; and what holds when they tell nothing."""

from detectors.core.incident import OPEN, Incident, State
from detectors.core.register import Register
from detectors.core.types import Action, Decision, OperatorEvent


class People:
    """Carries out people's words on the register of incidents and its recovery."""

    def __init__(self, register: Register) -> None:
        self.register, self.recovery, self.policy = register, register.recovery, register.policy

    def said(self, event: OperatorEvent, now: float) -> list[Decision]:
        """A person's word."""
        incident, guard = self.register.incidents.get(event.target), self.recovery.guard
        match event.kind:
            case "pause" | "resume":
                guard.paused = event.kind == "pause"
            case "maintenance_on" | "maintenance_off":
                guard.maintenance[event.target] = event.kind == "maintenance_on"
            case "reset_brake":
                guard.hold_until, guard.blind = float("-inf"), False
            case "release":
                self.register.spares_moved = True
                return [self.recovery.release(event, self.register.incidents, now), *self._released(event.target, event.who, now)]
            case "approve" if incident is not None and incident.state in OPEN:
                if incident.id in self.recovery.safety.approvals.expired:
                    incident.extra["approval"] = f"{event.who} approved too late"
                    return []
                if not incident.held_back:
                    return []  # all of it was ordered: a second yes does nothing twice
                self.recovery.safety.approvals.answered(incident.id)
                guard.approved.add(incident.id)
                return self._approved(incident, event.who, now) if incident.state is not State.SUSPECTED else []
            case "ack" if incident is not None:
                incident.extra["acknowledged"] = event.who
            case "false_alarm" if incident is not None and incident.state in OPEN:
                incident.extra["false_alarm"] = event.who
                state = State.REFUTED if incident.state is State.SUSPECTED else State.RESOLVED
                why = f": {event.reason}" if event.reason else ""
                return self.register.close(incident, state, f"a false alarm, says {event.who}{why}", now)
            case _:
                pass
        return []

    def _approved(self, incident: Incident, who: str, now: float) -> list[Decision]:
        """What is done now that a person said yes. In mode `observe` nothing is, and what would be is on record already."""
        decisions = self.register.act(incident, now)
        recorded = [one for one in decisions if isinstance(one, Action) and (one.refused or "").startswith("mode observe")]
        if recorded:
            incident.extra["approval"] = f"{who} approved in mode observe: nothing was done"
        return [one for one in decisions if one not in recorded]

    def _released(self, node: str, who: str, now: float) -> list[Decision]:
        """A node that is given back ends what was open about it alone; a job that was hit ends its incident by stepping again."""
        decisions: list[Decision] = []
        for incident in list(self.register.open.values()):
            alone = incident.nodes == [node] and (incident.response == "drain" or not incident.jobs)
            if alone and incident.state is not State.SUSPECTED:
                decisions += self.register.close(incident, State.RESOLVED, f"{node} was given back by {who}", now)
        return decisions

    def unanswered(self, now: float) -> list[Decision]:
        """Nobody approved or refused in time: the site's default holds."""
        decisions: list[Decision] = []
        for name in self.recovery.safety.approvals.due(now):
            incident = self.register.open.get(name)
            if incident is None:
                continue
            incident.extra["approval"] = f"nobody answered: {self.policy.approval_default}"
            if self.policy.approval_default == "act":
                self.recovery.guard.approved.add(name)
            decisions += self.register.act(incident, now)
        return decisions
