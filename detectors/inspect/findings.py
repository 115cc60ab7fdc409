"""The finding: one incident that a file tells of, and its public JSON form (design, "Findings")."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from outrider.catalogue import FAULTS, RESPONSES, Culprit, Repair, Response

State = Literal["open", "resolved"]

#: Evidence lines kept for one finding; a flood of a million lines is one incident with this many samples.
EVIDENCE_MAX: Final = 20
#: Characters kept of one evidence line.
TEXT_MAX: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceLine:
    """One line that supports a finding. `line` counts from 1 in `file` (None: the only file, or standard input)."""

    line: int
    text: str
    file: str | None = None

    def to_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"line": self.line, "text": self.text[:TEXT_MAX]}
        return shown if self.file is None else shown | {"file": self.file}


@dataclass(frozen=True, slots=True, kw_only=True)
class XidMark:
    """One Xid (or SXid) of an incident: `root` tells the cause from what only followed."""

    xid: int
    pci: str | None
    root: bool
    sxid: bool = False

    def to_json(self) -> dict[str, Any]:
        return {"sxid" if self.sxid else "xid": self.xid, "pci": self.pci, "root": self.root}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One incident. Make it with `finding()`, which fills what the catalogue knows of the fault class.

    `next_steps` are the first things a person does; the terminal shows them, the JSON does not.
    """

    fault: str
    culprit: Culprit
    subject: dict[str, Any]
    layers: tuple[str, ...]
    decisive: bool
    response: Response
    repair: Repair
    explanation: str
    evidence: tuple[EvidenceLine, ...] = ()
    xids: tuple[XidMark, ...] = ()
    state: State = "open"
    next_steps: tuple[str, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def height(self) -> int:
        """Height of the response on the ladder: 0 `ignore` to 4 `restart`."""
        return RESPONSES.index(self.response)

    def to_json(self) -> dict[str, Any]:
        """The public form, keys in the design's order; empty `xids` and `data` are left out."""
        shown: dict[str, Any] = {
            "fault": self.fault,
            "culprit": self.culprit,
            "subject": {key: value for key, value in self.subject.items() if value not in (None, "", [])},
            "layers": list(self.layers),
            "decisive": self.decisive,
            "response": self.response,
            "repair": self.repair,
        }
        if self.xids:
            shown["xids"] = [mark.to_json() for mark in self.xids]
        shown["evidence"] = [line.to_json() for line in self.evidence[:EVIDENCE_MAX]]
        shown["explanation"] = self.explanation
        shown["state"] = self.state
        return shown | ({"data": self.data} if self.data else {})


def finding(
    fault: str,
    subject: dict[str, Any],
    explanation: str,
    *,
    evidence: Iterable[EvidenceLine] = (),
    xids: Iterable[XidMark] = (),
    culprit: Culprit | None = None,
    response: Response | None = None,
    repair: Repair | None = None,
    layers: tuple[str, ...] | None = None,
    decisive: bool | None = None,
    state: State = "open",
    next_steps: tuple[str, ...] = (),
    data: dict[str, Any] | None = None,
) -> Finding:
    """A finding of class `fault`; what is not given comes from the catalogue. Raises KeyError for an unknown class."""
    known = FAULTS[fault]
    return Finding(
        fault=fault,
        culprit=culprit or known.culprit,
        subject={key: value for key, value in subject.items() if value is not None},
        layers=layers or (known.layer,),
        decisive=known.decisive if decisive is None else decisive,
        response=response or known.response,
        repair=repair or known.repair,
        explanation=explanation,
        evidence=tuple(evidence)[:EVIDENCE_MAX],
        xids=tuple(xids),
        state=state,
        next_steps=next_steps,
        data=data or {},
    )


def strongest_first(findings: Iterable[Finding]) -> list[Finding]:
    """Highest response first; open before resolved; otherwise in the order in which the judge told them."""
    return sorted(findings, key=lambda one: (-one.height, one.state != "open"))
