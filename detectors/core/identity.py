"""Names that come out the same at every witness and in every run: keys of votes, ids of incidents and decisions."""

import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

from outrider.signals import SUBJECT_KEYS


def subject_text(subject: Mapping[str, Any]) -> str:
    """A subject in one spelling, its keys in reading order."""
    known = [key for key in SUBJECT_KEYS if subject.get(key) is not None]
    others = sorted(key for key in subject if key not in SUBJECT_KEYS and subject[key] is not None)
    return ",".join(f"{key}={subject[key]}" for key in (*known, *others))


def vote_key(fault: str, subject: Mapping[str, Any], incarnation: str) -> str:
    """Key under which the witnesses' votes on one suspicion meet."""
    return f"{fault}|{subject_text(subject)}|{incarnation}"


def short_hash(*parts: object) -> str:
    """16 hexadecimal digits that stand for `parts`."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:16]


def spread(*parts: object) -> int:
    """A fixed number from 0 to 2**32 - 1 by which equals are put in an order that is fair and the same everywhere."""
    return zlib.crc32("\x1f".join(map(str, parts)).encode())
