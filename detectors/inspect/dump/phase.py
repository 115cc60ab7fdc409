"""Is a dump a picture of ordinary life? A phase that is still within its own limit stands, but does not hang."""

from typing import Final

from detectors.inspect.context import Context

#: Seconds for phases that the site gave no limit: evaluation and snapshots take minutes, a compilation up to half an hour.
DEFAULT_LIMITS: Final = {
    "eval": 1800.0,
    "checkpoint": 1800.0,
    "compile": 1800.0,
    "init": 1800.0,
    "data": 600.0,
    "train": 300.0,
    "idle": 86400.0,
    "end": 1800.0,
}


def limit_of(context: Context) -> float | None:
    """Seconds that the phase of the dump may last; None: the phase is not known."""
    if context.phase is None:
        return None
    return context.limits.get(f"{context.phase}_s", DEFAULT_LIMITS.get(context.phase, 1800.0))


def within_phase(context: Context) -> bool:
    """Whether the phase is known and within its limit."""
    limit = limit_of(context)
    return limit is not None and context.phase_elapsed_s is not None and context.phase_elapsed_s <= limit
