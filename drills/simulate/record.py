"""What came of an episode, for the checkers and the baselines."""

from dataclasses import dataclass, field

from detectors.core.types import Action, CopyRequest, IncidentChange
from drills.simulate.world import Truth


@dataclass(slots=True)
class Record:
    """What came of an episode. `first_exit`: when a rank ended by itself, and its node; `sent`: each node's last heartbeat."""

    truths: list[Truth] = field(default_factory=list)
    changes: list[IncidentChange] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    copies: list[tuple[float, CopyRequest]] = field(default_factory=list)
    first_exit: tuple[float, str] | None = None
    held_since: float | None = None
    recovered_t: float | None = None
    end: float = 0.0
    arrivals: dict[str, list[float]] = field(default_factory=dict)
    sent: dict[str, float] = field(default_factory=dict)
    signals: int = 0
    heartbeats: int = 0
