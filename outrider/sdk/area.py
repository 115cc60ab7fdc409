"""The copy area: a file of memory that the agent owns, with room for two copies of one rank's state.

    0        header: magic, version, room of one copy in bytes
    64, 320  one label for each half (below), 256 bytes, with a CRC of its own
    4096     first copy, padded to whole pages; then the second

A half is marked `writing` before its first byte changes and `whole` after its last, so whenever the rank dies,
the newest whole copy can be found by anyone who maps the file: the rank's side thread, or the agent after the rank is
gone. The older copy stays until the newer one is whole. Standard library only.
"""

import mmap
import os
import struct
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

MAGIC: Final = b"OUTRCOPY"
VERSION: Final = 1
HEAD_BYTES: Final = 4096

HalfState = Literal["empty", "writing", "whole"]
HALF_STATES: Final[tuple[HalfState, ...]] = ("empty", "writing", "whole")

_HEADER = struct.Struct("<8sIIQ")
# state, attempt | step, bytes, fence, taken (monotonic ns) | digest, cause | crc of all before
_LABEL = struct.Struct("<IIqQQq80s32sI")
_LABEL_AT: Final = (64, 320)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What stands in one half. `digest` is `kind:hex` of the copy's bytes; `taken_ns` CLOCK_MONOTONIC."""

    half: int
    state: HalfState = "empty"
    attempt: int = 0
    step: int = -1
    length: int = 0
    fence: int = 0
    taken_ns: int = 0
    digest: str = ""
    cause: str = ""


def area_bytes(copy_bytes: int) -> int:
    """Size of the file that holds two copies of at most `copy_bytes` each."""
    return HEAD_BYTES + 2 * _padded(copy_bytes)


def create(path: Path | str, *, copy_bytes: int) -> None:
    """Makes an empty area at `path` (mode 0600, sparse), replacing what is there by a new inode. The agent's part."""
    path = Path(path)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(descriptor, "wb") as file:
        file.write(_HEADER.pack(MAGIC, VERSION, 0, copy_bytes))
        file.truncate(area_bytes(copy_bytes))
    Path(temporary).replace(path)


class CopyArea:
    """Both ends: the rank writes copies, rank and agent read them. One writer at a time."""

    def __init__(self, memory: mmap.mmap) -> None:
        magic, version, _, room = _HEADER.unpack_from(memory, 0)
        if (magic, version) != (MAGIC, VERSION) or len(memory) < area_bytes(room):
            raise ValueError(f"not a copy area of version {VERSION}")
        self.memory = memory
        self.room: int = room

    @classmethod
    def open(cls, path: Path | str) -> "CopyArea":
        """Maps an existing area.

        Raises:
            OSError: it cannot be opened. ValueError: it is not a copy area of this version.
        """
        descriptor = os.open(path, os.O_RDWR)
        try:
            return cls(mmap.mmap(descriptor, 0))
        finally:
            os.close(descriptor)

    @classmethod
    def private(cls, copy_bytes: int) -> "CopyArea":
        """An area of this process alone, for a rank that has no agent."""
        memory = mmap.mmap(-1, area_bytes(copy_bytes))
        _HEADER.pack_into(memory, 0, MAGIC, VERSION, 0, copy_bytes)
        return cls(memory)

    def label(self, half: int) -> Label:
        """The label of half 0 or 1; a label that is not whole reads as empty."""
        raw = self.memory[_LABEL_AT[half] : _LABEL_AT[half] + _LABEL.size]
        state, attempt, step, length, fence, taken, digest, cause, crc = _LABEL.unpack(raw)
        if zlib.crc32(raw[:-4]) != crc or state >= len(HALF_STATES) or length > self.room:
            return Label(half=half)
        return Label(
            half=half, state=HALF_STATES[state], attempt=attempt, step=step, length=length, fence=fence,
            taken_ns=taken, digest=_text(digest), cause=_text(cause),
        )  # fmt: skip

    def whole(self) -> list[Label]:
        """The labels of whole copies, newest step first."""
        labels = [label for half in (0, 1) if (label := self.label(half)).state == "whole"]
        return sorted(labels, key=lambda label: (label.attempt, label.step, label.taken_ns), reverse=True)

    def steps(self) -> tuple[int, int]:
        """The steps of the two halves' whole copies, -1 where there is none."""
        first, second = (label.step if label.state == "whole" else -1 for label in map(self.label, (0, 1)))
        return first, second

    def view(self, label: Label) -> memoryview:
        """The bytes of a copy."""
        start = self.start(label.half)
        return memoryview(self.memory)[start : start + label.length]

    def start(self, half: int) -> int:
        """Where the bytes of a half begin in the file."""
        return HEAD_BYTES + half * _padded(self.room)

    def spare(self) -> int:
        """The half to write next: the one that does not hold the newest whole copy."""
        whole = self.whole()
        return 1 - whole[0].half if whole else 0

    def mark(self, label: Label) -> None:
        """Writes the label of its half: `writing` before the bytes change, `whole` after the last."""
        body = _LABEL.pack(
            HALF_STATES.index(label.state), label.attempt, label.step, label.length, label.fence, label.taken_ns,
            label.digest.encode()[:80], label.cause.encode()[:32], 0,
        )[:-4]  # fmt: skip
        at = _LABEL_AT[label.half]
        self.memory[at : at + _LABEL.size] = body + struct.pack("<I", zlib.crc32(body))

    def drop(self) -> None:
        """Forgets both copies."""
        for half in (0, 1):
            self.mark(Label(half=half))


def _padded(size: int) -> int:
    return -(-size // 4096) * 4096


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode(errors="replace")
