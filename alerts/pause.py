"""A person has stopped all actions: what was ordered before and has not left yet waits, and is given up when its time is over.

It goes when the pause ends within its deadline. Later it would be an order about a world that people have changed meanwhile: it
becomes a dead letter, which a person may send again (`outrider outbox retry`).
"""

import time
from typing import Final

from detectors.witness.ledger import Ledger
from detectors.witness.outbox import OutboxRow

#: What touches jobs and nodes. A release is a person's own word; snapshots and news harm nobody.
STOPPED: Final = frozenset(
    {"node.quarantine.requested", "node.drain.requested", "job.restart.requested", "agent.restart.requested"}
)
#: What a row's dead letter says.
TOO_LATE: Final = "a person has stopped all actions, and its time was over before they went on"
#: Standing orders but those of jobs, which nobody asks for here: larger than any number.
NO_JOBS: Final = 2**62


class Pause:
    """What the ledger said last."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._on = ledger, False

    async def look(self) -> None:
        """Reads the ledger."""
        self._on = any(control.kind == "pause" for control in await self._ledger.controls(NO_JOBS))

    def holds(self, row: OutboxRow) -> bool:
        """Whether a row may not leave now."""
        return self._on and row.type in STOPPED and not row.dry_run

    def waits(self, row: OutboxRow) -> bool:
        """Whether it may leave later: its deadline has not come."""
        return self.holds(row) and row.deadline > time.monotonic()
