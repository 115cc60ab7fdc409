"""The commands `outrider explain` and `outrider runbooks`."""

import difflib
import json
from pathlib import Path

import click

from outrider.catalogue.codes import CodeBook
from outrider.catalogue.faults import FAULTS
from outrider.catalogue.library import find_library_error
from outrider.errors import InputError
from outrider.explain.pages import Explanation, as_text, explain_code, explain_fault, explain_library, runbook


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="xid N | sxid N | FAULT | nccl TEXT")
@click.option("--config", type=click.Path(path_type=Path), help="TOML file; [catalogue] overrides codes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def explain(words: tuple[str, ...], config: Path | None, as_json: bool) -> int:
    """What does this code, fault class or message mean, what does Outrider do, what do you do?

    \b
    outrider explain xid 79
    outrider explain sxid 12028
    outrider explain gpu.nvlink
    outrider explain nccl "status=12"
    """
    one = _explain(words, config)
    click.echo(json.dumps(one, ensure_ascii=False) if as_json else "\n".join(as_text(one)))
    return 0


def _explain(words: tuple[str, ...], config: Path | None) -> Explanation:
    kind, rest = words[0].lower(), " ".join(words[1:])
    if kind in ("xid", "sxid"):
        if not rest.isdecimal() or len(rest) > 6:
            raise InputError(f"{kind} wants a number, not {rest!r}")
        overrides = None
        if config is not None:
            from outrider.config.catalogue import CatalogueSection
            from outrider.config.site import read_config

            overrides = read_config(config).get(CatalogueSection)
        return explain_code(kind, int(rest), CodeBook(overrides))
    if kind == "nccl":
        found = find_library_error(rest)
        if found is None:
            raise InputError(f"no NCCL message or completion status is known that says {rest!r}")
        return explain_library(found)
    text = " ".join(words)
    if text in FAULTS:
        return explain_fault(text)
    if found := find_library_error(text):
        return explain_library(found)
    near = [key for key in FAULTS if text.lower() in key] or difflib.get_close_matches(text.lower(), FAULTS, 3)
    hint = f"; did you mean {', '.join(near[:5])}?" if near else "; say `xid N`, `sxid N`, `nccl TEXT` or a fault class"
    raise InputError(f"nothing is called {text!r}{hint}")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def runbooks(folder: Path) -> int:
    """Writes one runbook page for each fault class into FOLDER, from the catalogue."""
    codes = CodeBook()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in FAULTS.values():
            (folder / f"{entry.key}.md").write_text(runbook(entry, codes), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(folder)) from None
    click.echo(f"{len(FAULTS)} pages in {folder}")
    return 0
