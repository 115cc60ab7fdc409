"""The ladder of node verdicts: late, suspect, and then what probes, peers and the job itself say of a silent node.

    late -> suspect -> agent.lost | path.broken | node.hung | node.lost

Silence alone never makes more than a suspect before the hard limit. Every rung above needs evidence that a mere freeze
of the host cannot produce (it confirms), and one sign of life newer than the silence takes it back (it vetoes).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from detectors.core.docket import Docket
from detectors.core.identity import short_hash, spread, vote_key
from detectors.core.types import CopyRequest, Effect, Evidence, ProbeRequest
from detectors.core.window import NEVER, Arrivals
from detectors.core.world import JobState, World
from outrider.config.policy import Policy
from outrider.signals import KINDS, Signal

#: What a silent node can turn out to be.
FAULTS_OF_SILENCE = ("node.lost", "agent.lost", "path.broken", "node.hung")
#: A peer's complaint that came this long before the silence began still belongs to it: a heartbeat may be one second old
#: when the host dies, and clocks of signals and heartbeats differ by their queues.
COMPLAINT_LEAD_SECONDS = 3.0
#: Probers are given this long to answer before their silence counts as "nobody could ask".
PROBE_ANSWER_SECONDS = 3.0
#: A verdict that could be part of something larger waits this long after the node became late.
HOLD_SECONDS = 2.0
#: A suspect whose job goes on is looked at so often, not at every step.
LOOK_SECONDS = 0.5
#: Rounds of probes at the short interval; later ones come at four times of it.
FAST_ROUNDS = 5
#: The look at which a job's proof of life is over comes this much after its end, so that it is not missed by a rounding.
PROOF_MARGIN_SECONDS = 0.001
#: Probers are chosen among at most so many living nodes: of thousands any few do as well.
CANDIDATES_MAX = 64
#: Complaints remembered per node; more of the same prove nothing new.
COMPLAINTS_MAX = 16


@dataclass(slots=True)
class Case:
    """One node's silence as this witness sees it. `since`: when it was last heard."""

    node: str
    row: int
    since: float
    opened: float
    incarnation: str
    seq: int
    probes: dict[str, tuple[str, float]] = field(default_factory=dict)
    rounds: int = 0
    next_probe: float = 0.0
    fault: str = ""
    due: float = 0.0
    #: The newest sign of life: the silence is judged from here. `alive`: its jobs go on.
    base: float = 0.0
    alive: bool = False
    looked: float = 0.0
    #: By itself it would be lost for good: no life, and a second layer or the hard limit. Its domain may still speak for it.
    gone: bool = False
    #: What peers found: something there answers; all who could ask got nothing.
    answered: bool = False
    unanswered: bool = False


@dataclass(slots=True, frozen=True)
class Finding:
    """What one look at a case says."""

    fault: str
    sure: bool
    reason: str
    code: str
    response: str = "watch"
    evidence: tuple[Evidence, ...] = ()


class SilenceRule:
    """Judges silent nodes for one witness.

    Args:
        world, arrivals, docket: what is known, when nodes were heard, where suspicions are kept.
        policy: time-outs.
    """

    def __init__(self, world: World, arrivals: Arrivals, docket: Docket, policy: Policy) -> None:
        self.world, self.arrivals, self.docket, self.policy = world, arrivals, docket, policy
        self.cases: dict[str, Case] = {}
        #: node -> complaints of peers about it: (when, accuser's node, text), bounded.
        self.complaints: dict[str, list[tuple[float, str, str]]] = {}
        #: node -> hardware evidence that is independent of a mere freeze: (when, text).
        self.hardware: dict[str, tuple[float, str]] = {}
        self.requests: list[ProbeRequest | CopyRequest] = []
        #: Says why a verdict on a single node must wait (its whole rack is falling silent, ..).
        self.holds: Callable[[Case, float], str | None] = lambda case, now: None
        self._living_rows: list[int] = []
        self._living_at = float("-inf")
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
            evidence = _evidence(now, "heartbeat", {"node": node}, "veto", f"heartbeat again after {now - case.since:.1f} s")
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
        self._ask(case, now)
        self._set_due(case, now)
        found = self._look(case, now)
        case.gone = found.sure and found.fault == "node.lost"
        if found.sure and (why := self.holds(case, now)) is not None:
            found = Finding(found.fault, False, f"{found.reason}; {why}", "held", "watch", found.evidence)
        if case.fault and case.fault != found.fault:
            self._drop(case, now, f"it is {found.fault}: {found.reason}", found.evidence, keep=found.fault)
        case.fault = found.fault
        silence = _evidence(
            now, "heartbeat", {"node": case.node}, "neutral", f"silent since {now - case.since:.1f} s (last seq {case.seq})"
        )
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

    def _look(self, case: Case, now: float) -> Finding:
        alive = self._life(case, now)
        case.alive = alive is not None
        answers = self._answers(case, now)
        case.answered = any(answer != "none" for answer in answers.values())
        case.unanswered = bool(answers) and not case.answered
        complaints = self._complaints(case, now)
        # Whoever was proven alive is silent since then, not since its last heartbeat.
        hard = now >= (case.since if case.alive else case.base) + self.policy.hard_limit_seconds
        shown = (*self._shown(answers, case, now), *complaints)
        names = f"{case.node} has been silent for {now - case.since:.1f} s"
        if alive is not None:
            return self._alive(case, names, answers, alive, shown, hard)
        if "reply" in answers.values():
            return self._unreachable(names + ", but its agent answers its peers", shown, hard)
        count = {word: sum(1 for answer in answers.values() if answer == word) for word in ("refused", "mute", "none")}
        needed = min(2, max(1, len(answers)))
        if count["refused"] >= needed:
            if complaints:
                return Finding("node.lost", True, f"{names}; its agent is gone and its peers have lost its ranks",
                               "refused_and_complaints", "restart", shown)  # fmt: skip
            return Finding("agent.lost", True, f"{names}; its kernel answers and its agent is gone", "refused", "page", shown)
        if count["mute"] >= needed:
            return self._mute(case, names, shown, hard, now)
        return self._gone(case, names, count["none"], complaints, shown, hard, now)

    def _alive(
        self, case: Case, names: str, answers: dict[str, str], alive: Evidence, shown: tuple[Evidence, ...], hard: bool
    ) -> Finding:
        shown = (alive, *shown)
        words = set(answers.values())
        if words == {"refused"}:
            return Finding("agent.lost", True, f"{names}; its agent is gone, its ranks live", "refused", "page", shown)
        if words == {"mute"} and hard:
            return Finding("agent.lost", True, f"{names}; its agent is stuck, its job steps", "mute_job_steps", "page", shown)
        return self._unreachable(f"{names}, yet {alive.text}", shown, hard)

    def _unreachable(self, reason: str, shown: tuple[Evidence, ...], hard: bool) -> Finding:
        if hard:
            return Finding("path.broken", True, reason, "alive_unreachable", "page", shown)
        return Finding("node.lost", False, reason, "alive", "watch", shown)

    def _mute(self, case: Case, names: str, shown: tuple[Evidence, ...], hard: bool, now: float) -> Finding:
        states = self.world.jobs_on(case.node)
        hung_after = self._hung_after(case)
        if states and now >= case.base + hung_after and all(now - state.moved_t >= hung_after * 0.9 for state in states):
            still = tuple(
                Evidence(t=now, kind="step", subject={"job": state.name}, effect="confirm", layer="application",
                         text=f"{state.name} stands still since step {state.step}")
                for state in states
            )  # fmt: skip
            dumb = _evidence(now, "probe", {"node": case.node}, "confirm", "the kernel answers, the processes do not")
            return Finding("node.hung", True, f"{names}; its kernel answers, its processes do not, its job stands still",
                           "mute_job_still", "restart", (dumb, *still, *shown))  # fmt: skip
        if not states and hard:
            return Finding("agent.lost", True, f"{names}; its agent is stuck and no job runs there", "mute_idle", "page", shown)
        return Finding("node.lost", False, f"{names}; its kernel answers, its processes do not", "mute", "watch", shown)

    def _gone(
        self, case: Case, names: str, none: int, complaints: tuple[Evidence, ...], shown: tuple[Evidence, ...], hard: bool,
        now: float,
    ) -> Finding:  # fmt: skip
        hardware = self.hardware.get(case.node)
        if hardware is not None and hardware[0] >= case.base - COMPLAINT_LEAD_SECONDS * 10:
            shown = (*shown, _evidence(now, "kernel", {"node": case.node}, "confirm", hardware[1]))
        else:
            hardware = None
        unasked = not case.probes and now >= case.opened + PROBE_ANSWER_SECONDS
        accusers = {piece.subject.get("node") for piece in complaints}
        if none >= 2 and (complaints or hardware):
            return Finding("node.lost", True, f"{names}; no peer reaches it, and a second layer agrees", "corroborated",
                           "restart", shown)  # fmt: skip
        if hardware is not None or (unasked and len(accusers) >= 2):
            return Finding("node.lost", True, f"{names}; a second layer says that it is gone", "second_layer", "restart", shown)
        if hard:
            shown = (*shown, _evidence(now, "heartbeat", {"node": case.node}, "confirm", "silent past the hard limit"))
            return Finding("node.lost", True, f"{names}, longer than the hard limit", "hard_limit", "restart", shown)
        return Finding("node.lost", False, names, "silent", "watch", shown)

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

    def _answers(self, case: Case, now: float) -> dict[str, str]:
        """The newest answer of each prober; one that is two long rounds old says nothing of now."""
        oldest = now - 8 * self.policy.probe_interval_seconds
        return {by: answer for by, (answer, when) in sorted(case.probes.items()) if when >= oldest}

    def _shown(self, answers: dict[str, str], case: Case, now: float) -> tuple[Evidence, ...]:
        # A frozen host produces a mute answer, never a refusal.
        effects: dict[str, Effect] = {"reply": "veto", "none": "confirm", "refused": "confirm"}
        return tuple(
            _evidence(case.probes[by][1], "probe", {"node": case.node}, effects.get(answer, "neutral"), f"probe by {by}: {answer}")
            for by, answer in answers.items()
        )

    def _complaints(self, case: Case, now: float) -> tuple[Evidence, ...]:
        told = self.complaints.get(case.node, ())
        return tuple(
            Evidence(t=when, kind="collective_error", subject={"node": accuser}, effect="confirm", text=text, layer="communication")
            for when, accuser, text in told
            if when >= case.base - COMPLAINT_LEAD_SECONDS and accuser != case.node
        )

    def newest_complaint(self, node: str) -> float:
        """When a peer last lost the node; NEVER if none did."""
        return max((when for when, accuser, _ in self.complaints.get(node, ()) if accuser != node), default=NEVER)

    def _ask(self, case: Case, now: float) -> None:
        """Asks three living peers to probe the node: one of its own rack, the others from elsewhere."""
        if now < case.next_probe:
            return
        interval = self.policy.probe_interval_seconds * (1 if case.rounds < FAST_ROUNDS else 4)
        case.next_probe = now + interval
        case.rounds += 1
        living = [node for node in self._living(now, case.node) if node != case.node]
        living.sort(key=lambda node: (spread(case.node, node), node))
        rack = self.world.rack.get(case.node)
        near = [node for node in living if rack is not None and self.world.rack.get(node) == rack][:1]
        probers = tuple((near + [node for node in living if node not in near])[: self.policy.probers])
        if probers:
            self.requests.append(
                ProbeRequest(
                    decision_id=short_hash("probe", case.node, case.incarnation, case.seq, case.rounds), node=case.node,
                    probers=probers, reason=f"{case.node} has been silent for {now - case.since:.1f} s",
                )
            )  # fmt: skip

    def _living(self, now: float, suspect: str) -> list[str]:
        """Nodes that could probe: all that were heard lately, or of very many a few, the suspect's neighbours among them.

        Looked up once for all suspects of one moment: when half of a large fleet falls silent, each look costs the whole fleet.
        """
        if self._living_at != now:
            heard = ~self.arrivals.late & (self.arrivals.last >= now - self.policy.heartbeat_timeout)
            self._living_rows, self._living_at = heard.nonzero()[0].tolist(), now
        rows = self._living_rows
        if len(rows) > CANDIDATES_MAX:
            place = bisect_left(rows, self.world.row[suspect])
            start = spread(suspect) % (len(rows) - CANDIDATES_MAX // 2)
            beside = rows[max(0, place - CANDIDATES_MAX // 4) : place + CANDIDATES_MAX // 4]
            rows = list(dict.fromkeys(beside + rows[start : start + CANDIDATES_MAX // 2]))
        return [self.world.nodes[row] for row in rows]

    def _drop(self, case: Case, now: float, reason: str, evidence: tuple[Evidence, ...], keep: str = "") -> None:
        for fault in FAULTS_OF_SILENCE:
            if fault != keep:
                self.docket.clear(vote_key(fault, {"node": case.node}, case.incarnation), now, reason, evidence)

    def age(self, node: str, now: float) -> float | None:
        """For how long a node has been silent, if it is suspect."""
        case = self.cases.get(node)
        return now - case.since if case is not None else None


def _evidence(t: float, kind: str, subject: dict[str, Any], effect: Effect, text: str) -> Evidence:
    return Evidence(t=t, kind=kind, subject=subject, effect=effect, text=text, layer=KINDS[kind])
