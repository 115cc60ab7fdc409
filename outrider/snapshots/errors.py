"""What can go wrong with snapshots: each is one line for people."""

from outrider.errors import OutriderError


class SnapshotError(OutriderError):
    """A snapshot could not be taken or written. Training goes on."""


class StaleFenceError(SnapshotError):
    """The writer belongs to an attempt that was superseded: it may write nothing shared any more."""


class RestoreError(OutriderError):
    """There is a snapshot and it cannot be used here, or all there are are damaged."""
