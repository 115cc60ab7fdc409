"""Flight-recorder dumps of PyTorch's process groups: JSON, or pickles read without executing anything.

Source: dump format 2.0 to 2.10 of PyTorch 2.2 to 2.13 (keys `pg_config`, `pg_status`, `entries`), the bare list of late 2023,
and gloo's use
of the same recorder, whose state never leaves `scheduled` while `retired` flips. JSON dumps hold 0 where pickles hold None.
"""

import io
import json
import pickle
import pickletools
import re
import struct
from typing import Any, ClassVar, Final

import msgspec

from outrider.errors import InputError

#: A dump is at most this large: 2000 entries with frames are about 5 MB.
DUMP_BYTES_MAX: Final = 512 << 20
#: Entries read of one dump: ten times the recorder's default ring.
ENTRIES_MAX: Final = 20_000
RANKS_MAX: Final = 200_000

#: Opcodes that call something, name something, or reach outside the file. A flight record needs none of them.
_CODE_OPCODES: Final = (
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID",
        "BINPERSID", "NEXT_BUFFER",
    "READONLY_BUFFER",
)  # fmt: skip
#: Not code, but allocates what it claims to hold before it is there.
_GREEDY_OPCODES: Final = ("BYTEARRAY8",)
_NAMES: Final = {opcode.code.encode("latin-1")[0]: opcode.name for opcode in pickletools.opcodes}


class Call(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One collective or point-to-point call of one rank. `state`: scheduled, started or completed."""

    group: str
    seq: int
    op: str
    state: str
    shape: str = ""
    p2p: bool = False
    #: Ranks inside the group, for point-to-point calls: who sends and who receives.
    source: int | None = None
    target: int | None = None
    created_s: float | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Last collective of a group that a rank enqueued, started and completed; -1: none, or not told."""

    enqueued: int
    started: int
    completed: int


class RankDump(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One rank's dump. `members`: group -> global ranks; `names`: group -> description for people."""

    rank: int | None
    members: dict[str, tuple[int, ...]]
    names: dict[str, str]
    status: dict[str, Status]
    calls: tuple[Call, ...]


class _Plain(pickle._Unpickler):
    """Reads plain data only: the opcodes that could call or import anything are taken out of the table."""

    dispatch: ClassVar[dict[int, Any]] = {
        code: method
        for code, method in pickle._Unpickler.dispatch.items()
        if _NAMES.get(code) not in _CODE_OPCODES + _GREEDY_OPCODES
    }

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"names {module}.{name}")


def read_pickle(content: bytes, file: str | None = None) -> Any:
    """The plain data of a pickle: dictionaries, lists, texts, numbers. Nothing in it is executed.

    Raises:
        InputError: it holds code, is cut short or damaged.
    """
    try:
        return _Plain(io.BytesIO(content)).load()
    except KeyError as error:
        code = error.args[0] if error.args else None
        name = _NAMES.get(code) if isinstance(code, int) else None
        if name in _CODE_OPCODES:
            raise InputError(f"is a pickle with code in it ({name}): refused, nothing was executed", file=file) from None
        raise InputError("is a damaged pickle", file=file) from None
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        IndexError,
        AttributeError,
        AssertionError,
        OverflowError,
        UnicodeError,
        MemoryError,
        struct.error,
    ) as error:
        raise InputError(f"is a damaged pickle: {error or type(error).__name__}", file=file) from None


def read_json(text: str, file: str | None = None) -> list[Any]:
    """The dumps of a JSON text: one object, a list of objects, or one object a line.

    Raises:
        InputError: a line is no JSON.
    """
    try:
        whole = json.loads(text)
        return whole if isinstance(whole, list) and whole and isinstance(whole[0], dict) and "entries" in whole[0] else [whole]
    except (ValueError, RecursionError):
        pass
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError):
            raise InputError("is not JSON", file=file, line=number) from None
    return found


def make_dump(raw: Any, rank: int | None = None, file: str | None = None) -> RankDump:
    """A typed dump from what a pickle or JSON holds.

    Args:
        raw: the dictionary, or the bare list of late 2023.
        rank: whose it is, where the dump does not say.

    Raises:
        InputError: it is no flight record.
    """
    if isinstance(raw, list):
        raw = {"entries": raw}
    if not isinstance(raw, dict) or not ({"entries", "pg_status", "pg_config"} & raw.keys()):
        raise InputError("is no flight record: it has neither entries nor pg_status", file=file)
    members, names = _groups(_table(raw, "pg_config"))
    calls = tuple(
        call for entry in _list(raw.get("entries"))[-ENTRIES_MAX:] if isinstance(entry, dict) and (call := _call(entry)) is not None
    )
    status = {_key(key): one for key, value in _table(raw, "pg_status").items() if (one := _status(value)) is not None}
    told = _whole(raw.get("rank"))
    return RankDump(rank=rank if told is None else told, members=members, names=names, status=status, calls=calls)


def _groups(config: dict[Any, Any]) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    members, names = {}, {}
    for key, value in config.items():
        if not isinstance(value, dict):
            continue
        ranks = value.get("ranks")
        if isinstance(ranks, str):
            found = tuple(int(number) for number in re.findall(r"\d{1,7}", ranks)[:RANKS_MAX])
        else:
            found = tuple(one for one in (_whole(rank) for rank in _list(ranks)[:RANKS_MAX]) if one is not None)
        members[_key(key)] = found
        names[_key(key)] = _text(value.get("desc")) or _text(value.get("name")) or _key(key)
    return members, names


def _call(entry: dict[Any, Any]) -> Call | None:
    process_group = _list(entry.get("process_group"))
    group = entry.get("pg_id", process_group[0] if process_group else 0)
    name = _text(entry.get("profiling_name"))
    p2p = bool(entry.get("is_p2p")) or bool(re.search(r":(?:send|recv) \d", name))
    seq = _whole(entry.get("p2p_seq_id" if p2p else "collective_seq_id"))
    if seq is None:
        seq = _whole(entry.get("seq_id"))
    if seq is None:
        return None
    state = _text(entry.get("state")) or "scheduled"
    if entry.get("retired") is True:
        state = "completed"
    ends = re.search(r"(\d{1,7})\s*(->|<-)\s*(\d{1,7})", name)
    source = target = None
    if ends:
        source, target = (int(ends[1]), int(ends[3])) if ends[2] == "->" else (int(ends[3]), int(ends[1]))
    created = _whole(entry.get("time_created_ns"))
    return Call(
        group=_key(group), seq=seq, op=name.partition(":")[2].partition(" ")[0] or name, state=state, p2p=p2p, source=source,
            target=target,
        shape=_shape(entry), created_s=created / 1e9 if created else None,
    )  # fmt: skip


def _shape(entry: dict[Any, Any]) -> str:
    """Sizes and types of input and output in one short text, to compare ranks."""
    parts = []
    for key in ("input_sizes", "input_dtypes", "output_sizes", "output_dtypes"):
        flat = [
            "x".join(str(one) for one in size[:16] if isinstance(one, int)) if isinstance(size, list) else str(size)[:20]
            for size in _list(entry.get(key))[:8]
            if isinstance(size, list | int | str)
        ]
        parts.append(",".join(flat))
    return "/".join(parts)


def _status(value: Any) -> Status | None:
    if not isinstance(value, dict):
        return None
    numbers = [_whole(value.get(f"last_{name}_collective")) for name in ("enqueued", "started", "completed")]
    return Status(
        **{
            name: -1 if number is None else number
            for name, number in zip(("enqueued", "started", "completed"), numbers, strict=True)
        }
    )


def _key(value: Any) -> str:
    """A group's key: the default group is filed under '' by gloo and under '0' elsewhere."""
    return _text(value) or "0"


def _text(value: Any) -> str:
    return str(value)[:200] if isinstance(value, str | int) else ""


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value) else None


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _table(raw: dict[Any, Any], key: str) -> dict[Any, Any]:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}
