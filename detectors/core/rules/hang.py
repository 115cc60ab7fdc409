"""A job that does not move: by phase, by its own pace, and by what its ranks say of their collectives.

Any counter that moves is progress. In training a job has a pace, so a stop is noticed after a few steps; that alone is a
page and a copy of the state, for healthy steps reach 3.4 times the median. A restart needs the phase's own limit, or a
second layer: collectives that time out, records that show who is missing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from detectors.core.docket import Docket
from detectors.core.rules.loading import loads, starved_in
from detectors.core.types import Evidence
from detectors.core.waits import Head, head_of_chain
from detectors.core.world import JobState, World
from outrider.config.policy import Policy
from outrider.signals import KINDS, Signal

#: Steps after which a job has a pace; the first ones are slow (up to 5.6 times the median).
PACE_STEPS = 5
#: A job that stands still is looked at again: records and readings come late.
AGAIN_SECONDS = 5.0
#: A node of the job is under suspicion: its verdict comes first, within the hard limit and some.
NODE_FIRST_SECONDS = 45.0
#: Records come one by one; this long after the newest one no more are waited for.
SETTLE_SECONDS = 3.0
#: A rank that said nothing is named only if so many others said something: a record that is missing is no rank that is.
ENOUGH = 0.5
#: Records of collectives older than this tell of another hang.
RECORD_SECONDS = 900.0


OddOne = Callable[[dict[str, Any], float], tuple[dict[str, Any], str] | None]


@dataclass(slots=True)
class _Charge:
    """What a job that stands is accused of, while it is put together."""

    subject: dict[str, Any]
    text: str
    pieces: list[Evidence]
    fault: str = "job.hang"
    culprit: str | None = None
    code: str = "still"


class HangRule:
    """Judges progress for one witness.

    Args:
        world, docket, policy: as everywhere.
        doubted: node -> seconds for which it has been suspect, or None.
        odd_one: nodes -> the one card among them that idles while the others spin in a collective, or None.
    """

    def __init__(
        self, world: World, docket: Docket, policy: Policy, doubted: Callable[[str, float], float | None], odd_one: OddOne
    ) -> None:
        self._odd_one = odd_one
        self.world, self.docket, self.policy, self._doubted = world, docket, policy, doubted
        #: Jobs that were found standing, for the rules that have a suspect: (job, text).
        self.standing: list[tuple[str, str]] = []
        #: Jobs that stand still: name -> in words; and the fault they are accused of.
        self.accused: dict[str, str] = {}
        self._faults: dict[str, str] = {}
        #: The odd card of a job that stands: while it stands, older readings hold.
        self._odd: dict[str, tuple[dict[str, Any], str]] = {}
        self._records: dict[str, dict[int, tuple[float, dict[str, dict[str, Any]]]]] = {}
        self._timeouts: dict[str, list[Evidence]] = {}
        self._due: float = 0.0

    # --- what comes in ---

    def moved(self, state: JobState, now: float) -> None:
        """The job made progress."""
        if state.name in self.accused:
            self._release(state, now, f"it moves again (step {state.step})")

    def new_attempt(self, state: JobState) -> None:
        """The job starts anew: what its ranks said before is void."""
        for table in (self.accused, self._faults, self._odd, self._records, self._timeouts):
            table.pop(state.name, None)
        self._due = 0.0

    def wake(self) -> None:
        """Something changed that may bring the next look forward: a phase, a first pace, a new job."""
        self._due = 0.0

    def timeout(self, signal: Signal, now: float) -> None:
        """A rank's collective timed out: a second layer, and a record of where it stands."""
        state = self.world.jobs.get(signal.job or "")
        if state is None:
            return
        data = signal.data
        if signal.rank is not None and data.get("last_enqueued") is not None:
            record = {"enqueued": data["last_enqueued"], "completed": data.get("last_completed"), "op": None}
            self._record(state, signal.rank, {str(data.get("group", "all")): record}, now)
        told = self._timeouts.setdefault(state.name, [])
        if len(told) < 8:
            text = (
                signal.text
                or f"rank {signal.rank}: {data.get('op', 'a collective')} timed out after {data.get('elapsed_s', '?')} s"
            )
            told.append(_evidence(now, "collective_timeout", {"job": state.name, "rank": signal.rank}, text))
        self._look(state, now)

    def flight_record(self, signal: Signal, now: float) -> None:
        """What a rank says of its last collectives."""
        state = self.world.jobs.get(signal.job or "")
        if state is not None and signal.rank is not None:
            groups = {str(name): one for name, one in signal.data.items() if isinstance(one, dict)}
            self._record(state, signal.rank, groups, now)
            if state.name in self.accused or self.stands(state, now):
                self._look(state, now)

    def _record(self, state: JobState, rank: int, groups: dict[str, dict[str, Any]], now: float) -> None:
        if 0 <= rank < state.size:
            told = self._records.setdefault(state.name, {})
            old = told.get(rank)
            told[rank] = (now, {**(old[1] if old else {}), **groups})

    # --- time ---

    def advance(self, now: float) -> None:
        """Looks at every job."""
        self._due = float("inf")
        for name in sorted(self.world.jobs):
            state = self.world.jobs[name]
            if state.told and not state.ended:
                self._look(state, now)
        self._due = max(self._due, now + 0.05)

    def next_due(self) -> float:
        """When `advance` has something to do."""
        return self._due

    # --- judgement ---

    def limits(self, state: JobState) -> tuple[float | None, float]:
        """Seconds without progress after which the job is told of (None: never before the limit), and its limit."""
        phase = state.phase or ("train" if state.stepping else "init")
        default = float(getattr(self.policy, f"{phase}_seconds", self.policy.init_seconds))
        hard = state.limit(phase, default)
        if phase in ("idle", "end"):
            return None, float("inf")
        usual = state.steps.value
        # A few ranks in their loaders while the others train: those wait at the pace of training, whatever a load may take.
        paced = phase == "train" or (phase == "data" and not loads(state))
        if paced and usual is not None and len(state.steps) >= PACE_STEPS and state.steps_seen >= 1:
            return min(max(self.policy.hang_steps * usual, self.policy.hang_seconds_min), hard), hard
        return None, hard

    def stands(self, state: JobState, now: float) -> bool:
        """Whether a job has made no progress for longer than its pace, or else its phase, allows."""
        soft, hard = self.limits(state)
        return now >= state.moved_t + (soft if soft is not None else hard)

    def _look(self, state: JobState, now: float) -> None:
        soft, hard = self.limits(state)
        if soft is None and self._timeouts.get(state.name):
            soft = min(hard, self.policy.hang_seconds_min)  # its own watchdog has spoken; it need not have a pace
        # Times are compared as sums, the very numbers that the next look was set for.
        soft_t, hard_t = state.moved_t + (hard if soft is None else soft), state.moved_t + hard
        self._due = min([self._due, *(when for when in (soft_t, hard_t) if when > now)])
        if now < soft_t:
            return
        if now < hard_t and self._node_first(state, now):
            self._due = min(self._due, now + 1.0)
            return
        still = now - state.moved_t
        phase = state.phase or ("train" if state.stepping else "init")
        text = f"{state.name} has made no progress in {phase} for {still:.0f} s"
        if state.steps.value is not None:
            text += f" (its usual step takes {state.steps.value:.2f} s)"
        if state.name not in self.accused:
            self.standing.append((state.name, text))
        self._accuse(state, phase, text, now >= hard_t, now)
        self._due = min(self._due, now + AGAIN_SECONDS)

    def _node_first(self, state: JobState, now: float) -> bool:
        """A silent node of the job is being judged: the job's standing still is its matter, for a while."""
        ages = [age for node in state.node_ranks if (age := self._doubted(node, now)) is not None]
        return bool(ages) and min(ages) < max(NODE_FIRST_SECONDS, self.policy.hung_after_seconds + 10.0)

    def _accuse(self, state: JobState, phase: str, text: str, past_limit: bool, now: float) -> None:
        head, starved = self._head(state, now), starved_in(state)
        pieces = [_evidence(now, "step", {"job": state.name}, f"no progress since step {state.step}")]
        charge = _Charge({"job": state.name}, text, pieces + self._timeouts.get(state.name, []))
        if head is not None:
            self._blame_head(charge, state, head, now)
        else:
            self._blame_without_head(charge, state, phase, starved, now)
        if starved and (head is None or set(head.ranks) <= set(starved)):
            charge.fault, charge.culprit = "job.dataloader_stall", "data"
            names = ", ".join(map(str, starved[:4])) + (" .." if len(starved) > 4 else "")
            charge.pieces.append(_evidence(now, "phase", {"job": state.name}, f"in the data loader: rank {names}, and no other"))
            charge.text += f"; rank {names} waits for data, the others wait for it"
        # While records still come in, half of them name the wrong rank: a restart waits these few seconds for the right one.
        # Who waits for data has its phase's own limit.
        second = charge.fault != "job.dataloader_stall" and len({piece.layer for piece in charge.pieces}) > 1
        second = second and not self._unsettled(state, now)
        before = self._faults.get(state.name)
        if before is not None and before != charge.fault:
            self.docket.clear_subject(before, {"job": state.name}, now, f"it is {charge.fault}", str(state.attempt))
        self._faults[state.name], self.accused[state.name] = charge.fault, charge.text
        self.docket.accuse(
            charge.fault, charge.subject, key_subject={"job": state.name}, now=now, incarnation=str(state.attempt),
            evidence=tuple(charge.pieces), response="restart" if past_limit or second else "page",
            decisive=past_limit or not second, reason=charge.text,
            reason_code=f"{charge.code}_{'limit' if past_limit else 'pace'}", culprit=charge.culprit,
            extra={"attempt": state.attempt},
        )  # fmt: skip

    def _blame_head(self, charge: _Charge, state: JobState, head: Head, now: float) -> None:
        """The records of the ranks' collectives say who is missing."""
        charge.pieces.append(_evidence(now, "flight_record", {"job": state.name, "rank": head.ranks[0]}, head.text))
        charge.text += f"; {head.waiting} ranks wait: {head.text}"
        charge.code = "head_found"
        if head.desync:
            charge.fault = "job.desync"
        charge.subject, charge.culprit = self._place(state, head, charge.subject)

    def _blame_without_head(self, charge: _Charge, state: JobState, phase: str, starved: list[int], now: float) -> None:
        """Without records: who loads data, whose card idles, who alone is late, or what the phase itself waits for."""
        odd = self._odd_one(state.node_ranks, now) or self._odd.get(state.name)
        if starved:
            charge.subject, charge.code = self._where(state, starved, charge.subject), "in_data"
        elif odd is not None and odd[0].get("job") == state.name:
            self._odd[state.name] = odd
            charge.subject, charge.culprit, charge.code = odd[0], "gpu", "odd_one"
            charge.pieces.append(_evidence(now, "gpu_state", odd[0], odd[1]))
            charge.text += f"; rank {odd[0]['rank']} is {odd[1]}"
        elif (late := self._laggard(state)) is not None:
            charge.subject, charge.code = self._seat(state, late), "laggard"
            charge.text += f"; rank {late} alone has not finished step {state.step}"
        elif phase == "checkpoint":
            charge.culprit, charge.code = "storage", "in_save"
        elif phase == "data" and loads(state):
            charge.fault, charge.culprit, charge.code = "job.dataloader_stall", "data", "in_data"

    def _place(self, state: JobState, head: Head, subject: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        """Where the ranks that all wait for sit: one rank, one node, or nothing that could be named."""
        found = self._where(state, list(head.ranks), subject)
        if len(head.ranks) == 1:
            return found, "app" if head.desync else "node"
        return found, "node" if "node" in found else None

    def _where(self, state: JobState, ranks: list[int], subject: dict[str, Any]) -> dict[str, Any]:
        if len(ranks) == 1:
            return self._seat(state, ranks[0])
        nodes = {state.slots[rank][0] for rank in ranks if rank < state.size}
        return subject | ({"node": nodes.pop()} if len(nodes) == 1 else {}) | {"rank": ranks[0]}

    def _seat(self, state: JobState, rank: int) -> dict[str, Any]:
        node, gpu = state.slots[rank]
        return {"job": state.name, "node": node, "gpu": gpu, "rank": rank}

    def _head(self, state: JobState, now: float) -> Head | None:
        told = self._records.get(state.name, {})
        fresh = {rank: groups for rank, (when, groups) in told.items() if now - when <= RECORD_SECONDS}
        if not fresh:
            return None
        if self._unsettled(state, now):
            return None
        head = head_of_chain(fresh, state.groups, state.size)
        return None if head is not None and head.missing and len(fresh) < ENOUGH * state.size else head

    def _laggard(self, state: JobState) -> int | None:
        """The one rank that has not told of the step that almost all others finished."""
        late = [rank for rank, step in enumerate(state.rank_step) if 0 <= step < state.step]
        return late[0] if len(late) == 1 and state.size >= 3 and state.rank_step.count(state.step) >= ENOUGH * state.size else None

    def _unsettled(self, state: JobState, now: float) -> bool:
        """More records are on their way."""
        told = self._records.get(state.name, {})
        if not told or len(told) >= state.size:
            return False
        newest = max(when for when, _ in told.values())
        if now < newest + SETTLE_SECONDS:
            self._due = min(self._due, newest + SETTLE_SECONDS)
            return True
        return False

    def _release(self, state: JobState, now: float, reason: str) -> None:
        self.accused.pop(state.name)
        fault = self._faults.pop(state.name)
        self._odd.pop(state.name, None)
        self._timeouts.pop(state.name, None)
        self._records.pop(state.name, None)
        self.docket.clear_subject(fault, {"job": state.name}, now, reason, str(state.attempt))
        self._due = 0.0


def _evidence(t: float, kind: str, subject: dict[str, Any], text: str) -> Evidence:
    return Evidence(t=t, kind=kind, subject=subject, effect="confirm", text=text, layer=KINDS[kind])
