"""Reads a TOML file into typed sections and tells of all mistakes at once, each with file, line and key."""

import re
import tomllib
import typing
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from outrider.errors import InputError, OutriderError
from outrider.unknown_keys import hint

S = TypeVar("S", bound=msgspec.Struct)
#: Keys whose values are never shown.
_SECRET = re.compile(r"secret|token|password|key", re.IGNORECASE)
#: One name in a table's head, quoted (`policy.faults."node.lost"`) or not.
_NAME = re.compile(r"""\"[^\"]*\"|'[^']*'|[\w-]+""")
#: `port must be ..`, `port is 0; allowed: ..`, `port: ..`: a field's own check of its value.
_ABOUT = re.compile(r"(\w+)(?:: | (?=must |is |needs ))")
#: Where a value stands: keys, and places in a list of tables.
Path_ = tuple[str | int, ...]


class ConfigError(OutriderError):
    """One or more mistakes in a configuration file: one line each."""

    def __init__(self, problems: list[InputError]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


def read_toml(path: Path) -> tuple[dict[str, Any], str]:
    """The file's table and its text.

    Raises:
        InputError: the file cannot be read or is not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text), text
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=str(path)) from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise InputError(f"is not TOML: {error}", file=str(path), line=int(line[1]) if line else None) from None


def load_sections(path: Path | None, sections: dict[str, type[msgspec.Struct]]) -> dict[str, Any]:
    """Reads `path` and returns one struct for each section; a section that is absent has its defaults.

    Args:
        path: TOML file, or None for the defaults.
        sections: table name -> struct type. A table that is not named here is a mistake.

    Raises:
        InputError: the file cannot be read.
        ConfigError: something in it is wrong; all of it is told.
    """
    table, text = read_toml(path) if path else ({}, "")
    problems: list[InputError] = []
    for name in table.keys() - sections.keys():
        problems.append(_unknown(str(path), text, (name,), list(sections)))
    loaded = {}
    for name, kind in sections.items():
        value, wrong = _build(kind, table.get(name, {}), str(path), text, (name,))
        problems += wrong
        loaded[name] = value
    if problems:
        raise ConfigError(sorted(problems, key=lambda problem: (problem.line or 0, str(problem))))
    return loaded


def load_struct(table: Any, kind: type[S], file: str, text: str = "", path: Path_ = ()) -> S:
    """Turns one table into one struct; `path` is the table's place in the file. Raises ConfigError."""
    value, problems = _build(kind, table, file, text, path)
    if problems:
        raise ConfigError(problems)
    return typing.cast(S, value)


def _build(kind: Any, table: Any, file: str, text: str, path: Path_) -> tuple[Any, list[InputError]]:
    """A struct from a table, field by field, so that every mistake is seen and not only the first."""
    if not isinstance(table, dict):
        return None, [InputError("must be a table", file=file, line=_line_of(text, path), key=_key(path))]
    problems = []
    known = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, raw in table.items():
        here = (*path, name)
        if name not in known:
            problems.append(_unknown(file, text, here, list(known)))
            continue
        value, wrong = _convert(known[name].type, raw, file, text, here)
        problems += wrong
        values[known[name].name] = value
    for name, field in known.items():
        if field.required and name not in table:
            problems.append(InputError("is missing", file=file, line=_line_of(text, path), key=_key((*path, name))))
    if problems:
        return None, problems
    try:
        return kind(**values), []
    except (ValueError, TypeError) as error:
        what = str(error)
        if (match := _ABOUT.match(what)) and match[1] in known:
            path, what = (*path, match[1]), what[match.end() :]
        return None, [InputError(what, file=file, line=_line_of(text, path), key=_key(path))]


def _convert(kind: Any, raw: Any, file: str, text: str, path: Path_) -> tuple[Any, list[InputError]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _build(kind, raw, file, text, path)
    if (element := _element(kind)) is not None and isinstance(raw, list if typing.get_origin(kind) is tuple else dict):
        return _elements(element, raw, file, text, path)
    try:
        return msgspec.convert(raw, kind, strict=True), []
    except msgspec.ValidationError as error:
        what, _, inside = str(error).partition(" - at `$")  # msgspec's way to name an element of a list or table
        shown = "" if _SECRET.search(str(path[-1])) else f" (is {raw!r})"
        more = "" if inside else _choices(kind) or shown
        return None, [InputError(what + more, file=file, line=_line_of(text, path), key=_key(path) + inside.rstrip("`"))]


def _element(kind: Any) -> type[msgspec.Struct] | None:
    """What a list of tables (`[[fleet.nodes]]`) or a table of tables (`[catalogue.xid.94]`) is made of; None for all else."""
    arguments = typing.get_args(kind)
    one = arguments[{tuple: 0, dict: 1}[origin]] if (origin := typing.get_origin(kind)) in (tuple, dict) and arguments else None
    return one if isinstance(one, type) and issubclass(one, msgspec.Struct) else None


def _elements(
    element: type[msgspec.Struct], raw: list[Any] | dict[str, Any], file: str, text: str, path: Path_
) -> tuple[Any, list[InputError]]:
    """Many tables of one kind; each mistake has the line of its own table."""
    places: Iterable[tuple[int | str, Any]] = raw.items() if isinstance(raw, dict) else enumerate(raw)
    values: dict[int | str, Any] = {}
    problems = []
    for place, one in places:
        values[place], wrong = _build(element, one, file, text, (*path, place))
        problems += wrong
    return (values if isinstance(raw, dict) else tuple(values.values())), problems


def _key(path: Path_) -> str:
    """`fleet.nodes[3].rack`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def _choices(kind: Any) -> str:
    """The values that a key may have, where they are a short list."""
    return f"; may be {', '.join(map(repr, typing.get_args(kind)))}" if typing.get_origin(kind) is typing.Literal else ""


def _unknown(file: str, text: str, path: Path_, known: list[str]) -> InputError:
    return InputError(f"unknown key; {hint(str(path[-1]), known)}", file=file, line=_line_of(text, path), key=_key(path))


def _line_of(text: str, path: Path_) -> int | None:
    """The line on which a key stands, as far as a plain look at the text can tell."""
    section: Path_ = ()
    counts: Counter[Path_] = Counter()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            section = tuple(match[0].strip("\"'") for match in _NAME.finditer(stripped.strip("[").partition("]")[0]))
            if stripped.startswith("[["):
                counts[section] += 1
                section = (*section, counts[section] - 1)
            if section == path:
                return number
        elif section == path[:-1] and re.match(rf'"?{re.escape(str(path[-1]))}"?\s*[=.]', stripped):
            return number
    return _line_of(text, path[:-1]) if len(path) > 1 else None
