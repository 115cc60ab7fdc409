"""What is left of the time: one job on the whole fleet walks through all that happened, under one detector.

Assumptions, printed with the result: the job uses all nodes; spares suffice; each periodic snapshot costs `save` seconds; a
failure costs its detection, the restart, and the work since the last state that can be loaded. With emergency snapshots that is
the last finished step, if every shard still exists (replicated, or not lost with the fault) and is sound.
"""

from dataclasses import dataclass, field

from drills.simulate.options import Options
from outrider.reliability import DAY_SECONDS, young_interval


@dataclass(frozen=True, slots=True)
class Stop:
    """The job stops at `t` (seconds from the start). `acted`: seconds until its restart is ordered; `emergency`: saved then."""

    t: float
    acted: float
    emergency: bool


@dataclass(slots=True)
class Account:
    """Stops and stalls of one job. `young`: Young's interval for all failures, seconds."""

    options: Options
    young: float
    stops: list[Stop] = field(default_factory=list)
    #: Seconds for which the job stood still and then went on by itself.
    stalled: float = 0.0

    def total(self) -> tuple[float, int, float]:
        """(ETTR, finished steps that had to be run again, seconds between periodic snapshots)."""
        if self.options.interval is not None:
            return (*self._walk(self.options.interval), self.options.interval)
        # A detector that seldom needs the periodic snapshot saves seldom: the best of a few intervals around Young's.
        best = max((self.young * 2.0**power for power in range(-1, 6)), key=lambda interval: self._walk(interval)[0])
        return (*self._walk(best), best)

    def _walk(self, interval: float) -> tuple[float, int]:
        wall = self.options.days * DAY_SECONDS
        paid = 1 / (1 + self.options.save / interval)  # share of running time that trains
        up, useful, again = 0.0, 0.0, 0
        for stop in sorted(self.stops, key=lambda one: one.t):
            if stop.t >= up:
                useful += stop.t - up
                # Whatever it was resumed from, a job starts with nothing unsaved.
                lost = (stop.t - up) % interval
                if stop.emergency:
                    lost = min(lost, self.options.step / 2)  # the step in flight, on average half done
                again += int(lost / self.options.step)
                useful -= lost
            up = max(up, stop.t + stop.acted + self.options.restart)
        useful += max(0.0, wall - up)
        useful = max(0.0, useful - self.stalled)
        return min(1.0, useful * paid / wall), again


def young_for(options: Options, failures_per_day: float) -> float:
    """Young's interval for all failures, in seconds; an hour where nothing fails or saving is free."""
    if failures_per_day <= 0 or options.save <= 0:
        return 3_600.0
    return max(options.step, young_interval(options.save, DAY_SECONDS / failures_per_day))
