"""The silent nodes of one witness: a case for each, looked at as signals come and time passes, and the votes that follow.

What a look says stands in `silence_ladder`; who is asked to probe in `silence_probes`.
"""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from detectors.core.docket import Docket
from detectors.core.identity import short_hash, vote_key
from detectors.core.rules.silence_ladder import (
    COMPLAINT_LEAD_SECONDS,
    PROBE_ANSWER_SECONDS,
    Case,
    Finding,
    Look,
    case_evidence,
    climb,
)
from detectors.core.rules.silence_probes import Probing
from detectors.core.types import CopyRequest, Evidence, ProbeRequest
from detectors.core.window import NEVER, Arrivals
from detectors.core.world import JobState, World
from outrider.config.policy import Policy
from outrider.signals import Signal

#: What a silent node can turn out to be.
FAULTS_OF_SILENCE = ("node.lost", "agent.lost", "path.broken", "node.hung")
#: A verdict that could be part of something larger waits this long after the node became late.
HOLD_SECONDS = 2.0
#: A suspect whose job goes on is looked at so often, not at every step.
LOOK_SECONDS = 0.5
#: The look at which a job's proof of life is over comes this much after its end, so that it is not missed by a rounding.
PROOF_MARGIN_SECONDS = 0.001
#: Complaints remembered per node; more of the same prove nothing new.
COMPLAINTS_MAX = 16


class SilenceRule:
    """Judges silent nodes for one witness.

    Args:
        world, arrivals, docket: what is known, when nodes were heard, where suspicions are kept.
        policy: time-outs.
    """

    def __init__(self, world: World, arrivals: Arrivals, docket: Docket, policy: Policy) -> None:
        self.world, self.arrivals, self.docket, self.policy = world, arrivals, docket, policy
        self.probing = Probing(world, arrivals, policy)
        self.cases: dict[str, Case] = {}
        #: node -> complaints of peers about it: (when, accuser's node, text), bounded.
        self.complaints: dict[str, list[tuple[float, str, str]]] = {}
        #: node -> hardware evidence that is independent of a mere freeze: (when, text).
        self.hardware: dict[str, tuple[float, str]] = {}
        self.requests: list[ProbeRequest | CopyRequest] = []
        #: Says why a verdict on a single node must wait (its whole rack is falling silent, ..).
        self.holds: Callable[[Case, float], str | None] = lambda case, now: None
        #: (when to look again, node); entries that are no longer true are skipped.
        self._due: list[tuple[float, str]] = []

    # --- what comes in ---

    def open(self, row: int, incarnation: str, seq: int, now: float) -> None:
        """A node has become late."""
        node = self.world.nodes[row]
        since = float(self.arrivals.last[row])
        case = self.cases[node] = Case(node, row, since, now, incarnation, seq, next_probe=now, base=since)
        for state in self.world.jobs_on(node):
            self.requests.append(
                CopyRequest(
                    decision_id=short_hash("copy", state.name, state.attempt, node, incarnation, seq),
                    job=state.name, reason=f"{node} of this job has been silent for {now - since:.1f} s",
                )
            )  # fmt: skip
        self.judge(case, now)

    def heard(self, node: str, now: float) -> None:
        """A newer heartbeat: whatever was thought of the node is taken back."""
        case = self.cases.pop(node, None)
        if case is not None:
            evidence = case_evidence(case, now, "heartbeat", "veto", f"heartbeat again after {now - case.since:.1f} s")
            self._drop(case, now, f"{node} is heard again", (evidence,))

    def probe(self, signal: Signal, now: float) -> None:
        """A peer's answer about a node."""
        case = self.cases.get(signal.node or "")
        answer, by = signal.data.get("answer"), str(signal.data.get("by", "?"))
        if case is not None and isinstance(answer, str):
            case.probes[by] = (answer, now)
            self.judge(case, now)

    def complaint(self, node: str, accuser: str, text: str, now: float) -> None:
        """A peer's transport error that names `node`."""
        told = self.complaints.setdefault(node, [])
        told.append((now, accuser, text))
        del told[:-COMPLAINTS_MAX]
        if (case := self.cases.get(node)) is not None:
            self.judge(case, now)

    def confirming(self, node: str, text: str, now: float) -> None:
        """Evidence of another layer or device that the node is gone (fatal code, panic, all its ports dark)."""
        self.hardware[node] = (now, text)
        if (case := self.cases.get(node)) is not None:
            self.judge(case, now)

    def moved(self, nodes: Iterable[str], now: float) -> None:
        """A job made progress: judge the silent ones among its nodes anew."""
        if self.cases:
            for node in nodes:
                # Whoever is known to live needs no look at every step.
                if (case := self.cases.get(node)) is not None and (not case.alive or now >= case.looked + LOOK_SECONDS):
                    self.judge(case, now)

    def shift(self, seconds: float, now: float) -> None:
        """This witness heard nobody for `seconds`: the silence of the suspects was shorter by that."""
        for case in self.cases.values():
            case.since, case.base = min(case.since + seconds, now), min(case.base + seconds, now)

    # --- time ---

    def advance(self, now: float) -> bool:
        """Judges every case whose time has come, and asks for probes. True if one came to its hard limit."""
        limit = False
        while self._due and self._due[0][0] <= now:
            due, node = heappop(self._due)
            case = self.cases.get(node)
            if case is not None and case.due == due:
                limit = limit or now >= case.since + self.policy.hard_limit_seconds
                self.judge(case, now)
        return limit

    def next_due(self) -> float:
        """When a case needs a look without any signal; infinity if there is none."""
        return self._due[0][0] if self._due else float("inf")

    def _set_due(self, case: Case, now: float) -> None:
        """The next time at which the answer may change by itself."""
        limits = (
            case.next_probe,
            case.since + self.policy.hard_limit_seconds,
            case.base + self.policy.hard_limit_seconds,
            case.base + self._hung_after(case),
            case.opened + HOLD_SECONDS,
            case.opened + PROBE_ANSWER_SECONDS,
            *(state.moved_t + self._proof_seconds(state) + PROOF_MARGIN_SECONDS for state in self.world.jobs_on(case.node)),
        )
        due = min(limit for limit in limits if limit > now)
        if due != case.due:
            case.due = due
            heappush(self._due, (due, case.node))

    def _proof_seconds(self, state: JobState) -> float:
        """For how long after its last progress a job still proves that its nodes live."""
        return max(self.policy.heartbeat_timeout, self.policy.hang_steps * (state.steps.value or 0.0))

    def _hung_after(self, case: Case) -> float:
        seconds = self.policy.hung_after_seconds
        for state in self.world.jobs_on(case.node):
            own = self.policy.jobs.get(state.name)
            if own is not None and own.hung_after_seconds is not None:
                seconds = own.hung_after_seconds
            if (usual := state.steps.value) is not None:
                seconds = max(seconds, self.policy.hung_after_steps * usual)
        return seconds

    # --- the judgement ---

    def judge(self, case: Case, now: float) -> None:
        """Looks at everything known of a silent node and votes accordingly."""
        case.looked = now
        if (request := self.probing.ask(case, now)) is not None:
            self.requests.append(request)
        self._set_due(case, now)
        found = climb(self._look(case, now))
        case.gone = found.sure and found.fault == "node.lost"
        if found.sure and (why := self.holds(case, now)) is not None:
            found = Finding(found.fault, False, f"{found.reason}; {why}", "held", "watch", found.evidence)
        if case.fault and case.fault != found.fault:
            self._drop(case, now, f"it is {found.fault}: {found.reason}", found.evidence, keep=found.fault)
        case.fault = found.fault
        text = f"silent since {now - case.since:.1f} s (last seq {case.seq})"
        silence = case_evidence(case, now, "heartbeat", "neutral", text)
        old = self.docket.find(found.fault, {"node": case.node}, case.incarnation)
        same = old is not None and (old.sure, old.reason_code) == (found.sure, found.code)
        evidence = found.evidence if same else (silence, *found.evidence)
        extra = {"silence": True, "last_seq": case.seq, "silent_since": case.since, "dead_ranks": self._dead_ranks(case)}
        self.docket.accuse(
            found.fault, {"node": case.node}, now=now, incarnation=case.incarnation, sure=found.sure, decisive=True,
            evidence=evidence, reason=found.reason, reason_code=found.code, response=found.response, extra=extra,
        )  # fmt: skip

    def _dead_ranks(self, case: Case) -> dict[str, list[int]]:
        return {state.name: list(state.node_ranks[case.node]) for state in self.world.jobs_on(case.node)}

    def _look(self, case: Case, now: float) -> Look:
        alive = self._life(case, now)
        case.alive = alive is not None
        answers = self.probing.answers(case, now)
        case.answered = any(answer != "none" for answer in answers.values())
        case.unanswered = bool(answers) and not case.answered
        # Whoever was proven alive is silent since then, not since its last heartbeat.
        hard = now >= (case.since if case.alive else case.base) + self.policy.hard_limit_seconds
        return Look(
            case=case, now=now, alive=alive, answers=answers, complaints=self._complaints(case, now),
            hardware=self._hardware(case, now), jobs=self.world.jobs_on(case.node), hung_after=self._hung_after(case), hard=hard,
        )  # fmt: skip

    # --- evidence ---

    def _life(self, case: Case, now: float) -> Evidence | None:
        """A sign of life newer than the silence, from the jobs of the node; it holds as long as the job goes on."""
        for state in self.world.jobs_on(case.node):
            life = state.life_of(case.node)
            if life <= case.since:
                continue
            # It re-bases the clock of the silence, it never stops it: a job that stands still now proves nothing of now.
            case.base = max(case.base, life)
            if now - state.moved_t > self._proof_seconds(state):
                continue
            # A peer that lost the node after the job's last step is newer than that proof.
            if any(when > state.moved_t for when, accuser, _ in self.complaints.get(case.node, ()) if accuser != case.node):
                continue
            return Evidence(
                t=now, kind="step", subject={"job": state.name, "node": case.node}, effect="veto", layer="application",
                text=f"step {state.step} of {state.name} began and ended after {case.node} went silent",
            )  # fmt: skip
        return None

    def _complaints(self, case: Case, now: float) -> tuple[Evidence, ...]:
        told = self.complaints.get(case.node, ())
        return tuple(
            Evidence(t=when, kind="collective_error", subject={"node": accuser}, effect="confirm", text=text, layer="communication")
            for when, accuser, text in told
            if when >= case.base - COMPLAINT_LEAD_SECONDS and accuser != case.node
        )

    def _hardware(self, case: Case, now: float) -> Evidence | None:
        told = self.hardware.get(case.node)
        if told is None or told[0] < case.base - COMPLAINT_LEAD_SECONDS * 10:
            return None
        return case_evidence(case, now, "kernel", "confirm", told[1])

    def newest_complaint(self, node: str) -> float:
        """When a peer last lost the node; NEVER if none did."""
        return max((when for when, accuser, _ in self.complaints.get(node, ()) if accuser != node), default=NEVER)

    def _drop(self, case: Case, now: float, reason: str, evidence: tuple[Evidence, ...], keep: str = "") -> None:
        for fault in FAULTS_OF_SILENCE:
            if fault != keep:
                self.docket.clear(vote_key(fault, {"node": case.node}, case.incarnation), now, reason, evidence)

    def age(self, node: str, now: float) -> float | None:
        """For how long a node has been silent, if it is suspect."""
        case = self.cases.get(node)
        return now - case.since if case is not None else None
