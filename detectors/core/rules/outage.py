"""Has a silent rack taken its job with it? Then the job goes on elsewhere, as it would after the loss of one node.

A rack, switch or feed behind which everything fell silent may be well and only unseen. So three things must come together:
no peer gets any answer from the nodes that the job uses, the job does not step, and either its surviving ranks lost their
transport to two of them at least, or every one of them has been silent past the hard limit and the job past its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from detectors.core.rules.silence import SilenceRule
from detectors.core.types import Evidence
from detectors.core.world import JobState, World

#: Members that the survivors must have lost: one alone could be one node's trouble behind a rack that nobody sees.
ACCUSED_MIN = 2

Stands = Callable[[JobState, float], bool]


@dataclass(frozen=True, slots=True)
class Outage:
    """What a domain took with it: `members` are its nodes that hold slots of jobs, `jobs` those jobs."""

    members: list[str]
    jobs: list[str]
    code: str
    text: str
    evidence: tuple[Evidence, ...]

    def told(self, world: World) -> dict[str, Any]:
        """What the council needs to act: whom to take out, and whose memory is gone."""
        ranks = {job: world.jobs[job].node_ranks for job in self.jobs}
        dead = {job: sorted(rank for node in self.members for rank in ranks[job].get(node, ())) for job in self.jobs}
        return {"members": self.members, "dead_ranks": dead}


def outage_of(nodes: list[str], world: World, silence: SilenceRule, stands: Stands, now: float) -> Outage | None:
    """What the silence of `nodes`, all behind one vertex, took with it; None while that is not known.

    Args:
        nodes: silent nodes.
        stands: whether a job has made no progress for longer than its pace, or its phase, allows.
    """
    members = [node for node in nodes if world.jobs_on(node)]
    cases = [silence.cases.get(node) for node in members]
    known = [case for case in cases if case is not None]
    if not members or len(known) < len(members) or any(case.alive or case.answered for case in known):
        return None
    states = sorted({state.name: state for node in members for state in world.jobs_on(node)}.items())
    accused = [case for case in known if case.gone and silence.newest_complaint(case.node) > _moved(world, case.node)]
    if len(accused) >= ACCUSED_MIN and all(case.unanswered for case in known):
        code, why = "lost_and_accused", f"the survivors lost their transport to {len(accused)} of them"
        layer, kind = "communication", "collective_error"
    elif all(case.gone for case in known) and all(stands(state, now) for _, state in states):
        code, why = "lost_past_limit", "every one is past the hard limit"
        layer, kind = "application", "step"
    else:
        return None
    names = ", ".join(name for name, _ in states)
    text = f"no peer reaches the {len(members)} of them that {names} needs, {names} stands still, and {why}"
    piece = Evidence(t=now, kind=kind, subject={"job": states[0][0]}, effect="confirm", text=text, layer=layer)
    return Outage(members, [name for name, _ in states], code, text, (piece,))


def _moved(world: World, node: str) -> float:
    """When any job of the node last made progress."""
    return max(state.moved_t for state in world.jobs_on(node))
