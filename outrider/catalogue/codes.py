"""What each Xid (GPU driver) and SXid (NVSwitch driver) code means, read from `xids.jsonl` and `sxids.jsonl` when first asked.

The action in the files is data with its source; the site may say otherwise per code (`outrider/config/catalogue.py`).
Needs msgspec (extra `cli`): the SDK inside a training job does not import this module.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from outrider.catalogue.faults import FAULTS, Repair, Response
from outrider.errors import InputError

if TYPE_CHECKING:  # the configuration's section imports this package: the type alone is needed here
    from outrider.config.catalogue import CatalogueSection, CodeOverride

#: `root`: a cause. `app`: a program's error unless it repeats on one unit. `secondary`: follows something else. `verdict`: the
#: driver's word on another error (154). `severity`: the line's own severity word decides. `info`: by itself no fault.
#: `injected`: a test.
Role = Literal["root", "app", "secondary", "verdict", "severity", "info", "injected"]
Scope = Literal["app", "gpu", "fw", "link", "node", "switch"]


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """One code. `action` is the vendor's own word; `response` and `repair` are Outrider's; `context` are rules of many lines."""

    code: int
    name: str
    meaning: str
    scope: Scope
    role: Role
    fault: str
    decisive: bool
    response: Response
    repair: Repair
    action: str
    context: tuple[str, ...]
    source: str
    #: SXid only: the driver's severity by switch generation, and the class of the Fabric Manager guide.
    severity: dict[str, str] = {}
    guide: str = ""
    #: Why the site changed it, if it did.
    overridden: str = ""


#: Code numbers that no entry knows: shown, never judged by the number alone (a 154 on the GPU says what the driver wants).
UNKNOWN_SOURCE: Final = "not in the catalogue"


@cache
def _load(name: str) -> dict[int, Code]:
    text = (files("outrider.catalogue") / name).read_bytes()
    return {code.code: code for code in msgspec.json.Decoder(Code).decode_lines(text)}


class CodeBook:
    """The codes as this site sees them: the catalogue, changed by the site's overrides.

    Raises:
        InputError: an override names a code or a fault class that does not exist.
    """

    def __init__(self, overrides: "CatalogueSection | None" = None) -> None:
        self._xids = _overridden(_load("xids.jsonl"), overrides.xid if overrides else {}, "xid")
        self._overrides = overrides
        self._sxids: dict[int, Code] | None = None

    def xid(self, number: int) -> Code:
        """The entry of an Xid; an unknown number has an entry that says so."""
        return self._xids.get(number) or _unknown(number, "gpu", "gpu.other")

    def xids(self) -> list[Code]:
        """All known Xids, by number."""
        return [self._xids[number] for number in sorted(self._xids)]

    def sxid(self, number: int) -> Code:
        """The entry of an SXid; an unknown number follows the severity word of its line."""
        return self._sxid_table().get(number) or _unknown(number, "switch", "gpu.nvlink")

    def sxids(self) -> list[Code]:
        """All known SXids, by number."""
        return [self._sxid_table()[number] for number in sorted(self._sxid_table())]

    def _sxid_table(self) -> dict[int, Code]:
        if self._sxids is None:
            self._sxids = _overridden(_load("sxids.jsonl"), self._overrides.sxid if self._overrides else {}, "sxid")
        return self._sxids


_UNKNOWN_RULE = (
    "An unknown code is shown and never taken for a fatal one.",
    "Only a line that says Fatal is acted upon; Non-fatal and Correctable ones are counted.",
)


def _unknown(number: int, scope: Scope, fault: str) -> Code:
    return Code(
        code=number, name="UNKNOWN", meaning="A code that the catalogue does not know", scope=scope,
        role="severity" if scope == "switch" else "info", fault=fault, decisive=False,
        response="restart" if scope == "switch" else "watch", repair="investigate", action="NOT_STATED",
        context=(_UNKNOWN_RULE[scope == "switch"],), source=UNKNOWN_SOURCE,
    )  # fmt: skip


def _overridden(codes: dict[int, Code], overrides: "Mapping[str, CodeOverride]", table: str) -> dict[int, Code]:
    if not overrides:
        return codes
    changed = dict(codes)
    for text, override in overrides.items():
        key = f"catalogue.{table}.{text}"
        if not text.isdecimal() or int(text) not in codes:
            raise InputError(f"no {table} has the number {text!r}", key=key)
        fields = msgspec.structs.asdict(override)
        why = fields.pop("why")
        given = {name: value for name, value in fields.items() if value is not None}
        if given.get("fault", "gpu.other") not in FAULTS:
            raise InputError(f"no fault class is called {given['fault']!r}", key=f"{key}.fault")
        role = {"role": "root"} if given.get("response") in ("page", "drain", "restart") else {}
        changed[int(text)] = msgspec.structs.replace(
            codes[int(text)], **given, **role, overridden=why or "the site's configuration"
        )
    return changed
