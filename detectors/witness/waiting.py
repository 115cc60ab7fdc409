"""What of an incident waits for a person's yes (mode `advise`), until when, and what holds if nobody answers. Pure.

It stands in the incident's picture as `waits`, `{"since", "actions": [{"action", "on"}]}`; the lines of its history put it there
and take it away.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from detectors.core.types import Action
from outrider.config.policy import Policy

#: Actions on a job; the others are on a node.
_ON_JOBS: Final = frozenset({"restart", "snapshot"})
#: States in which something can wait.
_STATES: Final = frozenset({"confirmed", "acting"})


def after_action(action: Action, wall: str, picture: dict[str, Any]) -> dict[str, Any]:
    """The picture with what waits after this action, or its refusal. `wall`: the moment as people read it."""
    waits = picture.get("waits") or {"since": wall, "actions": []}
    job, node = (action.target.get(name) for name in ("job", "node"))
    on = f"job {job}" if job and (action.action in _ON_JOBS or not node) else f"node {node}" if node else ""
    this = {"action": action.action, "on": on}
    actions = [one for one in waits["actions"] if one != this]
    if (action.refused or "").startswith("mode advise"):
        actions.append(this)
    if actions:
        return {**picture, "waits": {**waits, "actions": actions}}
    return {key: value for key, value in picture.items() if key != "waits"}


def told(picture: dict[str, Any], policy: Policy) -> dict[str, Any]:
    """The picture with `approval`, if something waits: `{"for": [TEXT], "since", "until" (None: for ever), "default"}`."""
    waits = picture.get("waits")
    if not waits or picture.get("state") not in _STATES:
        return picture
    until = None
    if policy.approval_seconds:
        end = datetime.fromisoformat(waits["since"]) + timedelta(seconds=policy.approval_seconds)
        until = end.isoformat(timespec="seconds").replace("+00:00", "Z")
    words = [f"{one['action']} of {one['on']}" if one["on"] else str(one["action"]) for one in waits["actions"]]
    return {**picture, "approval": {"for": words, "since": waits["since"], "until": until, "default": policy.approval_default}}
