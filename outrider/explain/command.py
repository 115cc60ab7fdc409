"""The commands `outrider explain` and `outrider runbooks`."""

import json
from pathlib import Path

import click

from outrider.catalogue.codes import CodeBook
from outrider.catalogue.faults import FAULTS
from outrider.cli.options import config_option
from outrider.errors import InputError
from outrider.explain.find import find, near
from outrider.explain.pages import as_text, runbook


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="xid N | sxid N | FAULT | nccl TEXT | LINE")
@config_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def explain(words: tuple[str, ...], config: Path | None, as_json: bool) -> int:
    """What does this code, fault class or message mean, what does Outrider do, what do you do?

    \b
    outrider explain xid 79
    outrider explain sxid 12028
    outrider explain gpu.nvlink
    outrider explain nccl "status=12"

    [catalogue] of the settings overrides codes. Exits 1, with the nearest entries, if the catalogue knows nothing of it.
    """
    text = " ".join(words).strip()
    codes = _codes(config)
    found = find(text, codes)
    if found is not None:
        click.echo(json.dumps(found, ensure_ascii=False) if as_json else "\n".join(as_text(found)))
        return 0
    nearest = near(text, codes)
    if as_json:
        shown = [{"say": one.say, "name": one.name} for one in nearest]
        click.echo(json.dumps({"unknown": text, "near": shown}, ensure_ascii=False))
        return 1
    click.echo(f"The catalogue knows nothing called {text!r}.")
    if nearest:
        click.echo("Perhaps one of these is meant:")
        width = max(len(one.say) for one in nearest)
        for one in nearest:
            click.echo(f"  outrider explain {one.say:<{width}}  {one.name}")
    else:
        click.echo("Say `xid N`, `sxid N`, `nccl TEXT` or a fault class, or paste a line; `outrider inspect FILE` reads logs.")
    return 1


def _codes(config: Path | None) -> CodeBook:
    if config is None:
        return CodeBook()
    from outrider.config.catalogue import CatalogueSection
    from outrider.config.site import read_config

    return CodeBook(read_config(config).get(CatalogueSection))


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
