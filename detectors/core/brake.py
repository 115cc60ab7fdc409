"""Brake A: many nodes to be taken out within seconds, for whatever reason, and nothing that they share. Pure."""

from dataclasses import dataclass, field

from detectors.core.incident import Incident
from detectors.core.response import taken_out
from outrider.config.policy import Policy

#: Incidents whose count by the brake is remembered; the brake looks at half a minute.
COUNTED_MAX = 4096


@dataclass(slots=True)
class MassBrake:
    """Counts incidents that take nodes out. `size`: nodes of the fleet; `lost`: when each was counted, of late."""

    policy: Policy
    size: int
    lost: list[float] = field(default_factory=list)
    #: Incidents that were counted, oldest first.
    counted: dict[str, None] = field(default_factory=dict)

    def weigh(self, incident: Incident, now: float) -> float:
        """Counts an incident once. Returns until when actions are to be held for it; minus infinity: they are not."""
        takes = incident.response in ("restart", "drain") and (
            taken_out(incident) or (incident.response == "drain" and incident.nodes)
        )
        if incident.id in self.counted or not takes:
            return float("-inf")
        self.counted[incident.id] = None
        if len(self.counted) > COUNTED_MAX:
            del self.counted[next(iter(self.counted))]
        self.lost = [t for t in self.lost if now - t <= self.policy.brake_window_seconds]
        self.lost.append(now)
        many = len(self.lost) > max(self.policy.brake_nodes, self.policy.brake_nodes_ratio * self.size)
        return now + self.policy.brake_hold_seconds if many else float("-inf")
