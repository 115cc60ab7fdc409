"""The kind `metrics`: Prometheus text of dcgm-exporter, node_exporter and Outrider's agent, one scrape or several."""

from collections.abc import Sequence
from typing import Final

from detectors.inspect.context import Context
from detectors.inspect.findings import Finding, finding
from detectors.inspect.metrics_gpu import judge_gpus
from detectors.inspect.metrics_hang import judge_hang
from detectors.inspect.metrics_host import judge_hosts
from detectors.inspect.metrics_ports import judge_ports
from detectors.inspect.metrics_table import read_table
from detectors.inspect.sources import Source
from detectors.inspect.xid_incidents import PRECEDENCE
from outrider.catalogue import RESPONSES

#: Machines of one fleet's page that a finding of many machines names.
_NAMED: Final = 8


def judge(sources: Sequence[Source], context: Context) -> list[Finding]:
    """The incidents that pages of metrics tell of."""
    table = read_table(sources, context)
    found = judge_gpus(table, context) + judge_ports(table, context) + judge_hosts(table, context)
    found = _by_machine(_by_gpu(found))
    broken = any(one.fault.startswith("gpu.") and one.response in ("drain", "restart") for one in found)
    return found if broken else found + judge_hang(table, context)  # a broken GPU is why the others wait


def _by_gpu(found: list[Finding]) -> list[Finding]:
    """What is wrong with one GPU is one incident: the class that explains the others names it."""
    groups: dict[tuple[object, object], list[Finding]] = {}
    rest = []
    for one in found:
        gpu = one.subject.get("uuid") or one.subject.get("pci") or one.subject.get("gpu")
        if one.fault.startswith("gpu.") and gpu is not None:
            groups.setdefault((one.subject.get("node"), gpu), []).append(one)
        else:
            rest.append(one)
    return [_merge(group) for group in groups.values()] + rest


def _merge(group: list[Finding]) -> Finding:
    if len(group) == 1:
        return group[0]
    named = min(group, key=lambda one: (-one.height, PRECEDENCE.index(one.fault) if one.fault in PRECEDENCE else 99))
    others = [one for one in group if one is not named]
    return finding(
        named.fault,
        named.subject,
        " ".join([named.explanation, *(one.explanation for one in others)]),
        evidence=[*named.evidence, *(line for one in others for line in one.evidence)],
        xids=[mark for one in (named, *others) for mark in one.xids],
        culprit=named.culprit,
        response=max((one.response for one in group), key=RESPONSES.index),
        repair=named.repair,
        decisive=any(one.decisive for one in group),
        state=named.state,
        next_steps=named.next_steps,
    )


def _by_machine(found: list[Finding]) -> list[Finding]:
    """Half of a machine's GPUs, and at least three, with the same heat or slowness have a cause that they share: the machine."""
    groups: dict[tuple[object, str], list[Finding]] = {}
    for one in found:
        if one.fault in ("gpu.thermal", "gpu.slow") and one.height > 1:
            groups.setdefault((one.subject.get("node"), one.fault), []).append(one)
    kept = list(found)
    for (node, fault), group in groups.items():
        if len(group) < 3 or node is None:
            continue
        kept = [one for one in kept if one not in group]
        gpus = ", ".join(str(one.subject.get("gpu", one.subject.get("pci"))) for one in group[:_NAMED])
        kept.append(
            finding(
                fault,
                {"node": node, "job": group[0].subject.get("job")},
                f"{len(group)} GPUs of one machine at once (GPU {gpus}): what they share is the machine: cooling, or power. "
                + group[0].explanation,
                evidence=[line for one in group for line in one.evidence[:2]],
                culprit="node",
                response=max((one.response for one in group), key=RESPONSES.index),
                repair="investigate",
                decisive=False,
                next_steps=group[0].next_steps,
            )
        )
    return kept
