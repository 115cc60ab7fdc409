"""What NCCL's words and numbers mean, read from `nccl.toml` when first asked. Needs msgspec (extra `cli`)."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

from outrider.catalogue.faults import Repair, Response

Blames = Literal["self", "peer", "path", "none", "code"]

_STATUS: Final = re.compile(r"(?:status|error|wc)\s*[=:]?\s*(?:\w+\()?(\d{1,2})\b|^\s*(\d{1,2})\s*$|\((\d{1,2})\)", re.IGNORECASE)


class LibraryError(msgspec.Struct, frozen=True, kw_only=True):
    """One failure as the library tells it. `blames`: whom to look at."""

    name: str
    numbers: tuple[int, ...]
    words: tuple[str, ...]
    meaning: str
    blames: Blames
    decisive: bool
    fault: str
    response: Response
    repair: Repair
    advice: tuple[str, ...]
    source: str = "NVIDIA/nccl net_ib.cc, socket.cc, nccl.h; rdma-core verbs.h; PyTorch ProcessGroupNCCL.cpp"


@cache
def library_errors() -> tuple[LibraryError, ...]:
    """All entries, in the file's order."""
    table = tomllib.loads((files("outrider.catalogue") / "nccl.toml").read_text(encoding="utf-8"))
    return tuple(msgspec.convert(entry, LibraryError) for entry in table["entry"])


def find_library_error(text: str) -> LibraryError | None:
    """The entry that a text means: by its words first, then by the number of a completion status in it."""
    lowered = text.lower()
    hits = [(len(word), entry) for entry in library_errors() for word in entry.words if word in lowered]
    if hits:  # the longest word says most: `rnr_retry_exc_err` holds another's `retry_exc_err`
        return max(hits, key=lambda hit: hit[0])[1]
    if match := _STATUS.search(text):
        number = int(next(group for group in match.groups() if group))
        return next((entry for entry in library_errors() if number in entry.numbers), None)
    return None
