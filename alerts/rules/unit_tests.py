"""Unit tests for the rules, in promtool's own form: each class fires, does not fire on jitter, and resolves."""

from typing import Any, Final

from alerts.rules.prometheus import BY, FOR, SELF, WATCHDOG, fault_rule, self_rule
from alerts.story import alert_name
from outrider.catalogue import FAULTS, FaultClass
from outrider.config.alerts import AlertsConfig

#: Samples come each 15 s.
STEP: Final = "15s"
_SUBJECTS: Final = {"node": "n2", "gpu": "3", "nic": "mlx5_0", "switch": "leaf1", "job": "j1"}
#: What a class's incident names.
_KEYS: Final = {"gpu": ("node", "gpu"), "node": ("node",), "agent": ("node",), "path": ("node",), "nic": ("node", "nic"),
                "link": ("node", "nic"), "switch": ("switch",), "domain": ("switch",), "storage": ("node",), "job": ("job",),
                "monitor": ()}  # fmt: skip


def unit_tests(rule_file: str, site: str, settings: AlertsConfig) -> dict[str, Any]:
    """The whole file. Classes of one severity wait equally long, so one run of promtool's clock serves all of them."""
    tests = [_fires(severity, site, settings) for severity in FOR if _classes(severity)]
    tests += [_jitter(), _certificates(site, settings), _modules()]
    tests.append(
        {
            "name": "the dead-man's switch always fires, and nobody watching is told",
            "interval": STEP,
            "input_series": [],
            "alert_rule_test": [
                {"eval_time": "10m", "alertname": WATCHDOG, "exp_alerts": [_watchdog(site)]},
                {"eval_time": "10m", "alertname": "OutriderAbsent", "exp_alerts": [_absent(site, settings)]},
            ],
        }
    )
    return {"rule_files": [rule_file], "evaluation_interval": STEP, "tests": tests}


def _classes(severity: str) -> list[FaultClass]:
    return [entry for entry in FAULTS.values() if entry.severity == severity]


def _labels(entry: FaultClass) -> dict[str, str]:
    return {key: _SUBJECTS[key] for key in _KEYS[entry.key.partition(".")[0]]}


def _series(entry: FaultClass) -> str:
    labels = {"fault": entry.key, "culprit": entry.culprit, "response": entry.response, "instance": "w1", **_labels(entry)}
    return "outrider_incident_open{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _fires(severity: str, site: str, settings: AlertsConfig) -> dict[str, Any]:
    """Opens at minute 1, with one scrape missing in between: fires after `for`, goes on firing, and ends with the series."""
    wait = int(FOR[severity].removesuffix("m"))
    checks = []
    for entry in _classes(severity):
        expected, name = _expected(entry, site, settings), alert_name(entry.key)
        checks += [
            {"eval_time": "1m", "alertname": name, "exp_alerts": []},
            {"eval_time": f"{1 + wait}m", "alertname": name, "exp_alerts": [expected]},
            {"eval_time": f"{1 + wait}m15s", "alertname": name, "exp_alerts": [expected]},
            {"eval_time": f"{2 + wait}m30s", "alertname": name, "exp_alerts": []},
        ]
    # Samples come four a minute; `1x1` is two of them. The missing one falls into the wait.
    values = f"_x4 1x1 _x1 1x{4 * wait + 1} stale"
    return {
        "name": f"every {severity} class fires and resolves",
        "interval": STEP,
        "input_series": [{"series": _series(entry), "values": values} for entry in _classes(severity)],
        "alert_rule_test": checks,
    }


def _expected(entry: FaultClass, site: str, settings: AlertsConfig) -> dict[str, Any]:
    rule, labels = fault_rule(entry, site, settings), _labels(entry)
    words = "".join(f" {name} {labels[name]}" for name in sorted(BY) if name in labels)
    return {
        "exp_labels": {**rule["labels"], **labels},
        "exp_annotations": {**rule["annotations"], "summary": f"{entry.summary}{words}"},
    }


def _jitter() -> dict[str, Any]:
    """Suspicions come and are refuted, and an incident is open for a single scrape, twice: nobody is called."""
    series, checks = [], []
    for entry in FAULTS.values():
        suspected = f'outrider_incidents_total{{fault="{entry.key}",event="suspected"}}'
        series += [{"series": suspected, "values": "0+1x20"}, {"series": _series(entry), "values": "_x4 1 stale _x8 1 stale"}]
        checks += [
            {"eval_time": f"{second}s", "alertname": alert_name(entry.key), "exp_alerts": []}
            for second in (60, 75, 120, 210, 225, 270)
        ]
    return {"name": "no class fires on jitter", "interval": STEP, "input_series": series, "alert_rule_test": checks}


def _certificates(site: str, settings: AlertsConfig) -> dict[str, Any]:
    """At minute 0, each has an hour until its alert is due, by a life of 90 days or of one; then two are renewed, and one is over.

    promtool's time begins in 1970, so that what began before has a negative stamp.
    """
    hour, day = 3600, 86400
    lives = {"soon": (90 * day, 14 * day), "last": (90 * day, 2 * day), "short": (day, day // 4), "over": (day, day // 10),
             "agent": (90 * day, 14 * day)}  # fmt: skip
    late = {"series": 'outrider_tls_not_after_timestamp_seconds{listener="agent",instance="late"}', "values": f"{90 * day}x240"}
    series = [late, {"series": late["series"].replace("after", "before"), "values": "0x240"}]
    for listener, (life, left) in lives.items():
        ends, renewed = left + hour, 90 * day
        after = f"{ends}x119 {renewed}x120" if listener in ("soon", "last", "agent") else f"{ends}x119 stale"
        for end, values in (("after", after), ("before", f"{ends - life}x240")):
            stamp = f'outrider_tls_not_{end}_timestamp_seconds{{listener="{listener}",instance="i"}}'
            series.append({"series": stamp, "values": values})
    due = {"OutriderCertificateEndsSoon": ("soon", "short", "agent"), "OutriderCertificateEnds": ("last", "over")}
    early = {"OutriderCertificateEndsSoon": ("last", "over"), "OutriderCertificateEnds": ()}
    gone = {"OutriderCertificateEndsSoon": ("short",), "OutriderCertificateEnds": ("over",)}
    checks = [
        {"eval_time": when, "alertname": name, "exp_alerts": [_self_alert(name, one, site, settings) for one in listeners]}
        for when, expected in (("59m", early), ("80m", due), ("210m", gone))
        for name, listeners in expected.items()
    ]
    return {"name": "certificates are told before they end", "interval": "1m", "input_series": series, "alert_rule_test": checks}


def _self_alert(name: str, listener: str, site: str, settings: AlertsConfig) -> dict[str, Any]:
    rule = self_rule(*next(entry for entry in SELF if entry[0] == name), site, settings)
    where = {"listener": listener} if listener == "agent" else {"listener": listener, "instance": "i"}
    return {"exp_labels": {**rule["labels"], **where}, "exp_annotations": rule["annotations"]}


def _watchdog(site: str) -> dict[str, Any]:
    return {
        "exp_labels": {"severity": "none", "cluster": site, "source": "rules"},
        "exp_annotations": {"summary": "Always fires. If it stops, alerts no longer reach people."},
    }


def _absent(site: str, settings: AlertsConfig) -> dict[str, Any]:
    rule = self_rule(*SELF[0], site, settings)
    return {"exp_labels": {**rule["labels"], "component": "witness"}, "exp_annotations": rule["annotations"]}


def _modules() -> dict[str, Any]:
    """Two flags of one module are one module with an alarm; a warning is none; lost blocks are summed by leaf."""
    where, flags = 'site="s",switch="leaf1",node="n1",nic="mlx5_0"', ("temperature_high_alarm", "bias_high_alarm")
    lit = [f'{where},port="1",flag="{flag}"' for flag in flags]
    lit += ['site="s",switch="leaf1",node="n2",nic="mlx5_0",port="1",flag="receive_power_low_warning"']
    series = [{"series": f"outrider_module_flag{{{labels}}}", "values": "1x40"} for labels in lit]
    for port, value in (("1", "1x40"), ("2", "0x40")):
        series.append({"series": f'outrider_module_supported{{{where},port="{port}"}}', "values": value})
        lost = f'outrider_port_events_total{{{where},port="{port}",counter="fec_uncorrectable_blocks"}}'
        series.append({"series": lost, "values": "0+150x40"})  # ten a second
    leaf = 'site="s",switch="leaf1"'
    wanted = {
        f'node:outrider_module_alarms:count{{{leaf},node="n1"}}': 1.0,
        f"switch:outrider_module_supported:sum{{{leaf}}}": 1.0,
        f"switch:outrider_module_supported:count{{{leaf}}}": 2.0,
        f'switch_counter:outrider_port_events:rate5m{{{leaf},counter="fec_uncorrectable_blocks"}}': 20.0,
    }
    checks = [
        {"expr": labels.partition("{")[0], "eval_time": "8m", "exp_samples": [{"labels": labels, "value": value}]}
        for labels, value in wanted.items()
    ]
    name = "modules and lost blocks by node and leaf"
    return {"name": name, "interval": STEP, "input_series": series, "promql_expr_test": checks}
