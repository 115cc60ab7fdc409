"""`outrider dashboards DIR`: Grafana's dashboards, provisioning and alert rules as files; `--push URL` sends them."""

import json
from pathlib import Path

import click

from outrider.cli.options import config_option
from outrider.errors import InputError


@click.command()
@click.argument("directory", required=False)
@config_option
@click.option("--push", "url", metavar="URL", help="Send dashboards and alert rules to this Grafana.")
@click.option("--token-file", metavar="FILE", help="Holds the token of a Grafana service account (role Editor).")
@click.option("--overwrite", is_flag=True, help="With --push: also over what somebody changed in Grafana.")
@click.option("--alert-rules/--no-alert-rules", default=True, help="With --push: whether alert rules go, too.", show_default=True)
@click.option("--dry-run", is_flag=True, help="With --push: say what would be sent, send nothing.")
@click.option("--store", default="prometheus", show_default=True, help="Uid of the data source that the alert rules ask.")
@click.option("--grafana-path", metavar="DIR", help="Where the dashboards will stand on Grafana's machine.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def dashboards(
    directory: str | None, config: Path | None, url: str | None, token_file: str | None, overwrite: bool,
    alert_rules: bool, dry_run: bool, store: str, grafana_path: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Write Grafana dashboards, their provisioning and alert rules into DIRECTORY, or send them with --push.

    Without Alertmanager Grafana itself can tell people; where Alertmanager does, leave its rules out (--no-alert-rules). Exit 1 if
    Grafana holds something of ours that somebody else changed.
    """
    from dashboards.grafana import site
    from outrider.config.alerts import AlertsConfig
    from outrider.config.site import SiteSection, read_config

    if directory is None and url is None:
        raise InputError("say where to write (DIRECTORY) or where to send (--push URL)")
    if url is not None:  # what cannot be sent is told before anything is written
        from dashboards.grafana.push import check

        token = _token(token_file)
        check(url)
    read = read_config(config)
    settings, told = read.get(AlertsConfig), read.get(SiteSection)
    if directory is not None:
        written = site.write(directory, told.name, settings, store=store, path=grafana_path or site.GRAFANA_PATH)
        click.echo(json.dumps({"written": written}) if as_json else "\n".join(written))
    if url is None:
        return 0
    from dashboards.grafana.alert_rules import groups
    from dashboards.grafana.push import FOLDER_UID, push

    rules = groups(told.name, settings, store, FOLDER_UID) if alert_rules else []
    boards = site.own_dashboards(settings).values()
    results = push(url, token, boards, rules, overwrite=overwrite, dry_run=dry_run)
    for one in results:
        shown = {"uid": one.uid, "outcome": one.outcome, "detail": one.detail}
        detail = f" ({one.detail})" if one.detail else ""
        click.echo(json.dumps(shown) if as_json else f"{'would be: ' if dry_run else ''}{one.uid}: {one.outcome}{detail}")
    return int(any(one.outcome == "conflict" for one in results))


def _token(path: str | None) -> str:
    if path is None:
        raise InputError("names no file with Grafana's token", key="--token-file")
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text"
        raise InputError(f"cannot be read: {reason}", file=path, key="--token-file") from None
    if not token or len(token.split()) != 1:
        raise InputError("must hold one token and nothing else", file=path, key="--token-file")
    return token
