"""Slurm's short way to write many names: `gpu[0-3,07]-a,login1`, read and written. Pure.

Source: Slurm's manual of scontrol (`show hostnames`, `show hostlist`).
"""

import re
from collections.abc import Iterable
from itertools import groupby

#: Names of one expression; one that means more is no list of hosts.
NAMES_MAX = 100_000
_WORD = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
#: The last number of a name is the one that runs.
_NUMBERED = re.compile(r"(.*\D|)(\d{1,9})(\D*)", re.DOTALL)


def expand(expression: str) -> list[str]:
    """The single names, in order; leading zeros are kept, several brackets are multiplied out.

    Raises:
        ValueError: it is no list of hosts, or it means more than `NAMES_MAX` names.
    """
    names: list[str] = []
    if _WORD.sub("", expression).strip(", "):
        raise ValueError(f"{expression!r} is no list of hosts")
    for word in _WORD.findall(expression):
        names += _multiplied(word.strip(), NAMES_MAX - len(names))
    return names


def _multiplied(word: str, most: int) -> list[str]:
    before, bracket, rest = word.partition("[")
    if not bracket:
        return [word] if word else []
    ranges, _, after = rest.partition("]")
    numbers: list[str] = []
    for item in ranges.split(","):
        low, _, high = item.strip().partition("-")
        if not low.isdecimal() or not (high or low).isdecimal() or not 0 <= int(high or low) - int(low) < most - len(numbers):
            raise ValueError(f"{word!r} is no list of hosts, or of too many")
        numbers += [f"{number:0{len(low)}d}" for number in range(int(low), int(high or low) + 1)]
    tails = _multiplied(after, most) if after else [""]
    if len(numbers) * len(tails) > most:
        raise ValueError(f"{word!r} means more than {NAMES_MAX} names")
    return [before + number + tail for number in numbers for tail in tails]


def compress(names: Iterable[str]) -> str:
    """The short way to write names: runs of numbers in brackets, what has no number as it is."""
    groups: dict[tuple[str, str, int], set[int]] = {}
    plain = []
    for name in sorted(set(names)):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
            continue
        # Its width counts where it begins with zero: n7 and n07 are two names.
        width = len(match[2]) if match[2].startswith("0") and len(match[2]) > 1 else 0
        groups.setdefault((match[1], match[3], width), set()).add(int(match[2]))
    written = []
    for (before, after, width), numbers in sorted(groups.items()):
        told = ranges(numbers, width)
        written.append(f"{before}[{told}]{after}" if len(numbers) > 1 else f"{before}{told}{after}")
    return ",".join([*written, *plain])


def ranges(numbers: Iterable[int], width: int = 0) -> str:
    """`0-7,12`; each number with zeros up to `width` digits."""
    runs = []
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        found = [number for _, number in run]
        low, high = f"{found[0]:0{width}d}", f"{found[-1]:0{width}d}"
        runs.append(low if low == high else f"{low}-{high}")
    return ",".join(runs)
