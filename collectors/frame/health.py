"""What is known of each collector, and how it stands on the metrics page: health always, readings only while they are fresh."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from collectors.agent.metrics import Family, family
from collectors.frame.pipe import Read
from collectors.frame.types import Collector, NoData, NotSupported, Readings, Sample
from outrider.metrics import METRICS
from outrider.signals import Signal

#: Samples older than this many intervals are dead and leave the page.
AGE_INTERVALS = 3.0
#: A collector that reads each second may still be late by this.
AGE_SECONDS_MIN = 60.0
#: Samples of one collector on the page: 16 GPUs with 100 values each are 1,600.
SAMPLES_MAX = 5_000

_Samples = dict[str, list[tuple[dict[str, str], float]]]


@dataclass
class CollectorState:
    """What is known of one collector. `kind` None: it could not be loaded."""

    kind: type[Collector] | None
    supported: bool | None = None
    success: bool | None = None
    reason: str = "not read yet"
    seconds: float = 0.0
    good_at: float | None = None
    errors: int = 0
    samples: list[Sample] = field(default_factory=list)
    last_signals: list[Signal] = field(default_factory=list)

    def take(self, read: Read) -> list[Signal]:
        """Takes in a reading, and returns the signals that came with it."""
        self.seconds = read.seconds
        if read.same:
            self.good_at = read.now if self.success else self.good_at
            return []
        match read.outcome:
            case Readings(signals=found, samples=samples):
                self.supported, self.success, self.reason, self.good_at = True, True, "", read.now
                if samples is not None:
                    self.samples = [one for one in samples if one.name in METRICS and math.isfinite(one.value)][:SAMPLES_MAX]
                if found:
                    self.last_signals = found
                return found
            case NoData(reason=reason):
                self.supported, self.success, self.reason, self.good_at = True, True, reason, read.now
            case NotSupported(reason=reason):
                self.supported, self.success, self.reason = False, None, reason
            case None:
                self.supported, self.success, self.reason = True, False, read.error or "failed"
                self.errors += 1
        self.samples = []
        return []


def collector_families(states: dict[str, CollectorState], node: str, now: float) -> Iterator[Family]:
    """The health of all collectors, and the samples of those whose last good reading is fresh. `now`: monotonic seconds."""
    found: _Samples = {}
    for name, state in states.items():
        _add_health(found, {"node": node, "collector": name}, state, now)
        if state.kind is None or state.good_at is None:
            continue
        if now - state.good_at > max(AGE_SECONDS_MIN, AGE_INTERVALS * state.kind.interval_seconds):
            continue
        for sample in state.samples:
            found.setdefault(sample.name, []).append(({"node": node, **sample.labels}, sample.value))
    for name, samples in found.items():
        yield family(name, samples)


def _add_health(found: _Samples, labels: dict[str, str], state: CollectorState, now: float) -> None:
    def add(name: str, value: float) -> None:
        found.setdefault(f"outrider_collector_{name}", []).append((labels, value))

    add("errors_total", state.errors)
    if state.supported is not None:
        add("supported", float(state.supported))
    if state.success is not None:
        add("success", float(state.success))
        add("duration_seconds", state.seconds)
    if state.good_at is not None:
        add("age_seconds", now - state.good_at)
