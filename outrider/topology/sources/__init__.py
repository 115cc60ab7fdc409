"""Readers of discovered topology: text of a file in, a `Draft` out. Pure; every mistake names file, line and key."""

from collections.abc import Callable
from pathlib import Path

from outrider.errors import InputError
from outrider.topology.draft import Draft
from outrider.topology.sources import infiniband, kubernetes, lldp, slurm

#: Format -> (reader of one file's text, what the file is).
FORMATS: dict[str, tuple[Callable[[str, str], Draft], str]] = {
    "slurm": (slurm.read, "topology.conf, or what `scontrol show topology` prints"),
    "ibnetdiscover": (infiniband.read_netdiscover, "what `ibnetdiscover` prints"),
    "iblinkinfo": (infiniband.read_linkinfo, "what `iblinkinfo` prints, with or without --line"),
    "kubernetes": (kubernetes.read, "what `kubectl get nodes -o json` prints"),
    "lldp": (lldp.read, "what `lldpctl -f json` prints: a file a node, called as the node, or a folder of them"),
}
#: A fabric of 12,500 nodes fills 40 MB; what is larger is something else.
FILE_BYTES_MAX = 512 * 1024 * 1024


def read_source(kind: str, path: Path) -> Draft:
    """Reads one file, or each file of a folder.

    Raises:
        InputError: it cannot be read, or is not what it is called.
    """
    reader = FORMATS[kind][0]
    try:
        files = sorted(one for one in path.iterdir() if one.is_file()) if path.is_dir() else [path]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from None
    draft = Draft()
    for file in files:
        found = reader(_text(file), str(file))
        _check_names(found, str(file))
        draft.add(found)
    if not draft.nodes:
        raise InputError(f"names no node; {kind} wants {FORMATS[kind][1]}", file=str(path))
    return draft


def _text(file: Path) -> str:
    try:
        if file.stat().st_size > FILE_BYTES_MAX:
            raise InputError(f"is larger than {FILE_BYTES_MAX >> 20} MiB", file=str(file))
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(file)) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=str(file)) from None


def _check_names(draft: Draft, file: str) -> None:
    """A name that cannot be printed (a line break, half a character of JSON's `\\ud800`) fits into no file and no list of ours."""
    told = [name for facts in draft.nodes.values() for value in facts.values() for name in _texts(value)]
    for name in (*draft.nodes, *told, *(end for ends in draft.links for end in ends)):
        if not name.isprintable():
            raise InputError(f"a name that cannot be printed: {name[:60]!r}", file=file)


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for text in pair]
    return [value] if isinstance(value, str) else []
