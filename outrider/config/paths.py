"""Paths in the site's file. One rule: a relative one counts from the folder of the file, wherever its reader was started.

A field is of type `SitePath` (a file or folder) or `SiteProgram` (a program or library: without a slash it is looked up where the
system keeps such). An empty one stays empty. Not among them: files of other programs, which resolve them themselves
(`[[alerts.receivers]]`: Alertmanager), and the words of commands.
"""

import os
import typing
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

_FILE: Final = "path"
_PROGRAM: Final = "program"
SitePath = Annotated[str, msgspec.Meta(extra={"outrider": _FILE})]
SiteProgram = Annotated[str, msgspec.Meta(extra={"outrider": _PROGRAM})]


def from_folder(value: Any, folder: Path) -> Any:
    """A section (or anything in it) with its relative paths counted from `folder`, defaults too."""
    if isinstance(value, tuple):
        return tuple(from_folder(one, folder) for one in value)
    if not isinstance(value, msgspec.Struct):
        return value
    changed = {}
    for name, kind in path_fields(type(value)).items():
        before = getattr(value, name)
        after = from_folder(before, folder) if kind == "" else _joined(before, kind, folder)
        if after != before:
            changed[name] = after
    return msgspec.structs.replace(value, **changed) if changed else value


@cache
def path_fields(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Field -> what it holds: `path`, `program`, or `` for structs that hold some themselves."""
    found = {}
    for field in msgspec.structs.fields(kind):
        inner = [field.type, *(one for one in typing.get_args(field.type) if typing.get_origin(field.type) is tuple)]
        for one in inner:
            if (held := _held(one)) is not None:
                found[field.name] = held
    return found


def _held(kind: Any) -> str | None:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "" if path_fields(kind) else None
    extras = [meta.extra or {} for meta in getattr(kind, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
    return next((extra["outrider"] for extra in extras if "outrider" in extra), None)


def _joined(value: str | tuple[str, ...], kind: str, folder: Path) -> str | tuple[str, ...]:
    if isinstance(value, tuple):
        return tuple(str(_joined(one, kind, folder)) for one in value)
    if not value or (kind == _PROGRAM and "/" not in value):
        return value
    return os.path.normpath(folder / value) if not os.path.isabs(value) else value
