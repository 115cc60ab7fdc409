"""`outrider.rules.yml`: one alert for each fault class, alerts about Outrider itself, and recording rules.

These rules are the second way to a person: confirmed incidents go to Alertmanager directly (`alerts.alertmanager`), and an
inhibition holds the rule's alert back while the direct one stands. When the deliverer is dead, the rule still tells.
"""

from typing import Any, Final

from alerts.rules.recording import RECORDING, SLOW_INTERVAL, SLOW_RECORDING
from alerts.story import alert_name, level_of
from outrider.catalogue import FAULTS, FaultClass
from outrider.config.alerts import AlertsConfig
from outrider.tls import LAST_SECONDS, LAST_SHARE, SOON_SECONDS, SOON_SHARE

#: How long an incident stays open before its rule fires: the direct way is first by far, and a blip of one scrape never fires.
FOR: Final = {"critical": "1m", "warning": "2m", "info": "5m"}
#: Labels by which an incident's series becomes one alert; `response` may change while it is open.
BY: Final = ("node", "gpu", "nic", "switch", "job")
#: Marks alerts that come from these rules.
SOURCE: Final = "rules"


def fault_expression(key: str) -> str:
    """What is true while an incident of the class is open, whichever witness says so."""
    return f'max by ({", ".join(BY)}) (outrider_incident_open{{fault="{key}"}}) > 0'


def runbook(fault: str, settings: AlertsConfig) -> str:
    """The address of a class's runbook page."""
    return settings.runbook_url.replace("{fault}", fault)


def fault_rule(entry: FaultClass, site: str, settings: AlertsConfig) -> dict[str, Any]:
    """The alert of one class."""
    labels = {
        "severity": entry.severity, "fault": entry.key, "culprit": entry.culprit, "level": level_of(entry.key), "cluster": site,
        "source": SOURCE,
    }  # fmt: skip
    where = (
        "{{ range $k, $v := $labels }}"
        + "".join(f'{{{{ if eq $k "{name}" }}}} {name} {{{{ $v }}}}{{{{ end }}}}' for name in BY)
        + "{{ end }}"
    )
    return {
        "alert": alert_name(entry.key),
        "expr": fault_expression(entry.key),
        "for": FOR[entry.severity],
        "labels": labels,
        "annotations": {
            "summary": f"{entry.summary}{where}",
            "description": f"Outrider confirmed {entry.key}. Response: {entry.response}. Repair: {entry.repair}."
            " `outrider incidents` has the story.",
            "runbook_url": runbook(entry.key, settings),
        },
    }


def ends_within(seconds: int, share: float) -> str:
    """Certificates that end within `seconds` and have less than `share` of their life left, by what is left of them, seconds.

    Of agents only the first that ends: a fleet has thousands. Of others, series of a day back too: once its certificate is over, a
    listener can no longer be scraped, and the alert must not end with its series.
    """

    def due(series: str) -> str:
        ends, begins = (series.replace("WHEN", f"outrider_tls_not_{when}_timestamp_seconds") for when in ("after", "before"))
        return f"({ends} - time() < {seconds}) < {share:g} * ({ends} - {begins})"

    others, agents = due('last_over_time(WHEN{listener!="agent"}[1d])'), due('WHEN{listener="agent"}')
    return f"({others} or min by (site, listener) ({agents}))"


_LAST: Final = ends_within(LAST_SECONDS, LAST_SHARE)

#: name, expression, for, severity, what it means. Only metrics of `outrider.metrics`.
SELF: Final[tuple[tuple[str, str, str, str, str], ...]] = (
    ("OutriderAbsent", 'absent(outrider_build_info{component="witness"})', "2m", "critical",
     "No witness answers: nobody watches the cluster."),
    ("OutriderNoLeader", "sum(outrider_witness_leader) == 0", "1m", "critical",
     "Witnesses run, but none leads: nothing is decided."),
    ("OutriderTwoLeaders", "sum(outrider_witness_leader) > 1", "2m", "critical", "More than one witness says that it leads."),
    ("OutriderWitnessStalls", "max_over_time(outrider_witness_lag_seconds[5m]) > 0.5", "5m", "warning",
     "A witness stands still again and again; it abstains then. Give it more processor time."),
    ("OutriderBrake", "max by (brake) (outrider_brake) > 0", "0s", "critical",
     "A brake holds every action back. `outrider status` says why; `outrider resume --reset-brake` lets go."),
    ("OutriderDeadLetters", 'max(outrider_outbox_rows{state="dead"}) > 0', "1m", "warning",
     "Orders or messages were given up. `outrider outbox --state dead` says why and what to do, `outrider outbox retry` sends them"
     " again."),
    ("OutriderTargetDown", "max by (target) (outrider_target_breaker_open) > 0", "5m", "warning", "A target takes nothing."),
    ("OutriderOutboxGrows", 'sum(outrider_outbox_rows{state=~"pending|failed"}) > 1000', "5m", "warning",
     "More than a thousand messages wait to leave."),
    ("OutriderCollectorFails", "max by (node, collector) (outrider_collector_success) == 0", "10m", "warning",
     "A collector of an agent fails; what it watches is unknown."),
    ("OutriderCollectorOld", "max by (node, collector) (outrider_collector_age_seconds) > 600", "10m", "warning",
     "A collector's last good reading is more than ten minutes old."),
    ("OutriderNoSpares", "max(outrider_spares_free) == 0", "10m", "warning",
     "No spare node is left: the next loss waits for a repair."),
    ("OutriderCertificateEndsSoon", f"{ends_within(SOON_SECONDS, SOON_SHARE)} unless {_LAST}", "15m", "warning",
     "A listener's certificate ends within 14 days (one of a short life: in its last quarter), and nothing has renewed it. Replace"
     " its files; no restart is needed. `outrider doctor` says which end when."),
    ("OutriderCertificateEnds", _LAST, "15m", "critical",
     "A listener's certificate is over, or ends within two days (one of a short life: in its last tenth): agents, commands and"
     " Prometheus refuse it then. Replace its files; no restart is needed."),
)  # fmt: skip

#: The dead-man's switch: always fires; whoever stops hearing it knows that the way to people is broken.
WATCHDOG: Final = "OutriderWatchdog"


def self_rule(
    name: str, expression: str, for_: str, severity: str, words: str, site: str, settings: AlertsConfig
) -> dict[str, Any]:
    """One alert about Outrider itself."""
    return {
        "alert": name, "expr": expression, "for": for_,
        "labels": {"severity": severity, "level": "monitor", "cluster": site, "source": SOURCE},
        "annotations": {"summary": words, "runbook_url": runbook("monitor.blind", settings)},
    }  # fmt: skip


def rules(site: str, settings: AlertsConfig) -> dict[str, Any]:
    """The whole file."""
    watchdog = {
        "alert": WATCHDOG, "expr": "vector(1)", "labels": {"severity": "none", "cluster": site, "source": SOURCE},
        "annotations": {"summary": "Always fires. If it stops, alerts no longer reach people."},
    }  # fmt: skip
    return {
        "groups": [
            {"name": "outrider-recording", "rules": [{"record": name, "expr": expression} for name, expression in RECORDING]},
            {
                "name": "outrider-recording-fleet",
                "interval": SLOW_INTERVAL,
                "rules": [{"record": name, "expr": expression} for name, expression in SLOW_RECORDING],
            },
            {"name": "outrider-faults", "rules": [fault_rule(entry, site, settings) for entry in FAULTS.values()]},
            {"name": "outrider-itself", "rules": [*(self_rule(*entry, site, settings) for entry in SELF), watchdog]},
        ]
    }
