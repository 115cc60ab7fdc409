"""A gate against floods: the first few signals of a kind pass, the rest are counted and told together. Pure."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

import msgspec

from outrider.signals import Signal


@dataclass
class _Kind:
    tokens: float
    at: float
    held: int = 0
    last: Signal | None = None


class FloodGate:
    """Lets `burst` signals of a key pass at once and then one each `seconds_each`; `due` tells of what was held back.

    `suppressed` counts all that were held. At most `keys_max` keys are known; the one heard least recently goes first.
    """

    def __init__(self, burst: int = 5, seconds_each: float = 10.0, keys_max: int = 1_000) -> None:
        self._burst, self._each, self._keys_max = float(burst), seconds_each, keys_max
        self._kinds: OrderedDict[Hashable, _Kind] = OrderedDict()
        self.suppressed = 0

    def admit(self, key: Hashable, signal: Signal, now: float) -> bool:
        """True if the signal is to be sent now."""
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(self._burst, now)
            if len(self._kinds) > self._keys_max:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(key)
        kind.tokens = min(self._burst, kind.tokens + (now - kind.at) / self._each)
        kind.at = now
        if kind.tokens >= 1.0:
            kind.tokens -= 1.0
            return True
        kind.held += 1
        kind.last = signal
        self.suppressed += 1
        return False

    def due(self, now: float) -> list[Signal]:
        """The latest of each kind that was held back, with `data.count`: how many it stands for."""
        signals = []
        for kind in self._kinds.values():
            refilled = kind.tokens + (now - kind.at) / self._each >= 1.0
            if kind.last is not None and refilled:
                kind.tokens, kind.at = kind.tokens + (now - kind.at) / self._each - 1.0, now
                data = {**kind.last.data, "count": kind.held}
                signals.append(msgspec.structs.replace(kind.last, data=data))
                kind.held, kind.last = 0, None
        return signals
