"""Reads training logs into a story: records in order, several files merged by their stamps, the kernel's own lines kept apart."""

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from detectors.inspect.findings import EvidenceLine
from detectors.inspect.sources import Source
from detectors.inspect.train_log.story import KEEP_OF_A_KIND, Builder, Story, Told
from outrider.parsers.kernel_log import lines_that_matter
from outrider.parsers.kernel_log_prefix import split_record
from outrider.parsers.prefixes import YEAR_UNKNOWN, origin, stamp, with_year
from outrider.parsers.train_log import Scanner
from outrider.parsers.train_log_rule import Record

#: A block without any of these has no kernel line.
_KERNEL_WORDS: Final = (
    b"NVRM",
    b" kernel: ",
    b"oom-kill",
    b"Killed process",
    b"blocked for more than",
    b"mlx5_core",
    b"mce: ",
    b"not responding",
)
KERNEL_LINES_MAX: Final = 20_000
#: A collector's host tag before a kernel record: `[gn-7] [123.4] ..`, `gn-7: [123.4] ..`.
_HOST_BEFORE: Final = re.compile(r"\[?([A-Za-z][\w.-]{0,62})\]?:? +(?=[\[<\d])")
#: A collector that says who wrote the line: `[gn-7] kernel: NVRM: ..`, `2026-06-11 03:12:40 gn-7 kernel: [123.4] ..`.
_KERNEL_TAG: Final = re.compile(
    r"(?:\[?\d{4}-\d\d-\d\d[T ][\d:.,]{8,15}(?:Z|[+-]\d\d:?\d\d)?\]? +)?(?:\[?([A-Za-z][\w.-]{0,62})\]?:? ?)?\[?kernel\]?:? +"
)
_SYSLOG_HOST: Final = re.compile(r"(?:[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15}|\d{4}-\d\d-\d\dT\S{8,30}) ([\w.-]{1,63}) kernel: ")
#: Lines of the odd rank that are looked at for a reason.
LAST_LINES: Final = 6
#: Step lines kept after each other record when several files are merged.
STEPS_KEPT: Final = 3


def read_story(sources: Sequence[Source]) -> Story:
    """Reads all sources: each in its own order, several merged by their stamps."""
    story = Story(sources=sources)
    years = [_year_in(source) for source in sources]
    known = next((year for year in years if year != YEAR_UNKNOWN), YEAR_UNKNOWN)
    years = [known if year == YEAR_UNKNOWN else year for year in years]
    if len(sources) == 1:
        told: Iterable[Told] = _read(sources[0], years[0], story)
    else:
        told = _merged([list(_thinned(_read(source, year, story), story)) for source, year in zip(sources, years, strict=True)])
    builder = Builder(story)
    for one in told:
        builder.take(one)
    builder.close()
    return story


def last_lines(story: Story, rank: int, first_wait: Told) -> list[EvidenceLine]:
    """The last lines that a rank printed before others began to wait for it, whatever they say: a second look at the file.

    Standard input can be read only once, and gives nothing.
    """
    tags = (f"[rank{rank}]", f"[Rank {rank}]", f"[rank {rank}]", f"rank {rank}:", f"rank={rank}]", f"rank{rank}:", f"rank {rank}]")
    found: deque[EvidenceLine] = deque(maxlen=LAST_LINES)
    for source in story.sources:
        if source.path is None or (rank_of_file(source.name) not in (None, rank) and source.file):
            continue
        number = 1
        for block in source.blocks():
            text = block.decode("utf-8", "replace")
            if any(tag in text for tag in tags):
                for offset, line in enumerate(text.split("\n")):
                    at_end = source.file == first_wait.file and number + offset >= first_wait.line
                    if at_end:
                        break
                    if any(tag in line[:200] for tag in tags):
                        found.append(EvidenceLine(line=number + offset, text=line[:400].strip(), file=source.file))
            number += text.count("\n")
    return list(found)


def _thinned(stream: Iterable[Told], story: Story) -> Iterator[Told]:
    """One file of several: all but most step lines, whose numbers are taken at once, so that a folder fits into memory.

    A few step lines after each other record stay: they show that the job went on.
    """
    left = STEPS_KEPT
    kept: Counter[str] = Counter()
    for one in stream:
        if one.what == "step":
            story.numbers.step(one.record, one.line, one.file, one.own)
            one.counted = True
            if left > 0:
                left -= 1
                yield one
            continue
        left = STEPS_KEPT
        kept[one.what] += 1
        if kept[one.what] <= KEEP_OF_A_KIND:
            yield one


def _merged(streams: list[Any]) -> Iterator[Told]:
    """Several files in one order: by time where stamps are, a record without one beside its neighbour."""
    flat = [one for stream in streams for one in stream]
    flat.sort(key=lambda one: (one.at is None, one.at or 0.0))
    yield from flat


def _year_in(source: Source) -> int:
    """The year of the first stamp in a file's head that has one: stamps without a year (glog's, syslog's) are of the same."""
    for line in source.head.decode("utf-8", "replace").splitlines():
        found = stamp(line)
        if found is not None and not found.yearless:
            return _year(found.seconds)
    return YEAR_UNKNOWN


def _read(source: Source, year: int, story: Story) -> Iterator[Told]:
    last, number = None, 0
    scanner = Scanner()
    hint = rank_of_file(source.name) if source.file else None
    for block in source.blocks():
        for offset, record in scanner.feed(block):
            wall = record.wall
            if wall is not None:
                if record.yearless:
                    wall = with_year(wall, year)
                elif year == YEAR_UNKNOWN:
                    year = _year(wall)
                last = wall
            yield Told(line=number + offset + 1, file=source.file, record=_completed(record, wall, hint), at=last)
        _keep_kernel(block, number, source.file, story)
        number += block.count(b"\n")


def _keep_kernel(block: bytes, before: int, file: str | None, story: Story) -> None:
    """Keeps the kernel's own lines; a process that prints the text of one has no kernel prefix and is not believed."""
    if not any(word in block for word in _KERNEL_WORDS) or len(story.kernel) >= KERNEL_LINES_MAX:
        return
    for number, line in lines_that_matter(block.decode("utf-8", "replace"), before + 1):
        match = _HOST_BEFORE.match(line)
        for node, rest in ((None, line), (match[1], line[match.end() :]) if match else (None, "")):
            if rest and split_record(rest) is not None:
                syslog = _SYSLOG_HOST.match(rest)
                story.kernel.append((number, file, node or (syslog[1] if syslog else None), rest))
                break
        else:
            tag = _KERNEL_TAG.match(line)
            if tag and origin(line).rank is None and split_record(line[tag.end() :], bare=True) is not None:
                story.kernel.append((number, file, tag[1], line[tag.end() :]))


def _year(wall: float) -> int:
    """The year of a stamp, near enough for stamps that lack it (a log of one night)."""
    return 1970 + int(wall // 31_556_952)


#: `rank_5.log`, `rank-5.err`, `attempt_0/5/stderr.log` (torchrun's folders).
_RANK_IN_NAME: Final = re.compile(r"rank[_.-]?(\d{1,7})(?!\d)[^/]*$|/attempt_\d+/(\d{1,7})/std(?:err|out)[^/]*$")


def rank_of_file(name: str) -> int | None:
    """The rank whose output a file of a folder holds, by its name; None: the name does not say."""
    match = _RANK_IN_NAME.search(name)
    return int(match[1] or match[2]) if match else None


def _completed(record: Record, wall: float | None, rank: int | None) -> Record:
    """The record with its year, and with the rank of its file where the line names none."""
    rank = record.rank if record.rank is not None else rank
    if wall == record.wall and rank == record.rank:
        return record
    return Record(
        what=record.what,
        text=record.text,
        rank=rank,
        local_rank=record.local_rank,
        node=record.node,
        gpu=record.gpu,
        pid=record.pid,
        wall=wall,
        yearless=record.yearless,
        data=record.data,
    )
