"""Alert rules in Grafana's own form, for those without Alertmanager: the same catalogue, the same expressions.

As a file that Grafana reads from `provisioning/alerting/`, or as groups for its provisioning API. Recording rules stay with
Prometheus (`outrider rules`): Grafana's are no match for them.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from alerts.rules.prometheus import rules
from outrider.config.alerts import AlertsConfig

#: Where the rules stand in Grafana.
FOLDER_TITLE: Final = "Outrider"
#: Grafana's own default pace; `for` of every rule is a multiple of it.
INTERVAL_SECONDS: Final = 60
#: How far back a query looks, seconds: one evaluation needs the newest sample alone.
LOOK_BACK_SECONDS: Final = 300


def provisioning(site: str, settings: AlertsConfig, store: str) -> dict[str, Any]:
    """The whole file.

    Args:
        store: uid of the Prometheus-compatible data source in Grafana.
    """
    written = [
        {
            "orgId": 1,
            "name": name,
            "folder": FOLDER_TITLE,
            "interval": f"{INTERVAL_SECONDS // 60}m",
            "rules": [_escaped(rule) for rule in made],
        }
        for name, made in _made(site, settings, store)
    ]
    return {"apiVersion": 1, "groups": written}


def groups(site: str, settings: AlertsConfig, store: str, folder_uid: str) -> list[dict[str, Any]]:
    """The groups as the API takes them (`AlertRuleGroup` of Grafana's OpenAPI); the server knows the organisation itself."""
    return [
        {
            "title": name,
            "folderUid": folder_uid,
            "interval": INTERVAL_SECONDS,
            "rules": [{**rule, "folderUID": folder_uid, "ruleGroup": name, "orgID": 1} for rule in made],
        }
        for name, made in _made(site, settings, store)
    ]


def _made(site: str, settings: AlertsConfig, store: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for group in rules(site, settings)["groups"]:
        alerting = [_rule(rule, store) for rule in group["rules"] if "alert" in rule]
        if alerting:
            yield group["name"], alerting


def _rule(rule: dict[str, Any], store: str) -> dict[str, Any]:
    """One rule. A Prometheus rule fires wherever its expression has a series, whatever the value: `count` makes a 1 of it."""
    name = rule["alert"]
    return {
        "uid": f"outrider-{hashlib.sha256(name.encode()).hexdigest()[:16]}",
        "title": name,
        "condition": "B",
        "data": [
            {
                "refId": "A",
                "relativeTimeRange": {"from": LOOK_BACK_SECONDS, "to": 0},
                "datasourceUid": store,
                "model": {"refId": "A", "expr": f"count without () ({rule['expr']})", "instant": True, "range": False},
            },
            {
                "refId": "B",
                "relativeTimeRange": {"from": LOOK_BACK_SECONDS, "to": 0},
                "datasourceUid": "__expr__",
                "model": {
                    "refId": "B",
                    "type": "threshold",
                    "expression": "A",
                    "conditions": [{"evaluator": {"type": "gt", "params": [0]}}],
                },
            },
        ],
        # No series means that nothing is open. A store that cannot be asked is told: unknown is not well.
        "noDataState": "OK",
        "execErrState": "Error",
        "for": rule.get("for", "0s"),
        "labels": dict(rule["labels"]),
        "annotations": dict(rule["annotations"]),
        "isPaused": False,
    }


def _escaped(rule: dict[str, Any]) -> dict[str, Any]:
    """As it stands in a provisioning file: `$` begins a variable of the environment there, in all fields but annotations."""
    query, threshold = rule["data"]
    literal = {**query, "model": {**query["model"], "expr": query["model"]["expr"].replace("$", "$$")}}
    labels = {label: value.replace("$", "$$") for label, value in rule["labels"].items()}
    return {**rule, "data": [literal, threshold], "labels": labels}
