"""The record that a training-log line becomes, and the rule that makes it: a literal first, a regular expression after.

Every rule has a literal that its line must contain. Rules are grouped under gates (literals too), so that an ordinary line
costs a few dozen `in` tests and no regular expression at all. Patterns have bounded repeats only: no line can make one slow.
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from outrider.parsers.prefixes import origin, plain, stamp

#: A line is cut here before a pattern sees it: no rule looks further, and a line of megabytes must not cost more.
LINE_CHARS_MAX: Final = 4096
#: Characters of the raw line that a record keeps as evidence.
TEXT_CHARS_MAX: Final = 500


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What one line says. `what` names the rule; `wall` is seconds since 1970 on the printer's clock (naive, see `yearless`).

    `rank`, `node`, `gpu`, `pid`, `local_rank` name the **printer**, unless the line itself names whom it is about; a peer that
    is blamed stands in `data`.
    """

    what: str
    text: str
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    gpu: int | None = None
    pid: int | None = None
    wall: float | None = None
    yearless: bool = False
    data: dict[str, Any] = msgspec.field(default_factory=dict)


class Rule(NamedTuple):
    """`pattern`'s named groups become `data`; groups called rank, node, gpu, pid, local_rank overrule the prefix.

    `fix`: an optional last word on the data; it answers None to say that the line is not meant after all.
    """

    what: str
    literal: str
    pattern: re.Pattern[str]
    fix: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None


Gates = tuple[tuple[str, tuple[Rule, ...]], ...]

_OVERRULE: Final = ("rank", "node", "gpu", "pid", "local_rank")
#: Groups that are text even when they look like a number.
_TEXTS: Final = frozenset(
    {
        "peer",
        "job",
        "key",
        "ranks",
        "result",
        "tasks",
        "message",
        "local_gid",
        "remote_gid",
        "group",
        "desc",
        "address",
        "node",
        "node2",
    }
)


def rule(
    what: str,
    literal: str,
    pattern: str | None = None,
    *,
    flags: int = 0,
    fix: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None,
) -> Rule:
    """A rule; without a pattern the literal alone decides."""
    return Rule(what, literal, re.compile(pattern if pattern is not None else re.escape(literal), flags), fix)


def gate(literal: str, *rules: Rule) -> tuple[str, tuple[Rule, ...]]:
    """Rules that are asked only if the line contains `literal`, the first that fits wins."""
    return literal, rules


def first_record(line: str, gates: Gates, year: int) -> Record | None:
    """The record of the first rule that fits the line."""
    for literal, rules in gates:
        if literal in line:
            for one in rules:
                if one.literal in line and (record := _apply(one, line, year)) is not None:
                    return record
    return None


def _apply(one: Rule, line: str, year: int) -> Record | None:
    line = plain(line[:LINE_CHARS_MAX])
    match = one.pattern.search(line)
    if match is None:
        return None
    data: dict[str, Any] | None = {key: _value(key, value) for key, value in match.groupdict().items() if value is not None}
    assert data is not None
    if one.fix is not None and (data := one.fix(data)) is None:
        return None
    return make_record(one.what, line, data, year)


def make_record(what: str, line: str, data: dict[str, Any], year: int) -> Record:
    """A record of `line`: its prefix says who and when, `data` may overrule who."""
    who, when = origin(line), stamp(line, year)
    named = {key: data.pop(key) for key in _OVERRULE if key in data}
    return Record(
        what=what,
        text=line[:TEXT_CHARS_MAX],
        rank=named.get("rank", who.rank),
        local_rank=named.get("local_rank", who.local_rank),
        node=named.get("node", who.node),
        gpu=named.get("gpu", who.gpu),
        pid=named.get("pid", who.pid),
        wall=when.seconds if when else None,
        yearless=bool(when and when.yearless),
        data=data,
    )


def _value(key: str, value: str) -> Any:
    if key in _TEXTS:
        return value
    if value.lstrip("-").isdecimal() and len(value) < 19:
        return int(value)
    try:
        return float(value) if value[:1].isdecimal() and value.replace(".", "", 1).isdecimal() else value
    except ValueError:
        return value


def numbers(text: str, limit: int = 4096) -> list[int]:
    """The ranks of a list such as `3, 5, 8-11`; at most `limit`."""
    found: list[int] = []
    for low, high in re.findall(r"(\d{1,7})(?:\s?-\s?(\d{1,7}))?", text):
        found += range(int(low), min(int(high or low), int(low) + limit) + 1)
        if len(found) >= limit:
            break
    return found[:limit]
