"""Whether a person's order makes sense before it is written down: its target is known, and it can do something. Pure but for the
ledger that it reads."""

import difflib
from collections.abc import Iterable
from typing import Any, Final

from detectors.core.policy import Guard
from detectors.witness.draft import OPEN_STATES
from detectors.witness.http import Refusal
from detectors.witness.ledger import Ledger
from outrider.config.policy import Policy
from outrider.fleet import Fleet

#: Names that are offered in place of an unknown one.
NEAREST_MAX: Final = 3
#: Letters of an incident's name that lists show.
SHORT: Final = 8
#: Incidents among which a name that is unknown is looked for.
_INCIDENTS_MAX: Final = 1_000


def nearest(name: str, known: Iterable[str], what: str) -> str:
    """` (nearest: a, b)`: what may have been meant; or that there is nothing."""
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, NEAREST_MAX, cutoff=0.4)
    if close:
        return f" (nearest: {', '.join(close)})"
    return f" ({what}: {', '.join(names[:NEAREST_MAX])}{', ..' if len(names) > NEAREST_MAX else ''})" if names else f" (no {what})"


async def known_incident(ledger: Ledger, name: str) -> dict[str, Any]:
    """The incident whose name begins so, whole.

    Raises:
        Refusal: there is none, or more than one.
    """
    found = await ledger.incident(name)
    if found is not None:
        return found
    names = [str(picture.get("incident", "")) for picture in await ledger.incidents(_INCIDENTS_MAX)]
    alike = sorted(one for one in names if one.startswith(name))
    if alike:
        raise Refusal(404, "unknown", f"{len(alike)} incidents' names begin with {name!r}: {', '.join(alike[:NEAREST_MAX])}")
    near = nearest(name, (one[:SHORT] for one in names), "incidents")
    raise Refusal(404, "unknown", f"no incident's name begins with {name!r}{near}")


async def check_node(ledger: Ledger, fleet: Fleet, name: str) -> None:
    """A node of `[fleet]`, or one that was taken out of it while something of it still stands.

    Raises:
        Refusal: nothing is known of it.
    """
    known = {node.node for node in fleet.nodes}
    if name in known or name in (await ledger.leader_state()).claims or await _in_maintenance(ledger, name):
        return
    raise Refusal(404, "unknown", f"no node is called {name!r}{nearest(name, known, 'nodes')}")


async def check_job(ledger: Ledger, fleet: Fleet, name: str) -> None:
    """A job of `[fleet]` or one that told of itself. Raises Refusal: there is none."""
    known = {job.job for job in fleet.jobs} | {control.key for control in await ledger.controls() if control.kind == "job"}
    if name in known or await _in_maintenance(ledger, name):
        return
    raise Refusal(404, "unknown", f"no job is called {name!r}{nearest(name, known, 'jobs')}")


async def _in_maintenance(ledger: Ledger, name: str) -> bool:
    return any(control.kind == "maintenance" and control.key == name for control in await ledger.controls())


def check_approval(found: dict[str, Any], policy: Policy) -> None:
    """Whether a yes can do anything for an incident.

    Raises:
        Refusal: it is over, it is too late, or the mode is `observe`, in which nothing is done whoever says yes.
    """
    name, state = str(found.get("incident"))[:SHORT], str(found.get("state"))
    if state not in OPEN_STATES:
        raise Refusal(409, "approval", f"incident {name} is {state}: nothing was done")
    held: dict[str, dict[str, Any]] = {}
    for line in found.get("history") or ():
        if line.get("event") in ("refused", "action"):
            held[f"{line.get('action')} {line.get('target')}"] = line
    held = {key: line for key, line in held.items() if line.get("event") == "refused"}
    if any(str(line.get("refused")).startswith("approval:") for line in held.values()):
        raise Refusal(409, "approval", f"incident {name}: the time to approve is over: nothing was done")
    guard, fault, subject = Guard(policy), str(found.get("fault")), found.get("subject") or {}
    targets = [line.get("target") or {} for line in held.values()] or [subject]
    modes = {
        guard.mode(fault, _named(target, "job"), list(dict.fromkeys(_named(subject, "node") + _named(target, "node"))))
        for target in targets
    }
    if modes == {"observe"}:
        raise Refusal(409, "approval", f"incident {name}: the mode is observe: it only records, and nothing was done")


def _named(place: dict[str, Any], key: str) -> list[str]:
    return [str(place[key])] if place.get(key) else []
