"""Whether a job, or only a few of its ranks, waits for data: the others then wait for those."""

from detectors.core.world import JobState

#: At most this part of a job's ranks starves while the others wait for it; where more load, the job is loading.
STARVED_PART = 0.25
#: Ranks finish a step, and tell of what they do next, within this time of each other.
SAME_STEP_SECONDS = 1.0


def loads(state: JobState) -> bool:
    """Whether the job as a whole waits for data: it said so as one, or a good part of its ranks did."""
    return not state.rank_phase or len(_inside(state)) > STARVED_PART * state.size


def starved_in(state: JobState) -> list[int]:
    """Ranks that are still in their data loaders while most have gone on; empty if a good part of the job loads."""
    inside = _inside(state)
    return inside if len(inside) <= STARVED_PART * state.size else []


def _inside(state: JobState) -> list[int]:
    """Ranks that have told of waiting for data since the job's last step."""
    since = state.step_t - SAME_STEP_SECONDS
    return sorted(
        rank for rank, phase in state.rank_phase.items() if phase == "data" and rank >= 0 and state.rank_phase_t[rank] >= since
    )
