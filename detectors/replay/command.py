"""`outrider replay FILE`: what would the judge have said, and done, about a recorded trace?"""

import gzip
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import click
import msgspec

from detectors.core.types import Action
from detectors.replay.explain import Judge, Story, tell
from detectors.replay.runner import Lines, Replay
from detectors.replay.trace import read_header, read_signals
from detectors.replay.words import aim
from outrider.catalogue.codes import CodeBook
from outrider.catalogue.faults import RESPONSES
from outrider.cli.options import config_option
from outrider.cli.warnings import warn
from outrider.config.policy import Policy, PolicySection
from outrider.errors import InputError


@click.command()
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, as docs/traces.md describes.")
@config_option
@click.option("--quiet", is_flag=True, help="Only the summary.")
def replay(file: Path, as_json: bool, config: Path | None, quiet: bool) -> int:
    """Runs a recorded trace through the judge at full speed.

    [policy] and [catalogue] of the settings are tried. A replay changes nothing in the world, so without settings it shows what
    mode `act` would do. Exits 1 if an incident at `page` or above was confirmed.
    """
    policy, codes = load_site(config)
    found = False
    encode, lines = msgspec.json.Encoder().encode, Lines()
    with open_trace(file) as (name, stream):
        number, first = _first_line(stream, name)
        fleet = read_header(first, name, number, warn)
        run = Replay(fleet, policy, codes)
        out = sys.stdout.buffer
        for decision in run.run(read_signals(stream, fleet, name, number + 1, warn)):
            shown = lines.line(decision)
            found = found or (shown["event"] == "confirmed" and RESPONSES.index(shown["response"]) >= RESPONSES.index("page"))
            if as_json and not quiet:
                out.write(encode(shown) + b"\n")
            elif not quiet:
                _print(decision, shown)
    if as_json:
        out.flush()
    else:
        _summary(run)
    return 1 if found else 0


@click.command(name="explain-incident")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.argument("incident", required=False)
@click.option("--json", "as_json", is_flag=True, help="One JSON object an incident.")
@config_option
def explain_incident(file: Path, incident: str | None, as_json: bool, config: Path | None) -> int:
    """Why was it decided so: votes, evidence for and against, what was done, and what would have changed it.

    FILE is a trace, or a witness's journal (`outrider journal --out FILE`); INCIDENT the beginning of an incident's name.
    [policy] and [catalogue] of the settings hold. The trace is run again without each kind of evidence, so this takes some
    times as long as `replay`.
    """
    policy, codes = load_site(config)
    with open_trace(file) as (name, stream):
        number, first = _first_line(stream, name)
        fleet = read_header(first, name, number, warn)
        signals = list(read_signals(stream, fleet, name, number + 1, warn))
    stories = tell(Judge(fleet, policy, codes), signals, incident)
    for story in stories:
        if as_json:
            click.echo(msgspec.json.encode(story.to_json()))
        else:
            _print_story(story)
    if not stories and not as_json:
        click.echo("no incident in this trace")
    return 0


def _print_story(story: Story) -> None:
    told = story.to_json()
    subject = " ".join(f"{key}={value}" for key, value in told["subject"].items())
    click.secho(f"{told['fault']} {subject}", bold=True)
    click.echo(f"  incident {told['incident']}, culprit {told['culprit']}, response {told['response']}\n  {told['explanation']}")
    click.echo("  votes: " + (", ".join(f"{witness} {verdict}" for witness, verdict in told["votes"].items()) or "none"))
    for title, key in (("evidence that confirms", "for"), ("evidence against", "against"), ("neither", "neutral")):
        for piece in told[key]:
            click.echo(f"  {title}: {piece['t']:.2f} s {piece['kind']}: {piece['text']}")
    for line in told["timeline"]:
        done = f" {line['action']} {aim(line['target'])}" if "action" in line else ""
        click.echo(f"  {line['t']:10.2f} s {line['event']}{done}" + (f": {line['refused']}" if "refused" in line else ""))
    for change in told["would_change"]:
        click.echo(f"  without {change['without']}: {change['outcome']}")


def load_site(config: Path | None) -> tuple[Policy, CodeBook]:
    """The policy and the codes to try: a file's, read as its witnesses read it; else the defaults in mode `act`."""
    if config is None:
        return PolicySection(mode="act"), CodeBook()
    from outrider.config.catalogue import CatalogueSection
    from outrider.config.site import SiteSection, read_config

    loaded = read_config(config)
    return loaded.get(PolicySection).under(loaded.get(SiteSection).mode), CodeBook(loaded.get(CatalogueSection))


@contextmanager
def open_trace(file: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Opens a trace, plain or gzip, or standard input for `-`. Raises InputError."""
    if str(file) == "-":
        yield "standard input", sys.stdin.buffer
        return
    try:
        plain = file.open("rb")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(file)) from None
    with plain:
        yield str(file), cast(IO[bytes], gzip.GzipFile(fileobj=plain)) if file.suffix == ".gz" else plain


def _first_line(stream: IO[bytes], name: str) -> tuple[int, bytes]:
    try:
        for number, line in enumerate(stream, 1):
            if line.strip():
                return number, line
    except (OSError, EOFError) as error:
        raise InputError(f"cannot be read: {error}", file=name) from None
    raise InputError("is empty", file=name)


_COLOURS = {
    "suspected": "yellow", "confirmed": "red", "refuted": "green", "resolved": "green", "action": "cyan", "refused": "magenta",
}  # fmt: skip


def _print(decision: Any, shown: dict[str, Any]) -> None:
    subject = " ".join(f"{key}={value}" for key, value in shown["subject"].items())
    head = click.style(f"{shown['t']:10.2f} s  {shown['event']:<9}", fg=_COLOURS.get(shown["event"]))
    if isinstance(decision, Action):
        click.echo(f"{head} {decision.action} {aim(decision.target)}" + (f" ({decision.refused})" if decision.refused else ""))
    else:
        click.echo(f"{head} {shown['fault']} {subject} [{shown['response']}] {shown['explanation']}")


def _summary(run: Replay) -> None:
    count = run.count
    click.echo(f"{count.lines} lines and {count.automatic} automatic signals, {count.end_t - count.start_t:.1f} s of time")
    for reason, number in sorted(count.skipped.items()):
        click.echo(f"not used: {number} x {reason}")
