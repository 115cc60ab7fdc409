"""Keys of a person's file that nobody reads: a misspelt one must not pass for a fact that was told. Pure.

The site's configuration refuses them (`outrider.config.loader`). Formats that may grow (traces, the context of `inspect`) are read
on, and each is told once: `FILE:LINE: KEY: unknown key, passed over; did you mean ..?`
"""

import difflib
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from outrider.errors import InputError

#: Where a warning goes: one line without a newline.
Note = Callable[[str], None]
#: What may stand somewhere: a table's keys, a list's elements (`[shape]`), or None: anything.
Shape = dict[str, Any] | list[Any] | None
_PLACE = re.compile(r"\[\d+\]")
#: Different unknown keys that are told of one file: a file that is something else has a thousand.
KEYS_MAX = 20


def quiet(_text: str) -> None:
    """A `Note` for callers that show nothing to a person."""


def hint(name: str, known: Iterable[str]) -> str:
    """The nearest known name, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"


def shape_of(kind: Any) -> Shape:
    """What the fields of a struct may hold."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {field.encode_name: shape_of(field.type) for field in msgspec.structs.fields(kind)}
    element = next(iter(typing.get_args(kind)), None)
    inside = shape_of(element) if typing.get_origin(kind) in (tuple, list) else None
    return [inside] if inside is not None else None


def unknown_keys(raw: Any, shape: Shape, path: str = "") -> Iterator[tuple[str, str]]:
    """(path of an unknown key, hint) for all that a shape does not know, in the order in which they stand."""
    if isinstance(shape, list) and isinstance(raw, list):
        for index, one in enumerate(raw):
            yield from unknown_keys(one, shape[0], f"{path}[{index}]")
    elif isinstance(shape, dict) and isinstance(raw, dict):
        for name, value in raw.items():
            here = f"{path}.{name}" if path else str(name)
            if name in shape:
                yield from unknown_keys(value, shape[name], here)
            else:
                yield here, hint(str(name), shape)


class UnknownKeys:
    """Tells each unknown key of one file once, the first time it stands there."""

    def __init__(self, file: str, note: Note) -> None:
        self._file, self._note, self._told = file, note, set[str]()

    def tell(self, found: Iterable[tuple[str, str]], line: int | None) -> None:
        """`found`: as `unknown_keys` yields them."""
        for key, near in found:
            name = _PLACE.sub("[]", key)  # the same key in each of a thousand nodes is one mistake
            if name in self._told or len(self._told) > KEYS_MAX:
                continue
            self._told.add(name)
            more = "unknown key, passed over here and wherever it stands again; " + near
            if len(self._told) > KEYS_MAX:
                more = "unknown key, and more that are not told: is this the right file?"
            self._note(str(InputError(more, file=self._file, line=line, key=key)))
