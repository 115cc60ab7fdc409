"""The SDK's log: each trouble once, so that a broken monitor does not fill the log of a training job."""

import logging

_LOG = logging.getLogger("outrider")
_TOLD: set[str] = set()


def warn_once(what: str, message: str) -> None:
    """Logs a warning; the same `what` (a short constant name) is told only once a process."""
    if what not in _TOLD:
        _TOLD.add(what)
        _LOG.warning("outrider: %s", message)


def tell(message: str) -> None:
    """Logs what people want to know: a snapshot written, a state restored."""
    _LOG.info("outrider: %s", message)
