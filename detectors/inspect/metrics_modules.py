"""Findings about cables, optical modules and cards: what they hold up themselves (`outrider_module_flag`).

An alarm that stands is a degraded device, as for the live rule (`detectors/core/rules/port_counters.py`); a warning is only shown.
"""

from dataclasses import replace
from typing import Final

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding
from detectors.inspect.metrics_port_finding import is_up, port_finding, port_subject
from detectors.inspect.metrics_table import Device, Series

#: Flags that an explanation names.
_NAMED: Final = 6
Flags = dict[str, Series]


def judge_modules(devices: list[Device], found: list[Finding], context: Context) -> list[Finding]:
    """`found`, and what the modules say; of a device that is found to be down or slow already it is evidence."""
    kept = list(found)
    for port in devices:
        standing, over = _flags(port, devices)
        subject, who = port_subject(port, context), f"The module of the port{_name(port)}"
        place = next((at for at, one in enumerate(kept) if one.fault.startswith("nic.d") and one.subject == subject), None)
        if place is None and is_up(port, 1) is False:  # no cable, or the other end is dark: nobody sends it light
            standing = {flag: series for flag, series in standing.items() if not flag.startswith("receive_power")}
        alarms = {flag: series for flag, series in standing.items() if flag.endswith("_alarm")}
        why = f"{who} holds up: {_words(alarms or standing or over)}."
        if alarms and place is not None:
            one = kept[place]
            kept[place] = replace(one, explanation=f"{one.explanation} {why}", evidence=(*one.evidence, *_evidence(alarms)))
        elif alarms:
            kept.append(port_finding("nic.degraded", port, context, why, _evidence(alarms)))
        elif standing and place is None:
            kept.append(port_finding("nic.degraded", port, context, f"{why} No alarm.", _evidence(standing), response="watch"))
        elif over and place is None:
            why = f"{who} held up and no longer does: {_words(over)}."
            kept.append(port_finding("nic.degraded", port, context, why, _evidence(over), response="watch", state="resolved"))
    return kept


def _flags(port: Device, devices: list[Device]) -> tuple[Flags, Flags]:
    """Flags that stand at the latest scrape, and alarms that stood before. A flag has a series only while it stands, so it is
    the port's other series, else those of its machine, that say when the latest scrape was."""
    flags = {flag: series for (measure, flag), series in port.series.items() if measure == "flag"}
    if not flags:
        return {}, {}
    near = [port] if len(port.series) > len(flags) else [one for one in devices if one.node == port.node]
    latest = max(t for one in near for t in one.seen_at())
    standing = {flag: series for flag, series in flags.items() if series.points[-1][0] == latest and series.last}
    over = {flag: one for flag, one in flags.items() if flag not in standing and flag.endswith("_alarm") and any(one.values)}
    return standing, over


def _name(port: Device) -> str:
    return f" ({port.names['module']})" if port.names.get("module") else ""


def _words(flags: Flags) -> str:
    return ", ".join(sorted(flag.replace("_", " ") for flag in flags)[:_NAMED])


def _evidence(flags: Flags) -> list[EvidenceLine]:
    return [flags[flag].evidence() for flag in sorted(flags)]
