"""Lines of the audit trail that this room writes: who did what, when and why."""

import time
from typing import Any

from alerts.delivery import Attempt
from detectors.witness.outbox import OutboxRow
from detectors.witness.translate import iso


def entry(who: str, what: str, why: str, **more: Any) -> dict[str, Any]:
    """One line, dated now."""
    return {"who": who, "what": what, "wall": iso(time.time()), **more, "why": why}


def delivery_entry(row: OutboxRow, attempt: Attempt) -> dict[str, Any]:
    """The line about one attempt at a delivery."""
    return entry(
        "deliverer", "delivery", attempt.reason, incident=row.incident, decision_id=row.decision_id, webhook_id=row.id,
        type=row.type, target=row.target, outcome=attempt.outcome, status=attempt.status,
    )  # fmt: skip
