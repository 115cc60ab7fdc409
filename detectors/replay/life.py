"""The automatic signals of normal life: heartbeats of every node, steps of every job, and what a pause does to them."""

from dataclasses import dataclass, field
from heapq import heappop, heappush

from detectors.replay.trace import TraceSignal
from outrider.fleet import Fleet
from outrider.signals import Signal

INFINITY = float("inf")
#: How long a peer of the replayer takes to answer a probe, seconds: two rounds of a quarter second and some way.
PROBE_SECONDS = 0.5


@dataclass(slots=True)
class JobLife:
    """One job's automatic steps. The clock of its steps stands while a node is held or another phase is on."""

    name: str
    step_s: float
    nodes: frozenset[str]
    held: dict[str, int] = field(default_factory=dict)
    suspended: bool = False
    step: int = 0
    #: Seconds of the step in hand that are still to go, when the clock stands.
    left: float = 0.0
    #: When the step in hand ends, while the clock runs.
    ends: float = 0.0
    began: float = 0.0

    @property
    def stands(self) -> bool:
        return self.suspended or bool(self.held)


@dataclass(slots=True)
class Mute:
    """One pause of one node that is not over. `witnesses`: towards whom its heartbeats are stopped (empty: none)."""

    node: str
    until: float
    witnesses: frozenset[str]
    steps: bool
    kernel: bool | None


class Life:
    """Makes the automatic signals, in order of time.

    `next_time` says when the next one is due; `take(now)` gives the signals of that moment with their receivers.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._everyone = frozenset(fleet.witnesses)
        self._heartbeat_s = fleet.auto.heartbeat_s
        self._beat = 0
        self._mutes: dict[str, list[Mute]] = {}
        slots = {job.job: frozenset(node for node, _ in job.slots) for job in fleet.jobs}
        self.jobs = {
            name: JobLife(name, seconds, slots[name], ends=seconds) for name, seconds in fleet.auto.step_s.items()
        }  # fmt: skip
        #: (end of a pause, running number, pause).
        self._ends: list[tuple[float, int, Mute]] = []
        self._number = 0
        #: (when, running number, answer of a probe).
        self._answers: list[tuple[float, int, Signal]] = []

    # --- what the trace says ---

    def pause(self, signal: TraceSignal, now: float) -> None:
        """A node stops sending."""
        assert signal.node is not None
        to = frozenset(signal.to) if signal.to is not None else self._everyone
        beats = signal.data.get("heartbeats", True)
        until = INFINITY if signal.value is None else now + float(signal.value)
        # Towards some witnesses only the path is broken: the node itself works on, and so does its job.
        steps = signal.data.get("steps", True) and to == self._everyone
        mute = Mute(signal.node, until, to if beats else frozenset(), steps, signal.data.get("kernel"))
        self._mutes.setdefault(signal.node, []).append(mute)
        if until < INFINITY:
            self._number += 1
            heappush(self._ends, (until, self._number, mute))
        if steps:
            for job in self.jobs.values():
                if signal.node in job.nodes:
                    self._hold(job, signal.node, now)

    def phase(self, signal: Signal, now: float) -> None:
        """An explicit phase other than `train` suspends the job's automatic steps."""
        job = self.jobs.get(signal.job or "")
        if job is None:
            return
        if signal.value != "train":
            self._stop(job, now)
            job.suspended = True
        elif job.suspended:
            job.suspended = False
            self._go(job, now)

    def move(self, signal: Signal, now: float) -> None:
        """A `job` signal gives the job other slots: only its own nodes hold it up."""
        job = self.jobs.get(signal.job or "")
        slots = signal.data.get("slots")
        if job is None or not slots:
            return
        self._stop(job, now)
        job.nodes = frozenset(str(slot[0]) for slot in slots)
        job.held = {node: n for node in sorted(job.nodes) if (n := sum(m.steps for m in self._mutes.get(node, ())))}
        self._go(job, now)

    def probe(self, node: str, probers: tuple[str, ...], now: float) -> None:
        """Peers probe a node: answered only if a pause of it says what its kernel does."""
        kernels = [mute.kernel for mute in self._mutes.get(node, ()) if mute.kernel is not None]
        if not kernels:
            return
        answer = "mute" if kernels[-1] else "none"
        for by in probers:
            self._number += 1
            when = now + PROBE_SECONDS
            data = {"by": by, "answer": answer, "seconds": PROBE_SECONDS}
            heappush(self._answers, (when, self._number, Signal(t=when, kind="probe", node=node, source="auto", data=data)))

    # --- what comes of it ---

    def next_time(self) -> float:
        """When the next automatic event is due."""
        due = self._beat * self._heartbeat_s if self._heartbeat_s is not None else INFINITY
        for job in self.jobs.values():
            if not job.stands and job.ends < due:
                due = job.ends
        if self._ends and self._ends[0][0] < due:
            due = self._ends[0][0]
        if self._answers and self._answers[0][0] < due:
            due = self._answers[0][0]
        return due

    def take(self, now: float) -> list[tuple[Signal, frozenset[str] | None]]:
        """The signals of this moment, each with its receivers (None: everyone)."""
        while self._ends and self._ends[0][0] <= now:
            self._end(heappop(self._ends)[2], now)
        out: list[tuple[Signal, frozenset[str] | None]] = []
        if self._heartbeat_s is not None and self._beat * self._heartbeat_s <= now:
            self._beat += 1
            out += self._heartbeats(now)
        for job in self.jobs.values():
            if not job.stands and job.ends <= now:
                out.append((self._finish(job, now), None))
        while self._answers and self._answers[0][0] <= now:
            out.append((heappop(self._answers)[2], None))
        return out

    def _heartbeats(self, now: float) -> list[tuple[Signal, frozenset[str] | None]]:
        data = {"seq": self._beat, "boot": "auto"}
        out: list[tuple[Signal, frozenset[str] | None]] = []
        for node in self.fleet.nodes:
            receivers = None
            if mutes := self._mutes.get(node.node):
                deaf = frozenset().union(*(mute.witnesses for mute in mutes))
                if deaf:
                    receivers = self._everyone - deaf
                    if not receivers:
                        continue
            out.append((Signal(t=now, kind="heartbeat", node=node.node, source="auto", data=data), receivers))
        return out

    def _finish(self, job: JobLife, now: float) -> Signal:
        signal = Signal(t=now, kind="step", job=job.name, value=job.step, source="auto", data={"step_s": now - job.began})
        job.step += 1
        job.began, job.ends = now, now + job.step_s
        return signal

    def _end(self, mute: Mute, now: float) -> None:
        mutes = self._mutes[mute.node]
        mutes.remove(mute)
        if not mutes:
            del self._mutes[mute.node]
        if mute.steps:
            for job in self.jobs.values():
                if mute.node in job.held:
                    job.held[mute.node] -= 1
                    if not job.held[mute.node]:
                        del job.held[mute.node]
                        self._go(job, now)

    def _hold(self, job: JobLife, node: str, now: float) -> None:
        self._stop(job, now)
        job.held[node] = job.held.get(node, 0) + 1

    def _stop(self, job: JobLife, now: float) -> None:
        if not job.stands:
            job.left = max(job.ends - now, 0.0)

    def _go(self, job: JobLife, now: float) -> None:
        if not job.stands:
            job.ends = now + job.left
