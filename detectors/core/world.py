"""What the judge knows of the site: nodes and their names, jobs and their slots, how far each job has come.

It is fed by signals and read by the rules. Nothing here suspects anybody.
"""

from typing import Any

from detectors.core.names import Names
from detectors.core.window import NEVER, Median
from outrider.fleet import Fleet, Job
from outrider.signals import PHASES, Signal

#: Steps whose durations make a job's usual step. 64 follow a drift, and one slow save does not move their median.
STEP_WINDOW = 64
#: A larger attempt is a mistake; taken for true it would make every later one old.
ATTEMPT_MAX = 1_000_000
#: Jobs kept at once; ended ones leave first.
JOBS_MAX = 1024


class JobState:
    """One job's members and progress, in its newest attempt. All times are seconds on the witness's clock."""

    def __init__(self, job: Job, now: float) -> None:
        self.name = job.job
        self.steps = Median(STEP_WINDOW)
        #: Some rank has told of steps: silence of steps means something.
        self.stepping = False
        self.attempt = job.attempt
        self.shape(job)
        self.begin(job.attempt, now)

    def shape(self, job: Job) -> None:
        """Takes over who is a member."""
        self.job = job
        self.slots = job.slots
        self.limits, self.groups, self.synchronous = job.limits, job.groups, job.synchronous
        self.size = len(job.slots)
        self.node_ranks: dict[str, tuple[int, ...]] = {}
        for rank, (node, _) in enumerate(job.slots):
            self.node_ranks[node] = (*self.node_ranks.get(node, ()), rank)

    def begin(self, attempt: int, now: float) -> None:
        """A new start of the job: nothing of the one before counts."""
        self.attempt = attempt
        self.phase: str | None = None
        self.phase_t = now
        self.step = -1
        self.step_t = NEVER
        #: When the newest finished step began: the proof of life of every member of a synchronous job.
        self.began = NEVER
        #: When anything last moved: a step finished, a counter grew, a phase changed.
        self.moved_t = now
        self.steps_seen = 0
        self.stepping = False
        #: Anything was told of its progress at all; until then nothing is known, and nothing is judged.
        self.told = False
        #: The signal read last was the first to tell of its step.
        self.newest = False
        self.ended = False
        self.planned = ""
        self.rank_step = [-1] * self.size
        self.rank_began = [NEVER] * self.size
        self.progress: dict[int, Any] = {}
        self.rank_phase: dict[int, str] = {}
        self.rank_phase_t: dict[int, float] = {}
        #: rank -> (exit code, when).
        self.exits: dict[int, tuple[int, float]] = {}

    def limit(self, phase: str, default: float) -> float:
        """Seconds without progress that the job allows itself in a phase."""
        return float(self.limits.get(f"{phase}_s", default))

    def life_of(self, node: str) -> float:
        """The newest time at which something proves that the job's ranks on `node` lived; NEVER if nothing does.

        Either one of its own ranks began a step (and finished it) or moved then, or the job is synchronous and any rank
        did: nobody finishes a step of which one member is gone.
        """
        ranks = self.node_ranks.get(node, ())
        own = max((self.rank_began[rank] for rank in ranks), default=NEVER)
        return max(own, self.began) if self.synchronous and ranks else own


class World:
    """Everything known of the site. `nodes` is in a fixed order; a node's place in it is its row in every array."""

    def __init__(self, fleet: Fleet, now: float = 0.0) -> None:
        self.fleet = fleet
        self.nodes = [node.node for node in fleet.nodes]
        self.row = {name: row for row, name in enumerate(self.nodes)}
        self.node = {node.node: node for node in fleet.nodes}
        self.rack = {node.node: node.rack for node in fleet.nodes}
        self.names = Names(fleet)
        self.jobs: dict[str, JobState] = {}
        self.node_jobs: dict[str, tuple[str, ...]] = {}
        for job in fleet.jobs:
            self.jobs[job.job] = JobState(job, now)
        self._index_jobs()
        #: Signals that could not be used, by reason; the edge shows them.
        self.counted: dict[str, int] = {}
        #: Jobs that began a new attempt since somebody looked.
        self.restarted: list[str] = []

    def count(self, reason: str) -> None:
        """Counts a signal that is not judged."""
        self.counted[reason] = self.counted.get(reason, 0) + 1

    # --- jobs ---

    def begin(self, now: float) -> None:
        """The first moment: jobs that were known before any signal are judged from here on."""
        for state in self.jobs.values():
            if not state.told:
                state.moved_t = state.phase_t = now

    def jobs_on(self, node: str) -> list[JobState]:
        """Jobs with a slot on `node`, ended ones left out."""
        return [state for name in self.node_jobs.get(node, ()) if not (state := self.jobs[name]).ended]

    def seat(self, node: str, index: int | None) -> dict[str, Any]:
        """The job and rank that sit on a card; empty if none does."""
        for state in self.jobs_on(node) if index is not None else ():
            for rank in state.node_ranks.get(node, ()):
                if state.slots[rank][1] == index:
                    return {"job": state.name, "rank": rank}
        return {}

    def tell_job(self, signal: Signal, now: float) -> JobState | None:
        """Takes in a `job` signal: a job tells its members (`value`: attempt), or a witness that it is `over`. Returns its state;
        None if it is old or over."""
        if signal.job is None or not isinstance(signal.value, int | float):
            self.count("job without a name or an attempt")
            return None
        data, attempt = signal.data, int(signal.value)
        if attempt > ATTEMPT_MAX:
            self.count("malformed")
            return None
        old = self.jobs.get(signal.job)
        # Whoever starts an ended job again may count its starts anew.
        over = old is not None and old.ended and old.planned in ("", "end")
        if old is not None and attempt < old.attempt and not over:
            self.count("old attempt")
            return None
        if data.get("over"):
            if old is not None:
                old.ended, old.planned = True, ""
            return None
        base = old.job if old is not None else Job(job=signal.job)
        job = Job(
            job=signal.job,
            slots=tuple((str(node), int(gpu)) for node, gpu in data["slots"]) if data.get("slots") else base.slots,
            groups=self._groups(data, base), limits=data.get("limits") or base.limits,
            synchronous=data.get("synchronous", base.synchronous), attempt=attempt,
        )  # fmt: skip
        if old is None:
            self._make_room()
            old = self.jobs[signal.job] = JobState(job, now)
        else:
            again = attempt > old.attempt or over
            same = old.slots == job.slots
            if again or not same:
                old.shape(job)
                old.begin(attempt, now)
                self.restarted.append(old.name)
        self._index_jobs()
        return old

    @staticmethod
    def _groups(data: dict[str, Any], base: Job) -> dict[str, tuple[tuple[int, ...], ...]]:
        """The groups that are told, those that name a rank outside the job left out."""
        size = len(data.get("slots") or base.slots)
        told = data.get("groups") or base.groups
        return {name: tuple(tuple(one) for one in groups if all(0 <= rank < size for rank in one)) for name, groups in told.items()}

    def _make_room(self) -> None:
        if len(self.jobs) >= JOBS_MAX:
            for name in [name for name, state in self.jobs.items() if state.ended] or [next(iter(self.jobs))]:
                del self.jobs[name]

    def _index_jobs(self) -> None:
        self.node_jobs = {}
        for name, state in self.jobs.items():
            for node in state.node_ranks:
                self.node_jobs[node] = (*self.node_jobs.get(node, ()), name)

    def job_of(self, signal: Signal, now: float) -> JobState | None:
        """The job a signal speaks of, in its newest attempt; None (counted) for unknown jobs and old attempts."""
        state = self.jobs.get(signal.job or "")
        if state is None:
            self.count("unknown job")
            return None
        attempt = signal.data.get("attempt")
        if signal.rank is not None and not 0 <= signal.rank < state.size:
            self.count("unknown rank")
            return None
        if attempt is not None and attempt != state.attempt:
            if not state.attempt < attempt <= ATTEMPT_MAX:
                self.count("old attempt")
                return None
            state.begin(int(attempt), now)
            self.restarted.append(state.name)
        return state

    def step(self, signal: Signal, now: float) -> JobState | None:
        """Takes in a finished step. Returns the job, or None if the signal cannot be used."""
        state = self.job_of(signal, now)
        value = signal.value
        if state is None or not isinstance(value, int | float):
            return None
        data, step = signal.data, int(value)
        seconds, age = data.get("step_s"), data.get("age_s") or 0.0
        finished = min(signal.t, now, data.get("observed_s", now)) - age
        before = state.step_t if step > state.step else finished
        began = before if seconds is None else finished - seconds
        rank = signal.rank
        if rank is not None:
            if step > state.rank_step[rank]:
                state.rank_step[rank], state.rank_began[rank] = step, began
        elif signal.node is not None and signal.node in state.node_ranks:
            for member in state.node_ranks[signal.node]:
                state.rank_step[member], state.rank_began[member] = step, began
        state.newest = step > state.step
        if state.newest:
            self._advance(state, step, finished, began, seconds, now)
        return state

    def _advance(self, state: JobState, step: int, finished: float, began: float, seconds: float | None, now: float) -> None:
        if seconds is None and state.step >= 0 and step == state.step + 1:
            seconds = finished - state.step_t
        if seconds is not None and seconds > 0:
            state.steps.add(seconds)
        state.step, state.step_t = step, finished
        state.began = max(state.began, began)
        state.steps_seen += 1
        state.stepping = state.told = True
        state.moved_t = now
        if state.phase not in ("train", None):
            state.phase, state.phase_t = "train", now

    def phase(self, signal: Signal, now: float) -> JobState | None:
        """Takes in a phase, or progress within one."""
        state = self.job_of(signal, now)
        if state is None or signal.value not in PHASES:
            return None
        phase, rank = str(signal.value), -1 if signal.rank is None else signal.rank
        state.told = True
        if phase == "init" and state.phase not in ("init", None):
            # A start over within one attempt: steps may begin again below the newest one.
            state.begin(state.attempt, now)
            state.told = True
        progress = signal.data.get("progress")
        if progress is not None and state.progress.get(rank) != progress:
            state.progress[rank] = progress
            state.moved_t = now
            if rank >= 0:
                state.rank_began[rank] = max(state.rank_began[rank], min(signal.t, now))
        if state.rank_phase.get(rank) != phase:
            state.rank_phase[rank], state.rank_phase_t[rank] = phase, now
            state.moved_t = now
        if phase != state.phase and (rank <= 0 or phase not in ("train", "end")):
            state.phase, state.phase_t = phase, now
            if phase in ("init", "train"):
                state.progress.clear()
        if rank < 0:
            state.rank_phase.clear()
        return state

    # --- names ---

    def accused_node(self, signal: Signal) -> str | None:
        """The node at the other end of a collective error, as far as it is named: by node, by address, or by the peer's rank."""
        data = signal.data
        for peer in (data.get("peer_node"), data.get("peer")):
            if not isinstance(peer, int) and (found := self.names.node_at(peer)) is not None:
                return found
        state = self.jobs.get(signal.job or "")
        for rank in (data.get("peer_rank"), data.get("peer")):
            if isinstance(rank, int) and state is not None and 0 <= rank < state.size:
                return str(state.slots[rank][0])
        return None

    def node_of(self, signal: Signal) -> str | None:
        """The node a signal comes from: its own field, or the slot of its rank."""
        if signal.node is not None and signal.node in self.row:
            return signal.node
        state = self.jobs.get(signal.job or "")
        if state is not None and signal.rank is not None and 0 <= signal.rank < state.size:
            return str(state.slots[signal.rank][0])
        return None
