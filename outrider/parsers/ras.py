"""NCCL RAS: what `ncclras` (or a socket to port 28028) answers, as text or JSON.

Source: NCCL 2.24 to 2.31 (ras/client_support.cc); the docs on RAS. Counts are of *launched* operations, so healthy ranks may
differ for a moment: only the same lag in two polls is evidence. A rank behind the count that most reached lags; one ahead does not.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

RANKS_MAX: Final = 200_000


@dataclass(slots=True)
class RasRank:
    """One rank or process that RAS names. `count`: operations it launched; None where the line does not say."""

    line: int
    text: str
    rank: int | None = None
    node: str | None = None
    pid: int | None = None
    gpu: int | None = None
    count: int | None = None


@dataclass(slots=True)
class RasPoll:
    """One answer. `lagging` by communicator and operation; `front`: the count most reached; `dead`, `missing`, `failed`: named
    ranks or processes."""

    line: int
    lagging: dict[str, list[RasRank]] = field(default_factory=dict)
    front: dict[str, int] = field(default_factory=dict)
    operation: dict[str, str] = field(default_factory=dict)
    dead: list[RasRank] = field(default_factory=list)
    missing: list[RasRank] = field(default_factory=list)
    failed: list[RasRank] = field(default_factory=list)
    ranks: int = 0


_COMM: Final = re.compile(r"#(?P<id>\d{1,6}-\d{1,6}) \((?P<hash>[0-9a-f]{4,20})\) (?P<words>[A-Z, ]{2,60})")
_WHO: Final = re.compile(
    r"\s*(?:Rank (?P<rank>\d{1,7})(?: has (?:launched up to operation (?P<count>\d{1,18})|not launched any operations?))?"
    r"(?P<error>[^-]{0,120}?) ?--? )?(?:"
    r"(?:GPU (?P<gpu>\d{1,3})(?: \(NVML \d{1,3}\))? managed by process|[Pp]rocess) (?P<pid>\d{1,9}) on node "
    r"(?P<node>[\w.:-]{1,120})(?: managing GPUs? (?P<gpu2>\d{1,3}))?"
    r"|(?P<nowhere>\[process information not found\]))"
)
_MANY: Final = re.compile(r"\s*(?P<ranks>\d{1,7}) ranks? have (?:launched up to operation (?P<count>\d{1,18})|not launched any)")
_OPERATION: Final = re.compile(r"\s*Communicator ranks have different (\w{1,40}) operation counts")
_STATUS: Final = re.compile(r"\s*Communicator ranks have different status|\s*\d{1,7} ranks have status ")
#: ncclResult_t that are no errors: success, and an operation that goes on (non-blocking communicators).
_NO_ERRORS: Final = (0, 7)
_HEADERS: Final = ("DEAD", "INCOMPLETE", "TIMEOUT", "MISMATCH")


def is_ras(head: str) -> bool:
    """Whether a text is an answer of RAS."""
    return (
        ("Job summary" in head and "Communicators..." in head)
        or '"communicators_count"' in head
        or bool(_COMM.search(head) and "operation" in head)
    )


def parse_ras(text: str) -> list[RasPoll]:
    """All answers in a text, in order. JSON answers stand one after another or one a line."""
    start = text.lstrip()[:1]
    if start in ("{", "["):
        return _parse_json(text)
    polls: list[RasPoll] = []
    section, comm = "", "0-0"
    count: int | None = None
    for number, whole in enumerate(text.splitlines(), 1):
        line = whole[:1000]
        if line.startswith("NCCL version") or (line.startswith("Job summary") and (not polls or polls[-1].line < number - 4)):
            polls.append(RasPoll(number))
            section = ""
        if not polls:
            polls.append(RasPoll(number))
        if match := _COMM.match(line.strip()):
            comm, count = f"{match['id']} {match['hash']}", None
            section = next((word for word in _HEADERS if word in match["words"]), "ERROR")
        elif line.strip() in ("Errors", "Warnings"):
            section = ""
        elif line.strip() in _HEADERS:
            section, comm = line.strip(), "job"
        elif section == "MISMATCH" and (match := _OPERATION.match(line)):
            comm, count = f"{' '.join(comm.split()[:2])} {match[1]}", None
            polls[-1].operation[comm] = match[1]
        elif section == "MISMATCH" and _STATUS.match(line):
            section = "STATUS"  # ranks that leave or start: no lag; the counts of operations follow
        elif section == "STATUS" and (match := _OPERATION.match(line)):
            section, comm, count = "MISMATCH", f"{' '.join(comm.split()[:2])} {match[1]}", None
            polls[-1].operation[comm] = match[1]
        elif section == "MISMATCH" and (match := _MANY.match(line)):
            count = int(match["count"] or 0)
            if comm not in polls[-1].front:  # the group of most ranks stands first
                polls[-1].front[comm] = count
                polls[-1].lagging.setdefault(comm, [])
            polls[-1].ranks = max(polls[-1].ranks, int(match["ranks"]))
        else:
            _line(polls[-1], section, comm, line, number, count)
    return polls


def _line(poll: RasPoll, section: str, comm: str, line: str, number: int, group_count: int | None) -> None:
    """One line under a heading. `group_count`: what the group of ranks launched that is being listed."""
    if match := _WHO.match(line):
        count = _int(match["count"]) if match["count"] else 0 if "not launched any" in line else group_count
        who = RasRank(
            number, line.strip(), _int(match["rank"]), match["node"], _int(match["pid"]), _int(match["gpu"] or match["gpu2"]),
            count if section == "MISMATCH" else None,
        )  # fmt: skip
        kinds = {"DEAD": poll.dead, "INCOMPLETE": poll.missing, "ERROR": poll.failed}
        if section == "MISMATCH":
            front = poll.front.get(comm)
            if count is not None and (front is None or count < front) and len(poll.lagging.get(comm, ())) < RANKS_MAX:
                poll.lagging.setdefault(comm, []).append(who)
        elif section in kinds and len(kinds[section]) < RANKS_MAX:
            kinds[section].append(who)
    elif section == "INCOMPLETE" and (match := re.match(r"\s*The missing ranks?: ([\d, -]{1,2000})", line)):
        poll.missing += [RasRank(number, line.strip(), rank=int(rank)) for rank in re.findall(r"\d{1,7}", match[1])]


def _parse_json(text: str) -> list[RasPoll]:
    decoder, at, polls = json.JSONDecoder(), 0, []
    while at < len(text):
        while at < len(text) and text[at] in " \t\r\n,[]":
            at += 1
        if at >= len(text):
            break
        try:
            raw, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        if isinstance(raw, dict):
            polls.append(_poll(raw, text.count("\n", 0, at) + 1))
        at = end
    return polls


def _poll(raw: dict[str, Any], line: int) -> RasPoll:
    poll = RasPoll(line)
    for index, comm in enumerate(_list(raw.get("communicators"))):
        if not isinstance(comm, dict):
            continue
        name = f"{index} {comm.get('hash', '')}"
        ranks = [one for one in _list(comm.get("ranks")) if isinstance(one, dict)][:RANKS_MAX]
        poll.ranks = max(poll.ranks, len(ranks))
        _counts(poll, name, ranks, line)
        for one in ranks:
            status = one.get("status")
            for key in ("init_state", "async_error"):
                error = _int(status.get(key)) if isinstance(status, dict) else None
                if error is not None and error not in _NO_ERRORS:
                    poll.failed.append(_json_rank(one, line, f"{key.replace('_', ' ')} {error}"))
                    break
        for one in _list(comm.get("missing_ranks")):
            if isinstance(one, dict):
                status = one.get("status") if isinstance(one.get("status"), dict) else {}
                dead = bool(status and status.get("considered_dead"))
                # A process that answers, and only is no member (any more), is not missing.
                if dead or not status or status.get("unresponsive", True):
                    (poll.dead if dead else poll.missing).append(_json_rank(one, line, "considered dead" if dead else "missing"))
    return poll


def _counts(poll: RasPoll, name: str, ranks: list[dict[str, Any]], line: int) -> None:
    operations = sorted({key for one in ranks for key in _table(one.get("collective_counts"))})
    for operation in operations:
        counts = [(_int(_table(one.get("collective_counts")).get(operation)) or 0, one) for one in ranks]
        front = max(count for count, _ in counts)
        behind = [(count, one) for count, one in counts if count < front]
        if behind and len(behind) * 2 <= len(counts):
            key = f"{name} {operation}"
            poll.front[key], poll.operation[key] = front, operation
            poll.lagging[key] = [_json_rank(one, line, f"launched {count} of {front} {operation}", count) for count, one in behind]


def _json_rank(one: dict[str, Any], line: int, text: str, count: int | None = None) -> RasRank:
    host = one.get("host")
    return RasRank(
        line,
        text,
        _int(one.get("rank")),
        host if isinstance(host, str) else None,
        _int(one.get("pid")),
        _int(one.get("cuda_dev")),
        count,
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _int(value: Any) -> int | None:
    if isinstance(value, bool) or value is None:
        return None
    return int(value) if isinstance(value, int) or (isinstance(value, str) and re.fullmatch(r"\d{1,18}", value)) else None
