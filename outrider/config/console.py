"""`[console]`: the built-in page that every witness serves."""

import msgspec

from outrider.config.paths import SitePath


class ConsoleSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the console shows, and its bounds.

    on: False takes the page away; the witness's other routes stay.
    reports_dir: folder in which reports of drills lie (itself, its folders and theirs).
    streams_max: pages that one witness keeps up to date at the same time; one more is told to try another witness.
    """

    on: bool = True
    reports_dir: SitePath = "out"
    streams_max: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.streams_max <= 10_000:
            raise ValueError("streams_max must be 1..10000")
