"""Sorts what kind of dump each source is, and asks the judge of that kind."""

import re
from collections.abc import Sequence
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.dump.flight import judge_flight
from detectors.inspect.dump.ras import judge_ras
from detectors.inspect.dump.stacks import judge_stacks
from detectors.inspect.dump.waits import Dumped
from detectors.inspect.findings import Finding
from detectors.inspect.sources import Source
from outrider.errors import InputError
from outrider.parsers.flight import DUMP_BYTES_MAX, make_dump, read_json, read_pickle
from outrider.parsers.ras import is_ras, parse_ras
from outrider.parsers.stacks import StackDump, parse_stacks

#: The recorder writes `<prefix><rank>`; collectors add an ending.
_RANK_IN_NAME: Final = re.compile(r"(?:rank[_-]?|_|-)(\d{1,7})(?:\.(?:json|pkl|pickle|txt|gz|dump))*$")


def judge(sources: Sequence[Source], context: Context) -> list[Finding]:
    """The findings of all dumps together: those of one kind are judged as one picture.

    Raises:
        InputError: a source is no dump, is damaged, or is a pickle with code in it.
    """
    flights: list[Dumped] = []
    stacks = StackDump()
    found: list[Finding] = []
    places: dict[int, str | None] = {}
    for source in sources:
        head = source.head.decode("utf-8", "replace").lstrip()
        if source.head[:1] == b"\x80":
            flights.append(
                Dumped(make_dump(read_pickle(source.read(DUMP_BYTES_MAX), source.name), _rank(source), source.name), 1, source.file)
            )
        elif is_ras(head):
            found += judge_ras(parse_ras(source.read(DUMP_BYTES_MAX).decode("utf-8", "replace")), context, source.file)
        elif head[:1] in ("{", "["):
            flights += _flights(source)
        else:
            _add(stacks, parse_stacks(source.lines()), source, places)
    if flights:
        found += judge_flight(flights, context)
    if stacks.processes or stacks.kernels:
        found += judge_stacks(stacks, context, places)
    return found


def _flights(source: Source) -> list[Dumped]:
    text = source.read(DUMP_BYTES_MAX).decode("utf-8", "replace")
    raw = read_json(text, source.name)
    rank = _rank(source)
    return [
        Dumped(make_dump(one, rank if len(raw) == 1 else None, source.name), number, source.file)
        for number, one in enumerate(raw, 1)
    ]


def _rank(source: Source) -> int | None:
    match = _RANK_IN_NAME.search(source.name)
    return int(match[1]) if match else None


def _add(stacks: StackDump, more: StackDump, source: Source, places: dict[int, Any]) -> None:
    if not more.processes and not more.kernels:
        raise InputError("holds no flight record, no stack and no RAS answer", file=source.name)
    for one in more.processes:
        places[id(one)] = source.file
        if one.rank is None and one.node is None:
            one.rank = _rank(source)
    stacks.processes += more.processes
    stacks.kernels += more.kernels
