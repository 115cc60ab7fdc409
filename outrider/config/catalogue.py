"""Section `[catalogue]`: what the site says differently about a code or a fault class.

[catalogue.xid.94]
response = "drain"        # EC2 advises early replacement
repair = "replace_part"

[catalogue.sxid.12028]
response = "page"
"""

import msgspec

from outrider.catalogue.faults import Repair, Response
from outrider.errors import InputError


class CodeOverride(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What to change of one code; what is absent stays as in the catalogue.

    `fault`: class that the code belongs to. `response`, `repair`: what Outrider and people do. `decisive`: the line needs no
    second layer. `why` is shown by `explain`, so that the next reader knows who decided it.
    """

    fault: str | None = None
    response: Response | None = None
    repair: Repair | None = None
    decisive: bool | None = None
    why: str | None = None


class CatalogueSection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Overrides by code: `xid` and `sxid` map a code (as text, TOML keys are text) to what the site changes of it."""

    xid: dict[str, CodeOverride] = {}
    sxid: dict[str, CodeOverride] = {}

    def __post_init__(self) -> None:
        if self.xid or self.sxid:
            from outrider.catalogue.codes import CodeBook

            try:
                CodeBook(self)
            except InputError as error:
                raise ValueError(str(error)) from None
