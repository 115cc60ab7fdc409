"""Ranks that end: who ended by itself, who was told to, and who only fell over the one that fell first.

The cause is the rank that ended without a complaint of its own. A rank that lost a peer (transport error), that its own
watchdog aborted (SIGABRT) or that was told to stop (SIGTERM) is a victim: it joins, and opens nothing while the search
for the cause is still on.
"""

from collections.abc import Callable

from detectors.core.docket import Docket
from detectors.core.types import Evidence
from detectors.core.world import JobState, World
from outrider.signals import Signal

#: Reasons by which schedulers and launchers say that an end was wanted.
PLANNED = frozenset(
    {"preempted", "time_limit", "timeout", "cancelled", "canceled", "requeued", "requeue", "planned", "drained", "asked"}
)
#: Exit codes of processes that somebody else stopped: SIGABRT (their own watchdog), SIGTERM, SIGINT; as shells write them too.
VICTIM_CODES = frozenset({-6, 134, -15, 143, -2, 130})
TERMINATED = frozenset({-15, 143, -2, 130})
#: How long a victim's exit waits for its cause; longer while a node of the job is silent, for at most its hard limit.
SHORT_SECONDS, CAUSE_SECONDS = 10.0, 40.0
#: A suspicion about an exit is repeated this long; by then the council has long acted.
LASTS_SECONDS = 60.0


Explains = Callable[[JobState, int, str, float], tuple[str, Evidence] | bool]

#: (job, rank, now) -> whether what the rank sits on is suspect; until when that is open.
Suspect = Callable[[JobState, int, float], bool]
Undecided = Callable[[JobState, int, float], float | None]
Doubted = Callable[[JobState], bool]
Blames = Callable[[JobState, float], str | None]


class ExitRule:
    """Judges exits of ranks for one witness.

    Args:
        world, docket: what is known, where suspicions are kept.
        explains: says of an exit (job, rank, text, now) that another suspicion has taken it as its evidence (True), that it is
            another fault, with the evidence for that, or that nothing explains it (False).
        suspect: whether the rank's own card, or a port of its node, is suspect: then even a victim's exit is that fault's evidence.
        undecided: until when it is open whether a port of the rank's node is down or only blinks, or None.
        doubted: whether a node of the job is silent and being judged.
        blames: the node that the job's ranks lost, if one stands out among their complaints.
    """

    def __init__(
        self, world: World, docket: Docket, explains: Explains, suspect: Suspect, undecided: Undecided, doubted: Doubted,
        blames: Blames,
    ) -> None:  # fmt: skip
        self.world, self.docket = world, docket
        self._explains, self._suspect, self._undecided = explains, suspect, undecided
        self._doubted, self._blames = doubted, blames
        #: (job, rank) -> when its own collective failed in this attempt.
        self._complained: dict[tuple[str, int], float] = {}
        #: job -> (when, rank, code, when to look): the first victim, waiting for a cause.
        self._waiting: dict[str, tuple[float, int, int, float]] = {}
        #: job -> (rank, code, when to look): an exit whose node's port may turn out to be down.
        self._open: dict[str, tuple[int, int, float]] = {}

    def complained(self, signal: Signal, now: float) -> None:
        """A rank's collective failed or timed out: if it ends now, it is a victim."""
        if signal.job is not None and signal.rank is not None and not signal.data.get("recovered"):
            if len(self._complained) > 100_000:
                self._complained.clear()
            self._complained[(signal.job, signal.rank)] = now

    def exit(self, signal: Signal, now: float) -> None:
        """A rank's process is gone."""
        state = self.world.job_of(signal, now)
        if state is None or not isinstance(signal.value, int | float):
            return
        code, rank = int(signal.value), signal.rank
        reason = str(signal.data.get("reason") or "").lower().replace(" ", "_").replace("-", "_")
        if rank is not None:
            state.exits[rank] = (code, now)
        if reason in PLANNED or (state.phase == "end" and code == 0):
            self._planned(state, reason or "end", now)
            return
        if code == 0 and len(state.exits) == state.size and all(one == 0 for one, _ in state.exits.values()):
            state.ended = True  # all ranks ended well: the job is over, and its standing still is no hang
        if state.planned or code == 0 or rank is None:
            return
        if reason in ("oom", "out_of_memory", "oom_killed"):
            self._accuse(state, rank, code, now, "job.oom", f"rank {rank} ran out of memory", "oom", "restart")
        elif code in VICTIM_CODES or (state.name, rank) in self._complained:
            text = f"rank {rank} ended with {_words(code)}"
            if code not in TERMINATED and self._suspect(state, rank, now) and self._explains(state, rank, text, now) is True:
                return
            self._waiting.setdefault(state.name, (now, rank, code, now + SHORT_SECONDS))
        elif (until := self._undecided(state, rank, now)) is not None:
            self._open.setdefault(state.name, (rank, code, until))
        else:
            self._first(state, rank, code, now)

    def _first(self, state: JobState, rank: int, code: int, now: float) -> None:
        """A rank ended by itself."""
        self._waiting.pop(state.name, None)
        self._accuse(state, rank, code, now, "job.rank_exit", f"rank {rank} ended with {_words(code)}", "exit", "restart")

    def new_attempt(self, state: JobState, now: float) -> None:
        """The job has started anew: what was said of the attempt before is over."""
        self._waiting.pop(state.name, None)
        self._open.pop(state.name, None)
        for key in [key for key in self._complained if key[0] == state.name]:
            del self._complained[key]

    def advance(self, now: float) -> None:
        """Victims whose cause never showed up are told of after all; exits beside a dark port when it is known what it is."""
        for name, (rank, code, due) in sorted(self._open.items()):
            if now >= due:
                del self._open[name]
                if (state := self.world.jobs.get(name)) is not None and not state.planned:
                    self._first(state, rank, code, now)
        for name, (when, rank, code, due) in sorted(self._waiting.items()):
            state = self.world.jobs.get(name)
            if now < due:
                continue
            if state is not None and now < when + CAUSE_SECONDS and self._doubted(state):
                self._waiting[name] = (when, rank, code, when + CAUSE_SECONDS)  # a silent node of the job is being judged
                continue
            del self._waiting[name]
            if state is not None and not state.planned and code not in TERMINATED:
                blamed = self._blames(state, now)
                if blamed is not None:
                    self._accuse_path(state, rank, code, blamed, now)
                else:
                    self._accuse(state, rank, code, now, "job.rank_exit", f"rank {rank} ended with {_words(code)} after its "
                                 "collective failed; nobody else was found guilty", "victim_without_cause", "restart")  # fmt: skip

    def next_due(self) -> float:
        """When `advance` has something to do. Asked for after almost every signal."""
        if not self._waiting and not self._open:
            return float("inf")
        return min([*(one[-1] for one in self._waiting.values()), *(one[-1] for one in self._open.values())], default=float("inf"))

    def _planned(self, state: JobState, reason: str, now: float) -> None:
        state.planned, state.ended = reason, True
        self._waiting.pop(state.name, None)
        self._open.pop(state.name, None)
        self.docket.accuse(
            "job.planned_stop", {"job": state.name}, now=now, incarnation=str(state.attempt), lasts=LASTS_SECONDS,
            reason=f"{state.name} was stopped: {reason}", reason_code="planned", extra={"attempt": state.attempt},
            evidence=(_evidence(now, state.name, None, f"stopped: {reason}"),),
        )  # fmt: skip

    def _accuse_path(self, state: JobState, rank: int, code: int, node: str, now: float) -> None:
        """Ranks ended because they lost their peers on one node, and nothing else is known of that node."""
        text = f"rank {rank} ended with {_words(code)}: most ranks that lost a peer lost it on {node}, which still beats"
        told = Evidence(
            t=now, kind="collective_error", subject={"node": node}, effect="confirm", text=f"the peers lost are on {node}",
            layer="communication",
        )  # fmt: skip
        self.docket.accuse(
            "link.errors", {"node": node, "job": state.name}, now=now, incarnation=str(state.attempt), reason=text, culprit="nic",
            reason_code="peers_lost", response="restart", lasts=LASTS_SECONDS, extra={"attempt": state.attempt},
            evidence=(told, _evidence(now, state.name, rank, text)),
        )  # fmt: skip

    def _accuse(
        self, state: JobState, rank: int, code: int, now: float, fault: str, text: str, reason_code: str, response: str
    ) -> None:
        found = self._explains(state, rank, text, now) if fault == "job.rank_exit" else False
        if found is True:
            return
        more: tuple[Evidence, ...] = ()
        if isinstance(found, tuple):
            fault, more = found[0], (found[1],)
        node = state.slots[rank][0] if 0 <= rank < state.size else None
        subject = {"job": state.name, "rank": rank} | ({"node": node} if node else {})
        self.docket.accuse(
            fault, subject, key_subject={"job": state.name, "rank": rank}, now=now, incarnation=str(state.attempt),
            decisive=True, reason=text, reason_code=reason_code, response=response, lasts=LASTS_SECONDS,
            extra={"attempt": state.attempt, "dead_ranks": {state.name: sorted(state.exits)}, "exit_code": code},
            evidence=(*more, _evidence(now, state.name, rank, text)),
        )  # fmt: skip


def _evidence(now: float, job: str, rank: int | None, text: str) -> Evidence:
    subject = {"job": job} if rank is None else {"job": job, "rank": rank}
    return Evidence(t=now, kind="process_exit", subject=subject, effect="confirm", text=text, layer="application")


def _words(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"code {code}"
