"""A job that stands still, as its GPUs' power shows it: those that wait in a collective spin (busy, at little power), the one that
they wait for does nothing.
"""

from dataclasses import dataclass
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import Finding, finding
from detectors.inspect.metrics_table import Device, Table
from outrider.catalogue import FAULTS

#: Spinning: the kernel that waits keeps a GPU at 95 % and more, at less than half of the power that it draws when it computes.
SPIN_UTIL: Final = 95.0
SPIN_POWER_SHARE: Final = 0.45
IDLE_UTIL: Final = 5.0
#: GPUs from which a pattern is one, and the share of them that must spin.
GPUS_MIN: Final = 4
SPIN_SHARE: Final = 0.7
#: Evaluation and snapshots leave ranks waiting for a minute or two; from here on somebody should look.
LASTING_SECONDS: Final = 180.0


def judge_hang(table: Table, context: Context) -> list[Finding]:
    """At most one finding: the job hangs, and the odd GPU if there is one.

    Only a page of several scrapes that worked at its beginning is judged: what never computed has not stopped.
    """
    gpus = [device for device in table.gpus.values() if device.one("util") and device.one("power_w")]
    if len(gpus) < GPUS_MIN:
        return []
    since, spinning, idle = _standstill(gpus)
    last = max(table.scrapes, default=0.0)
    if since is None or last - since < LASTING_SECONDS or len(idle) > len(gpus) // 4:
        return []
    evidence = [line for device in (idle or spinning[:2]) for line in device.evidence("util", "power_w")]
    why = f"{len(spinning)} GPUs have been busy at little power for {last - since:.0f} s, as in a collective that waits"
    if idle:
        names = idle[0].names
        index = names.get("gpu")
        subject: dict[str, Any] = context.gpu_subject(
            node=idle[0].node,
            index=index if isinstance(index, int) else None,
            uuid=str(names["uuid"]) if "uuid" in names else None,
            pci=str(names["pci"]) if "pci" in names else None,
        )
        why += f"; {len(idle)} do nothing: they are waited for."
        return [_make(subject, why, evidence, culprit="gpu" if len(idle) == 1 else "node")]
    nodes = {device.node for device in gpus}
    subject = {"job": context.job_name, "node": nodes.pop() if len(nodes) == 1 else None}
    return [_make(subject, why + "; who is waited for is not on this page.", evidence, culprit="none")]


def _make(subject: dict[str, Any], why: str, evidence: list[Any], **changed: Any) -> Finding:
    steps = FAULTS["job.hang"].first_commands
    return finding("job.hang", subject, why, evidence=evidence, response="page", next_steps=steps, layers=("hardware",), **changed)


@dataclass(slots=True)
class _Gpu:
    """One GPU's load by scrape."""

    device: Device
    util: dict[float, float | None]
    power: dict[float, float | None]
    full_w: float

    def state(self, t: float) -> str:
        """`spin`, `idle`, `work` or `unknown` at a scrape."""
        util, power = self.util.get(t), self.power.get(t)
        if util is None or power is None:
            return "unknown"
        if util <= IDLE_UTIL:
            return "idle"
        return "spin" if util >= SPIN_UTIL and power < self.full_w * SPIN_POWER_SHARE else "work"


def _load(device: Device) -> _Gpu:
    util, power = device.one("util"), device.one("power_w")
    assert util and power, "only GPUs with both series are judged"
    full = max([device.last("power_limit_w") or 0.0, *power.values])
    return _Gpu(device, {t: value for t, value, _ in util.points}, {t: value for t, value, _ in power.points}, full)


def _standstill(devices: list[Device]) -> tuple[float | None, list[Device], list[Device]]:
    """Since when the GPUs have stood still up to the last scrape, those that spin, and those that do nothing."""
    gpus = [_load(device) for device in devices]
    since: float | None = None
    spin: list[Device] = []
    idle: list[Device] = []
    for t in sorted({t for gpu in gpus for t in gpu.util}, reverse=True):
        states = [gpu.state(t) for gpu in gpus]
        if states.count("spin") < len(gpus) * SPIN_SHARE or states.count("spin") + states.count("idle") < len(gpus):
            return since, spin, idle
        if since is None:
            spin = [gpu.device for gpu, state in zip(gpus, states, strict=True) if state == "spin"]
            idle = [gpu.device for gpu, state in zip(gpus, states, strict=True) if state == "idle"]
        since = t
    return None, [], []  # it never computed in this file
