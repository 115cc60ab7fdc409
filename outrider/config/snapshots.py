"""Section `[snapshots]`: where snapshots are."""

from msgspec import Struct

from outrider.config.paths import SitePath


class SnapshotsSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`root`: folder on shared storage below which every job has its snapshots; empty means that no job writes any, and a
    restart then begins at the job's beginning."""

    root: SitePath = ""
