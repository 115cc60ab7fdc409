"""What an action is aimed at, in words for people."""

from typing import Any, Final

from outrider.parsers.hostlist import ranges

#: Moved slots that are told one by one; a whole rack is told by its number.
MOVES_MAX: Final = 4


def aim(target: dict[str, Any]) -> str:
    """An action's target: `job A attempt 1, slot 3 n7 -> n9, resume from the newest snapshot`. What is empty is left out."""
    words = [f"{name} {target[name]}" for name in ("job", "node") if target.get(name)]
    words += [f"attempt {target['attempt']}"] if target.get("attempt") else []
    said = [" ".join(words)] if words else []
    for name, value in target.items():
        if value in (None, [], {}, "") or name in ("job", "node", "attempt"):
            continue
        said.append(_TOLD[name](value) if name in _TOLD else f"{name} {_plain(value)}")
    return ", ".join(said)


def _moves(moves: list[dict[str, Any]]) -> str:
    told = [f"slot {move.get('slot')} {move.get('from')} -> {move.get('to')}" for move in moves[:MOVES_MAX]]
    more = len(moves) - len(told)
    return ", ".join(told) + (f" and {more} more" if more else "")


def _resume(resume: dict[str, Any]) -> str:
    step = resume.get("step")
    return f"resume from step {step}" if step is not None else f"resume from the {resume.get('rule', 'newest')} snapshot"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_plain(item)}" for name, item in value.items() if item is not None)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


_TOLD: Final[dict[str, Any]] = {
    "replace": _moves,
    "resume": _resume,
    "ranks": lambda ranks: f"ranks {ranges(ranks)}",
    "fault": str,
}
