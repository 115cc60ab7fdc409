"""What each node's cell of the fleet map shows. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from outrider.fleet import Fleet
from outrider.wire import UNREADABLE

#: State -> its letter in the page's string of states, the worst first: the first that holds is shown.
LETTERS: Final[dict[str, str]] = {
    "lost": "l", "quarantined": "q", "fault": "f", "recovering": "r", "maintenance": "m", "suspect": "s", "unstable": "n",
    "silent": "i", "unknown": "u", "spare": "p", "healthy": "h",
}  # fmt: skip
_RANKS: Final = {state: rank for rank, state in enumerate(LETTERS)}
#: A heartbeat comes each second; the judge doubts after four. The map says so a little later, so that a pause does not flicker.
SILENT_SECONDS: Final = 5.0
#: Responses to a fault that takes the node's work with it.
_TAKES: Final = frozenset({"drain", "restart"})


class _Guard(msgspec.Struct):
    maintenance: dict[str, bool] = {}
    hold_until: float | None = None
    blind: bool = False


class _Safety(msgspec.Struct):
    approvals: dict[str, float] = {}


class _Recovery(msgspec.Struct):
    quarantined: dict[str, Any] = {}
    claimed: dict[str, Any] = {}
    guard: _Guard = msgspec.field(default_factory=_Guard)
    safety: _Safety = msgspec.field(default_factory=_Safety)


class Memory(msgspec.Struct):
    """The little that the page needs of the council's memory; the rest of it is skipped unread."""

    recovery: _Recovery = msgspec.field(default_factory=_Recovery)


_decoder = msgspec.json.Decoder(Memory)


def read_memory(council: bytes | None) -> Memory:
    """The council's memory as the ledger has it; nothing known if it is absent or of another form."""
    if council is None:
        return Memory()
    try:
        return _decoder.decode(council)
    except UNREADABLE:
        return Memory()


def standing(memory: Memory, now: float) -> dict[str, Any]:
    """What holds until something ends it: quarantine, brakes, questions to people (incident -> seconds left).

    Args:
        now: the ledger's clock, seconds.
    """
    recovery = memory.recovery
    return {
        "quarantined": sorted(recovery.quarantined), "blind": recovery.guard.blind,
        "hold_s": max(0.0, (recovery.guard.hold_until or now) - now),
        "approvals": {incident: max(0.0, deadline - now) for incident, deadline in recovery.safety.approvals.items()},
    }  # fmt: skip


def state_letters(
    fleet: Fleet, pictures: Iterable[Mapping[str, Any]], memory: Memory, heard: Mapping[str, float], now: float
) -> str:
    """One letter a node, in the fleet's order. `heard`: when each node's newest heartbeat came, on the clock of `now`, seconds."""
    said = _by_incident(pictures)
    resting = {name for name, on in memory.recovery.guard.maintenance.items() if on}
    free = set(fleet.spares) - set(memory.recovery.claimed)
    letters = []
    for node in fleet.nodes:
        name = node.node
        found = said.get(name)
        if found == "lost":
            state = "lost"
        elif name in memory.recovery.quarantined:
            state = "quarantined"
        elif found in ("fault", "recovering"):
            state = found
        elif name in resting:
            state = "maintenance"
        elif found is not None:
            state = found
        elif name not in heard:
            state = "unknown"
        elif now - heard[name] > SILENT_SECONDS:
            state = "silent"
        else:
            state = "spare" if name in free else "healthy"
        letters.append(LETTERS[state])
    return "".join(letters)


def _by_incident(pictures: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Node -> the worst that open incidents say of it; a fault of a job alone is about no node."""
    said: dict[str, str] = {}
    for picture in pictures:
        state = _state_of(picture)
        if state is None:
            continue
        for node in nodes_of(picture):
            if node not in said or _RANKS[state] < _RANKS[said[node]]:
                said[node] = state
    return said


def _state_of(picture: Mapping[str, Any]) -> str | None:
    if picture.get("fault") == "node.unstable" and picture.get("state") in ("suspected", "confirmed", "acting"):
        return "unstable"  # it works: it only comes and goes
    match picture.get("state"):
        case "suspected":
            return "suspect"
        case "confirmed" | "acting":
            return "lost" if picture.get("response") in _TAKES else "fault"
        case "recovering":
            return "recovering"
        case _:
            return None


def nodes_of(picture: Mapping[str, Any]) -> list[str]:
    """Nodes that an incident is about: its subject's, or the members of a domain that fell together."""
    if str(picture.get("fault", "")).startswith("job."):
        return []
    extra = picture.get("extra")
    named = extra.get("nodes") if isinstance(extra, dict) else None
    if isinstance(named, list | tuple) and named:
        return [str(name) for name in named]
    subject = picture.get("subject")
    node = subject.get("node") if isinstance(subject, dict) else None
    return [str(node)] if node is not None else []
