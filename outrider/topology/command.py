"""The command `outrider topology`."""

import json
from pathlib import Path

import click
import msgspec

from outrider.cli.options import config_option
from outrider.errors import InputError
from outrider.fleet import Fleet
from outrider.topology.draft import Draft, to_toml
from outrider.topology.sources import FORMATS, read_source

_FORMATS = ", ".join(FORMATS)


@click.command()
@config_option
@click.option(
    "--from", "sources", type=(click.Choice(list(FORMATS)), click.Path(path_type=Path)), multiple=True, metavar="FORMAT FILE",
    help=f"Discovered topology; may be given several times. Formats: {_FORMATS}.",
)  # fmt: skip
@click.option("--gpus", type=click.IntRange(0, 64), help="Cards in each node that no source tells of.")
@click.option("--node", help="Only: what does this node hang on?")
@click.option(
    "--out", type=click.Path(path_type=Path, allow_dash=True), help="Write the [fleet] part of a TOML file (-: print it)."
)
@click.option("--picture", type=click.Path(path_type=Path, dir_okay=False), help="Write a picture: .dot, .png, .svg or .pdf.")
@click.option("--json", "as_json_", is_flag=True, help="Vertices and edges as one JSON object.")
def topology(
    config: Path | None, sources: tuple[tuple[str, Path], ...], gpus: int | None, node: str | None, out: Path | None,
    picture: Path | None, as_json_: bool,
) -> int:  # fmt: skip
    """The graph of the site: what hangs on what, from configuration, or discovered.

    \b
    outrider topology --config site.toml
    outrider topology --config site.toml --node n7
    outrider topology --from slurm topology.conf --from kubernetes nodes.json --out fleet.toml
    """
    from outrider.topology import show

    if config is None and not sources:
        raise InputError(f"nothing to show and no settings here: say --config FILE, or --from FORMAT FILE ({_FORMATS})")
    fleet, notes = _fleet(config, sources, gpus)
    for note in notes:
        click.echo(f"outrider: note: {note}", err=True)
    if picture is not None:
        show.draw(fleet, picture)
        click.echo(f"outrider: wrote {picture}", err=True)
    if out is not None:
        _write(out, to_toml(fleet))
    if node is not None:
        lines = show.hangs_on(fleet, node)
        if as_json_:
            click.echo(json.dumps(dict(lines)))
        else:
            click.echo("\n".join(f"{part}: {', '.join(above) or 'nothing that is known'}" for part, above in lines))
    elif as_json_:
        click.echo(json.dumps(show.as_json(fleet)))
    elif out is None and picture is None:
        from rich.console import Console

        # A line is not cut where it is piped; a terminal wraps it by itself.
        Console(width=max(Console().width, 200)).print(show.tree(fleet))
    return 0


def _fleet(config: Path | None, sources: tuple[tuple[str, Path], ...], gpus: int | None) -> tuple[Fleet, list[str]]:
    """The site, and what a person should know of how it was put together."""
    base = _configured(config) if config is not None else Fleet()
    draft = Draft()
    for kind, path in sources:
        draft.add(read_source(kind, path))
    fleet = draft.fleet(base) if sources else base
    if gpus is not None:
        nodes = tuple(node if node.gpus else msgspec.structs.replace(node, gpus=gpus) for node in fleet.nodes)
        fleet = msgspec.structs.replace(fleet, nodes=nodes)
    if not fleet.nodes:
        raise InputError("names no node: see `[[fleet.nodes]]` in docs/topology.md", file=str(config), key="fleet.nodes")
    return fleet, draft.notes


def _configured(config: Path) -> Fleet:
    """The site that a configuration names, with the mounts that its agents probe."""
    from outrider.config.collectors import CollectorsSection
    from outrider.config.fleet import FleetSection
    from outrider.config.site import read_config
    from outrider.config.witness import WitnessSection

    loaded = read_config(config)
    fleet = loaded.get(FleetSection).fleet(tuple(member.name for member in loaded.get(WitnessSection).members))
    mounts = {mount.path: mount.server for mount in loaded.get(CollectorsSection).mounts}
    nodes = tuple(msgspec.structs.replace(node, mounts={**mounts, **node.mounts}) for node in fleet.nodes)
    return msgspec.structs.replace(fleet, nodes=nodes)


def _write(out: Path, text: str) -> None:
    if str(out) == "-":
        click.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(out)) from None
    click.echo(f"outrider: wrote {out}", err=True)
