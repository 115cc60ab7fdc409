"""Section `[alerts]`: who is told, through which target, and how hard we try."""

import re

from msgspec import Struct

from outrider.config.paths import SitePath
from outrider.config.targets import (
    AlertmanagerTarget,
    CommandTarget,
    HostsTarget,
    KubernetesTarget,
    NotifyTarget,
    SlurmTarget,
    Target,
)

__all__ = ["AlertsConfig", "Receiver", "Redaction", "SpareCheck", "Target"]


class Redaction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule of what must not leave: `pattern` (a Python regular expression) becomes `to` in every text that leaves."""

    pattern: str
    to: str = "[redacted]"

    def __post_init__(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ValueError(f"pattern is no regular expression: {error}") from None


class SpareCheck(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command that says whether a spare is fit (exit status 0), run before a restart uses it; `{node}` and `{job}` are filled in.

    Empty: spares are taken as they are. `timeout_seconds`: a check that does not end has failed.
    """

    command: tuple[str, ...] = ()
    timeout_seconds: float = 20.0


class Receiver(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """People behind Alertmanager, for the generated alertmanager.yml: `[[alerts.receivers]]`.

    `severities` it wants; `owners`: only alerts with one of these owners (empty: all). Set what applies: `webhook_url`,
    `pagerduty_key_file`, `slack_url_file` with `channel`, `email` (the mail server stands in Alertmanager's own `global`). Feishu,
    DingTalk and WeCom are reached through `[[alerts.notify]]`.
    """

    name: str
    severities: tuple[str, ...] = ("warning", "critical")
    owners: tuple[str, ...] = ()
    webhook_url: str = ""
    pagerduty_key_file: str = ""
    slack_url_file: str = ""
    channel: str = ""
    email: str = ""

    def __post_init__(self) -> None:
        if self.name in ("", "nobody", "deadman"):
            raise ValueError(f"a receiver may not be called {self.name!r}")


class AlertsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`poll_seconds` (0.01..10): how often the deliverer looks into the outbox; smaller is quicker and costs a query each.
    `backoff_seconds` and `backoff_seconds_max`: first and largest wait between attempts (doubling, with jitter).
    `breaker_failures`: consecutive failures after which a target is left alone for `breaker_seconds`.

    `metrics_port` (0: none) at `metrics_address` serves the deliverer's Prometheus page, over TLS with the PEM files
    `metrics_tls_cert` and `metrics_tls_key` (both or none; docs/tls.md). `redact`: rules for text that leaves.
    `owners`: job (or a beginning that ends in `*`) -> its owner, a label of every alert about it. `console_url`,
    `dashboard_url`, `runbook_url`: bases of the links in a page; `{incident}`, `{job}`, `{node}`, `{fault}` are filled in.
    `deadman`: receiver of the heartbeat alert (a URL of a dead-man's-switch service) in the generated alertmanager.yml;
    `receivers`: people in it; `silent_jobs`: jobs (`*` fits anything) whose own alerts call nobody.
    """

    targets: tuple[Target, ...] = ()
    alertmanagers: tuple[AlertmanagerTarget, ...] = ()
    notify: tuple[NotifyTarget, ...] = ()
    slurm: tuple[SlurmTarget, ...] = ()
    kubernetes: tuple[KubernetesTarget, ...] = ()
    hosts: tuple[HostsTarget, ...] = ()
    commands: tuple[CommandTarget, ...] = ()
    spare_check: SpareCheck = SpareCheck()
    poll_seconds: float = 0.05
    backoff_seconds: float = 0.5
    backoff_seconds_max: float = 300.0
    breaker_failures: int = 5
    breaker_seconds: float = 30.0
    metrics_address: str = "127.0.0.1"
    metrics_port: int = 0
    metrics_tls_cert: SitePath = ""
    metrics_tls_key: SitePath = ""
    redact: tuple[Redaction, ...] = ()
    owners: dict[str, str] = {}
    console_url: str = ""
    dashboard_url: str = ""
    runbook_url: str = "https://outrider.example/runbooks/{fault}"
    deadman: str = ""
    receivers: tuple[Receiver, ...] = ()
    silent_jobs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        groups = (self.targets, self.alertmanagers, self.notify, self.slurm, self.kubernetes, self.hosts, self.commands)
        names = [target.name for group in groups for target in group]
        doubled = sorted({name for name in names if names.count(name) > 1 or not name})
        if doubled:
            raise ValueError(f"target names must differ and not be empty: {', '.join(map(repr, doubled))}")
        if bool(self.metrics_tls_cert) is not bool(self.metrics_tls_key):
            raise ValueError("metrics_tls_cert and metrics_tls_key belong together")
        if not 0.01 <= self.poll_seconds <= 10:
            raise ValueError("poll_seconds must be 0.01..10")
