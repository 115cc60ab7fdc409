"""Fault classes, read from `faults.toml` (standard library only: the SDK may import this)."""

import tomllib
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, get_args

from outrider.errors import InputError

Response = Literal["ignore", "watch", "page", "drain", "restart"]
Culprit = Literal["app", "gpu", "node", "nic", "link", "switch", "storage", "data", "monitor", "none"]
Repair = Literal[
    "none", "reset_gpu", "reboot_node", "replace_part", "check_link", "fix_app", "fix_data", "fix_storage", "investigate"
]
Severity = Literal["info", "warning", "critical"]
Strength = Literal["decisive", "strong", "weak"]

#: The ladder of reach, lowest first.
RESPONSES: Final[tuple[Response, ...]] = get_args(Response)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultClass:
    """One fault class. `decisive`: one clear signal of it needs no second layer.

    `witnesses`: which signals tell of it, and how strongly: `decisive` (alone enough), `strong` (with one other layer),
    `weak` (supports, never starts). `advice`: what a person does; `first_commands`: where to begin, with NODE, GPU, PCI, NIC,
    MOUNT and JOB in place of names. `false_alarms`: what looks like it and is not. `undo`: how to take back what Outrider did.
    """

    key: str
    layer: str
    culprit: Culprit
    response: Response
    repair: Repair
    severity: Severity
    decisive: bool
    summary: str
    meaning: str = ""
    witnesses: dict[str, Strength] = field(default_factory=dict)
    advice: tuple[str, ...] = ()
    first_commands: tuple[str, ...] = ()
    false_alarms: tuple[str, ...] = ()
    undo: str = ""
    source: str = ""


@cache
def _load() -> dict[str, FaultClass]:
    table = tomllib.loads((files("outrider.catalogue") / "faults.toml").read_text(encoding="utf-8"))
    return {key: FaultClass(key=key, **_frozen(entry)) for key, entry in table.items()}


def _frozen(entry: dict[str, Any]) -> dict[str, Any]:
    """Lists become tuples, so that an entry cannot be changed by accident."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}


FAULTS: Final[dict[str, FaultClass]] = _load()


def fault(key: str) -> FaultClass:
    """The entry of one fault class.

    Raises:
        InputError: there is no such class.
    """
    try:
        return FAULTS[key]
    except KeyError:
        raise InputError(f"no fault class is called {key!r}") from None
