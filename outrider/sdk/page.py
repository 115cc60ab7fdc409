"""The progress page: 4 KiB of shared memory a slot, through which a rank, its side thread and the agent talk.

Three cells, one writer each, each under its own sequence lock (the number is odd while the cell is being written):

| offset | cell | writer | reader |
| --- | --- | --- | --- |
| 0 | header: magic, version, attempt, slot | agent, once, before the path is told | all |
| 64 | trainer: step, phase, begin and end of the step, motion mark, loss .. | the training thread | agent |
| 512 | side: beat, pid, labels of the copies, acknowledgement, farewell | the side thread | agent |
| 1024 | command: number, command, step, fence, deadline, incident, ranks | agent | the side thread |

All times are CLOCK_MONOTONIC nanoseconds. A float that nobody told is NaN, a step that does not exist is -1. A page
belongs to one attempt and is a new inode for each: a frozen process of an older attempt may still have the old one
mapped, and may write. Nobody waits for anybody. Standard library only. Python cannot order memory by itself: on weakly
ordered processors a reader may see a torn cell that looks whole, so the cell that gives orders carries a CRC as well.
"""

import math
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from outrider.sdk import cells

PAGE_BYTES: Final = 4096
MAGIC: Final = b"OUTRPAGE"
VERSION: Final = 1
TRAINER_AT: Final = 64
SIDE_AT: Final = 512
COMMAND_AT: Final = 1024
RANKS_AT: Final = 2048
#: Ranks that the command's bitmap can name (2048 bytes); a larger job is told "everybody".
RANKS_MAX: Final = (PAGE_BYTES - RANKS_AT) * 8

_HEADER = struct.Struct("<8sIIIi")
_SEQ = struct.Struct("<Q")
# open step, its begin, motion | finished step, begin, end, progress, phase began, phase, spare | 7 floats
_TRAINER = struct.Struct("<qqQ qqqQqII 7d")
_SIDE = struct.Struct("<qQ IIii qq Q IIIi q 128s")
_COMMAND = struct.Struct("<QIIqQqII128s")
_TRIES: Final = 200


def create(path: Path | str, *, attempt: int, slot: int) -> None:
    """Makes a fresh page at `path` (mode 0600), replacing what is there by a new inode. The agent's part."""
    path = Path(path)
    body = bytearray(PAGE_BYTES)
    _HEADER.pack_into(body, 0, MAGIC, VERSION, PAGE_BYTES, attempt, slot)
    _pack_trainer(body, cells.TrainerCell())
    _pack_side(body, cells.SideCell())
    _COMMAND.pack_into(body, COMMAND_AT + 8, 0, 0, 0, -1, 0, 0, 0, 0, b"")
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
    Path(temporary).replace(path)


def open_page(path: Path | str) -> mmap.mmap:
    """Maps an existing page for reading and writing.

    Raises:
        OSError: it cannot be opened. ValueError: it is not a progress page of this version.
    """
    descriptor = os.open(path, os.O_RDWR)
    try:
        memory = mmap.mmap(descriptor, PAGE_BYTES)
    finally:
        os.close(descriptor)
    magic, version, size, _, _ = _HEADER.unpack_from(memory, 0)
    if (magic, version, size) != (MAGIC, VERSION, PAGE_BYTES):
        memory.close()
        raise ValueError(f"{path}: is not a progress page of version {VERSION}")
    return memory


def private_page() -> mmap.mmap:
    """A page of this process alone, for a rank that has no agent."""
    memory = mmap.mmap(-1, PAGE_BYTES)
    _HEADER.pack_into(memory, 0, MAGIC, VERSION, PAGE_BYTES, 0, 0)
    return memory


class Writer:
    """The training thread's end. Every method costs well under two microseconds and never waits."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._seq = 0
        self.step = -1
        self.begin_ns = self.end_ns = self.phase_ns = 0
        self.progress = self.motion = 0
        self.phase = 0
        self.figures: tuple[float, ...] = _NO_FIGURES

    def move_to(self, memory: mmap.mmap) -> None:
        """Goes on with another page (an agent came or came back), which shows at once what the old one showed.

        Safe from the side thread: a write that falls between the copy and the assignment is told with the next one.
        """
        memory[TRAINER_AT:SIDE_AT] = self._memory[TRAINER_AT:SIDE_AT]
        self._memory = memory

    def begin(self, step: int, now_ns: int) -> None:
        """Step `step` begins."""
        self._write(step, now_ns)

    def moving(self) -> None:
        """The optimizer begins to change the state: the mark becomes odd. Called again within a step: no effect."""
        if not self.motion & 1:
            self.motion += 1
            _SEQ.pack_into(self._memory, _MOTION_AT, self.motion)

    def end(self, step: int, begin_ns: int, now_ns: int, figures: tuple[float, ...]) -> None:
        """Step `step` is finished, the state rests. `figures`: as in `FIGURES`, NaN where nobody told."""
        self.step, self.begin_ns, self.end_ns, self.figures = step, begin_ns, now_ns, figures
        self.progress += 1
        if self.motion & 1:
            self.motion += 1
        self._write(-1, 0)

    def tell_phase(self, phase: cells.Phase, now_ns: int) -> None:
        """Another phase begins (also the sign of progress within one: call it again)."""
        code = cells.PHASE_CODES.index(phase)
        if code != self.phase or not self.phase_ns:
            self.phase, self.phase_ns = code, now_ns
        self.progress += 1
        self._write(-1, 0)

    def _write(self, open_step: int, open_begin_ns: int) -> None:
        memory = self._memory
        _SEQ.pack_into(memory, TRAINER_AT, self._seq + 1)
        _TRAINER.pack_into(
            memory, TRAINER_AT + 8, open_step, open_begin_ns, self.motion, self.step, self.begin_ns, self.end_ns,
            self.progress, self.phase_ns, self.phase, 0, *self.figures,
        )  # fmt: skip
        self._seq += 2
        _SEQ.pack_into(memory, TRAINER_AT, self._seq)


class SideWriter:
    """The side thread's end: writes its cell, reads the command cell."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory

    def write(self, cell: cells.SideCell) -> None:
        """Replaces the side cell."""
        _pack_side(self._memory, cell)

    def beat(self, now_ns: int) -> None:
        """Only the beat: one aligned word, so no lock."""
        struct.pack_into("<q", self._memory, SIDE_AT + 8, now_ns)

    def command(self, known: int) -> cells.CommandCell | None:
        """The command if its number is greater than `known` and the cell is whole, else None."""
        return read_command(self._memory, known)


class CommandWriter:
    """The agent's end of the command cell. A new agent goes on from the number it finds."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self.number: int = _SEQ.unpack_from(memory, COMMAND_AT + 8)[0]

    def write(
        self,
        command: cells.Command,
        *,
        step: int | None = None,
        fence: int = 0,
        deadline_ns: int = 0,
        incident: str = "",
        ranks: Iterable[int] = (),
    ) -> int:
        """Gives a command; the last one stands. Returns its number, which comes back as `SideCell.ack`.

        Args:
            step: whose copy is meant (None: the newest).
            fence: under which anything shared is written.
            deadline_ns: CLOCK_MONOTONIC; 0: none.
            incident: at most 128 bytes of UTF-8, cut there.
            ranks: all ranks that get this command together (`publish`: the set is complete when they all have written).
        """
        bits = bytearray(RANKS_MAX // 8)
        named = list(ranks)
        if any(not 0 <= rank < RANKS_MAX for rank in named):
            named = []
        for rank in named:
            bits[rank >> 3] |= 1 << (rank & 7)
        self.number += 1
        code, text = cells.COMMAND_CODES.index(command), incident.encode()[:128]
        fields = (self.number, code, len(named), -1 if step is None else step, fence, deadline_ns)
        crc = _command_crc(_COMMAND.pack(*fields, 0, 0, text), bits)
        memory = self._memory
        (seq,) = _SEQ.unpack_from(memory, COMMAND_AT)
        seq |= 1
        _SEQ.pack_into(memory, COMMAND_AT, seq)
        memory[RANKS_AT:PAGE_BYTES] = bytes(bits)
        _COMMAND.pack_into(memory, COMMAND_AT + 8, *fields, crc, 0, text)
        _SEQ.pack_into(memory, COMMAND_AT, seq + 1)
        return self.number


class Reader:
    """The agent's end: reads what a rank told, also while the rank is stuck or gone. Nonsense reads as None."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        _, _, _, self.attempt, self.slot = _HEADER.unpack_from(memory, 0)

    def trainer(self) -> cells.TrainerCell | None:
        """The trainer's cell; None when no whole one could be read (the writer died in the middle of writing)."""
        raw = _read_whole(self._memory, TRAINER_AT, _TRAINER)
        if raw is None or raw[8] >= len(cells.PHASE_CODES):
            return None
        open_step, open_ns, motion, step, begin, end, progress, phase_ns, phase, _, *floats = raw
        return cells.TrainerCell(
            open=open_step, open_begin_ns=open_ns, motion=motion, step=step, begin_ns=begin, end_ns=end,
            progress=progress, phase_ns=phase_ns, phase=cells.PHASE_CODES[phase],
            **dict(zip(cells.FIGURES, floats, strict=True)),
        )  # fmt: skip

    def side(self) -> cells.SideCell | None:
        """The side thread's cell; None when no whole one could be read."""
        raw = _read_whole(self._memory, SIDE_AT, _SIDE)
        if raw is None:
            return None
        beat, ack, pid, world, rank, _, first, second, _, ack_state, situation, farewell, code, median, text = raw
        tables = ((ack_state, cells.ACK_CODES), (situation, cells.SITUATION_CODES), (farewell, cells.FAREWELL_CODES))
        if any(value >= len(table) for value, table in tables):
            return None
        return cells.SideCell(
            beat_ns=beat, ack=ack, ack_state=cells.ACK_CODES[ack_state], pid=pid, rank=rank, world=world,
            labels=(first, second), situation=cells.SITUATION_CODES[situation], farewell=cells.FAREWELL_CODES[farewell],
            exit_code=code, median_ns=median, text=text.rstrip(b"\0").decode(errors="replace"),
        )  # fmt: skip


def read_command(memory: mmap.mmap, known: int) -> cells.CommandCell | None:
    """The command cell if its number is greater than `known` and it is whole, else None (look again later)."""
    if _SEQ.unpack_from(memory, COMMAND_AT + 8)[0] <= known:
        return None
    raw = _read_whole(memory, COMMAND_AT, _COMMAND)
    if raw is None or raw[1] >= len(cells.COMMAND_CODES):
        return None
    number, code, count, step, fence, deadline, crc, _, text = raw
    bits = memory[RANKS_AT:PAGE_BYTES]
    if _command_crc(_COMMAND.pack(number, code, count, step, fence, deadline, 0, 0, text), bits) != crc:
        return None
    ranks = tuple(rank for rank in range(RANKS_MAX) if bits[rank >> 3] >> (rank & 7) & 1) if count else ()
    return cells.CommandCell(
        number=number, command=cells.COMMAND_CODES[code], step=None if step < 0 else step, fence=fence, deadline_ns=deadline,
        incident=text.rstrip(b"\0").decode(errors="replace"), ranks=ranks,
    )  # fmt: skip


_NO_FIGURES: Final = (math.nan,) * 7
_MOTION_AT: Final = TRAINER_AT + 8 + 16


def _command_crc(body: bytes, bits: bytes | bytearray) -> int:
    return int(zlib.crc32(bits, zlib.crc32(body)))


def _pack_trainer(memory: bytearray | mmap.mmap, cell: cells.TrainerCell) -> None:
    _TRAINER.pack_into(
        memory, TRAINER_AT + 8, cell.open, cell.open_begin_ns, cell.motion, cell.step, cell.begin_ns, cell.end_ns,
        cell.progress, cell.phase_ns, cells.PHASE_CODES.index(cell.phase), 0, *_NO_FIGURES,
    )  # fmt: skip


def _pack_side(memory: bytearray | mmap.mmap, cell: cells.SideCell) -> None:
    (seq,) = _SEQ.unpack_from(memory, SIDE_AT)
    seq |= 1
    _SEQ.pack_into(memory, SIDE_AT, seq)
    _SIDE.pack_into(
        memory, SIDE_AT + 8, cell.beat_ns, cell.ack, cell.pid, cell.world, cell.rank, 0, *cell.labels, 0,
        cells.ACK_CODES.index(cell.ack_state), cells.SITUATION_CODES.index(cell.situation),
        cells.FAREWELL_CODES.index(cell.farewell), cell.exit_code, cell.median_ns, cell.text.encode()[:128],
    )  # fmt: skip
    _SEQ.pack_into(memory, SIDE_AT, seq + 1)


def _read_whole(memory: mmap.mmap, at: int, layout: struct.Struct) -> tuple[Any, ...] | None:
    for _ in range(_TRIES):
        (before,) = _SEQ.unpack_from(memory, at)
        raw = layout.unpack_from(memory, at + 8)
        if not before & 1 and _SEQ.unpack_from(memory, at)[0] == before:
            return raw
    return None
