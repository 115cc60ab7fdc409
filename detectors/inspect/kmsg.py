"""The kind `kmsg`: kernel ring buffer or journal text, of one machine or of many."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from detectors.inspect.context import Context
from detectors.inspect.findings import EvidenceLine, Finding, finding
from detectors.inspect.kmsg_gpu import joined_lines, judge_gpus
from detectors.inspect.kmsg_host import events_of, judge_host
from detectors.inspect.kmsg_network import judge_network
from detectors.inspect.sources import Source
from detectors.inspect.xid_events import Budget, XidEvents
from outrider.catalogue import FAULTS
from outrider.catalogue.codes import CodeBook
from outrider.parsers.kernel_log import KernelLog, has_prefixes, lines_that_matter
from outrider.signals import Signal

#: Machines in one pile of logs; the lines of further ones are counted as of an unnamed machine.
MACHINES_MAX: Final = 5000
#: Lines kept of one kind of event of one machine.
_KEPT: Final = 2000


@dataclass(slots=True)
class _Machine:
    """What the logs say of one machine."""

    events: XidEvents
    told: list[tuple[Signal, EvidenceLine]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def see(self, signal: Signal, line: EvidenceLine, order: int) -> None:
        if signal.kind in ("xid", "sxid"):
            self.events.add(signal, line, order)
            return
        event = signal.data.get("event")
        if event == "boot" and (self.events.events or self.told):
            self.events.begin_boot()
        elif event == "gpu_identity":
            self.events.greet(str(signal.pci), str(signal.uuid))
        key = f"{signal.kind} {signal.data.get('event')} {signal.pci or signal.nic or signal.server}"
        seen = self.counts.get(key, 0)
        if len(self.counts) < _KEPT:
            self.counts[key] = seen + 1
        if seen < _KEPT and len(self.told) < _KEPT * 10 and self.events.budget.take():
            self.told.append((signal, line))


def judge(sources: Sequence[Source], context: Context) -> list[Finding]:
    """The incidents that kernel logs tell of, machine by machine."""
    codes, budget = CodeBook(context.overrides), Budget()
    machines: dict[str | None, _Machine] = {}
    order = 0
    for source in sources:
        bare = not has_prefixes(source.head.decode("utf-8", "replace"))
        log = KernelLog(bare=bare)
        number, host = 1, None
        for block in source.blocks():
            text = block.decode("utf-8", "replace").replace("\r\n", "\n")
            for at, raw in lines_that_matter(text, number):
                signal = log.feed(raw)
                if signal is None:
                    continue
                order += 1
                host = signal.node or host  # a line without a name is of the machine that the lines before it name
                name = host or context.node
                key = name if name in machines or len(machines) < MACHINES_MAX else None
                machine = machines.setdefault(key, _Machine(XidEvents(codes, budget)))
                machine.see(signal, EvidenceLine(line=at, text=raw.strip(), file=source.file), order)
            number += text.count("\n")
    alone = context.node if len(machines) == 1 else None  # the site's name for it; the log may use another
    return [one for name, machine in machines.items() for one in _judge_machine(alone or name, machine, context)]


def _judge_machine(node: str | None, machine: _Machine, context: Context) -> list[Finding]:
    related = [one for one in machine.told if one[0].kind == "pcie" or one[0].data.get("event") == "gpu_init_failed"]
    joined = joined_lines(related, machine.events)
    gpus = judge_gpus(node, machine.events, related, context)
    network = [one for one in machine.told if one[0].kind in ("link", "pcie") or str(one[0].data.get("event")).startswith("nic_")]
    host = judge_host(node, machine.told, context)
    found = gpus + _failed_starts(node, machine, context, joined) + judge_network(node, network, context, joined) + host
    return _one_story(found)


def _failed_starts(node: str | None, machine: _Machine, context: Context, joined: set[int]) -> list[Finding]:
    """GPUs that the driver could not start, and that no Xid explains."""
    failed = [one for one in events_of(machine.told, "gpu_init_failed") if one[1].line not in joined]
    found = []
    if failed:
        signal = next((signal for signal, _ in failed if signal.pci), failed[0][0])
        why = f"The driver could not start a GPU ({len(failed)} lines): the node shows fewer than it has."
        subject = context.gpu_subject(node=node, pci=signal.pci) if signal.pci else {"node": node, "job": context.job_name}
        evidence = [line for _, line in failed]
        steps = FAULTS["gpu.missing"].first_commands
        found.append(finding("gpu.missing", subject, why, evidence=evidence, response="drain", next_steps=steps))
    links = events_of(machine.told, "nvlink_detect_failed")
    if links and not any(event.reading.fault == "gpu.nvlink" for event in machine.events.of_role("root")):
        why = "The driver could not learn which NVLinks are there: NVLink may be off on this GPU."
        subject = context.gpu_subject(node=node, pci=links[0][0].pci) if links[0][0].pci else {"node": node}
        found.append(finding("gpu.nvlink", subject, why, evidence=[line for _, line in links], response="watch", decisive=False))
    return found


def _one_story(found: list[Finding]) -> list[Finding]:
    """A panic, hung tasks or lock-ups right after a GPU's own fatal error are how that error went on: one incident."""
    gpus = [one for one in found if one.fault.startswith("gpu.") and one.response in ("drain", "restart") and one.xids]
    if not gpus:
        return found
    followers = [one for one in found if one.fault in ("gpu.driver_hang", "node.hung", "node.panic") and not one.xids]
    return [one for one in found if one not in followers or not _follows(one, gpus[0])]


def _follows(one: Finding, cause: Finding) -> bool:
    """Whether a finding's lines stand below the cause's first line, in the same file."""
    if not one.evidence or not cause.evidence:
        return False
    first, start = one.evidence[0], cause.evidence[0]
    return first.file == start.file and first.line > start.line
