"""A rank's state as one run of bytes, in the safetensors format: header of JSON, then the tensors, nothing executable.

    8 bytes   length of the header
    header    {"name": {"dtype", "shape", "data_offsets"}, .., "__metadata__": {"outrider": JSON}}
    data      the tensors without holes, widest element first, so that each is aligned

The metadata holds the tree in which the tensors hang (dicts, lists, numbers, text) and the facts of the entry. Any reader of
safetensors can open a shard; this one needs torch alone. Written straight into memory: the copy of each tensor is one `copy_`.
Source of the format: the safetensors README, section "Format".
"""

import json
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from outrider.snapshots.digest import digest
from outrider.snapshots.errors import RestoreError, SnapshotError

_LENGTH: Final = struct.Struct("<Q")
_ALIGN: Final = 64
_DTYPES: Final = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32", "I16": "int16",
    "I8": "int8", "U8": "uint8", "BOOL": "bool", "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
_CODES: Final = {name: code for code, name in _DTYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One tensor and where it goes: byte offset from the start of the shard, size in bytes."""

    name: str
    tensor: Any
    at: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything of a shard but the tensors' bytes. `total` is the size of the shard in bytes."""

    head: bytes
    pieces: tuple[Piece, ...]
    total: int


def plan(tree: dict[str, Any], facts: dict[str, Any]) -> Plan:
    """Lays out a tree of tensors and plain values.

    Args:
        tree: nested dicts, lists and tuples of tensors, numbers, text, bytes and None.
        facts: plain JSON, for `read_facts`.

    Raises:
        SnapshotError: a value that cannot be written without executing something to read it back.
    """
    tensors: dict[str, Any] = {}
    skeleton = _encode(tree, "", tensors)
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, Any] = {"__metadata__": {"outrider": json.dumps({"tree": skeleton, "facts": facts})}}
    at = 0
    places = []
    for name, tensor in ordered:
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _code(name, tensor), "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        places.append((name, tensor, at, size))
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + _LENGTH.size) % _ALIGN)
    start = _LENGTH.size + len(text)
    pieces = tuple(Piece(name=name, tensor=tensor, at=start + at, size=size) for name, tensor, at, size in places)
    return Plan(head=_LENGTH.pack(len(text)) + text, pieces=pieces, total=start + at)


def targets(layout: Plan, memory: mmap.mmap, start: int) -> Iterator[tuple[Any, Any]]:
    """Writes the head at `start` and yields (tensor in memory, tensor of the job) for the caller to copy."""
    import torch

    memory[start : start + len(layout.head)] = layout.head
    for piece in layout.pieces:
        if piece.size:
            raw = torch.frombuffer(memory, dtype=torch.uint8, count=piece.size, offset=start + piece.at)
            yield raw.view(piece.tensor.dtype).view(piece.tensor.shape), piece.tensor


def checksums(data: memoryview, prefixes: tuple[str, ...]) -> dict[str, str]:
    """Digest of each tensor whose name starts with one of `prefixes`."""
    header, start = _header(data, "copy")
    found = {}
    for name, entry in header.items():
        if name.startswith(prefixes):
            low, high = entry["data_offsets"]
            found[name] = digest(data[start + low : start + high])
    return found


def read_facts(data: memoryview) -> dict[str, Any]:
    """The facts that `plan` was given."""
    header, _ = _header(data, "copy")
    facts: dict[str, Any] = json.loads(header["__metadata__"]["outrider"])["facts"]
    return facts


def read_tree(path: Path) -> dict[str, Any]:
    """The tree of a shard, with tensors of its own (no file stays open behind them).

    Raises:
        RestoreError: the file is not a shard, or is torn.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as memory:
            return _tree_in(memory, str(path))
    except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
        raise RestoreError(f"{path}: is not a whole shard: {error}") from None


def _tree_in(memory: mmap.mmap, where: str) -> dict[str, Any]:
    with memoryview(memory) as data:
        header, start = _header(data, where)
    tensors = {name: _tensor(memory, start, entry) for name, entry in header.items() if name != "__metadata__"}
    tree: dict[str, Any] = _decode(json.loads(header["__metadata__"]["outrider"])["tree"], tensors)
    return tree


def _tensor(memory: mmap.mmap, start: int, entry: dict[str, Any]) -> Any:
    import torch

    dtype = getattr(torch, _DTYPES[entry["dtype"]])
    low, high = entry["data_offsets"]
    if low == high:
        return torch.empty(entry["shape"], dtype=dtype)
    raw = torch.frombuffer(memory, dtype=torch.uint8, count=high - low, offset=start + low)
    return raw.view(dtype).view(entry["shape"]).clone()


def _header(data: memoryview, where: str) -> tuple[dict[str, Any], int]:
    (length,) = _LENGTH.unpack_from(data, 0)
    if length > len(data) - _LENGTH.size:
        raise RestoreError(f"{where}: is not a whole shard: the header is longer than the file")
    header: dict[str, Any] = json.loads(bytes(data[_LENGTH.size : _LENGTH.size + length]))
    return header, _LENGTH.size + length


def _code(name: str, tensor: Any) -> str:
    code = _CODES.get(str(tensor.dtype).removeprefix("torch."))
    if code is None:
        raise SnapshotError(f"{name}: tensors of {tensor.dtype} cannot be saved")
    return code


def _encode(value: Any, name: str, tensors: dict[str, Any]) -> Any:
    """The value with its tensors taken out; what JSON has no word for is told by a key that starts with '$'."""
    if value is None or isinstance(value, bool | int | float | str):
        plain = getattr(value, "item", None)  # numpy's numbers are Python's too
        return plain() if plain else value
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _encode(inner, f"{name}/{key}" if name else key, tensors) for key, inner in value.items()}
        pairs = [[_encode(k, name, tensors), _encode(inner, f"{name}/{k}", tensors)] for k, inner in value.items()]
        return {"$map": pairs}
    if isinstance(value, list | tuple):
        items = [_encode(inner, f"{name}/{place}", tensors) for place, inner in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, bytes | bytearray):
        return {"$bytes": value.hex()}
    if hasattr(value, "to_local"):
        raise SnapshotError(f"{name}: sharded tensors (DTensor) cannot be saved yet")
    if hasattr(value, "element_size") and hasattr(value, "detach"):
        tensors[name] = value.detach()
        return {"$tensor": name}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _encode_numpy(value, name, tensors)
    raise SnapshotError(f"{name}: a value of type {type(value).__qualname__} cannot be saved")


def _encode_numpy(value: Any, name: str, tensors: dict[str, Any]) -> Any:
    if not getattr(value, "shape", ()):
        return value.item()
    import torch

    if value.dtype.kind == "u" and value.dtype.itemsize > 1:  # torch has few operations on wide unsigned numbers
        return {"$array": [str(value.dtype), value.tolist()]}
    tensors[name] = torch.from_numpy(value)
    return {"$numpy": name}


def _decode(value: Any, tensors: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_decode(inner, tensors) for inner in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$tensor": str(name)}:
            return tensors[name]
        case {"$numpy": str(name)}:
            return tensors[name].numpy()
        case {"$array": [str(kind), list(items)]}:
            import numpy

            return numpy.array(items, dtype=kind)
        case {"$bytes": str(text)}:
            return bytes.fromhex(text)
        case {"$tuple": list(items)}:
            return tuple(_decode(inner, tensors) for inner in items)
        case {"$map": list(pairs)}:
            return {_decode(key, tensors): _decode(inner, tensors) for key, inner in pairs}
    return {key: _decode(inner, tensors) for key, inner in value.items()}
