"""From the shipped dashboards to a site's own: links, and the files that Grafana reads at its start."""

import json
from pathlib import Path
from typing import Any, Final

from alerts.rules.yaml import dump
from dashboards.grafana.alert_rules import FOLDER_TITLE, provisioning
from dashboards.grafana.shipped import dashboards
from outrider import __version__
from outrider.config.alerts import AlertsConfig
from outrider.errors import InputError

#: What the shipped dashboards link to until a site names its own (see scope.py, which this room's users need not have).
RUNBOOK_URL: Final = "https://outrider.example/runbooks/${__data.fields.fault}"
CONSOLE_URL: Final = "https://outrider.example/console"
#: Where the dashboards stand on Grafana's own machine, unless said otherwise.
GRAFANA_PATH: Final = "/var/lib/grafana/dashboards/outrider"


def own_dashboards(settings: AlertsConfig) -> dict[str, dict[str, Any]]:
    """File name -> dashboard, with the site's links; without a console there is no link to it."""
    runbook = settings.runbook_url.replace("{fault}", "${__data.fields.fault}")
    console = settings.console_url.partition("{")[0]
    return {name: _linked(dashboard, runbook, console) for name, dashboard in dashboards().items()}


def write(directory: str, site: str, settings: AlertsConfig, *, store: str, path: str) -> list[str]:
    """Writes the dashboards and the provisioning files. Returns their paths.

    Args:
        store: uid of the Prometheus-compatible data source in Grafana, for the alert rules.
        path: where the dashboards will stand on Grafana's machine.

    Raises:
        InputError: they cannot be written.
    """
    head = f"Made by `outrider dashboards` {__version__}."
    provider = {
        "name": "outrider", "orgId": 1, "folder": FOLDER_TITLE, "folderUid": "outrider", "type": "file", "disableDeletion": False,
        "allowUiUpdates": False, "updateIntervalSeconds": 30, "options": {"path": path.replace("$", "$$")},
    }  # fmt: skip
    texts = {
        f"{name}": json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"
        for name, dashboard in own_dashboards(settings).items()
    }
    texts["provisioning/dashboards/outrider.yml"] = dump({"apiVersion": 1, "providers": [provider]}, head)
    texts["provisioning/alerting/outrider.yml"] = dump(provisioning(site, settings, store), head)
    folder = Path(directory)
    try:
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(folder)) from None
    return [str(folder / name) for name in texts]


def _linked(dashboard: dict[str, Any], runbook: str, console: str) -> dict[str, Any]:
    """The dashboard with the shipped addresses replaced, wherever they stand."""
    dashboard = dict(dashboard)
    dashboard["links"] = [
        {**link, "url": console} if link.get("url") == CONSOLE_URL else link
        for link in dashboard["links"]
        if console or link.get("url") != CONSOLE_URL
    ]
    made: dict[str, Any] = _replaced(dashboard, runbook)
    return made


def _replaced(value: Any, runbook: str) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, runbook) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, runbook) for item in value]
    return runbook if value == RUNBOOK_URL else value
