"""The line prefixes under which a kernel message is met: dmesg, journal, syslog, /dev/kmsg; and who wrote the line.

A message counts as the kernel's own only if its prefix says so: a process that prints the text of a kernel line (standard output
in a journal, a write to /dev/kmsg, which has facility 1) is not the kernel.
"""

import json
import re
from calendar import timegm
from dataclasses import dataclass
from typing import Any, Final

_MONTHS: Final = {
    name: number
    for number, name in enumerate(("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1)
}
_TAG: Final = r"(?: ?\[ *[TC]\d+\])?"
#: What may stand in front of the time: `<6>`, or `kern  :err   : ` of dmesg --decode.
_WHO: Final = r"(?:<(?P<priority>\d+)>)?(?:(?P<facility>\w+) *:\w+ *: ?)?"
#: Seconds since the line before, of dmesg --show-delta and journalctl -o short-delta.
_DELTA: Final = r"(?: <[ \d.]+>)?"

#: `[seconds]`; then perhaps the thread's tag, then `host kernel: `.
_DMESG: Final = re.compile(
    rf"{_WHO}\[ *(?P<seconds>\d+\.\d+){_DELTA}\]{_TAG} ?"
    r"(?:(?P<host>[\w.-]+) kernel: )?(?P<message>.*)",
    re.DOTALL,
)
_DMESG_T: Final = re.compile(
    rf"{_WHO}\[\w{{3}} (?P<month>\w{{3}}) +(?P<day>\d+) (?P<clock>[\d:]{{8}})"
    rf" (?P<year>\d{{4}}){_DELTA}\]{_TAG} ?(?P<message>.*)",
    re.DOTALL,
)
_DMESG_H: Final = re.compile(
    rf"{_WHO}\[(?:(?P<month>\w{{3}}) ?(?P<day>\d+) (?P<clock>\d\d:\d\d)|\s*[+<]\s*(?P<delta>\d+\.\d+)>?)\]{_TAG} ?(?P<message>.*)",
    re.DOTALL,
)
#: dmesg --time-format iso: no machine, six digits after a comma, and the zone.
_DMESG_ISO: Final = re.compile(
    rf"{_WHO}(?P<date>\d{{4}}-\d\d-\d\d)T(?P<time>\d\d:\d\d:\d\d),(?P<fraction>\d{{6}})(?P<zone>[+-]\d\d:\d\d){_TAG}"
    r" (?P<message>.*)",
    re.DOTALL,
)
#: dmesg --decode --notime.
_DMESG_X: Final = re.compile(
    r"(?P<facility>kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local\d) *:(?:emerg|alert|crit|err|warn|notice"
    r"|info|debug) *: ?(?P<message>.*)",
    re.DOTALL,
)
_KMSG: Final = re.compile(r"(?P<priority>\d{1,3}),(?P<sequence>\d+),(?P<micros>\d+),[^;]*;(?P<message>.*)", re.DOTALL)
_SYSLOG: Final = re.compile(
    r"(?:<(?P<priority>\d+)>)?(?:1 )?(?:"
    r"(?P<month>\w{3}) +(?P<day>\d+) (?P<clock>\d\d:\d\d:\d\d)(?:\.(?P<part>\d+))?"
    r"|(?:\w{3} )?(?P<date>\d{4}-\d\d-\d\d)[T ](?P<time>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d+))?"
    r"(?: ?(?P<zone>Z|UTC|[A-Z]{2,5}|[+-]\d\d:?\d\d))?"
    r"|(?P<unix>\d{9,10}\.\d+)"
    rf") (?P<host>[\w.-]+) kernel(?:\[\d+\])?: (?:\[ *(?P<seconds>\d+\.\d+)\]{_TAG} ?)?(?P<message>.*)",
    re.DOTALL,
)
#: `host: ` of pdsh and clush, `file:` or `file:12:` of grep, in front of one of the above.
_OUTER: Final = re.compile(
    r"(?P<outer>[\w./-]+):(?:\d+:)? ?(?=\[ *\d+\.\d+\]|\[\w{3} |\d+,\d+,\d+,|<\d+>\[|\w{3} +\d+ \d\d:|\d{4}-\d\d-)"
)
_ESCAPE: Final = re.compile(r"\\x([0-9a-fA-F]{2})")
#: The year that a time stamp without one gets; a leap year, so that 29 February exists.
_YEAR: Final = 2000


@dataclass(frozen=True, slots=True)
class Record:
    """One kernel message. `t`: seconds on the log's own clock (since boot, or epoch); None if the line has no time."""

    t: float | None
    host: str | None
    message: str
    delta: float | None = None


def split_record(line: str, *, bare: bool = False, user_records: bool = False) -> Record | None:
    """Takes the prefix off a line, or None if the line is not the kernel's.

    Args:
        line: one line, without its newline.
        bare: lines without any prefix are the kernel's too (`dmesg -t`); they must begin at the left edge.
        user_records: accept records that a process wrote to /dev/kmsg (facility 1), for tests of a whole machine.
    """
    first = line[:1]
    if first == "{":
        return _journal_json(line, user_records)
    if outer := _OUTER.match(line):
        inner = split_record(line[outer.end() :], user_records=user_records)
        host = outer["outer"] if "/" not in outer["outer"] and "." not in outer["outer"] else None
        return inner and Record(inner.t, inner.host or host, inner.message, inner.delta)
    for pattern, read in _FORMS:
        if match := pattern.match(line):
            return read(match, user_records)
    return Record(None, None, line) if bare and first not in (" ", "\t", "") else None


def _is_kernel(priority: str | None, facility: str | None, user_records: bool) -> bool:
    """Facility 0 is the kernel; the priority is facility * 8 + level."""
    if facility not in (None, "kern"):
        return user_records and facility == "user"
    number = int(priority) >> 3 if priority else 0
    return number == 0 or (user_records and number == 1)


def _read_dmesg(match: re.Match[str], user_records: bool) -> Record | None:
    if not _is_kernel(match["priority"], match["facility"], user_records):
        return None
    return Record(float(match["seconds"]), match["host"], match["message"])


def _read_dmesg_t(match: re.Match[str], user_records: bool) -> Record | None:
    if not _is_kernel(match["priority"], match["facility"], user_records):
        return None
    t = _epoch(int(match["year"]), match["month"], match["day"], match["clock"])
    return Record(t, None, match["message"])


def _read_dmesg_h(match: re.Match[str], user_records: bool) -> Record | None:
    if not _is_kernel(match["priority"], match["facility"], user_records):
        return None
    if match["delta"]:
        return Record(None, None, match["message"], float(match["delta"]))
    return Record(_epoch(_YEAR, match["month"], match["day"], f"{match['clock']}:00"), None, match["message"])


def _read_dmesg_iso(match: re.Match[str], user_records: bool) -> Record | None:
    if not _is_kernel(match["priority"], match["facility"], user_records):
        return None
    year, month, day = match["date"].split("-")
    return Record(_epoch(int(year), int(month), day, match["time"], match["fraction"], match["zone"]), None, match["message"])


def _read_dmesg_x(match: re.Match[str], user_records: bool) -> Record | None:
    return Record(None, None, match["message"]) if _is_kernel(None, match["facility"], user_records) else None


def _read_kmsg(match: re.Match[str], user_records: bool) -> Record | None:
    if not _is_kernel(match["priority"], None, user_records):
        return None
    message = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), match["message"])
    return Record(int(match["micros"][:18]) / 1e6, None, message)


def _read_syslog(match: re.Match[str], user_records: bool) -> Record | None:
    if not _is_kernel(match["priority"], None, user_records):
        return None
    t: float | None  # the wall clock goes on over a boot; seconds since boot, which may follow it, start again
    if match["unix"]:
        t = float(match["unix"])
    elif match["date"]:
        year, month, day = match["date"].split("-")
        t = _epoch(int(year), int(month), day, match["time"], match["fraction"], match["zone"])
    else:
        t = _epoch(_YEAR, match["month"], match["day"], match["clock"], match["part"])
    return Record(t, match["host"], match["message"])


_FORMS: Final = (
    (_DMESG, _read_dmesg),
    (_DMESG_T, _read_dmesg_t),
    (_KMSG, _read_kmsg),
    (_SYSLOG, _read_syslog),
    (_DMESG_H, _read_dmesg_h),
    (_DMESG_ISO, _read_dmesg_iso),
    (_DMESG_X, _read_dmesg_x),
)
#: Forms that may be without any word on who wrote the line.
_UNTOLD: Final = (_DMESG, _DMESG_T, _DMESG_H, _DMESG_ISO)


def is_kernel_log(line: str) -> bool:
    """Whether a line has a form in which the kernel's log is shown, whoever wrote it."""
    if line[:1] == "{":
        return '"_TRANSPORT"' in line and _journal_json(line, user_records=True) is not None
    if outer := _OUTER.match(line):
        line = line[outer.end() :]
    return any(pattern.match(line) for pattern, _ in _FORMS)


def hides_its_writer(line: str) -> bool:
    """Whether a line of dmesg's own forms does not say who wrote it: a program may have, by /dev/kmsg."""
    match = next((match for pattern in _UNTOLD if (match := pattern.match(line))), None)
    if match is None or match.groupdict().get("host"):
        return False
    return match["priority"] is None and match["facility"] is None


def _epoch(year: int, month: str | int, day: str, clock: str, part: str | None = None, zone: str | None = None) -> float | None:
    """Seconds since the epoch, or None for a date that does not exist."""
    number = month if isinstance(month, int) else _MONTHS.get(month)
    hours, minutes, seconds = (int(word) for word in clock.split(":"))
    if not number or not 1 <= number <= 12 or not 1 <= int(day) <= 31 or hours > 23 or not 1970 <= year <= 9999:
        return None
    t = timegm((year, number, int(day), hours, minutes, seconds, 0, 0, 0)) + (float(f"0.{part[:9]}") if part else 0.0)
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "")
        t -= (1 if zone[0] == "+" else -1) * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)
    return t


def _journal_json(line: str, user_records: bool) -> Record | None:
    """A record of `journalctl -o json`: the transport says that it came by /dev/kmsg, the facility whether the kernel wrote it; no
    process can forge either. Of what a process wrote there journald takes the first word for its name: it is put back."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict) or entry.get("_TRANSPORT", "kernel") != "kernel":
        return None
    if "_TRANSPORT" not in entry and entry.get("SYSLOG_IDENTIFIER") != "kernel":
        return None
    message = _journal_text(entry.get("MESSAGE"))
    facility = str(entry.get("SYSLOG_FACILITY", "0"))
    if message is None or not (facility == "0" or (user_records and facility == "1")):
        return None
    if facility == "1" and isinstance(name := entry.get("SYSLOG_IDENTIFIER"), str):
        message = f"{name}: {message}"
    boot, real = entry.get("_SOURCE_MONOTONIC_TIMESTAMP"), entry.get("__REALTIME_TIMESTAMP")
    stamp = next((str(value)[:18] for value in (real, boot) if str(value or "").isdecimal()), None)
    host = entry.get("_HOSTNAME")
    return Record(int(stamp) / 1e6 if stamp else None, host if isinstance(host, str) else None, message)


def _journal_text(value: Any) -> str | None:
    """A message is a text, or a list of byte values where it was not clean UTF-8."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
        return bytes(value).decode("utf-8", "replace")
    return None
