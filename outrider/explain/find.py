"""What a person means by the words after `outrider explain`: however a code is spelt, a pasted log line, a fault class, a message.

Nothing fitting is an answer too: the entries that come nearest.
"""

import difflib
import re
from dataclasses import dataclass

from outrider.catalogue.codes import UNKNOWN_SOURCE, CodeBook
from outrider.catalogue.faults import FAULTS
from outrider.catalogue.library import find_library_error, library_errors
from outrider.errors import InputError
from outrider.explain.pages import Explanation, explain_code, explain_fault, explain_library

#: `xid 79`, `XID79`, `Xid-79`, `xid: 79`, `sxid_12028`, `xid error 79`.
_CODE = re.compile(r"\W*(s?xid)(?:[\W_]*(?:error|code|number))?(?:[-_:#=]|[\W_]*?)(-?\d+)\W*", re.IGNORECASE)
#: `NVRM: Xid (PCI:0000:3b:00): 79, ..`, `nvidia-nvswitch0: SXid (PCI:0000:89:00.0): 12028, ..`.
_LINE = re.compile(r"\b(S?Xid) \(PCI:[^)]{1,40}\): (\d{1,6})\b", re.IGNORECASE)
#: No driver prints a larger one.
NUMBER_MAX = 999_999
NEAR_MAX = 5
#: Words that say nothing of which entry is meant.
_EMPTY = frozenset({"nccl", "gpu", "node", "job", "rank", "error", "the", "off", "and", "was", "what", "failed", "with", "from"})


@dataclass(frozen=True, slots=True)
class Near:
    """An entry that may be meant. `say`: what to say after `outrider explain`."""

    say: str
    name: str


def find(text: str, codes: CodeBook) -> Explanation | None:
    """The entry that the text means, or None.

    Raises:
        InputError: it asks for a code that cannot be one.
    """
    if code := _code(text):
        kind, number = code
        known = codes.xid(number) if kind == "xid" else codes.sxid(number)
        return explain_code(kind, number, codes) if known.source != UNKNOWN_SOURCE else None
    if text.lower() in FAULTS:
        return explain_fault(text.lower())
    message = re.sub(r"^nccl\s+", "", text, flags=re.IGNORECASE)
    found = find_library_error(message) if not text.isdecimal() else None
    return explain_library(found) if found else None


def near(text: str, codes: CodeBook) -> list[Near]:
    """The entries that come nearest to a text that means none: by spelling, then by the words of their descriptions."""
    if code := _code(text):
        kind, number = code
        known = {str(one.code): one for one in (codes.xids() if kind == "xid" else codes.sxids())}
        return [Near(f"{kind} {hit}", known[hit].name) for hit in difflib.get_close_matches(str(number), known, NEAR_MAX, 0.5)]
    lowered = text.lower()
    if lowered.isdecimal():
        by_number = [Near(f"xid {one.code}", one.name) for one in codes.xids() if one.code == int(lowered)]
        by_number += [Near(f'nccl "status={lowered}"', one.name) for one in library_errors() if int(lowered) in one.numbers]
        return by_number[:NEAR_MAX]
    found = [key for key in FAULTS if key.partition(".")[2] in (lowered, *_words(lowered))]
    found += [key for key in FAULTS if lowered in key or key in lowered]
    found += difflib.get_close_matches(lowered, FAULTS, 3, 0.7)
    entries = [Near(key, FAULTS[key].summary) for key in dict.fromkeys(found)]
    return [*entries, *(one for one in _by_words(lowered) if one not in entries)][:NEAR_MAX]


def _by_words(text: str) -> list[Near]:
    """Entries whose descriptions hold most of the text's words."""
    wanted = _words(text)
    scored: list[tuple[int, Near]] = []
    for entry in library_errors():
        said = f"{entry.name} {' '.join(entry.words)} {entry.meaning}".lower()
        scored.append((_hits(wanted, said), Near(f'nccl "{entry.words[0]}"', entry.name)))
    for fault in FAULTS.values():
        scored.append((_hits(wanted, f"{fault.key} {fault.summary} {fault.meaning}".lower()), Near(fault.key, fault.summary)))
    return [one for score, one in sorted(scored, key=lambda pair: -pair[0]) if score]


def _hits(wanted: set[str], said: str) -> int:
    """How many of the words are said; one that stands by itself counts twice."""
    spelt = said.replace("time-out", "timeout")
    return sum((word in spelt) + bool(re.search(rf"\b{re.escape(word)}\b", spelt)) for word in wanted)


def _words(text: str) -> set[str]:
    words = re.findall(r"[a-z_]{3,}", text.replace("time-out", "timeout").replace("time out", "timeout"))
    return {word for word in words if word not in _EMPTY}


def _code(text: str) -> tuple[str, int] | None:
    """(`xid` or `sxid`, number) if the text asks for a code."""
    match = _CODE.fullmatch(text) or _LINE.search(text)
    if match is None:
        if re.fullmatch(r"\W*s?xid\b.*", text, re.IGNORECASE):
            kind, *rest = text.split()
            raise InputError(f"{kind.lower().strip(':')} wants a number, not {' '.join(rest)!r}")
        return None
    kind, number = match[1].lower(), int(match[2])
    if not 0 <= number <= NUMBER_MAX:
        raise InputError(f"{kind} wants a number from 0 to {NUMBER_MAX}, not {match[2]!r}")
    return kind, number
