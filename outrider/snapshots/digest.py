"""Digests of snapshot bytes: xxh3 where the package xxhash is installed (16 GB/s), else BLAKE2b (about 1 GB/s)."""

import hashlib
from typing import Protocol, cast

from outrider.snapshots.errors import RestoreError

try:
    import xxhash

    _FAST = True
except ImportError:
    _FAST = False

#: Bytes a call: a big shard is hashed in pieces, so that the global interpreter lock is let go in between.
_PIECE_BYTES = 4 << 20


class _Hash(Protocol):
    def update(self, data: memoryview, /) -> object: ...
    def hexdigest(self) -> str: ...


def digest(data: memoryview, kind: str | None = None) -> str:
    """`kind:hex` of the bytes; 128 bits, against damage and not against an attacker.

    Args:
        data: the bytes.
        kind: `xxh3_128` or `blake2b_128`; None: the best there is.

    Raises:
        RestoreError: a kind that cannot be computed here.
    """
    kind = kind or ("xxh3_128" if _FAST else "blake2b_128")
    state = _new(kind)
    for start in range(0, len(data), _PIECE_BYTES):
        state.update(data[start : start + _PIECE_BYTES])
    return f"{kind}:{state.hexdigest()}"


def matches(data: memoryview, expected: str) -> bool:
    """Whether the bytes have this digest."""
    return digest(data, expected.partition(":")[0]) == expected


def _new(kind: str) -> _Hash:
    if kind == "blake2b_128":
        return hashlib.blake2b(digest_size=16)
    if kind == "xxh3_128" and _FAST:
        return cast(_Hash, xxhash.xxh3_128())
    if kind == "xxh3_128":
        raise RestoreError("the snapshot has xxh3 digests: install outrider[fast]")
    raise RestoreError(f"the snapshot has digests of an unknown kind: {kind}")
