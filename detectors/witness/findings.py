"""What the checks of `outrider doctor` look at, and what each of them says."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from outrider.config.site import Config
from outrider.fleet import Node

State = Literal["ok", "warn", "fail", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    check: str
    state: State
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """Whom the checks look at: the site's settings and this node's entry in the fleet."""

    config: Config
    node: Node | None
    name: str | None


Check = Callable[[Patient], Iterator[Finding]]
