"""The command `outrider inspect`: opens the files, guesses their kinds, asks the judges, prints the findings."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from detectors.inspect.context import load_context
from detectors.inspect.findings import Finding, strongest_first
from detectors.inspect.kinds import KINDS, check_readable, doubt, guess_kind, judge_of
from detectors.inspect.sources import Progress, Source
from outrider.catalogue import RESPONSES
from outrider.cli.options import config_option
from outrider.cli.warnings import warn
from outrider.errors import InputError

#: Below this size an answer comes before a progress bar would be read.
PROGRESS_BYTES_MIN: Final = 32 << 20
#: Files of which a doubt is told each.
DOUBTS_MAX: Final = 5
#: A folder with more files than this is not a folder of logs of one incident.
FILES_MAX: Final = 20_000


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--kind", type=click.Choice(list(KINDS)), help="What the files are; guessed if not given.")
@click.option("--context", "context_file", type=click.Path(path_type=Path), help="JSON file of what the site knows.")
@config_option
@click.option("--all", "show_all", is_flag=True, help="Show findings at `ignore` too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, one line an incident.")
def inspect(
    files: tuple[Path, ...],
    kind: str | None,
    context_file: Path | None,
    config: Path | None,
    show_all: bool,
    as_json: bool,
) -> int:
    """What do these logs, dumps, pages or traces say?

    FILES are files, folders or - for standard input; gzip is read as it is. [catalogue] of the settings overrides codes.
    Exit status: 1 if something was found that needs a person or an action, 0 if not, 2 if a file cannot be read or is of
    no known kind.
    """
    context = load_context(context_file, warn)
    if config is not None:
        from outrider.config.catalogue import CatalogueSection
        from outrider.config.site import read_config

        context = replace(context, overrides=read_config(config).get(CatalogueSection))
    groups = _by_kind(_open_all(files), kind)
    by_kind: dict[str, list[Finding]] = {}
    with _progress(groups) as told:
        for name, sources in groups.items():
            for source in sources:
                source.on_progress(told)
                source.note = warn
            by_kind[name] = judge_of(name)(sources, context)
    found = _joined(by_kind)
    status = int(any(one.height >= RESPONSES.index("page") for one in found))
    shown = strongest_first(one for one in found if show_all or one.response != "ignore")
    if as_json:
        for one in shown:
            click.echo(json.dumps(one.to_json(), ensure_ascii=False))
    else:
        from detectors.inspect.answer import print_answer

        print_answer(shown, sources=sum(map(len, groups.values())), kinds=list(groups))
        _tell_doubts(groups, by_kind, guessed=kind is None)
    return status


def _tell_doubts(groups: dict[str, list[Source]], by_kind: dict[str, list[Finding]], *, guessed: bool) -> None:
    """Says why an answer may be wrong: nothing found in what may be no such log, or found in what anybody may have written."""
    said = 0
    for name, sources in groups.items():
        if (name == "kmsg") is not bool(by_kind[name]):
            continue
        for source in sources:
            why = doubt(source, name, guessed=guessed)
            said += why is not None
            if why is not None and said <= DOUBTS_MAX:
                click.echo(f"outrider: note: {why}", err=True)
    if said > DOUBTS_MAX:
        click.echo(f"outrider: note: the same holds for {said - DOUBTS_MAX} more files", err=True)


def _joined(by_kind: dict[str, list[Finding]]) -> list[Finding]:
    """The incidents: findings of several kinds of files, or of one port, may tell of one."""
    found = [one for findings in by_kind.values() for one in findings]
    if len(found) < 2:
        return found
    from detectors.inspect.story import join, settle

    return settle(join(by_kind) if len(by_kind) > 1 else found)


def _open_all(files: tuple[Path, ...]) -> list[tuple[Source, bool]]:
    """All inputs, each with whether it was named by itself (and not only found in a folder)."""
    named: list[tuple[Path | None, bool]] = []
    for path in files:
        if str(path) == "-":
            named.append((None, True))
        elif path.is_dir():
            inside = sorted(one for one in path.rglob("*") if os.path.isfile(one) and not one.name.startswith("."))
            if not inside:
                raise InputError("the folder is empty", file=str(path))
            named += [(one, False) for one in inside]
        else:
            named.append((path, True))
    if len(named) > FILES_MAX:
        raise InputError(f"{len(named)} files are more than {FILES_MAX}: name the folder of one incident")
    many = len(named) > 1
    return [(Source(path, file=(str(path) if path else "-") if many else None), alone) for path, alone in named]


def _by_kind(opened: list[tuple[Source, bool]], kind: str | None) -> dict[str, list[Source]]:
    """Sources by kind. In a folder, what is no log is named and passed over; a file named by itself must be one."""
    groups: dict[str, list[Source]] = {}
    passed_over = []
    for source, alone in opened:
        try:
            check_readable(source, kind)
            found = kind or guess_kind(source)
            if found is None:
                raise InputError(f"is none of the kinds {', '.join(KINDS)}: name one with --kind", file=source.name)
        except InputError as error:
            if alone:
                raise
            passed_over.append(error)
            continue
        groups.setdefault(found, []).append(source)
    if not groups:
        raise passed_over[0]
    for refused in passed_over[:5]:
        click.echo(f"outrider: passed over: {refused}", err=True)
    if len(passed_over) > 5:
        click.echo(f"outrider: passed over {len(passed_over) - 5} more", err=True)
    return groups


@contextmanager
def _progress(groups: dict[str, list[Source]]) -> Iterator[Progress]:
    """A progress bar on a terminal, if there is enough to read that one is wanted. Yields what the sources call."""
    total = sum(source.size for sources in groups.values() for source in sources)
    if total < PROGRESS_BYTES_MIN or not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=total)
        yield lambda count: bar.update(task, advance=count)
