"""Commands of the room `alerts`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from outrider.cli.options import config_again, config_option, needed

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON lines for programs.")


@click.command()
@config_option
def deliver(config: Path | None) -> int:
    """Drain the outbox: send webhooks to the targets of [alerts]. `outrider up` starts it by itself."""
    from alerts.deliverer import run

    return run(str(needed(config)))


@click.group(invoke_without_command=True)
@config_option
@json_option
@click.option("--state", type=click.Choice(["pending", "sent", "done", "failed", "dead"]), help="Only rows in this state.")
@click.option("--incident", help="Only rows of this incident (the beginning of its name).")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@click.pass_context
def outbox(context: click.Context, config: Path | None, as_json: bool, state: Any, incident: str | None, limit: int) -> int:
    """List what left or is to leave, newest first. Exit 1 if there are dead letters among it, or a target is gone (410)."""
    context.obj = config
    if context.invoked_subcommand is not None:
        _refuse_lost_options(context)
        return 0
    from alerts.people import listed, look, print_gone, print_rows, with_ledger

    rows, gone = asyncio.run(with_ledger(config, lambda ledger: look(ledger, state, incident, limit)))
    if as_json:
        for row in rows:
            click.echo(json.dumps(listed(row)))
    else:
        print_rows(rows, chosen=state is not None or incident is not None)
        print_gone(gone)
    return int(any(row.state == "dead" for row in rows) or bool(gone))


def _refuse_lost_options(context: click.Context) -> None:
    """An option of the list that stands before a command's name would be passed over in silence."""
    for option in context.command.params:
        told = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if told and option.name != "config":
            name = context.invoked_subcommand
            raise click.UsageError(f"{option.opts[0]} before {name} says nothing: what {name} takes stands behind it")


@outbox.command("gone")
@config_again
@json_option
def outbox_gone(config: Path | None, as_json: bool) -> int:
    """Targets that answered 410, "gone", and are left alone until they are enabled. Exit 1 if there are any."""
    from alerts.gone import gone_targets
    from alerts.people import print_gone, with_ledger

    gone = asyncio.run(with_ledger(config, gone_targets))
    if as_json:
        for one in gone:
            click.echo(json.dumps(one))
    elif gone:
        print_gone(gone)
    else:
        click.echo("No target is gone.")
    return int(bool(gone))


@outbox.command("enable")
@click.argument("target")
@click.option("--reason", default="", help="Why; it stands in the audit.")
@config_again
def outbox_enable(config: Path | None, target: str, reason: str) -> int:
    """Use a TARGET again that answered 410, "gone". Its dead letters: `outrider outbox retry`. Exit 1 if it is not gone."""
    from alerts.gone import enable
    from alerts.people import with_ledger

    done = asyncio.run(with_ledger(config, lambda ledger: enable(ledger, target, reason)))
    click.echo(f"{target} is used again" if done else f"{target!r} is not gone", err=not done)
    return int(not done)


@outbox.command("retry")
@click.argument("row", required=False)
@click.option("--all", "everything", is_flag=True, help="Every dead letter.")
@click.option("--reason", default="", help="Why; it stands in the audit.")
@config_again
def outbox_retry(config: Path | None, row: str | None, everything: bool, reason: str) -> int:
    """Send a dead letter again (ROW is its id), or all of them with --all. Exit 1 if there was none."""
    if (row is None) is not everything:
        raise click.UsageError("name one ROW, or say --all")
    from alerts.people import requeue, with_ledger

    sent = asyncio.run(with_ledger(config, lambda ledger: requeue(ledger, row, reason)))
    for name in sent:
        click.echo(f"will be sent again: {name}")
    if not sent:
        click.echo("no dead letter of that name" if row else "no dead letters", err=True)
    return int(not sent)


@outbox.command("schema")
def outbox_schema() -> None:
    """Print the JSON schema of webhook bodies."""
    from alerts.bodies import schema_text

    click.echo(schema_text(), nl=False)


@click.command("test")
@click.argument("target", required=False)
@config_option
@json_option
def test_targets(target: str | None, config: Path | None, as_json: bool) -> int:
    """Send a test webhook, page or notice to TARGET (all targets without it) and say what came back. Exit 1 if one failed."""
    from alerts.people import print_attempts, try_targets

    attempts = asyncio.run(try_targets(needed(config), target))
    if as_json:
        for name, attempt in attempts:
            click.echo(json.dumps({"target": name, "outcome": attempt.outcome, "status": attempt.status, "reason": attempt.reason}))
    else:
        print_attempts(attempts)
    return int(any(attempt.outcome != "accepted" for _, attempt in attempts))


@click.command("would-have")
@config_option
@json_option
@click.option("--limit", type=click.IntRange(1, 10_000), default=10_000, show_default=True, help="At most so many incidents.")
def would_have(config: Path | None, as_json: bool, limit: int) -> int:
    """What Outrider would have done: every action that a mode held back, and how it ended; it earns the step to `act`."""
    from alerts.people import with_ledger
    from alerts.report import print_report, read_report

    report = asyncio.run(with_ledger(config, lambda ledger: read_report(ledger, limit)))
    if as_json:
        click.echo(json.dumps(report))
    else:
        print_report(report)
    return 0


@click.command()
@click.argument("incident")
@config_option
@click.option("--out", type=click.Path(dir_okay=False, writable=True), help="Write it to this file in place of standard output.")
@click.option("--raw", is_flag=True, help="Keep raw log text as it is (the redaction rules of [alerts] are not applied).")
def export(incident: str, config: Path | None, out: str | None, raw: bool) -> int:
    """Export INCIDENT whole for a post-mortem: picture, history, evidence, actions, deliveries, audit, its page (JSON)."""
    from alerts.report import exported

    text = json.dumps(asyncio.run(exported(config, incident, raw)), indent=2) + "\n"
    if out:
        from outrider.errors import InputError

        try:
            with open(out, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", file=out) from None
    else:
        click.echo(text, nl=False)
    return 0


@click.command()
@click.argument("directory", type=click.Path(file_okay=False))
@config_option
def rules(directory: str, config: Path | None) -> int:
    """Write outrider.rules.yml (Prometheus), its unit tests and alertmanager.yml to DIRECTORY, all made from the catalogue."""
    from alerts.rules.command import write

    for path in write(directory, config):
        click.echo(path)
    return 0
