"""Findings about the physical layer of network ports: errors that a port makes itself.

Errors that forward error correction mends (corrected blocks, raw errors by lane) are normal on a fast link and never a finding.
"""

import re
from statistics import median
from typing import Final

from detectors.inspect.context import Context
from detectors.inspect.findings import Finding, finding
from detectors.inspect.metrics_port_finding import downs_of, leaf_of, port_finding
from detectors.inspect.metrics_table import Device

#: Physical-layer errors of a port from which a person should look. Symbol errors: InfiniBand allows 120 an hour; a bad cable gives
#: tens a second. A recovery retrains the link (milliseconds without traffic).
SYMBOLS_PER_SECOND: Final = 10.0
RECEIVE_ERRORS_PER_SECOND: Final = 1.0
RECOVERIES: Final = 3
#: How far above the middle of all watched ports a rate of errors must stand.
TIMES_OTHERS: Final = 5.0
#: Symbol errors an hour that InfiniBand still calls good.
SYMBOLS_PER_HOUR: Final = 120.0
#: Blocks a second that error correction could not mend: each is a lost packet, and a healthy link has none for hours (IEEE 802.3).
#: The live rule has the same (`detectors/core/rules/port_counters.py`). A link that trains has a burst of them, in one interval.
UNCORRECTABLE_PER_SECOND: Final = 10.0
_COUNTED: Final = ("symbol", "crc", "uncorrectable", "recovery", "integrity", "receive_errors")
_WORDS: Final = {"symbol": "symbols", "crc": "CRC errors", "uncorrectable": "blocks beyond correction"}


def judge_errors(devices: list[Device], context: Context) -> list[Finding]:
    """Ports whose own physical layer fails. What arrives broken from elsewhere, waiting and discards are effects."""
    usual = {measure: _usual(devices, measure) for measure in ("symbol", "crc", "receive_errors")}
    bad = [port for port in devices if _is_bad(port, usual)]
    leaves = {leaf_of(port, context) for port in bad}
    if len(bad) >= 3 and len(leaves) == 1 and (leaf := leaves.pop()) and len({port.node for port in bad}) >= 3:
        evidence = [line for port in bad for line in port.evidence(*(one for one in _COUNTED if port.growth(one)))[:2]]
        why = f"{len(bad)} ports of different machines have physical errors and all end at {leaf}."
        return [finding("link.errors", {"switch": leaf}, why, evidence=evidence, culprit="switch", response="page")]
    found = []
    for port in bad:
        counts = {measure: port.growth(measure) for measure in _COUNTED}
        words = ", ".join(f"{count:.0f} {_WORDS.get(name, name.replace('_', ' '))}" for name, count in counts.items() if count)
        why = f"Physical errors of this port grow ({words}{_lane(port)}); waiting and lost speed on other ports follow from it."
        found.append(port_finding("link.errors", port, context, why, port.evidence(*counts, "downed")))
    return found + [one for port in devices if port not in bad for one in _little(port, usual, context)]


def _little(port: Device, usual: dict[str, float], context: Context) -> list[Finding]:
    """Errors that a good link should not have, too few to send somebody."""
    symbols = port.rate("symbol") * 3600
    above = symbols >= SYMBOLS_PER_HOUR and port.rate("symbol") >= usual["symbol"] * TIMES_OTHERS
    if above and port.growth("symbol") >= SYMBOLS_PER_HOUR / 4:
        why = f"{symbols:.0f} symbol errors an hour; InfiniBand allows 120."
        return [port_finding("link.errors", port, context, why, port.evidence("symbol"), response="watch")]
    if (blocks := port.growth("uncorrectable")) and not downs_of(port):
        why = f"Error correction could not mend {blocks:.0f} blocks{_lane(port)}: lost packets. A good link has none for hours."
        return [port_finding("link.errors", port, context, why, port.evidence("uncorrectable"), response="watch")]
    return []


def _lane(port: Device) -> str:
    """The lane that most of the bad blocks, else of the errors before correction, come from: its laser, its fibre."""
    for measure, label in (("uncorrectable_lane", "bad blocks"), ("raw_lane", "raw errors")):
        by_lane = {lane: series.growth for (name, lane), series in port.series.items() if name == measure}
        if len(by_lane) > 1 and max(by_lane.values()) * 2 > sum(by_lane.values()):
            worst = max(by_lane, key=lambda lane: by_lane[lane])
            return f", most {label} on lane {''.join(re.findall('[0-9]+', worst)[-1:])}"
    return ""


def _loses_blocks(port: Device) -> bool:
    """Blocks beyond correction come too fast, in two intervals, or in one without the link having trained."""
    for series in port.all_of("uncorrectable"):
        fast = sum(rate >= UNCORRECTABLE_PER_SECOND for rate in series.rates())
        if fast >= 2 or (fast and not downs_of(port)):
            return True
    return False


def _usual(devices: list[Device], measure: str) -> float:
    """The rate in the middle of all watched ports but the worst: one bad port must not be its own measure."""
    return median(sorted(port.rate(measure) for port in devices)[:-1] or [0.0])


def _is_bad(port: Device, usual: dict[str, float]) -> bool:
    """Fast links always show some raw errors: only a port far above the others is bad by its rates."""
    retrained = port.growth("recovery") + port.growth("integrity") + port.growth("overrun")
    errors = port.rate("receive_errors")
    return (
        any(port.rate(one) >= SYMBOLS_PER_SECOND and port.rate(one) >= usual[one] * TIMES_OTHERS for one in ("symbol", "crc"))
        or _loses_blocks(port)
        or retrained >= RECOVERIES
        or (
            errors >= RECEIVE_ERRORS_PER_SECOND
            and errors > port.rate("remote_errors") * 2
            and errors >= usual["receive_errors"] * TIMES_OTHERS
        )
    )
