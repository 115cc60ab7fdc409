"""Receivers that said 410, "gone": they want nothing more. Kept in the ledger: no restart and no other deliverer asks them again.

A standing order of kind `target_gone`, as people's standing orders are. A person takes it back: `outrider outbox enable TARGET`.
"""

import getpass
import time
from collections.abc import Mapping
from typing import Any, Final

from alerts.audit import entry
from alerts.breaker import Breaker
from detectors.witness.ledger import Control, Ledger
from detectors.witness.translate import iso

KIND: Final = "target_gone"
#: How soon a deliverer hears that a person has enabled a target again; a look is one query.
LOOK_SECONDS: Final = 1.0


class GoneTargets:
    """What one deliverer knows of them; its breakers follow the ledger."""

    def __init__(self, ledger: Ledger, breakers: Mapping[str, Breaker]) -> None:
        self._ledger, self._breakers = ledger, breakers
        self._look_at = 0.0

    async def look(self, now: float, *, afresh: bool = False) -> None:
        """Reads the ledger: at once when this deliverer has just taken over, else now and then while a target is gone."""
        if not afresh and (now < self._look_at or not any(breaker.gone for breaker in self._breakers.values())):
            return
        self._look_at = now + LOOK_SECONDS
        gone = {one["target"] for one in await gone_targets(self._ledger)}
        for name, breaker in self._breakers.items():
            breaker.gone = name in gone

    async def note(self, target: str, said: str) -> None:
        """The target has just said so."""
        body = {"who": "deliverer", "reason": said, "wall": iso(time.time())}
        await self._ledger.put_control(Control(kind=KIND, key=target, body=body))


async def gone_targets(ledger: Ledger) -> list[dict[str, Any]]:
    """`target`, `reason` (what it said) and `since` of each that is gone, by name."""
    found = [control for control in await ledger.controls() if control.kind == KIND]
    return [
        {"target": one.key, "reason": str(one.body.get("reason", "")), "since": str(one.body.get("wall", ""))}
        for one in sorted(found, key=lambda control: control.key)
    ]


async def enable(ledger: Ledger, target: str, reason: str) -> bool:
    """A person takes a target back into use. False: it is not gone."""
    if target not in {one["target"] for one in await gone_targets(ledger)}:
        return False
    await ledger.put_control(Control(kind=KIND, key=target, body={}, seconds_left=0))
    await ledger.put_audit([entry(getpass.getuser(), "enable", reason, target=target)])
    return True
