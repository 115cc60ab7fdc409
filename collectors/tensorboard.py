"""Reads scalars from TensorBoard event files as they grow, without TensorBoard: records of length, checks and a small message.

Source: TensorFlow's record format (`tensorflow/core/lib/io/record_writer.h`: length, its check, data, its check) and the fields of
`event.proto` and `summary.proto` that scalars need. The checks are not verified: half a record is waited for by its length.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

_LENGTH = struct.Struct("<QI")
#: A record of scalars has some 100 bytes; pictures and graphs are longer and passed over.
RECORD_BYTES_MAX = 16 << 20
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Scalar(NamedTuple):
    """One scalar of one step."""

    step: int
    tag: str
    value: float


class BadRecordError(ValueError):
    """The file is no event file, or damaged: nothing after this place can be read."""


def split_records(chunk: bytes) -> tuple[list[bytes], int]:
    """The whole records at the beginning of `chunk`, and how many bytes they take. Raises BadRecordError."""
    records, at = [], 0
    while at + _LENGTH.size <= len(chunk):
        size, _ = _LENGTH.unpack_from(chunk, at)
        if size > RECORD_BYTES_MAX:
            raise BadRecordError("a record is longer than any of TensorBoard's")
        end = at + _LENGTH.size + size + 4
        if end > len(chunk):
            break
        records.append(chunk[at + _LENGTH.size : end - 4])
        at = end
    return records, at


def parse_event(record: bytes) -> list[Scalar]:
    """The scalars of one event; none if it holds something else or makes no sense."""
    step, found = 0, []
    try:
        for number, value in _fields(record):
            if number == 2 and isinstance(value, int):
                step = value
            elif number == 5 and isinstance(value, bytes):
                found += [
                    pair for inner, body in _fields(value) if inner == 1 and isinstance(body, bytes) and (pair := _scalar(body))
                ]
    except (IndexError, struct.error, ValueError):
        return []
    return [Scalar(step, tag, number) for tag, number in found]


def _scalar(body: bytes) -> tuple[str, float] | None:
    """Tag and value of a Summary.Value: `simple_value`, or a tensor of one float as newer writers store it."""
    tag, number = "", None
    for field, value in _fields(body):
        if field == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8", "replace")[:200]
        elif field == 2 and isinstance(value, bytes) and len(value) == 4:
            number = struct.unpack("<f", value)[0]
        elif field == 8 and isinstance(value, bytes):
            number = _tensor(value)
    return (tag, number) if tag and number is not None else None


def _tensor(body: bytes) -> float | None:
    for field, value in _fields(body):
        if field in (4, 5) and isinstance(value, bytes) and len(value) == 4:  # tensor_content, or float_val
            return float(struct.unpack("<f", value)[0])
    return None


def _fields(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field number and value of each field of a message; fixed ones as their bytes."""
    at = 0
    while at < len(body):
        key, at = _varint(body, at)
        kind, number = key & 7, key >> 3
        if kind == _VARINT:
            value, at = _varint(body, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(body, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError("a kind of field that is not used here")
        if at + size > len(body):
            raise ValueError("a field is cut")
        yield number, body[at : at + size]
        at += size


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
