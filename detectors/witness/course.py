"""One job as people follow it: its steps, its starts, and whether anybody still hears of it. Pure."""

import math
from collections import deque
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

#: A job of which nothing more is to come is shown so long, by how it stands: a failed one may be about to be started again, and
#: the nodes of one that is not heard may come back.
KEPT_SECONDS = {"ended": 600.0, "failed": 3600.0, "unknown": 3600.0}
#: Agents tell living ranks again each five minutes (`collectors/frame/changes.py`): three times of silence are no accident.
UNHEARD_SECONDS = 900.0
#: The same where none of the nodes beats: a beat comes each second, and at 35 s of silence a node is held to be lost.
QUIET_SECONDS = 60.0
#: Marks (starts, snapshots, exits) of one job.
MARKS_MAX = 200


@dataclass(slots=True)
class Point:
    """One finished step. `wall`: seconds since 1970, for people; the others are None where nobody told them."""

    wall: float
    step: int
    loss: float | None
    step_s: float | None


@dataclass(slots=True)
class Course:
    """The course of a job. `shed`: points that were thinned out, so that a reader knows to begin anew."""

    job: str
    attempt: int = 1
    slots: tuple[tuple[str, int], ...] = ()
    #: Who described it: `site` (the configuration), else the signal's source.
    source: str = "site"
    phase: str | None = None
    step: int = -1
    points: list[Point] = field(default_factory=list)
    shed: int = 0
    marks: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MARKS_MAX))
    #: rank -> exit code in this attempt; when the last of them ended (the witness's clock), None: some live.
    exits: dict[int, Any] = field(default_factory=dict)
    over: float | None = None
    #: When a living rank was last heard of (the witness's clock), and since when that has been too long ago; None: it has not.
    alive: float = -math.inf
    lost: float | None = None
    #: Everybody has been told to forget it; it is only shown.
    forgotten: bool = False

    @property
    def ended(self) -> str | None:
        """How the job ended: `ended` well, or `failed`; None while ranks live, or nobody knows."""
        if self.over is None:
            return None
        return "ended" if all(code == 0 for code in self.exits.values()) else "failed"

    @property
    def state(self) -> str:
        """`running`, `ended`, `failed`, or `unknown`: it was not seen to end, and no living rank is heard of."""
        return self.ended or ("running" if self.lost is None else "unknown")

    def left(self) -> set[str]:
        """Nodes of ranks that were not seen to end."""
        return {node for rank, (node, _) in enumerate(self.slots) if rank not in self.exits}

    def unheard(self, now: float, heard: Mapping[str, float], known: Container[str]) -> bool:
        """Whether nobody hears of the job's ranks any more.

        Args:
            now: monotonic seconds.
            heard: node -> its newest heartbeat.
            known: nodes whose heartbeats are kept; of others none is to be expected.
        """
        silence = now - self.alive
        if self.over is not None or silence < QUIET_SECONDS:
            return False
        return silence >= UNHEARD_SECONDS or all(
            node in known and now - heard.get(node, -math.inf) >= QUIET_SECONDS for node in self.left()
        )
