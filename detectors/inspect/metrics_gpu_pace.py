"""Findings about GPUs that are hot, or slower than their peers, from their series."""

from statistics import median
from typing import Final

from detectors.inspect.context import Context
from detectors.inspect.findings import Finding
from detectors.inspect.metrics_gpu_finding import make
from detectors.inspect.metrics_table import Device
from outrider.catalogue import Response
from outrider.parsers.dcgm import HARDWARE_THERMAL_BIT, POWER_BRAKE_BIT, SLOWDOWN_BIT, THERMAL_BITS

#: A clock below this share of its peers' under the same load is slow; sound ones differ by 1 to 3 %.
SLOW_SHARE: Final = 0.85
#: A GPU works from this utilisation on (%); idle ones clock down on purpose.
BUSY: Final = 50.0
#: Share of the time held back by heat from which it matters; the counter is in nanoseconds.
THROTTLED_SHARE: Final = 0.05


def heat_and_clocks(device: Device, peers: list[Device], context: Context) -> list[Finding]:
    """A clock held back by heat or power, or below its peers' for no reason told. Two scrapes must agree, if there are two."""
    scrapes = min(2, max((len(series.points) for series in device.series.values()), default=0))
    masks = [mask for at in range(1, scrapes + 1) if (mask := _mask(device, -at)) is not None]
    lasting = min(masks, key=int.bit_count) if masks else 0
    slow = _slow_share(device, peers, scrapes)
    throttled = device.rate("thermal_ns") / 1e9
    heat = bool(lasting & THERMAL_BITS) or throttled >= THROTTLED_SHARE
    hot = (device.last("temp_c") or 0) >= _hot_limit(peers, "temp_c") or (device.last("memory_temp_c") or 0) >= 95
    evidence = device.evidence(
        "temp_c", "memory_temp_c", "throttle", "thermal_ns", "sm_mhz", *(k for k, _ in device.series if k.startswith("throttled_"))
    )
    clock = f" Its clock is at {slow:.0%} of its peers'." if slow is not None and slow < SLOW_SHARE else ""
    if heat or (hot and clock):
        temperature = device.last("temp_c")
        why = "Heat holds the clock back" + (f" ({temperature:.0f} C)." if temperature is not None else ".") + clock
        hard = bool(lasting & HARDWARE_THERMAL_BIT) or bool(clock) or throttled >= THROTTLED_SHARE
        return [make("gpu.thermal", device, context, why, evidence, response="drain" if hard else "page")]
    if lasting & POWER_BRAKE_BIT:
        why = "The machine's power supply holds the GPU back (power brake)." + clock
        return [make("gpu.thermal", device, context, why, evidence, culprit="node", response="page", repair="investigate")]
    if clock and _works(device):
        limit, usual = device.last("power_limit_w"), usual_of(peers, "power_limit_w")
        capped = limit is not None and usual is not None and limit < usual * 0.95
        why = (
            f"Its power limit is {limit:.0f} W, its peers' {usual:.0f} W." if capped else "No heat or power reason is told."
        ) + clock
        evidence += device.evidence("power_limit_w", "util")
        response: Response = "drain" if lasting & SLOWDOWN_BIT or (slow or 1) < 0.6 else "page"
        return [make("gpu.slow", device, context, why, evidence, response=response)]
    return []


def _mask(device: Device, at: int) -> int | None:
    """The reasons that hold the clock back at a scrape (counted from the end), as NVML's bits; None: not told."""
    series = device.one("throttle")
    if series is not None:
        value = series.points[at][1] if len(series.points) >= -at else None
        return None if value is None else int(value)
    mask, told = 0, False
    for name, bit in (("throttled_hw_thermal", 0x40), ("throttled_sw_thermal", 0x20), ("throttled_hw_power_brake", 0x80)):
        for series in device.all_of(name):
            value = series.points[at][1] if len(series.points) >= -at else None
            told = told or value is not None
            mask |= bit if value else 0
    return mask if told else None


def _hot_limit(peers: list[Device], measure: str) -> float:
    """A GPU is hot from 87 C on (slowdown of data-centre GPUs begins there), or 15 degrees above its peers and over 75."""
    usual = usual_of(peers, measure)
    return min(87.0, max(75.0, usual + 15.0)) if usual is not None else 87.0


def usual_of(peers: list[Device], measure: str) -> float | None:
    """The median of what the peers last showed, or None."""
    values = [value for peer in peers if (value := peer.last(measure)) is not None]
    return median(values) if values else None


def _works(device: Device) -> bool:
    return (device.last("util") or 0) >= BUSY


def _slow_share(device: Device, peers: list[Device], scrapes: int) -> float | None:
    """The clock's share of its busy peers' clock, the best of the last scrapes; None if it cannot be compared."""
    mine = device.one("sm_mhz")
    busy = [peer.one("sm_mhz") for peer in peers if _works(peer)]
    if mine is None or len(busy) < 2 or not _works(device):
        return None
    shares = []
    for at in range(1, scrapes + 1):
        values = [value for series in busy if series and len(series.points) >= at and (value := series.points[-at][1])]
        own = mine.points[-at][1] if len(mine.points) >= at else None
        if own is not None and values:
            shares.append(own / median(values))
    return max(shares, default=None)
