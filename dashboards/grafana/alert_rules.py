"""Alert rules in Grafana's own provisioning form, for those without Alertmanager: the same catalogue, the same expressions.

Grafana reads the file from `provisioning/alerting/`. Recording rules stay with Prometheus (`outrider rules`): Grafana's are no
match for them.
"""

import hashlib
from typing import Any, Final

from alerts.rules.prometheus import rules
from outrider.config.alerts import AlertsConfig

#: Where the rules stand in Grafana.
FOLDER_TITLE: Final = "Outrider"
#: How far back a query looks, seconds: one evaluation needs the newest sample alone.
LOOK_BACK_SECONDS: Final = 300


def provisioning(site: str, settings: AlertsConfig, store: str) -> dict[str, Any]:
    """The whole file.

    Args:
        store: uid of the Prometheus-compatible data source in Grafana.
    """
    groups = []
    for group in rules(site, settings)["groups"]:
        alerting = [_rule(rule, store) for rule in group["rules"] if "alert" in rule]
        if alerting:
            # Grafana's own default; `for` of every rule is a multiple of it.
            groups.append({"orgId": 1, "name": group["name"], "folder": FOLDER_TITLE, "interval": "1m", "rules": alerting})
    return {"apiVersion": 1, "groups": groups}


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
                "model": {"refId": "A", "expr": _literal(f"count without () ({rule['expr']})"), "instant": True, "range": False},
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
        "labels": {label: _literal(value) for label, value in rule["labels"].items()},
        "annotations": dict(rule["annotations"]),
        "isPaused": False,
    }


def _literal(value: str) -> str:
    """`$` begins a variable of the environment in Grafana's provisioning files, in all fields but annotations."""
    return value.replace("$", "$$")
