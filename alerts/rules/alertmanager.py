"""`alertmanager.yml`: one notification per incident, larger causes silence smaller ones, silent jobs, and the dead-man's switch."""

import re
from typing import Any

from alerts.rules.prometheus import WATCHDOG
from outrider.config.alerts import AlertsConfig, Receiver

NOBODY = "nobody"
DEADMAN = "deadman"


def configuration(settings: AlertsConfig) -> dict[str, Any]:
    """The whole file."""
    receivers: list[dict[str, Any]] = [{"name": NOBODY}]
    if settings.deadman:
        hook = {"url": settings.deadman, "send_resolved": False}
        receivers.append({"name": DEADMAN, "webhook_configs": [hook]})
    receivers += [_receiver(one) for one in settings.receivers]
    return {"route": _route(settings), "inhibit_rules": inhibitions(), "receivers": receivers}


def _route(settings: AlertsConfig) -> dict[str, Any]:
    routes: list[dict[str, Any]] = [
        # Every minute, so that the service behind it notices a silence of a few minutes.
        {"matchers": [f'alertname="{WATCHDOG}"'], "receiver": DEADMAN if settings.deadman else NOBODY, "group_wait": "0s",
         "group_interval": "1m", "repeat_interval": "1m"},
        {"matchers": ['severity=~"info|none"'], "receiver": NOBODY},
    ]  # fmt: skip
    if settings.silent_jobs:
        pattern = "|".join(_pattern(job) for job in settings.silent_jobs)
        routes.append({"matchers": [f'job=~"{pattern}"', 'level="job"'], "receiver": NOBODY})
    for one in settings.receivers:
        matchers = [f'severity=~"{"|".join(one.severities)}"']
        if one.owners:
            matchers.append(f'owner=~"{"|".join(re.escape(owner) for owner in one.owners)}"')
        routes.append({"matchers": matchers, "receiver": one.name, "continue": True})
    return {
        # `incident` stands on what Outrider posts itself: one group, one notification per incident. What comes from rules has none
        # and is grouped by its fault.
        "group_by": ["cluster", "incident", "fault"],
        "group_wait": "5s",
        "group_interval": "1m",
        "repeat_interval": "4h",
        "receiver": settings.receivers[0].name if settings.receivers else NOBODY,
        "routes": routes,
    }


def inhibitions() -> list[dict[str, Any]]:
    """Which alert holds which back. A missing label equals an empty one, so a source must carry what is compared."""
    small = 'level=~"node|gpu|job"'
    return [
        # What was posted directly holds back the rule's alert about the same thing.
        {"source_matchers": ['source="outrider"', 'level!="switch"'], "target_matchers": ['source="rules"', 'level!="switch"'],
         "equal": ["cluster", "fault", "node", "gpu", "nic", "job"]},
        {"source_matchers": ['source="outrider"', 'level="switch"'], "target_matchers": ['source="rules"', 'level="switch"'],
         "equal": ["cluster", "fault", "switch"]},
        # Switch > node > GPU (and port) > job.
        {"source_matchers": ['level="switch"', 'switch=~".+"'], "target_matchers": [small], "equal": ["cluster", "switch"]},
        {"source_matchers": ['level="node"', 'node=~".+"'], "target_matchers": ['level="gpu"'], "equal": ["cluster", "node"]},
        {"source_matchers": ['level=~"switch|node|gpu"', 'job=~".+"'], "target_matchers": ['level="job"'],
         "equal": ["cluster", "job"]},
        # Blind: what is not seen cannot be judged; nothing else about the monitoring is news.
        {"source_matchers": ['fault="monitor.blind"'], "target_matchers": ['fault=~"agent.lost|path.broken|monitor.witness_lost"'],
         "equal": ["cluster"]},
    ]  # fmt: skip


def _pattern(job: str) -> str:
    return ".*".join(re.escape(part) for part in job.split("*"))


def _receiver(one: Receiver) -> dict[str, Any]:
    made: dict[str, Any] = {"name": one.name}
    if one.webhook_url:
        made["webhook_configs"] = [{"url": one.webhook_url, "send_resolved": True}]
    if one.pagerduty_key_file:
        key = {"routing_key_file": one.pagerduty_key_file, "send_resolved": True}
        made["pagerduty_configs"] = [key]
    if one.slack_url_file:
        slack = {"api_url_file": one.slack_url_file, "channel": one.channel, "send_resolved": True}
        made["slack_configs"] = [slack]
    if one.email:
        made["email_configs"] = [{"to": one.email, "send_resolved": True}]
    return made
