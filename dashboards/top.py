"""`outrider top`: a live view in the terminal, in the words of `outrider status`."""

import contextlib
import json
import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from outrider.cli.options import config_option
from outrider.config.site import read_config
from outrider.errors import OutriderError

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from detectors.witness.client import Client

#: Pace of a job's steps is measured over this many looks.
LOOKS_MAX: Final = 30
#: Jobs of which the pace is remembered.
JOBS_MAX: Final = 500
#: Lines that everything but incidents and jobs needs.
HEAD_LINES: Final = 6
_ORDER: Final = {"restart": 0, "drain": 1, "page": 2, "watch": 3, "ignore": 4}
#: Lines of one incident: what, whom, why.
LINES_OF_ONE: Final = 3


class Course:
    """Where jobs stood at the last looks, to say how fast they go."""

    def __init__(self) -> None:
        self._looks: dict[str, deque[tuple[float, int, int]]] = {}

    def see(self, jobs: list[dict[str, Any]], now: float) -> None:
        """Takes one look in. Args: now: monotonic seconds."""
        for job in jobs[:JOBS_MAX]:
            looks = self._looks.setdefault(job["job"], deque(maxlen=LOOKS_MAX))
            if looks and looks[-1][1] != job["attempt"]:
                looks.clear()
            looks.append((now, job["attempt"], -1 if job.get("step") is None else job["step"]))
        known = {job["job"] for job in jobs}
        self._looks = {name: looks for name, looks in self._looks.items() if name in known}

    def pace(self, job: str) -> float | None:
        """Steps in a minute; None until two looks are there."""
        looks = self._looks.get(job)
        if not looks or len(looks) < 2 or looks[-1][0] <= looks[0][0]:
            return None
        return 60 * max(0, looks[-1][2] - looks[0][2]) / (looks[-1][0] - looks[0][0])


@click.command()
@config_option
@click.option("--interval", type=click.FloatRange(0.2, 60), default=2.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Show one screen and end; exit 1 if an incident at page or above is open.")
@click.option("--json", "as_json", is_flag=True, help="Print one look as JSON and end.")
def top(config: Path | None, interval: float, once: bool, as_json: bool) -> int:
    """Watch the cluster live: who watches, jobs and their pace, open incidents, the worst first. Leave with q."""
    from detectors.witness.client import Client

    client = Client(read_config(config))
    if as_json or once or not sys.stdout.isatty():
        told, jobs = look(client)
        if as_json:
            click.echo(json.dumps({"status": told, "jobs": jobs}))
        else:
            from rich.console import Console

            Console().print(screen(told, jobs, Course(), height=None))
        return int(any(_serious(incident) for incident in told["open"]))
    try:
        return _live(client, interval)
    except KeyboardInterrupt:  # as good as q
        return 0


def look(client: "Client") -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The status, and the jobs with their steps where the witness keeps them."""
    from detectors.witness.client import RefusedError

    told: dict[str, Any] = client.get("/v1/status")
    try:
        jobs: list[dict[str, Any]] = client.get("/console/api/jobs")
    except RefusedError:  # a witness without the console knows the jobs' members alone
        jobs = [
            {"job": name, "attempt": line["attempt"], "step": None, "ranks": line["ranks"], "phase": line.get("state", "unknown")}
            for name, line in told["jobs"].items()
        ]
    return told, jobs


def screen(
    told: dict[str, Any], jobs: list[dict[str, Any]], course: Course, *, height: int | None, stale: str | None = None
) -> "Group":
    """One screen.

    Args:
        height: lines there are; None for all.
        stale: why what is shown is old, if it is.
    """
    from rich.console import Group
    from rich.text import Text

    from detectors.witness.tables import plain

    room = (max(4, height - HEAD_LINES - len(told["warnings"]) - 6)) if height is not None else 1_000_000
    job_room = min(len(jobs), max(2, room // 3))
    parts: list[Any] = [_head(told, stale)]
    parts += [Text(plain(f"warning: {warning}"), style="yellow") for warning in told["warnings"][: max(1, room // 3)]]
    if jobs:
        parts.append(_jobs(jobs, course, job_room))
    if told["open"]:
        parts += _incidents(told["open"], max(2, (room - job_room) // LINES_OF_ONE), whole=height is None)
    else:
        parts.append(Text("no open incident", style="green"))
    return Group(*parts)


def _head(told: dict[str, Any], stale: str | None) -> "Text":
    from rich.text import Text

    from detectors.witness.tables import plain

    head = Text()
    head.append(plain(told["site"]), style="bold")
    head.append("  mode ")
    head.append(plain(told["mode"]), style="bold green" if told["mode"] == "act" else "bold yellow")
    head.append("  PAUSED" if told["paused"] else "", style="bold red")
    head.append(f"  {told['nodes']} nodes, spares {plain(', '.join(told['spares'])) or 'none'}\nwitnesses ")
    for name, seen in told["witnesses"].items():
        word, style = {True: ("", "green"), False: (" not there", "bold red"), None: (" unknown", "yellow")}[seen["up"]]
        head.append(plain(f"{name}{' leads' if name == told['leader'] else ''}{word}  "), style=style)
    head.append("deliverer " + ("there" if told["deliverer"] else "not there"), style="" if told["deliverer"] else "bold red")
    if told["maintenance"]:
        head.append(f"\nmaintenance {plain(', '.join(told['maintenance']))}", style="cyan")
    if stale:
        head.append(f"\n{plain(stale)}", style="bold red")
    return head


def _jobs(jobs: list[dict[str, Any]], course: Course, room: int) -> "Table":
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    from detectors.witness.tables import plain

    table = Table("job", "attempt", "ranks", "phase", "step", "steps/min", "loss", box=SIMPLE, padding=(0, 1, 0, 0))
    table.columns[0].overflow = "fold"  # a long name has two lines rather than no end
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for job in jobs[:room]:
        pace, loss = course.pace(job["job"]), job.get("loss")
        table.add_row(
            Text(plain(job["job"])), str(job["attempt"]), str(job.get("ranks") or "?"), Text(plain(job.get("phase") or "?")),
            "?" if job.get("step") is None else str(job["step"]),
            Text("?" if pace is None else f"{pace:.1f}", style="red" if pace == 0 else ""),
            "?" if loss is None else f"{loss:.4g}",
        )  # fmt: skip
    if len(jobs) > room:
        table.add_row(Text(f".. and {len(jobs) - room} more", style="dim"))
    return table


def _incidents(found: list[dict[str, Any]], room: int, *, whole: bool) -> list["Text"]:
    """The worst of them; where room is counted, each of an incident's lines is one line."""
    from rich.text import Text

    from detectors.witness.tables import incident_text

    worst = sorted(found, key=lambda one: (one.get("state") == "suspected", _ORDER.get(str(one.get("response")), 9)))
    told = [incident_text(one) for one in worst[:room]]
    for text in told:
        text.no_wrap, text.overflow = not whole, "ellipsis"
    if len(found) > room:
        told.append(Text(f".. and {len(found) - room} more: outrider incidents", style="dim"))
    return told


def _live(client: "Client", interval: float) -> int:
    """Looks until q or the end of the input. A witness that does not answer is said, not fatal."""
    from rich.console import Console
    from rich.live import Live

    console, course = Console(), Course()
    told, jobs = look(client)
    good = time.monotonic()
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        stale: str | None = None
        while True:
            if stale is None:
                course.see(jobs, time.monotonic())
            live.update(screen(told, jobs, course, height=console.height, stale=stale), refresh=True)
            if pressed(interval):
                return int(any(_serious(incident) for incident in told["open"]))
            try:
                (told, jobs), stale = look(client), None
                good = time.monotonic()
            except OutriderError as error:
                stale = f"as it was {time.monotonic() - good:.0f} s ago: {error}"


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """A function that waits so many seconds and says whether the person wants to leave."""
    if not sys.stdin.isatty():

        def wait(seconds: float) -> bool:
            time.sleep(seconds)
            return False

        yield wait
        return
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def pressed(seconds: float) -> bool:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return bool(ready) and os.read(descriptor, 64)[:1] in (b"q", b"Q", b"")

    try:
        tty.setcbreak(descriptor)
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _serious(incident: dict[str, Any]) -> bool:
    return incident.get("state") != "suspected" and incident.get("response") in _ORDER and _ORDER[incident["response"]] <= 2
