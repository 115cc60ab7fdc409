"""Findings that a second engineer's cases showed to be wrong: each as a rule of its kind."""

import json
from pathlib import Path
from typing import Any

from detectors.inspect.context import make_context
from detectors.inspect.findings import Finding
from detectors.inspect.kinds import judge_of
from detectors.inspect.sources import Source

HEADER: dict[str, Any] = {
    "kind": "fleet", "nodes": [{"node": name, "rack": "r1", "gpus": 2} for name in ("n1", "n2", "n3")],
    "jobs": [{"job": "j1", "slots": [["n1", 0], ["n1", 1], ["n2", 0], ["n2", 1]], "groups": {}, "limits": {"train_s": 300}}],
    "witnesses": ["w1", "w2", "w3"], "spares": [], "until": 120.0, "auto": {"heartbeat_s": 1.0, "step_s": {"j1": 4.0}},
}  # fmt: skip


def found(kind: str, text: str, tmp_path: Path, **context: Any) -> list[Finding]:
    file = tmp_path / "input.txt"
    file.write_text(text, encoding="utf-8")
    return judge_of(kind)([Source(file)], make_context(context))


def trace(*signals: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in (HEADER, *signals))


def test_what_happens_to_a_machine_in_maintenance_is_only_recorded(tmp_path: Path) -> None:
    lost = {"t": 40, "kind": "xid", "node": "n3", "value": 79, "data": {"pci": "0000:3b:00"}}
    on = {"t": 30, "kind": "maintenance", "node": "n3", "value": "on"}
    off = {"t": 35, "kind": "maintenance", "node": "n3", "value": "off"}
    assert [one.response for one in found("trace", trace(lost), tmp_path)] == ["drain"]
    assert [one.response for one in found("trace", trace(on, lost), tmp_path)] == ["watch"]
    assert [one.response for one in found("trace", trace(on, off, lost), tmp_path)] == ["drain"]


def test_teardown_that_names_a_consequence_belongs_to_the_consequences_cause(tmp_path: Path) -> None:
    cards = ("1b", "2b", "3b", "4b")
    lines = ["[200.000001] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 33 LTSSM Fault Up (First)"]
    lines += [
        f"[200.1{n:05d}] NVRM: Xid (PCI:0000:{card}:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on "
        f"link 3(0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
        for n, card in enumerate(cards)
    ]
    lines += [
        f"[200.4{n:05d}] NVRM: Xid (PCI:0000:{card}:00): 45, pid=77, name=python3, Ch 00000001 caused by previous Xid 74"
        for n, card in enumerate(cards)
    ]
    [incident] = found("kmsg", "\n".join(lines) + "\n", tmp_path, node="n1", job="j1")
    assert (incident.fault, incident.response) == ("gpu.nvlink", "restart")
