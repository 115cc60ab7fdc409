"""Who printed a line, and when: the prefixes of torchrun, Slurm, Kubernetes, NCCL, glog, syslog and common loggers.

Pure functions, called for lines that a rule has already found interesting, never for every line of a log.
Source of the shapes: PyTorch's c10 logger (`[rank3]:[E1103 04:13:00.5 ProcessGroupNCCL.cpp:632]`), torchrun `--tee`
(`[default3]:`), Slurm `srun --label` (`12: `), `kubectl logs --prefix` (`[pod/name/container]`), NCCL's debug.cc
(`host:pid:tid [gpu] `), dmesg -T and RFC 3164 headers.
"""

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

#: Prefixes stand at the start; what comes later is the message.
HEAD_CHARS: Final = 200
#: Year that a stamp without one is given until a line with a year was seen. A leap year, so that 29 February is a date.
YEAR_UNKNOWN: Final = 2000

#: Terminal colours and the cursor moves of progress bars.
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]{0,12}[A-Za-z]")


class Stamp(NamedTuple):
    """When a line was printed: seconds since 1970 as the printer's wall clock showed it; `yearless`: the year is a guess."""

    seconds: float
    yearless: bool


class Origin(NamedTuple):
    """Who printed a line, as far as its prefix tells; None is unknown."""

    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    pid: int | None = None
    gpu: int | None = None


def plain(line: str) -> str:
    """The line without terminal colours, and only what the last carriage return left to see."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "\r" in line:
        line = line.rstrip("\r").rpartition("\r")[2]
    return line


_ISO: Final = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_GLOG: Final = re.compile(r"(?:^|[\[\s:])[EWIFC](\d{1,2}?)(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?")
_NAMED: Final = re.compile(
    r"(?:\b[A-Z][a-z]{2} )?\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
    r"(?: (\d{4})\b)?"
)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def stamp(line: str, year: int = YEAR_UNKNOWN) -> Stamp | None:
    """When the line was printed, or None: it does not say.

    Args:
        line: the line; the first stamp in its head counts (Slurm's notices have theirs in the text).
        year: what to take where the stamp has no year.
    """
    head = line[:HEAD_CHARS]
    if match := _ISO.search(head):
        return _stamp(match[1], match[2], match[3], match[4], match[5], match[6], match[7], yearless=False)
    if match := _GLOG.search(head):
        return _stamp(year, match[1], match[2], match[3], match[4], match[5], match[6], yearless=True)
    if match := _NAMED.search(head):
        month = _MONTHS.index(match[1]) + 1
        return _stamp(match[7] or year, month, match[2], match[3], match[4], match[5], match[6], yearless=not match[7])
    return None


def _stamp(
    year: str | int, month: str | int, day: str, hour: str, minute: str, second: str, part: str | None, *, yearless: bool
) -> Stamp | None:
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), min(int(second), 59), tzinfo=UTC)
    except ValueError:
        return None
    return Stamp(moment.timestamp() + (float(f"0.{part}") if part else 0.0), yearless)


def with_year(seconds: float, year: int) -> float:
    """A yearless stamp's seconds moved from `YEAR_UNKNOWN` to `year`."""
    moment = datetime.fromtimestamp(seconds, UTC)
    try:
        return moment.replace(year=year).timestamp()
    except ValueError:  # 29 February
        return moment.replace(year=year, day=28).timestamp() + 86400


#: `[rank5]`, `[Rank 5]`, `[rank=5/64]`, `[n7 rank 5 INFO]`; not `[PG ID 0 PG GUID 0(default_pg) Rank 5]`, which is a rank
#: inside a group.
RANK_TAG: Final = re.compile(r"\[(?!PG )(?:[^\]\[]{0,60}[ _,|:=])?rank[ _:=#]{0,2}(\d{1,7})\b[^\]\[]{0,60}\]", re.IGNORECASE)
_RANK_BOTH: Final = re.compile(r"\[(?:node[=: ])?([A-Za-z][\w.-]{0,62})[ :,/|]{1,2}rank[ _:=]?\d{1,7}\b", re.IGNORECASE)
_RANK_WORD: Final = re.compile(
    r"^(?:[\[(]?[\dTZ:.,+/ -]{8,35}[\])]? ?)?(?:\[?(?:INFO|WARNING|WARN|ERROR|DEBUG|CRITICAL)\]?[ :]{0,2})?"
    r"(?:global[ _])?rank[ _:=]{0,2}(\d{1,7})\b",
    re.IGNORECASE,
)
_LOCAL_TAG: Final = re.compile(r"^\[(?:default|trainer|worker|[a-z_]{1,20}?)(\d{1,4})\]:")
_SLURM_LABEL: Final = re.compile(r"^ {0,6}(\d{1,6}): ")
_NCCL: Final = re.compile(r"(?:^|[\s\]:])([A-Za-z][\w.-]{0,62}):(\d{1,9}):(\d{1,9}) \[(-?\d{1,3})\]")
_HOST_TAG: Final = re.compile(r"^\[([A-Za-z][\w.-]{0,62})\](?=[\[: ])")
_SYSLOG: Final = re.compile(
    r"^(?:[A-Z][a-z]{2} [ \d]\d [\d:.]{8,18}|\d{4}-\d\d-\d\dT\S{8,30}) ([A-Za-z0-9][\w.-]{0,62}) [\w./-]{1,48}(?:\[(\d+)\])?: "
)
_POD: Final = re.compile(r"^\[pod/([\w.-]{1,253})/[\w.-]{1,63}\]|^([a-z0-9][\w.-]{0,200}-\d{1,6}) [a-z][\w-]{0,62} ")
_POD_INDEX: Final = re.compile(r"-(?:worker|replica|node|rank)-(\d{1,6})(?:-[a-z0-9]{5})?$")
_RAY: Final = re.compile(r"^\((?:[\w.:]{1,60}) pid=(\d{1,9})(?:, ip=([\d.]{7,15}))?\)")
_NOT_HOSTS: Final = frozenset(
    [
        "info",
        "warning",
        "warn",
        "error",
        "debug",
        "critical",
        "fatal",
        "notice",
        "trace",
        "default",
        "trainer",
        "rank",
        "stdout",
        "stderr",
        "init",
        "train",
        "deepspeed",
    ]
)


def origin(line: str) -> Origin:
    """Who printed the line: the explicit `[rankN]` wins over Slurm's task label; a rank inside a PG prefix does not count."""
    head = line[:HEAD_CHARS]
    rank = node = pid = gpu = local = None
    if match := _NCCL.search(head):
        node, pid, gpu = match[1], int(match[2]), int(match[4])
    elif match := _SYSLOG.match(head):
        node, pid = match[1], int(match[2]) if match[2] else None
    elif (match := _HOST_TAG.match(head)) and not _is_word(match[1]):
        node = match[1]
    elif (match := _RAY.match(head)) or (match := _POD.match(head)):
        node, pid = (match[2], int(match[1])) if match.re is _RAY else (match[1] or match[2], None)
    if match := RANK_TAG.search(head):
        rank = int(match[1])
        if node is None and (both := _RANK_BOTH.search(head)) and not _is_word(both[1]):
            node = both[1]
    elif (match := _RANK_WORD.match(head)) or (match := _SLURM_LABEL.match(head)):
        rank = int(match[1])
    if match := _LOCAL_TAG.match(head):
        local = int(match[1]) if not match[0].startswith("[rank") else None
    return Origin(rank, local, node, pid, gpu if gpu is None or gpu >= 0 else None)


def pod_index(name: str) -> int | None:
    """The replica number in a pod's name (`train-worker-3` -> 3), or None."""
    match = _POD_INDEX.search(name)
    return int(match[1]) if match else None


def _is_word(text: str) -> bool:
    """Whether a bracketed word is a log level or a role and no host."""
    return text.lower() in _NOT_HOSTS or bool(re.fullmatch(r"(?:default|trainer|rank|worker)\d*", text, re.IGNORECASE))
