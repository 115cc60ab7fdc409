"""Joins a machine's Xids and SXids into incidents: what is the cause, what only followed, what is the program's own.

The rules (sources: NVIDIA Xid catalog and its work flows; `facts` of the catalogue entries):
- lines about one GPU belong together; NVLink errors of a machine in one burst belong together, whichever GPUs tell of them;
- GPUs that fall off the bus in one burst share a cause (slot, power, PCIe switch, driver), so the machine is the culprit;
- 45 and 43 are teardown: they follow the incident that stands before them, or the Xid that they name;
- 13, 31 and their like are the program's, unless one unit of one GPU repeats them over several programs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from detectors.inspect.xid_events import XidEvent
from outrider.catalogue.faults import RESPONSES, Repair, Response

#: One GPU's hardware lines with less than this between them are one incident (a hung GPU is told of each time it is asked).
SAME_UNIT_SECONDS: Final = 3600.0
#: Lines of several GPUs within this are one burst: link errors reach all ends within milliseconds, dying processes in a minute.
BURST_SECONDS: Final = 30.0
#: Processes of a job die within this of the fault (time-outs of a minute are usual).
TEARDOWN_SECONDS: Final = 300.0
#: One remapped row is nothing; so many in one spell are memory that is going.
ROWS_MANY: Final = 3
#: Records of one event may be printed out of order by this much.
SLACK_SECONDS: Final = 2.0

#: Which class names an incident of many: the one that explains the others first.
PRECEDENCE: Final = (
    "gpu.fallen_off_bus", "gpu.ecc_uncontained", "gpu.row_remap_failed", "gpu.ecc_contained", "gpu.driver_hang",
    "gpu.nvlink", "gpu.gsp_hang", "gpu.missing", "gpu.ecc_corrected", "gpu.row_remap_pending", "gpu.thermal", "gpu.other",
)  # fmt: skip
#: Neither of these explains the others: the one whose line comes first names the incident.
_EQUALS: Final = frozenset({"gpu.driver_hang", "gpu.nvlink", "gpu.gsp_hang"})


@dataclass(slots=True)
class XidIncident:
    """Causes, what followed, and the driver's verdicts. At least one of `roots` and `verdicts` is not empty."""

    roots: list[XidEvent] = field(default_factory=list)
    followers: list[XidEvent] = field(default_factory=list)
    verdicts: list[XidEvent] = field(default_factory=list)
    #: A 45 names a cause whose own line is not in the log.
    unseen_root: int | None = None

    @property
    def first(self) -> XidEvent:
        return min(self.roots or self.verdicts, key=lambda event: event.order)

    @property
    def last_t(self) -> float:
        return max(event.t for event in (*self.roots, *self.verdicts))

    @property
    def units(self) -> list[str | None]:
        """The devices that the causes name, in order of their lines."""
        return list(dict.fromkeys(event.unit for event in self.roots or self.verdicts))

    @property
    def fault(self) -> str:
        faults = {event.reading.fault for event in self.roots or self.verdicts}
        numbers = {event.number for event in self.roots}
        if 94 in numbers and not numbers & {95, 140} and "gpu.fallen_off_bus" not in faults:
            return "gpu.row_remap_failed" if "gpu.row_remap_failed" in faults else "gpu.ecc_contained"
        fault = next((fault for fault in PRECEDENCE if fault in faults), min(faults))
        return self.first_of(_EQUALS).reading.fault if fault in _EQUALS else fault

    def first_of(self, faults: frozenset[str]) -> XidEvent:
        """The first cause that belongs to one of the classes; there is one."""
        fits = (event for event in (*self.roots, *self.verdicts) if event.reading.fault in faults)
        return min(fits, key=lambda event: event.order)

    @property
    def cause(self) -> XidEvent:
        """The line that names the culprit: the first of the naming class."""
        fault = self.fault
        numbers = (94, 48) if fault == "gpu.ecc_contained" else ()
        fits = [event for event in self.roots if event.reading.fault == fault or event.number in numbers]
        return min(fits or self.roots or self.verdicts, key=lambda event: event.order)

    @property
    def recovered(self) -> bool:
        """The driver's last word came after the last cause and wants nothing."""
        if not self.verdicts or not self.verdicts[-1].reading.recovered:
            return False
        return all(event.order < self.verdicts[-1].order for event in self.roots)

    @property
    def response(self) -> Response:
        """The highest that a line asks for; many remapped rows ask for more than one."""
        asked = [event.reading.response for event in (*self.roots, *self.verdicts)]
        rows = {event.signal.data.get("address") for event in self.roots if event.number == 63}
        if len(rows) >= ROWS_MANY:
            asked.append("drain")
        return max(asked, key=RESPONSES.index)

    @property
    def repair(self) -> Repair:
        wanted = [event.reading.repair for event in self.verdicts if not event.reading.recovered]
        fault = self.fault
        if fault in ("gpu.fallen_off_bus", "gpu.row_remap_failed") or self.cause.reading.code.overridden:
            return self.cause.reading.repair
        if "reboot_node" in wanted:
            return "reboot_node"
        if "reset_gpu" in wanted or any(event.number in (63, 160) for event in self.roots):
            return "check_link" if self.cause.reading.repair == "check_link" else "reset_gpu"
        return self.cause.reading.repair


def build_incidents(events: Iterable[XidEvent]) -> tuple[list[XidIncident], list[XidEvent]]:
    """Hardware incidents of one machine, and the events left over (the programs' own, and teardown without a cause).

    Args:
        events: all events of one machine, in order of their lines.
    """
    ordered = sorted(events, key=lambda event: event.order)
    incidents = _merge_bursts(_by_unit(event for event in ordered if event.reading.role == "root"))
    for verdict in (event for event in ordered if event.reading.role == "verdict"):
        _place_verdict(verdict, incidents, ordered)
    left = []
    for event in (event for event in ordered if event.reading.role in ("secondary", "app", "severity")):
        if not _place_follower(event, incidents):
            left.append(event)
    incidents += _unseen_roots(left)
    return incidents, [event for event in left if not any(event in one.followers for one in incidents)]


def _by_unit(roots: Iterable[XidEvent]) -> list[XidIncident]:
    """One incident for each device and spell of trouble."""
    incidents: list[XidIncident] = []
    latest: dict[str | None, XidIncident] = {}
    for event in roots:
        known = latest.get(event.unit)
        if known and known.first.boot == event.boot and abs(event.t - known.last_t) <= SAME_UNIT_SECONDS:
            known.roots.append(event)
            continue
        latest[event.unit] = XidIncident(roots=[event])
        incidents.append(latest[event.unit])
    return incidents


def _merge_bursts(incidents: list[XidIncident]) -> list[XidIncident]:
    """Joins incidents of several devices that one cause explains."""
    merged: list[XidIncident] = []
    for one in sorted(incidents, key=lambda incident: incident.first.order):
        home = next((other for other in merged if _same_cause(other, one)), None)
        if home is None:
            merged.append(one)
        else:
            home.roots += one.roots
    return merged


def _same_cause(one: XidIncident, other: XidIncident) -> bool:
    if one.first.boot != other.first.boot:
        return False
    gap = abs(other.first.t - one.first.t)
    faults = {one.fault, other.fault}
    if "gpu.fallen_off_bus" in faults:  # a lost GPU takes its links and its firmware's answers with it
        return gap <= BURST_SECONDS * 2 and faults <= {
            "gpu.fallen_off_bus",
            "gpu.nvlink",
            "gpu.gsp_hang",
            "gpu.driver_hang",
            "gpu.other",
        }
    if faults == {"gpu.nvlink"}:
        return gap <= BURST_SECONDS
    if "gpu.nvlink" in faults:  # a dying GPU's links go down with it
        return gap <= SLACK_SECONDS and "gpu.ecc_contained" not in faults
    return len(faults) == 1 and faults <= {"gpu.gsp_hang", "gpu.driver_hang", "gpu.missing"} and gap <= BURST_SECONDS


def _place_verdict(verdict: XidEvent, incidents: list[XidIncident], ordered: list[XidEvent]) -> None:
    """A 154 belongs to the latest incident of its GPU; one that asks for something and has none is an incident of its own."""
    for one in reversed(incidents):
        units = {event.unit for event in (*one.roots, *one.verdicts)}
        mine = verdict.unit in units and one.first.order <= verdict.order and one.first.boot == verdict.boot
        if mine and (verdict.t - one.last_t <= SAME_UNIT_SECONDS or verdict.reading.recovered):
            one.verdicts.append(verdict)
            return
    injected = [event for event in ordered if event.reading.role == "injected" and event.unit == verdict.unit]
    if verdict.reading.recovered or any(abs(event.t - verdict.t) <= BURST_SECONDS for event in injected):
        return
    soon = [one for one in incidents if verdict.unit in one.units and 0 <= one.first.t - verdict.t <= SLACK_SECONDS]
    if soon:
        soon[0].verdicts.append(verdict)
    else:
        # what was only counted before it is what the driver now asks to mend
        noted = [event for event in ordered if event.reading.role == "info" and event.unit == verdict.unit]
        noted = [event for event in noted if event.boot == verdict.boot and 0 <= verdict.t - event.t <= BURST_SECONDS]
        incidents.append(XidIncident(roots=noted, verdicts=[verdict]))


def _place_follower(event: XidEvent, incidents: list[XidIncident]) -> bool:
    """Teardown and victims go to the incident that stands before them; what names its cause goes to that."""
    named = event.signal.data.get("caused_by")
    best = None
    for one in (one for one in incidents if one.first.boot == event.boot):
        # a follower can have followers of its own: the 45s of cards whose 74 only answers an error elsewhere
        numbers = {known.number for known in (*one.roots, *one.followers)}
        since = event.t - one.first.t
        near = -SLACK_SECONDS <= since <= TEARDOWN_SECONDS or -SLACK_SECONDS <= event.t - one.last_t <= TEARDOWN_SECONDS
        if named in numbers and (event.unit in one.units or near):
            one.followers.append(event)
            return True
        if near and named is None and one.response != "watch":
            best = one if best is None or event.unit in one.units else best
    if best is None:
        return False
    best.followers.append(event)
    return True


def _unseen_roots(left: list[XidEvent]) -> list[XidIncident]:
    """45s that name a hardware Xid whose own line is not there (the log begins later, or the line was lost)."""
    incidents: dict[int, XidIncident] = {}
    for event in left:
        named = event.signal.data.get("caused_by")
        if isinstance(named, int) and named not in (13, 31, 43, 45):
            incident = incidents.setdefault(named, XidIncident(unseen_root=named))
            incident.followers.append(event)
    return list(incidents.values())
