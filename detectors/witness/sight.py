"""What one witness saw lately, kept for people to look at: the course of jobs, the last events of nodes, who was heard when.

No judgement uses it. It is memory of this process alone and begins anew with it; every part is bounded.
"""

import math
from collections import OrderedDict, deque
from typing import Any, Final

from detectors.witness.course import KEPT_SECONDS, QUIET_SECONDS, Course, Point
from detectors.witness.launched import RANK_SOURCES
from outrider.clock import Clock
from outrider.fleet import Fleet
from outrider.signals import Signal

#: Points of one job's course: enough for a plot as wide as a screen. Older points are thinned out when it is full.
POINTS_MAX = 2_000
#: Jobs whose course is kept; the one longest without news goes first.
JOBS_MAX = 500
#: Events of all nodes together, about 1 kB each.
EVENTS_MAX = 20_000
#: Newest readings of counters and clocks, all nodes together; nodes that somebody looks at have room of their own.
READINGS_MAX = 20_000
#: Nodes that somebody looked at lately, and the readings kept for each: 8 GPUs, 8 ports, some kinds.
WATCHED_MAX, WATCHED_READINGS_MAX = 64, 256
#: Kinds that come all the time: only the newest of each part is of use.
READINGS: Final = frozenset({"gpu_state", "port_counters", "ecc", "row_remap", "nvlink", "pcie", "gpu_count", "storage"})
#: Kinds that the course of a job is made of.
COURSE: Final = frozenset({"step", "phase", "job", "snapshot", "process_exit"})


class Sight:
    """Fed by `beat` (heartbeats) and `signal` (all else); `heard` is monotonic seconds of each node's newest heartbeat."""

    def __init__(self, fleet: Fleet, clock: Clock) -> None:
        self.fleet, self._clock = fleet, clock
        self.heard: dict[str, float] = {}
        self.jobs: OrderedDict[str, Course] = OrderedDict()
        for job in fleet.jobs:
            self.jobs[job.job] = Course(job.job, job.attempt, job.slots)
        self._known = frozenset(node.node for node in fleet.nodes)
        #: Node -> its boot, and when it was first heard under another one than before (monotonic seconds).
        self._boots: dict[str, tuple[Any, float]] = {}
        self._events: deque[tuple[float, Signal]] = deque(maxlen=EVENTS_MAX)
        self._readings: dict[str, dict[tuple[str, Any], tuple[float, Signal]]] = {}
        self._count = 0
        self._watched: OrderedDict[str, None] = OrderedDict()

    def now(self) -> float:
        """The clock of `heard`."""
        return self._clock.monotonic()

    def listed(self) -> list[Course]:
        """Jobs whose members are known, the one heard last first: what every list of jobs shows."""
        self._look()
        return [course for course in reversed(self.jobs.values()) if course.slots]

    def job_lines(self) -> dict[str, dict[str, Any]]:
        """How each listed job stands, by name; `heard_s`: seconds since a living rank was heard of, None: never."""
        now = self._clock.monotonic()
        return {
            course.job: {
                "attempt": course.attempt, "ranks": len(course.slots), "ended": course.ended, "state": course.state,
                "heard_s": round(now - course.alive, 1) if math.isfinite(course.alive) else None,
            }
            for course in self.listed()
        }  # fmt: skip

    def lives(self, job: str) -> bool:
        """Whether living ranks of a job are heard of here."""
        self._look()
        return job in self.jobs and self.jobs[job].state == "running"

    def leave(self) -> list[str]:
        """Names the jobs that may be forgotten: at once where all ranks ended well, later where a recovery may still come, or where
        nobody has heard of a living rank for long. They are listed a while longer."""
        self._look()
        now, names = self._clock.monotonic(), []
        for name, course in list(self.jobs.items()):
            since = course.lost if course.over is None else course.over
            if since is None:
                continue
            late = now - since >= KEPT_SECONDS[course.state]
            if late and course.state == "unknown" and self._may_live(course, now):
                continue
            if not course.forgotten and (late or course.state == "ended"):
                course.forgotten = True
                names.append(name)
            if late:
                del self.jobs[name]
        return names

    def _look(self) -> None:
        """Notes which jobs are no longer heard of."""
        now = self._clock.monotonic()
        for course in self.jobs.values():
            if not course.unheard(now, self.heard, self._known):
                course.lost = None
            elif course.lost is None:
                course.lost = now

    def _may_live(self, course: Course, now: float) -> bool:
        """Whether the silence about a job may be this witness's own, or says nothing about its ranks."""
        left, beating = course.left(), {node for node, at in self.heard.items() if now - at < QUIET_SECONDS}
        if not beating or 2 * len(beating - left) < len(self._known - left):
            return True  # half blind: nothing is concluded from silence
        if course.source in RANK_SOURCES:
            return False  # agents tell living ranks again and again
        if course.source == "site":
            return True  # the site's file says so until it is changed
        return any(self._boots[node][1] <= course.alive for node in beating & left)

    def beat(self, signal: Signal) -> None:
        """A heartbeat; those of strangers are not kept."""
        node, boot = signal.node, signal.data.get("boot")
        if node is None or node not in self._known:
            return
        now = self.heard[node] = self._clock.monotonic()
        before = self._boots.get(node)
        if before is None or before[0] != boot:
            self._boots[node] = boot, (-math.inf if before is None else now)

    def part(self, signal: Signal) -> None:
        """A `job` signal as its node sent it, before it is put together with the others': ranks of the job live there."""
        course = self.jobs.get(signal.job or "")
        if course is not None:
            course.alive = self._clock.monotonic()

    def signal(self, signal: Signal) -> None:
        """Any other signal."""
        if signal.kind in COURSE:
            if signal.job is not None:
                self._follow(signal)
        elif signal.kind in READINGS:
            self._reading(signal)
        elif signal.node is not None or signal.switch is not None:
            self._events.append((self._clock.wall(), signal))

    def watch(self, node: str) -> list[tuple[float, Signal]]:
        """Newest readings of a node, (wall, signal) each; from now on all of its readings are kept for a while."""
        self._watched[node] = None
        self._watched.move_to_end(node)
        if len(self._watched) > WATCHED_MAX:
            self._watched.popitem(last=False)
        return list(self._readings.get(node, {}).values())

    def events(self, node: str, limit: int = 50) -> list[tuple[float, Signal]]:
        """Newest events of a node, newest first, (wall, signal) each."""
        found = []
        for entry in reversed(self._events):
            if entry[1].node == node:
                found.append(entry)
                if len(found) == limit:
                    break
        return found

    def _reading(self, signal: Signal) -> None:
        if signal.node is None or signal.node not in self._known:
            return
        parts = self._readings.setdefault(signal.node, {})
        part = (signal.kind, signal.gpu if signal.gpu is not None else (signal.nic, signal.port, signal.mount))
        if part not in parts:
            room = len(parts) < WATCHED_READINGS_MAX if signal.node in self._watched else self._count < READINGS_MAX
            if not room:
                return
            self._count += 1
        parts[part] = (self._clock.wall(), signal)

    def _follow(self, signal: Signal) -> None:
        name = str(signal.job)
        course = self.jobs.get(name)
        if course is None:
            course = self.jobs[name] = Course(name)
            if len(self.jobs) > JOBS_MAX:
                self.jobs.popitem(last=False)
        self.jobs.move_to_end(name)
        attempt = signal.value if signal.kind == "job" else signal.data.get("attempt")
        if isinstance(attempt, int):
            again = course.over is not None and signal.kind == "job"  # whoever starts an ended job again may count its starts anew
            if attempt < course.attempt and not again:
                return
            if attempt > course.attempt or again:
                course.attempt, course.step, course.phase = attempt, -1, None
                course.exits, course.over, course.forgotten = {}, None, False
                course.marks.append(self._mark("attempt", None, str(attempt)))
        if signal.kind != "process_exit" and signal.value != "end":
            course.alive = self._clock.monotonic()
        if signal.kind == "step" or (signal.kind == "phase" and signal.value != "end"):
            course.exits.pop(-1 if signal.rank is None else signal.rank, None)
            course.over = None
        elif signal.kind == "process_exit" and signal.rank is not None and 0 <= signal.rank < len(course.slots):
            course.exits[signal.rank] = signal.value
            if len(course.exits) == len(course.slots) and course.over is None:
                course.over = self._clock.monotonic()
        match signal.kind:
            case "job":
                course.source = signal.source or course.source
                self._members(course, signal.data.get("slots"))
            case "step":
                self._step(course, signal)
            case "phase":
                course.phase = str(signal.value)
            case _:
                self._event(course, signal)

    @staticmethod
    def _members(course: Course, slots: Any) -> None:
        if isinstance(slots, list | tuple):
            pairs = [slot for slot in slots if isinstance(slot, list | tuple) and len(slot) == 2 and isinstance(slot[1], int)]
            course.slots = tuple((str(node), gpu) for node, gpu in pairs)

    def _step(self, course: Course, signal: Signal) -> None:
        if not isinstance(signal.value, int | float):
            return
        step, loss = int(signal.value), _number(signal.data.get("loss"))
        if step <= course.step:
            if step == course.step and loss is not None and course.points and course.points[-1].loss is None:
                course.points[-1].loss = loss
            return
        course.step, course.phase = step, "train"
        wall = self._clock.wall() - (_number(signal.data.get("age_s")) or 0.0)
        course.points.append(Point(wall, step, loss, _number(signal.data.get("step_s"))))
        if len(course.points) > POINTS_MAX:
            half = POINTS_MAX // 2
            course.points[:half] = course.points[:half:2]
            course.shed += half - half // 2

    def _event(self, course: Course, signal: Signal) -> None:
        """A snapshot's state or a rank's end; what many ranks say alike is one mark."""
        text = str(signal.data.get("state", "")) if signal.kind == "snapshot" else str(signal.data.get("reason") or signal.value)
        cause = str(signal.data.get("cause", ""))
        for mark in list(course.marks)[-4:]:
            if (mark["kind"], mark["text"], mark["step"]) == (signal.kind, text, signal.value):
                mark["count"] += 1
                return
        course.marks.append(self._mark(signal.kind, signal.value, text, cause, signal.rank))

    def _mark(self, kind: str, step: Any, text: str, cause: str = "", rank: int | None = None) -> dict[str, Any]:
        return {"wall": self._clock.wall(), "kind": kind, "step": step, "text": text, "cause": cause, "rank": rank, "count": 1}


def _number(value: Any) -> float | None:
    """A number that JSON can carry; NaN and infinity, which a spoilt loss may be, are unknown to a plot."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
