"""Slow steps: one rank that is slow again and again, ranks that take turns, a loader that lets its rank wait.

Who is slow computes long and waits little; who only suffers computes as ever and waits. One slow step is never evidence
(healthy runs have steps of 3.4 times the median), and a slow rank that is another one each time is nobody's hardware.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from detectors.core.docket import Docket
from detectors.core.types import Evidence
from detectors.core.window import Median
from detectors.core.world import JobState, World
from outrider.signals import Signal

#: Steps looked at together, and in how many of them one rank must be the slow one.
WINDOW, PERSISTENT = 6, 5
#: By how much a rank's own work must exceed the median rank's: the share, and seconds at the least.
EXCESS_RATIO, EXCESS_SECONDS = 1.12, 0.02
#: One series for the whole job: so many steps running above this ratio of the usual step. In 42 public runs of healthy
#: training the longest streak above 1.1 is four steps, above 1.25 two.
STREAK, STREAK_RATIO = 5, 1.15
#: .. that together last at least this long: a person is not paged for a job of short steps that a busy host held up for a second.
#: The fastest of the public runs steps in 5.2 s, so that five slow steps of it last longer.
STREAK_SECONDS = 30.0
#: Steps before a job has a usual step to compare with.
BASE_STEPS = 20
#: After so many slow steps the slow pace is the new usual one.
ADOPT_STEPS = 200
#: A loader that takes this share of a rank's step, several times that of the others, starves its rank.
DATA_SHARE, DATA_TIMES = 0.3, 5.0


T = TypeVar("T", int, str)


@dataclass(slots=True)
class _Pace:
    attempt: int
    step: int = -1
    compute: dict[int, float] = field(default_factory=dict)
    wait: dict[int, float] = field(default_factory=dict)
    data: dict[int, float] = field(default_factory=dict)
    seconds: float = 0.0
    slow: deque[int | None] = field(default_factory=lambda: deque(maxlen=WINDOW))
    starved: deque[int | None] = field(default_factory=lambda: deque(maxlen=WINDOW))
    base: Median = field(default_factory=lambda: Median(64))
    streak: int = 0
    streak_seconds: float = 0.0
    accused: dict[str, dict[str, Any]] = field(default_factory=dict)


class PaceRule:
    """Judges the pace of jobs for one witness."""

    def __init__(self, world: World, docket: Docket) -> None:
        self.world, self.docket = world, docket
        self._paces: dict[str, _Pace] = {}
        #: Persistent slow ranks, for the rule that knows the cards: (node, gpu, text).
        self.slow_seats: list[tuple[str, int, str]] = []

    def step(self, state: JobState, signal: Signal, now: float) -> None:
        """One rank's (or the whole job's) finished step."""
        pace = self._paces.get(state.name)
        if pace is None or pace.attempt != state.attempt:
            pace = self._paces[state.name] = _Pace(state.attempt)
        data, step = signal.data, signal.value
        if step != pace.step:
            if not isinstance(step, int | float) or step < pace.step:
                return
            self._close(state, pace, now)
            pace.step = int(step)
            pace.compute, pace.wait, pace.data, pace.seconds = {}, {}, {}, 0.0
        seconds = data.get("step_s")
        if seconds is not None and seconds > pace.seconds:
            pace.seconds = seconds
        rank = signal.rank
        if rank is None:
            return
        if (value := data.get("compute_s")) is not None:
            pace.compute[rank] = value
        if (value := data.get("wait_s")) is not None:
            pace.wait[rank] = value
        if (value := data.get("data_s")) is not None:
            pace.data[rank] = value
        if len(pace.compute) == state.size and pace.compute:
            self._close(state, pace, now)
            pace.compute, pace.wait, pace.data, pace.seconds = {}, {}, {}, 0.0

    # --- one step is complete ---

    def _close(self, state: JobState, pace: _Pace, now: float) -> None:
        if pace.step < 0 or (not pace.compute and not pace.wait and not pace.seconds):
            return
        if len(pace.compute) >= 3 or len(pace.wait) >= 3:
            pace.slow.append(_slow_rank(pace.compute, pace.wait, pace.seconds))
            self._rank(state, pace, now)
        if len(pace.data) >= 3:
            pace.starved.append(_starved_rank(pace.data, pace.seconds))
            self._loader(state, pace, now)
        if pace.seconds:
            self._series(state, pace, now)

    def _rank(self, state: JobState, pace: _Pace, now: float) -> None:
        rank = _persistent(pace.slow)
        nodes = deque((state.slots[one][0] if one is not None else None for one in pace.slow), maxlen=WINDOW)
        node = _persistent(nodes)
        if rank is None and node is None:
            if len(pace.slow) == WINDOW and "job.straggler" in pace.accused and pace.slow.count(None) >= PERSISTENT:
                self._release(state, pace, "job.straggler", now, "all ranks are equally fast again")
            return
        if rank is None or node is None:
            # The node is always the slow one, by whichever of its ranks: what its ranks share is slow.
            assert node is not None
            text = f"a rank of {node} is the slow one in {nodes.count(node)} of {len(nodes)} steps, not always the same"
            self._accuse(state, pace, "job.straggler", {"job": state.name, "node": node}, now, text, "node", "node")
            return
        excess = pace.compute.get(rank, 0.0) / max(float(np.median(list(pace.compute.values()))), 1e-9) if pace.compute else 0.0
        gpu = state.slots[rank][1]
        text = f"rank {rank} on {node} is the slow one in {pace.slow.count(rank)} of {len(pace.slow)} steps"
        text += f", its own work takes {excess:.2f} times the median rank's" if excess else ""
        mates = [one for one in state.node_ranks[node] if one != rank]
        culprit = "gpu" if mates and gpu >= 0 else "node"
        subject = {"job": state.name, "node": node, "gpu": gpu, "rank": rank}
        if "job.straggler" not in pace.accused:
            self.slow_seats.append((node, gpu, text))
        self._accuse(state, pace, "job.straggler", subject, now, text, "persistent", culprit)

    def _loader(self, state: JobState, pace: _Pace, now: float) -> None:
        rank = _persistent(pace.starved)
        if rank is not None:
            node, gpu = state.slots[rank]
            text = f"rank {rank} on {node} waits for its data in {pace.starved.count(rank)} of {len(pace.starved)} steps"
            subject = {"job": state.name, "node": node, "gpu": gpu, "rank": rank}
            self._accuse(state, pace, "job.dataloader_stall", subject, now, text, "starved", "data")
        elif "job.dataloader_stall" in pace.accused and pace.starved.count(None) >= PERSISTENT:
            self._release(state, pace, "job.dataloader_stall", now, "data comes in time again")

    def _series(self, state: JobState, pace: _Pace, now: float) -> None:
        usual = pace.base.value
        if usual is None or len(pace.base) < BASE_STEPS or pace.seconds <= STREAK_RATIO * usual:
            pace.streak, pace.streak_seconds = 0, 0.0
            pace.base.add(pace.seconds)
            if "series" in pace.accused:
                self._release(state, pace, "series", now, "the usual pace again")
            return
        pace.streak += 1
        pace.streak_seconds += pace.seconds
        if pace.streak >= ADOPT_STEPS:
            pace.base.clear()
            pace.streak, pace.streak_seconds = 0, 0.0
        takes_turns = len({rank for rank in pace.slow if rank is not None}) > 2
        if (
            pace.streak >= STREAK
            and pace.streak_seconds >= STREAK_SECONDS
            and not takes_turns
            and "job.straggler" not in pace.accused
        ):
            text = f"{pace.streak} steps in a row take more than {STREAK_RATIO} times the usual {usual:.2f} s"
            subject = {"job": state.name}
            pace.accused["series"] = subject
            self._vote(state, subject, "job.straggler", now, text, "slow_series", "none")

    def _accuse(
        self, state: JobState, pace: _Pace, fault: str, subject: dict[str, Any], now: float, text: str, code: str, culprit: str
    ) -> None:
        old = pace.accused.get(fault)
        if old is not None and _key(old) != _key(subject):
            self._release(state, pace, fault, now, text)
        if "series" in pace.accused and fault == "job.straggler":
            self._release(state, pace, "series", now, text)
        pace.accused[fault] = subject
        self._vote(state, subject, fault, now, text, code, culprit)

    def _vote(self, state: JobState, subject: dict[str, Any], fault: str, now: float, text: str, code: str, culprit: str) -> None:
        piece = Evidence(t=now, kind="step", subject=subject, effect="confirm", text=text, layer="application")
        known = self.docket.find(fault, _key(subject), str(state.attempt))
        self.docket.accuse(
            fault, subject, key_subject=_key(subject), now=now, incarnation=str(state.attempt), reason=text, reason_code=code,
            evidence=() if known is not None and known.reason_code == code else (piece,), response="page", culprit=culprit,
            extra={"attempt": state.attempt},
        )  # fmt: skip

    def _release(self, state: JobState, pace: _Pace, fault: str, now: float, reason: str) -> None:
        subject = pace.accused.pop(fault)
        name = "job.straggler" if fault == "series" else fault
        self.docket.clear_subject(name, _key(subject), now, reason, str(pace.attempt))


def _key(subject: dict[str, Any]) -> dict[str, Any]:
    if "rank" in subject:
        return {"job": subject["job"], "rank": subject["rank"]}
    return {name: subject[name] for name in ("job", "node") if name in subject}


def _persistent(slow: deque[T | None]) -> T | None:
    """The rank (or node) that was the slow one in almost every step of the window."""
    if len(slow) < WINDOW:
        return None
    return next((one for one in slow if one is not None and slow.count(one) >= PERSISTENT), None)


def _slow_rank(compute: dict[int, float], wait: dict[int, float], seconds: float) -> int | None:
    """The rank whose own work holds up the step, if one stands out."""
    own = compute if len(compute) >= 3 else {rank: max(seconds - value, 0.0) for rank, value in wait.items()}
    values = np.fromiter(own.values(), dtype=np.float64, count=len(own))
    middle = float(np.median(values))
    rank = max(own, key=lambda one: (own[one], -one))
    excess = own[rank] - middle
    if excess < EXCESS_SECONDS or own[rank] < EXCESS_RATIO * middle:
        return None
    # Who computes long and waits as long as the others was held up by something that held up all.
    if rank in wait and len(wait) >= 3 and wait[rank] > 0.5 * float(np.median(list(wait.values()))) + EXCESS_SECONDS:
        return None
    return rank


def _starved_rank(data: dict[int, float], seconds: float) -> int | None:
    """The rank whose loader lets it wait, if one stands out."""
    rank = max(data, key=lambda one: (data[one], -one))
    middle = float(np.median(list(data.values())))
    if seconds and data[rank] >= DATA_SHARE * seconds and data[rank] >= DATA_TIMES * max(middle, 1e-6):
        return rank
    return None
