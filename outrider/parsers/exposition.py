"""Reads Prometheus text, line by line, so that one broken line costs one line.

The grammar is the official parser's; it is slow, and the same label blocks come in every scrape, so its answers for label blocks
are remembered (bounded). Names are taken as they stand: the official parser renames counters, exporters do not follow it.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Final

from outrider.errors import MissingExtraError

#: Label blocks remembered: a node's page has a few hundred, a fleet's dump a hundred thousand.
_MEMO_MAX: Final = 200_000
#: DCGM's values for "no value" (dcgm_structs.h: DCGM_INT32_BLANK, _INT64_BLANK, _FP64_BLANK and the 16 that follow each).
_BLANKS: Final = ((2147483632.0, 2147483647.0), (9.223372036854775e18, 9.3e18), (140737488355328.0, 140737488355343.0))
_SCRAPE: Final = re.compile(r"# t=(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*$")
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*")
_UNKNOWN: Final = frozenset({"n/a", "[n/a]", "na", "nan", "unknown", "[not supported]", "-", ""})


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample. `labels` must not be changed (it is shared); `value` is None where the exporter does not know."""

    name: str
    labels: dict[str, str]
    value: float | None


class BadSampleError(ValueError):
    """A line that is no sample."""


def known(value: float) -> float | None:
    """The value, or None for NaN and for DCGM's blanks."""
    if math.isnan(value) or any(low <= value <= high for low, high in _BLANKS):
        return None
    return value


@dataclass(slots=True)
class ExpositionReader:
    """Turns lines into samples; `t` is the time of the scrape in hand, in seconds."""

    t: float = 0.0
    scrapes: int = 0
    _memo: dict[str, dict[str, str]] = field(default_factory=dict)

    def feed(self, line: str) -> Sample | None:
        """The sample of a line, or None for a comment, a mark of a new scrape (which moves `t`) or an empty line.

        Raises:
            BadSampleError: the line is neither.
        """
        if line.startswith("#"):
            if mark := _SCRAPE.match(line):
                self.t = float(mark[1])
                self.scrapes += 1
            return None
        line = line.strip()
        if not line:
            return None
        name = _SAMPLE.match(line)
        if not name:
            raise BadSampleError(line[:80])
        rest = line[name.end() :]
        if not rest.startswith("{"):
            return Sample(name[1], {}, _value(rest))
        end = rest.rfind("}")
        if end < 0:
            raise BadSampleError(line[:80])
        return Sample(name[1], self._labels(rest[: end + 1]), _value(rest[end + 1 :]))

    def _labels(self, block: str) -> dict[str, str]:
        known_block = self._memo.get(block)
        if known_block is None:
            known_block = _parse_labels(block)
            if len(self._memo) >= _MEMO_MAX:
                self._memo.clear()
            self._memo[block] = known_block
        return known_block


def _value(text: str) -> float | None:
    """The number after the labels; a time stamp may follow it."""
    words = text.split()
    if not words or len(words) > 2:
        raise BadSampleError(text[:80])
    try:
        return known(float(words[0]))
    except ValueError:
        if words[0].lower() in _UNKNOWN:
            return None
        raise BadSampleError(text[:80]) from None


def _parse_labels(block: str) -> dict[str, str]:
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError:
        raise MissingExtraError("reading metrics", "agent", "prometheus-client") from None
    try:
        for family in text_string_to_metric_families(f"x{block} 1\n"):
            return dict(family.samples[0].labels)
    except (ValueError, IndexError, KeyError, TypeError):
        pass
    raise BadSampleError(block[:80])
