"""`inspect --kind trace`: runs a recorded trace through the judge of `replay` and tells of each incident once, at its end."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from detectors.core.types import Action, Evidence, IncidentChange
from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding, XidMark, finding
from detectors.inspect.sources import Source
from detectors.replay.runner import Replay
from detectors.replay.trace import TraceSignal, read_header, read_signals
from outrider.catalogue.codes import CodeBook
from outrider.config.policy import Policy
from outrider.errors import InputError
from outrider.fleet import Fleet

#: A stop that was told of this near to the record's end may be the record's own: a header's `until` outlasts the last line.
CUT_OFF_SECONDS = 30.0
#: Lines kept to show as evidence: (time, kind) -> the first such line. A longer trace keeps the newest.
LINES_MAX = 200_000


def judge(sources: Sequence[Source], context: Context) -> list[Finding]:
    """One finding an incident, in the order in which they were opened."""
    return [one for source in sources for one in _judge_one(source, context)]


def _judge_one(source: Source, context: Context) -> list[Finding]:
    numbered = ((number, line.encode()) for number, line in enumerate(source.lines(), 1))
    head = next(((number, line) for number, line in numbered if line.strip()), None)
    if head is None:
        raise InputError("is empty", file=source.name)
    fleet = known_fleet(read_header(head[1], source.name, head[0], source.note), context)
    run = Replay(fleet, Policy(mode="act"), CodeBook(context.overrides))
    lines = _Lines(source.file)
    newest: dict[str, IncidentChange] = {}
    held, done = set[str](), set[str]()
    signals = read_signals((line for _, line in numbered), fleet, source.name, head[0] + 1, source.note)
    for decision in run.run(lines.watch(signals)):
        if isinstance(decision, IncidentChange):
            newest[decision.incident] = decision
        elif isinstance(decision, Action):
            (held if (decision.refused or "").startswith("maintenance") else done).add(decision.incident)
    found = [_finding(change, lines) for change in newest.values() if _counts(change) and not _cut_off(change, run.count.end_t)]
    # What happens to a machine that people have in hand is recorded, and nothing is done.
    tended = held - done
    return [replace(one, response="watch") if _healed_stall(one) or one.data["incident"] in tended else one for one in found]


def known_fleet(fleet: Fleet, context: Context) -> Fleet:
    """The trace's header with what the site knows besides: bus addresses, UUIDs, leaf switches, IP addresses, limits."""
    addresses = {node: address for address, node in context.addresses.items()}
    nodes = []
    for node in fleet.nodes:
        cards = {
            part.index: part for part in context.inventory if part.is_gpu and part.node == node.node and part.index is not None
        }
        size = max([node.gpus, *(index + 1 for index in cards)]) if cards else 0
        changed: dict[str, Any] = {}
        if cards and not node.pcis:
            changed["pcis"] = tuple((cards[index].pci or "") if index in cards else "" for index in range(size))
        if cards and not node.uuids:
            changed["uuids"] = tuple((cards[index].uuid or "") if index in cards else "" for index in range(size))
        if node.node in context.nics and not node.nics:
            changed["nics"] = context.nics[node.node]
        if node.address is None and node.node in addresses:
            changed["address"] = addresses[node.node]
        nodes.append(msgspec.structs.replace(node, **changed))
    jobs = [msgspec.structs.replace(job, limits={**context.limits, **job.limits}) for job in fleet.jobs]
    return msgspec.structs.replace(fleet, nodes=tuple(nodes), jobs=tuple(jobs))


def _counts(change: IncidentChange) -> bool:
    """Incidents that were confirmed and are no consequence of another; what was only suspected is no finding."""
    if change.extra.get("merged_into"):
        return False
    return change.event in ("confirmed", "resolved")


def _cut_off(change: IncidentChange, end: float) -> bool:
    """A job that stood still only in the last moments of the record: the record ends there, perhaps not the job."""
    return change.fault == "job.hang" and change.response == "page" and change.t > end - CUT_OFF_SECONDS


def _healed_stall(one: Finding) -> bool:
    """A stop that ended by itself before its phase's limit: live it is worth a page, afterwards nobody has to do anything."""
    return one.fault in ("job.hang", "job.dataloader_stall") and one.response == "page" and one.state == "resolved"


class _Lines:
    """Remembers which line told what, so that evidence can be shown with its number."""

    def __init__(self, file: str | None) -> None:
        self._file = file
        self._lines: dict[tuple[float, str], tuple[int, str]] = {}

    def watch(self, signals: Iterator[tuple[int, TraceSignal]]) -> Iterator[tuple[int, TraceSignal]]:
        """Passes the signals on and remembers those that can be evidence."""
        for number, signal in signals:
            if signal.kind not in ("heartbeat", "step", "pause"):
                if len(self._lines) >= LINES_MAX:
                    self._lines.pop(next(iter(self._lines)))
                self._lines.setdefault((signal.t, signal.kind), (number, signal.text or _in_words(signal)))
            yield number, signal

    def show(self, evidence: tuple[Evidence, ...]) -> list[EvidenceLine]:
        """The lines behind the evidence, in order; what no line told (silence, a pace) is left to the explanation."""
        found = {}
        for piece in evidence:
            line = self._lines.get((piece.t, piece.kind))
            if line is not None:
                found[line[0]] = EvidenceLine(line=line[0], text=line[1], file=self._file)
        return [found[number] for number in sorted(found)]


def _in_words(signal: TraceSignal) -> str:
    """A line of the trace as a person reads it."""
    named = (signal.node, signal.switch, signal.nic, signal.gpu if signal.gpu is None else f"GPU {signal.gpu}", signal.job)
    told = [str(one) for one in named if one is not None]
    told += [] if signal.value is None else [str(signal.value)]
    return " ".join([f"t={signal.t:g}", signal.kind, *told, *(f"{key}={value}" for key, value in signal.data.items())])


def _finding(change: IncidentChange, lines: _Lines) -> Finding:
    root = change.extra.get("root")
    pci = change.subject.get("pci")
    xids = [XidMark(xid=code, pci=pci, root=code == root, sxid=code > 9999) for code in change.extra.get("codes", ())]
    return finding(
        change.fault, change.subject, change.explanation, evidence=lines.show(change.evidence), xids=xids,
        culprit=cast(Any, change.culprit), response=cast(Any, change.response), repair=cast(Any, change.repair),
        layers=change.layers or None, decisive=bool(change.extra.get("decisive")),
        state="resolved" if change.event == "resolved" else "open",
        data={"incident": change.incident, "t": round(change.t, 6), "votes": change.votes},
    )  # fmt: skip
