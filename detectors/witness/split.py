"""Where an incident's seconds went: T_detect = heartbeat + timeout + quorum, T_recover = load + rebuild + verify. Pure.

All from one incident's `times` and `extra` (witnesses' monotonic clock), so `status`, the report and the histograms say the same.
"""

from typing import Any

from outrider.signals import Signal

Split = dict[str, float]

#: Faults whose evidence is silence: a beat was due, and a time-out had to pass.
_SILENT = ("node.", "agent.", "path.", "domain.")


def detection(picture: dict[str, Any], heartbeat_seconds: float) -> Split | None:
    """Seconds from the fault to its confirmation.

    `heartbeat`: until a sign of life was due (at most one interval) or the evidence had arrived; `timeout`: until the first witness
    doubted; `quorum`: until enough of them and of the layers agreed. None: not confirmed, or its beginning is not known.
    """
    extra, confirmed = picture.get("extra", {}), picture.get("times", {}).get("confirmed")
    since = extra.get("since")
    if not isinstance(since, int | float) or confirmed is None:
        return None
    began = extra.get("silent_since")
    if isinstance(began, int | float) and str(picture.get("fault", "")).startswith(_SILENT):
        heartbeat = min(heartbeat_seconds, max(0.0, since - began))
        timeout = max(0.0, since - began - heartbeat)
    else:
        first = min((piece["t"] for piece in picture.get("evidence", ()) if piece.get("effect") == "confirm"), default=since)
        heartbeat, timeout = 0.0, max(0.0, since - first)
    return _whole({"heartbeat": heartbeat, "timeout": timeout, "quorum": max(0.0, confirmed - since)})


def recovery(picture: dict[str, Any]) -> Split | None:
    """Seconds from the restart's delivery to the end of the incident.

    `load`: until the last rank had its state back; `rebuild`: until the first step was finished; `verify`: until the incident was
    over. A mark that was not seen costs its part, which the next one then holds. None: no restart, or it is not over.
    """
    times = picture.get("times", {})
    began, ended = times.get("restart_done", times.get("restart")), times.get("resolved")
    if began is None or ended is None:
        return None
    restored = max(began, min(times.get("restored", began), ended))
    stepped = max(restored, min(times.get("first_step", ended), ended))
    return _whole({"load": restored - began, "rebuild": stepped - restored, "verify": ended - stepped})


def mark(picture: dict[str, Any], signal: Signal) -> str | None:
    """The mark of a recovery that a signal sets, if it belongs to this incident's new attempt: `restored` or `first_step`."""
    attempts = picture.get("restarts", {})
    attempt = signal.data.get("attempt")
    if signal.job not in attempts or not isinstance(attempt, int) or attempt <= attempts[signal.job]:
        return None
    if signal.kind == "snapshot" and signal.data.get("state") == "restored":
        return "restored"
    if signal.kind == "step" and "first_step" not in picture.get("times", {}):
        return "first_step"
    return None


def _whole(parts: Split) -> Split:
    return {name: round(seconds, 4) for name, seconds in parts.items()} | {"total": round(sum(parts.values()), 4)}
