"""Findings about GPUs from their series: Xids, memory errors, links, and GPUs that are not there; heat and clocks stand beside."""

from statistics import median
from typing import Any, Final

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding, finding
from detectors.inspect.kmsg_gpu import judge_gpus as judge_xids
from detectors.inspect.metrics_gpu_finding import make
from detectors.inspect.metrics_gpu_pace import heat_and_clocks, usual_of
from detectors.inspect.metrics_table import Device, Series, Table
from detectors.inspect.xid_events import XidEvents
from outrider.catalogue import FAULTS, Response
from outrider.catalogue.codes import CodeBook
from outrider.signals import Signal

#: Corrected errors a second that no healthy GPU shows (healthy ones: a few a day), and how far above its peers.
FLOOD_PER_SECOND: Final = 1.0
FLOOD_TIMES_PEERS: Final = 100.0
#: From here a flood itself slows the GPU (each one interrupts the driver).
HEAVY_PER_SECOND: Final = 100.0
#: Links correct single errors by replay; so many within a file are a weak link.
REPLAYS: Final = 10
RECOVERIES: Final = 3
CRC_PER_SECOND: Final = 100.0
PCIE_REPLAYS_PER_SECOND: Final = 0.5


def judge_gpus(table: Table, context: Context) -> list[Finding]:
    """All findings about the GPUs of all machines."""
    nodes: dict[str | None, list[Device]] = {}
    for device in table.gpus.values():
        nodes.setdefault(device.node, []).append(device)
    found = []
    for node, devices in nodes.items():
        found += _xids(node, devices, context)
        for device in devices:
            peers = [peer for peer in devices if peer is not device]
            found += _memory(device, peers, context)
            found += heat_and_clocks(device, peers, context)
            found += _links(device, peers, context)
        found += _missing(node, devices, table, context)
    return found


# --- Xids --------------------------------------------------------------------------------------------------------------------
def _xids(node: str | None, devices: list[Device], context: Context) -> list[Finding]:
    """Xids as events: only what changed between two scrapes. The rules over codes are those of the kernel log."""
    events = XidEvents(CodeBook(context.overrides))
    told: list[tuple[float, int, Signal, EvidenceLine]] = []
    for device in devices:
        seen: set[tuple[float, int]] = set()
        for code, t, line in [*_steps(device), *_edges(device)]:
            if (t, code) in seen:
                continue  # two series tell of one event
            seen.add((t, code))
            names = device.names
            user = device.user_at(t)
            data = {"name": user} if user else {}
            index, uuid, pci = names.get("gpu"), names.get("uuid"), names.get("pci")
            signal = Signal(
                t=t, kind="xid", value=code, node=node, gpu=index if isinstance(index, int) else None,
                uuid=str(uuid) if uuid else None, pci=str(pci or uuid or index), data=data, source="metrics",
            )  # fmt: skip
            told.append((t, line.line, signal, line))
    for order, (_, _, signal, line) in enumerate(sorted(told, key=lambda one: one[:2])):
        events.add(signal, line, order)
    return judge_xids(node, events, [], context)


def _edges(device: Device) -> list[tuple[int, float, EvidenceLine]]:
    """Rising edges of `last Xid seen`: the first value may be from any time, and one that stays is not news."""
    edges = []
    for series in device.all_of("xid_last"):
        before: float | None = None
        for t, value, line in series.points:
            if value is None:
                continue
            if before is not None and value != before and value > 0:
                edges.append((int(value), t, EvidenceLine(line=line, text=series.text[:300], file=series.file)))
            before = value
    return edges


def _steps(device: Device) -> list[tuple[int, float, EvidenceLine]]:
    """Growth of the counts by code. A count that falls has left its window; one that appears later starts from 0."""
    steps = []
    others = sorted({t for series in device.series.values() for t, _, _ in series.points})
    for (measure, code), series in device.series.items():
        if measure != "xid_count" or not code.isdecimal():
            continue
        appeared = bool(others) and series.points[0][0] > others[0]
        before: float | None = 0.0 if appeared else None
        for t, value, line in series.points:
            if value is None:
                continue
            if before is not None and value > before:
                steps.append((int(code), t, EvidenceLine(line=line, text=series.text[:300], file=series.file)))
            before = value
    return steps


# --- memory ------------------------------------------------------------------------------------------------------------------
def _memory(device: Device, peers: list[Device], context: Context) -> list[Finding]:
    found = []
    if (device.last("remap_failed") or 0) > 0:
        why = "A bad memory row could not be remapped: the card has no spare rows left."
        found.append(make("gpu.row_remap_failed", device, context, why, device.evidence("remap_failed")))
    uncorrected = max(device.since_reset("ecc_uncorrected"), device.growth("ecc_uncorrected_life"))
    if uncorrected >= 1:
        why = f"{uncorrected:.0f} uncorrectable memory errors came while it was watched."
        evidence = device.evidence("ecc_uncorrected", "ecc_uncorrected_life", "remap_uncorrected", "remap_pending")
        found.append(make("gpu.ecc_uncontained", device, context, why, evidence))
    elif device.growth("remap_uncorrected") >= 1 or (device.last("remap_pending") or 0) > 0:
        pending = (device.last("remap_pending") or 0) > 0
        why = (
            "A bad memory row is marked and takes effect at the next reset."
            if pending
            else "A memory row was remapped after an uncorrectable error."
        )
        evidence = device.evidence("remap_pending", "remap_uncorrected")
        found.append(make("gpu.row_remap_pending", device, context, why, evidence))
    return found + _flood(device, peers, context)


def _flood(device: Device, peers: list[Device], context: Context) -> list[Finding]:
    """Corrected errors far above the peers': the data is right, the memory is dying."""
    rate = max(device.rate("ecc_corrected"), device.rate("ecc_corrected_life"))
    usual = median([max(peer.rate("ecc_corrected"), peer.rate("ecc_corrected_life")) for peer in peers]) if peers else 0.0
    rows = device.growth("remap_corrected")
    if rate < FLOOD_PER_SECOND or rate < usual * FLOOD_TIMES_PEERS:
        if rows < 1:
            return []
        why = f"{rows:.0f} memory rows were remapped after corrected errors."
        return [make("gpu.row_remap_pending", device, context, why, device.evidence("remap_corrected"), response="watch")]
    why = f"{rate:.0f} corrected memory errors a second, its peers {usual:.0f}: the data is still right, the memory is not"
    why += f"; {rows:.0f} rows were remapped meanwhile." if rows >= 1 else "."
    response: Response = "drain" if rate >= HEAVY_PER_SECOND or rows >= 1 else "page"
    evidence = device.evidence("ecc_corrected", "ecc_corrected_life", "remap_corrected")
    return [make("gpu.ecc_corrected", device, context, why, evidence, response=response)]


# --- heat and clocks ---------------------------------------------------------------------------------------------------------


# --- links -------------------------------------------------------------------------------------------------------------------
def _links(device: Device, peers: list[Device], context: Context) -> list[Finding]:
    found = []
    recoveries, replays, crc = device.growth("nvlink_recovery"), device.growth("nvlink_replay"), device.rate("nvlink_crc")
    worst = all(recoveries >= peer.growth("nvlink_recovery") for peer in peers) or recoveries == 0
    if (recoveries >= RECOVERIES and worst) or replays >= REPLAYS or crc >= CRC_PER_SECOND:
        strongest = all(replays >= peer.growth("nvlink_replay") and crc >= peer.rate("nvlink_crc") for peer in peers)
        why = f"NVLink errors: {recoveries:.0f} recoveries, {replays:.0f} replays, {crc:.0f} CRC errors a second."
        evidence = device.evidence("nvlink_recovery", "nvlink_replay", "nvlink_crc")
        if strongest or recoveries >= RECOVERIES:
            found.append(make("gpu.nvlink", device, context, why, evidence, response="page", decisive=False))
    if (device.last("nvlinks_down") or 0) > 0 and _grew_down(device.one("nvlinks_down")):
        why = "NVLinks of this GPU went down."
        found.append(make("gpu.nvlink", device, context, why, device.evidence("nvlinks_down"), decisive=False))
    replay_rate = device.rate("pcie_replay")
    usual = median([peer.rate("pcie_replay") for peer in peers]) if peers else 0.0
    if replay_rate >= PCIE_REPLAYS_PER_SECOND and replay_rate >= usual * 10:
        why = f"{replay_rate * 60:.0f} PCIe replays a minute, its peers {usual * 60:.0f}: reseat it or look at its riser."
        found.append(make("gpu.other", device, context, why, device.evidence("pcie_replay"), response="page", repair="check_link"))
    width, full = device.last("pcie_width"), device.last("pcie_width_max") or usual_of(peers, "pcie_width")
    if width is not None and full is not None and 0 < width < full:
        why = f"The GPU has {width:.0f} of {full:.0f} PCIe lanes: reseat it or look at its riser."
        evidence = device.evidence("pcie_width", "pcie_width_max")
        found.append(make("gpu.slow", device, context, why, evidence, response="page", repair="check_link"))
    action = device.last("recovery_action") or 0
    if action > 0:
        reboot = action in (2, 6, 7)
        why = f"The driver asks for a recovery (NVML action {action:.0f})."
        repair = "reboot_node" if reboot else "investigate" if action == 5 else "reset_gpu"
        response: Response = "restart" if reboot else "page" if action == 5 else "drain"
        evidence = device.evidence("recovery_action")
        found.append(make("gpu.other", device, context, why, evidence, response=response, repair=repair))
    return found


def _grew_down(series: Series | None) -> bool:
    """Links that were up when the file began and are not now; links that were never up may be unused."""
    return bool(series and series.values and series.values[-1] > series.values[0])


# --- presence ----------------------------------------------------------------------------------------------------------------
def _missing(node: str | None, devices: list[Device], table: Table, context: Context) -> list[Finding]:
    """GPUs that vanished between scrapes while others stayed, or that were never there although the site expects them."""
    last = max((t for device in devices for t in device.seen_at()), default=0.0)
    gone = [device for device in devices if last not in device.seen_at()]
    there = [device for device in devices if device not in gone]
    found = []
    for device in gone:
        why = "The GPU's series ended while the others of its machine went on: the driver no longer shows it."
        evidence = [series.evidence() for series in list(device.series.values())[:3]]
        found.append(make("gpu.missing", device, context, why, evidence, response="restart"))
    expected = context.expected_gpus
    if expected and not gone and not table.bad and 0 < len(there) < expected and _complete(there):
        known = {part.pci for part in context.inventory if part.is_gpu and part.pci and (not part.node or part.node == node)}
        absent = sorted(known - {str(device.names.get("pci")) for device in there}) if known else []
        subject: dict[str, Any] = {"node": node, "job": context.job_name}
        if len(absent) == 1:
            subject = context.gpu_subject(node=node, pci=absent[0])
        numbers = sorted(number for device in there if isinstance(number := device.names.get("gpu"), int))
        holes = [number for number in range(expected) if number not in numbers]
        if len(holes) == 1 and "gpu" not in subject:
            subject["gpu"] = holes[0]
        why = f"The machine shows {len(there)} of {expected} GPUs."
        evidence = [next(iter(device.series.values())).evidence() for device in there[:8]]
        found.append(finding("gpu.missing", subject, why, evidence=evidence, next_steps=FAULTS["gpu.missing"].first_commands))
    return found


def _complete(there: list[Device]) -> bool:
    """Whether the page is one of a whole machine: an excerpt of one GPU's series says nothing about the others."""
    measures = [frozenset(measure for measure, _ in device.series) for device in there]
    return len(there) > 1 and len(set(measures)) <= 2
