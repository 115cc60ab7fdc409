"""The agent's log: one JSON object a line on standard error, where the init system or the launcher keeps it.

Written by hand: the package that the witness uses for this costs 12 MB of memory, on every node of the cluster.
"""

import datetime
import json
import sys
import traceback
from typing import Any


class Log:
    """Writes lines with these fields on each. Never raises: a log that cannot be written is no reason to stop."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def info(self, event: str, **fields: Any) -> None:
        """Something that an operator may want to know later."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something odd that the agent got over."""
        self._write("warning", event, fields)

    def failure(self, event: str, error: BaseException, **fields: Any) -> None:
        """A part of the agent failed; with where."""
        where = traceback.extract_tb(error.__traceback__)[-1:]
        place = f"{where[0].filename.rpartition('/')[2]}:{where[0].lineno}" if where else ""
        self._write("error", event, {"error": repr(error)[:500], "where": place, **fields})

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "level": level, "event": event, **self._fields, **fields}
        try:
            print(json.dumps(line, default=str), file=sys.stderr, flush=True)
        except (OSError, ValueError):
            return
