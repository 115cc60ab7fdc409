"""Signals for what changed, and now and then for what did not, so that a witness that began late knows it too. Pure."""

from collections.abc import Hashable
from typing import Any


class Changes:
    """`due` says whether a value is worth a signal: it is new, it changed, or it was last told long ago."""

    def __init__(self, refresh_seconds: float = 300.0) -> None:
        self._refresh = refresh_seconds
        self._told: dict[Hashable, tuple[Any, float]] = {}

    def due(self, key: Hashable, value: Any, now: float) -> bool:
        """True if `value` under `key` is to be told now; then it counts as told."""
        before = self._told.get(key)
        if before is not None and before[0] == value and now - before[1] < self._refresh:
            return False
        self._told[key] = (value, now)
        return True

    def forget_others(self, keys: set[Hashable]) -> None:
        """Keeps only these keys: what is gone must not pile up, and what comes back is new."""
        for key in self._told.keys() - keys:
            del self._told[key]


class Counters:
    """Running counters and their resets. `resets` counts values that went backwards: a reset device or a wrapped register."""

    def __init__(self) -> None:
        self._last: dict[Hashable, int] = {}
        self.resets = 0

    def grown(self, key: Hashable, value: int) -> int:
        """By how much the counter grew since the last reading; 0 at the first one; after a reset, its new value."""
        before = self._last.get(key)
        self._last[key] = value
        if before is None:
            return 0
        if value < before:
            self.resets += 1
            return value
        return value - before
