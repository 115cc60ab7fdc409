"""The answers of the witnesses as tables for people."""

from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

#: How each state of an incident looks.
STATE_STYLES = {
    "suspected": "yellow", "confirmed": "bold red", "acting": "bold red", "recovering": "cyan", "resolved": "green",
    "refuted": "dim",
}  # fmt: skip
#: Words of the record that say little by themselves.
WORDS = {"told": "people are told", "action_result": "ended:", "action": "asked:"}


def print_status(told: dict[str, Any]) -> None:
    """One screen: who watches, what is open, what to know."""
    console = Console()
    mode = Text(told["mode"], style="bold green" if told["mode"] == "act" else "bold yellow")
    console.print("site", Text(told["site"], style="bold"), "in mode", mode, "- PAUSED" if told["paused"] else "")
    watchers = Table("witness", "there", "leads", box=None)
    for name, seen in told["witnesses"].items():
        there = {True: "yes", False: "no", None: "unknown"}[seen["up"]]
        watchers.add_row(name, Text(there, style="red" if there == "no" else ""), "leads" if name == told["leader"] else "")
    console.print(watchers)
    deliverer = "there" if told["deliverer"] else "not there"
    console.print(Text(f"{told['nodes']} nodes, spares {', '.join(told['spares']) or 'none'}, deliverer {deliverer}"))
    for job, line in told["jobs"].items():
        console.print(Text(f"job {job}: attempt {line['attempt']}, {line['ranks']} ranks, {_standing(line)}"))
    if told["maintenance"]:
        console.print(Text(f"maintenance: {', '.join(told['maintenance'])}"))
    if told["open"]:
        print_incidents(told["open"])
    else:
        console.print("no open incident", style="green")
    for warning in told["warnings"]:
        console.print(Text(f"warning: {warning}", style="yellow"))


def _standing(line: dict[str, Any]) -> str:
    """How a job stands; of one that is not heard, for how long. A witness of an older version does not say."""
    state, heard = line.get("state", "unknown"), line.get("heard_s")
    if state != "unknown":
        return str(state)
    return "unknown (none of its ranks is heard of)" if heard is None else f"unknown (no rank is heard of for {heard / 60:.0f} min)"


def print_incidents(told: list[dict[str, Any]]) -> None:
    """A row an incident."""
    if not told:
        Console().print("no incident")
        return
    for incident in told:
        Console().print(incident_text(incident))


def incident_text(incident: dict[str, Any]) -> Text:
    """An incident in three lines: which, since when (UTC), how it stands, what and what for; about whom; why. Fits 80 columns."""
    state = str(incident.get("state", "unknown"))
    told = Text(
        f"{plain(str(incident.get('incident', ''))[:8])}  {plain(_moment(incident.get('opened', '')))} UTC  "
    )
    told.append(f"{plain(state):10}", style=STATE_STYLES.get(state, ""))
    told.append(f"  {plain(incident.get('fault', ''))} -> {plain(incident.get('response', ''))}", style="bold")
    subject = "  ".join(f"{key} {value}" for key, value in incident.get("subject", {}).items())
    for line in (subject, str(incident.get("explanation", ""))):
        told.append(f"\n    {plain(line)}" if line else "")
    if approval := incident.get("approval"):
        told.append(f"\n    {plain(_approval(incident, approval))}", style="bold yellow")
    if incident.get("acknowledged"):
        told.append(f"\n    seen by {plain(incident['acknowledged'])}", style="green")
    return told


def _approval(incident: dict[str, Any], approval: dict[str, Any]) -> str:
    """`waits for your approval of ..`: of what, how to give it, until when, and what holds then."""
    then = "it acts" if approval["default"] == "act" else "nothing is done"
    until = f"until {_moment(approval['until'])} UTC, then {then}" if approval["until"] else "without end"
    give = f"outrider approve {str(incident.get('incident', ''))[:8]}"
    return f"waits for approval of {', '.join(approval['for'])}, {until}: {give}"


def _moment(wall: object) -> str:
    """`05-17 09:08:07` of an ISO time."""
    return str(wall)[5:19].replace("T", " ")


def plain(text: object) -> str:
    """A name or sentence without what could steer the terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def print_incident(told: dict[str, Any]) -> None:
    """The whole story of one."""
    console = Console()
    print_incidents([told])
    start = told["history"][0]["t"] if told["history"] else 0.0
    for line in told["history"]:
        what = " ".join(
            WORDS.get(str(line[key]), str(line[key])) for key in ("event", "action", "outcome", "refused") if line.get(key)
        )
        why = line.get("explanation") or line.get("reason") or line.get("detail") or ""
        if isinstance(why, dict):
            why = ", ".join(f"{key} {value}" for key, value in why.items())
        console.print(Text(f"  {line['t'] - start:8.2f} s  {what}{': ' if why else ''}{why}"))
    for name, parts in (("detected", told.get("detection")), ("recovered", told.get("recovery"))):
        if parts:
            said = " + ".join(f"{part} {seconds:.2f}" for part, seconds in parts.items() if part != "total")
            console.print(Text(f"  {name} in {parts['total']:.2f} s = {said}"))
    for evidence in told.get("evidence", []):
        console.print(Text(f"  evidence ({evidence['layer']}, {evidence['effect']}s): {evidence['text']}"))
    console.print(Text(f"  votes: {', '.join(f'{name} {vote}' for name, vote in told.get('votes', {}).items()) or 'none'}"))
    for row in told["actions"]:
        error = f", {row['error']}" if row["error"] else ""
        console.print(Text(f"  {row['type']} to {row['target'] or 'all'}: {row['state']}, {row['attempts']} attempts{error}"))


def print_audit(told: list[dict[str, Any]]) -> None:
    """A row an entry."""
    if not told:
        Console().print("nothing was done, refused or delivered yet")
        return
    table = Table("when (UTC)", "who", "what", "incident", "about", "why", box=SIMPLE)
    for column in table.columns[:4]:
        column.no_wrap = True
    for entry in told:
        about = entry.get("action") or entry.get("type") or entry.get("target") or ""
        about = "" if about == entry.get("incident") else about
        table.add_row(
            _moment(entry.get("wall", "")), str(entry.get("who", "")), str(entry.get("what", "")),
            str(entry.get("incident") or "")[:8], Text(str(about)), Text(str(entry.get("why", ""))),
        )  # fmt: skip
    Console().print(table)
