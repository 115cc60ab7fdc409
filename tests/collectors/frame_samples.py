"""Small collectors for the frame's tests; each test moves them through a file in the state folder."""

import os
import time
from pathlib import Path

from collectors.frame.types import Collector, CollectorError, NoData, NotSupported, Outcome, Readings, Sample


class Steady(Collector):
    """Reads well each time."""

    name = "steady"
    interval_seconds = 0.05

    def supported(self) -> NotSupported | None:
        return None

    def read(self, now: float) -> Outcome:
        return Readings(signals=[self.signal(now, "gpu_count", 8)], samples=[Sample("outrider_gpus", 8.0)])


class Moody(Collector):
    """Does what the file `mood` says: stuck, error, crash, none, absent, junk; else reads well."""

    name = "moody"
    interval_seconds = 0.05
    deadline_seconds = 0.3
    kill_safe = False

    def _mood(self) -> str:
        path = Path(self.place.state_dir, "mood")
        return path.read_text() if path.exists() else ""

    def supported(self) -> NotSupported | None:
        return NotSupported("no such device") if self._mood() == "absent" else None

    def read(self, now: float) -> Outcome:
        match self._mood():
            case "stuck":
                self.note("nvmlDeviceGetTemperature", gpu=3)
                while self._mood() == "stuck":
                    time.sleep(0.02)
            case "error":
                raise CollectorError("cannot be read: Input/output error")
            case "bug":
                raise ZeroDivisionError("oops")
            case "crash":
                os._exit(7)
            case "none":
                return NoData("nothing today")
            case "strange":
                return Readings(samples=[Sample("outrider_no_such_metric", 1.0), Sample("outrider_gpus", 1.0)])
        return Readings(samples=[Sample("outrider_gpus", 2.0)])


class Killable(Moody):
    """As `Moody`, but may be killed."""

    name = "killable"
    kill_safe = True
