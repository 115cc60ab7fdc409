"""The ladder of node verdicts: what one look at a silent node says of it.

    late -> suspect -> agent.lost | path.broken | node.hung | node.lost

Silence alone never makes more than a suspect before the hard limit. Every rung above needs evidence that a mere freeze
of the host cannot produce (it confirms), and one sign of life newer than the silence takes it back (it vetoes).
"""

from collections import Counter
from dataclasses import dataclass, field

from detectors.core.types import Effect, Evidence
from detectors.core.world import JobState
from outrider.signals import KINDS

#: A peer's complaint that came this long before the silence began still belongs to it: a heartbeat may be one second old
#: when the host dies, and clocks of signals and heartbeats differ by their queues.
COMPLAINT_LEAD_SECONDS = 3.0
#: Probers are given this long to answer before their silence counts as "nobody could ask".
PROBE_ANSWER_SECONDS = 3.0


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


@dataclass(slots=True, frozen=True)
class Look:
    """What is known of a silent node at one moment.

    `alive`: a sign of life newer than the silence. `answers`: prober -> what it heard. `hardware`: of another layer or device,
    that the node is gone. `jobs`: those with a slot there, which hang after `hung_after` seconds. `hard`: past the hard limit.
    """

    case: Case
    now: float
    alive: Evidence | None
    answers: dict[str, str]
    complaints: tuple[Evidence, ...]
    hardware: Evidence | None
    jobs: list[JobState]
    hung_after: float
    hard: bool

    @property
    def names(self) -> str:
        """How a reason begins."""
        return f"{self.case.node} has been silent for {self.now - self.case.since:.1f} s"

    def shown(self) -> tuple[Evidence, ...]:
        """The evidence of peers: what their probes heard, and their complaints."""
        # A frozen host produces a mute answer, never a refusal.
        effects: dict[str, Effect] = {"reply": "veto", "none": "confirm", "refused": "confirm"}
        probes = self.case.probes
        heard = (
            case_evidence(self.case, probes[by][1], "probe", effects.get(answer, "neutral"), f"probe by {by}: {answer}")
            for by, answer in self.answers.items()
        )
        return (*heard, *self.complaints)


def case_evidence(case: Case, t: float, kind: str, effect: Effect, text: str) -> Evidence:
    """Evidence of the layer of `kind` about the silent node."""
    return Evidence(t=t, kind=kind, subject={"node": case.node}, effect=effect, text=text, layer=KINDS[kind])


def climb(look: Look) -> Finding:
    """The rung that a silent node has come to."""
    shown, names, answers = look.shown(), look.names, look.answers
    if look.alive is not None:
        return _alive(look, look.alive, (look.alive, *shown))
    if "reply" in answers.values():
        return _unreachable(names + ", but its agent answers its peers", shown, look.hard)
    count = Counter(answers.values())
    needed = min(2, max(1, len(answers)))
    if count["refused"] >= needed:
        if look.complaints:
            return Finding("node.lost", True, f"{names}; its agent is gone and its peers have lost its ranks",
                           "refused_and_complaints", "restart", shown)  # fmt: skip
        return Finding("agent.lost", True, f"{names}; its kernel answers and its agent is gone", "refused", "page", shown)
    if count["mute"] >= needed:
        return _mute(look, shown)
    return _gone(look, count["none"], shown)


def _alive(look: Look, alive: Evidence, shown: tuple[Evidence, ...]) -> Finding:
    names, words = look.names, set(look.answers.values())
    if words == {"refused"}:
        return Finding("agent.lost", True, f"{names}; its agent is gone, its ranks live", "refused", "page", shown)
    if words == {"mute"} and look.hard:
        return Finding("agent.lost", True, f"{names}; its agent is stuck, its job steps", "mute_job_steps", "page", shown)
    return _unreachable(f"{names}, yet {alive.text}", shown, look.hard)


def _unreachable(reason: str, shown: tuple[Evidence, ...], hard: bool) -> Finding:
    if hard:
        return Finding("path.broken", True, reason, "alive_unreachable", "page", shown)
    return Finding("node.lost", False, reason, "alive", "watch", shown)


def _mute(look: Look, shown: tuple[Evidence, ...]) -> Finding:
    names, now, jobs, hung_after = look.names, look.now, look.jobs, look.hung_after
    if jobs and now >= look.case.base + hung_after and all(now - state.moved_t >= hung_after * 0.9 for state in jobs):
        still = tuple(
            Evidence(t=now, kind="step", subject={"job": state.name}, effect="confirm", layer="application",
                     text=f"{state.name} stands still since step {state.step}")
            for state in jobs
        )  # fmt: skip
        dumb = case_evidence(look.case, now, "probe", "confirm", "the kernel answers, the processes do not")
        return Finding("node.hung", True, f"{names}; its kernel answers, its processes do not, its job stands still",
                       "mute_job_still", "restart", (dumb, *still, *shown))  # fmt: skip
    if not jobs and look.hard:
        return Finding("agent.lost", True, f"{names}; its agent is stuck and no job runs there", "mute_idle", "page", shown)
    return Finding("node.lost", False, f"{names}; its kernel answers, its processes do not", "mute", "watch", shown)


def _gone(look: Look, none: int, shown: tuple[Evidence, ...]) -> Finding:
    case, now, names = look.case, look.now, look.names
    if look.hardware is not None:
        shown = (*shown, look.hardware)
    unasked = not case.probes and now >= case.opened + PROBE_ANSWER_SECONDS
    accusers = {piece.subject.get("node") for piece in look.complaints}
    if none >= 2 and (look.complaints or look.hardware):
        return Finding("node.lost", True, f"{names}; no peer reaches it, and a second layer agrees", "corroborated",
                       "restart", shown)  # fmt: skip
    if look.hardware is not None or (unasked and len(accusers) >= 2):
        return Finding("node.lost", True, f"{names}; a second layer says that it is gone", "second_layer", "restart", shown)
    if look.hard:
        shown = (*shown, case_evidence(case, now, "heartbeat", "confirm", "silent past the hard limit"))
        return Finding("node.lost", True, f"{names}, longer than the hard limit", "hard_limit", "restart", shown)
    return Finding("node.lost", False, names, "silent", "watch", shown)
