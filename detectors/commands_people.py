"""`outrider status`, `incidents`, `audit`, and people's orders: `ack`, `approve`, `maintenance`, `pause`, `resume`, `release`."""

import getpass
import json
from pathlib import Path
from typing import Any

import click

from outrider.cli.options import config_option
from outrider.config.site import read_config

#: HTTP: the order was understood, and does nothing as things stand.
CONFLICT = 409

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
reason_option = click.option("--reason", default="", help="Why; it stands in the audit.")


@click.command()
@config_option
@json_option
def status(config: Path | None, as_json: bool) -> int:
    """Show who watches, what is open, and what a person should know. Exit 1 if an incident at page or above is open."""
    told = _client(config).get("/v1/status")
    if as_json:
        click.echo(json.dumps(told))
    else:
        from detectors.witness.tables import print_status

        print_status(told)
    return int(any(_serious(incident) for incident in told["open"]))


@click.command()
@click.argument("incident", required=False)
@config_option
@json_option
@click.option("--state", help="Only incidents in this state.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
def incidents(incident: str | None, config: Path | None, as_json: bool, state: str | None, limit: int) -> int:
    """List incidents, newest first; with the beginning of an INCIDENT's name, its whole story."""
    client = _client(config)
    told = client.get(f"/v1/incidents/{incident}") if incident else client.get("/v1/incidents", state=state, limit=limit)
    if as_json:
        for item in [told] if incident else told:
            click.echo(json.dumps(item))
    else:
        from detectors.witness.tables import print_incident, print_incidents

        (print_incident if incident else print_incidents)(told)
    return 0


@click.command()
@config_option
@json_option
@click.option("--incident", help="Only entries of this incident (the beginning of its name).")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
def audit(config: Path | None, as_json: bool, incident: str | None, limit: int) -> int:
    """Show what was done, refused, approved and delivered, by whom and why; newest first."""
    told = _client(config).get("/v1/audit", incident=incident, limit=limit)
    if as_json:
        for item in told:
            click.echo(json.dumps(item))
    else:
        from detectors.witness.tables import print_audit

        print_audit(told)
    return 0


@click.command()
@click.argument("incident")
@config_option
@reason_option
def ack(incident: str, config: Path | None, reason: str) -> None:
    """Say that INCIDENT is seen and being worked on."""
    _order(config, "ack", {"incident": incident}, reason, "acknowledged: incident {target}")


@click.command()
@click.argument("incident")
@config_option
@reason_option
def approve(incident: str, config: Path | None, reason: str) -> int:
    """Approve what was held back for INCIDENT until a person decides. Exit 1 if that does nothing: in mode observe, or too late."""
    from detectors.witness.client import RefusedError

    try:
        _order(config, "approve", {"incident": incident}, reason, "approved: incident {target}; what the mode allows is done now")
    except RefusedError as error:
        if error.status != CONFLICT:
            raise
        click.echo(f"outrider: {error}", err=True)
        return 1
    return 0


@click.command("false-alarm")
@click.argument("incident")
@config_option
@reason_option
def false_alarm(incident: str, config: Path | None, reason: str) -> None:
    """Close INCIDENT as a false alarm and count it as one."""
    _order(config, "false_alarm", {"incident": incident}, reason, "closed as a false alarm: incident {target}")


@click.command()
@click.argument("node")
@config_option
@reason_option
def release(node: str, config: Path | None, reason: str) -> None:
    """Let NODE be used again after its repair: ends quarantine, claim and stop order."""
    _order(config, "release", {"node": node}, reason, "released: node {target}")


@click.command()
@click.argument("name")
@config_option
@reason_option
@click.option("--job", "is_job", is_flag=True, help="NAME is a job, not a node.")
@click.option("--off", is_flag=True, help="End the window now.")
@click.option("--minutes", type=click.FloatRange(0.1, 1440), default=60, show_default=True, help="Length of the window.")
def maintenance(name: str, config: Path | None, reason: str, is_job: bool, off: bool, minutes: float) -> None:
    """Open (or end) a window of maintenance for a node or job: what happens to it is recorded and not acted on."""
    what = "job" if is_job else "node"
    body = {what: name, "on": not off, "seconds": minutes * 60}
    text = f"maintenance of {what} {name} " + ("is over" if off else f"for {minutes:g} minutes")
    _order(config, "maintenance", body, reason, text)


@click.command()
@config_option
@reason_option
def pause(config: Path | None, reason: str) -> None:
    """Stop all actions of Outrider, everywhere, until `outrider resume`; it goes on watching and telling."""
    _order(config, "pause", {"on": True}, reason, "paused: no action anywhere until `outrider resume`")


@click.command()
@config_option
@reason_option
@click.option("--reset-brake", is_flag=True, help="Also let go of the mass-failure brake.")
def resume(config: Path | None, reason: str, reset_brake: bool) -> None:
    """Let Outrider act again."""
    _order(config, "pause", {"on": False}, reason, "resumed: what the mode allows is done again")
    if reset_brake:
        _order(config, "reset_brake", {}, reason, "the mass-failure brake is let go")


def _client(config: Path | None) -> Any:
    from detectors.witness.client import Client

    return Client(read_config(config))


def _order(config: Path | None, kind: str, body: dict[str, Any], reason: str, text: str) -> None:
    """Gives an order and says what it does; `{target}` in `text` is what the witness understood."""
    told = _client(config).post(f"/v1/{kind}", {**body, "who": getpass.getuser(), "reason": reason})
    click.echo(text.replace("{target}", str(told.get("target", ""))))


def _serious(incident: dict[str, Any]) -> bool:
    return incident.get("state") != "suspected" and incident.get("response") in ("page", "drain", "restart")
