"""Findings about machines from their series: memory modules, disks, killed processes, boots, and exporters that are silent."""

from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding
from detectors.inspect.kmsg_host import CORRECTED_MANY, CORRECTED_SOME
from detectors.inspect.metrics_table import Device, Series, Table
from detectors.inspect.part import part_finding
from outrider.catalogue import Response

#: Free share of a file system below which the next snapshot will not fit.
FULL_SHARE: Final = 0.01
#: A boot time that moved by more is a boot; less is the clock being set.
BOOT_SECONDS: Final = 60.0


def judge_hosts(table: Table, context: Context) -> list[Finding]:
    """All findings about machines themselves."""
    found = []
    for host in table.hosts.values():
        found += _memory(host, context)
        found += _disks(host, context)
        found += _kills_and_boots(host, context)
    return found + _silent(table, context)


def _make(fault: str, host: Device, context: Context, why: str, evidence: list[EvidenceLine], **changed: Any) -> Finding:
    subject = {"node": host.node, "job": context.job_name} | changed.pop("subject", {})
    return part_finding(fault, subject, why, evidence, context, **changed)


def _memory(host: Device, context: Context) -> list[Finding]:
    uncorrected = host.growth("memory_uncorrected")
    if uncorrected >= 1:
        why = f"{uncorrected:.0f} memory errors could not be corrected."
        return [_make("node.memory", host, context, why, host.evidence("memory_uncorrected"), decisive=True)]
    corrected = sum(series.growth for series in host.all_of("memory_corrected"))
    if corrected < CORRECTED_SOME:
        return []
    why = f"{corrected:.0f} corrected memory errors: the data is right, a memory module is not."
    response: Response = "page" if corrected >= CORRECTED_MANY else "watch"
    return [_make("node.memory", host, context, why, host.evidence("memory_corrected"), response=response)]


def _disks(host: Device, context: Context) -> list[Finding]:
    found = []
    for (measure, mount), series in host.series.items():
        if mount.startswith("/boot"):
            continue
        if measure == "disk_free_ratio" and series.last is not None and series.last < FULL_SHARE:
            found.append(_full(host, mount, [series], context))
        elif measure in ("disk_free", "inodes_free"):
            total = host.series.get(("disk_size" if measure == "disk_free" else "inodes", mount))
            if total and total.last and series.last is not None and series.last < total.last * FULL_SHARE:
                found.append(_full(host, mount, [series, total], context))
        elif measure == "disk_readonly" and series.last and series.values and series.values[0] == 0:
            why = f"{mount} went read-only: the kernel found an error on it."
            found.append(_make("storage.errors", host, context, why, [series.evidence()], subject={"mount": mount}, decisive=True))
        elif measure == "storage_ok" and series.last == 0:
            why = f"{mount} does not answer the agent's probe."
            found.append(_make("storage.hang", host, context, why, [series.evidence()], subject={"mount": mount}, response="page"))
    return list({(one.fault, one.subject["mount"]): one for one in found}.values())


def _full(host: Device, mount: str, series: list[Series], context: Context) -> Finding:
    why = f"{mount} is full: the next snapshot or log will not fit."
    return _make("storage.full", host, context, why, [one.evidence() for one in series], subject={"mount": mount})


def _kills_and_boots(host: Device, context: Context) -> list[Finding]:
    found = []
    kills = host.growth("oom_kills")
    boot = host.one("boot_time")
    booted = bool(boot and boot.values and boot.values[-1] - boot.values[0] > BOOT_SECONDS)
    if kills >= 1 and not booted:
        why = f"The kernel killed {kills:.0f} processes because memory ran out. No part is broken."
        found.append(_make("job.oom", host, context, why, host.evidence("oom_kills"), layers=("hardware",)))
    if booted and boot:
        why = "The machine was booted while it was watched: its counters began anew."
        found.append(_make("node.reboot", host, context, why, [boot.evidence()], response="watch", decisive=False))
    return found


def _silent(table: Table, context: Context) -> list[Finding]:
    """Exporters that do not answer: what they would say is unknown, and unknown is no fault of the machine."""
    found = []
    for host in table.hosts.values():
        silent = [(part, series) for (measure, part), series in host.series.items() if measure == "scrape_up" and series.last == 0]
        if silent:
            names = ", ".join(part for part, _ in silent[:4])
            why = f"{names} does not answer the scraper: what it would say is unknown; the machine and its job may be well."
            evidence = [series.evidence() for _, series in silent]
            found.append(_make("agent.lost", host, context, why, evidence, response="watch"))
    return found
