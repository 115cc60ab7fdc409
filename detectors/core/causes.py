"""Which incident explains which: the table of causes and consequences.

An incident explains another if it is deeper (a machine's part before the machine's silence, a machine before its job's
ranks), touches the same node or job, and is near in time. Of two equals the first one explains the second.
"""

from detectors.core.incident import Incident, State
from outrider.catalogue import RESPONSES

#: Depth of a fault: the larger explains the smaller in the same place. What is not here is DEPTH_OTHER.
DEPTHS: dict[str, int] = {
    "switch.down": 9,
    "domain.lost": 9,
    "node.panic": 8,
    "node.reboot": 8,
    "gpu.fallen_off_bus": 7,
    "gpu.ecc_uncontained": 7,
    "gpu.ecc_contained": 7,
    "gpu.gsp_hang": 7,
    "gpu.driver_hang": 7,
    "gpu.nvlink": 7,
    "gpu.other": 5,
    "gpu.missing": 6,
    "storage.hang": 7,
    "node.memory": 6,
    "node.lost": 6,
    "node.hung": 6,
    "nic.down": 7,
    "job.oom": 5,
    "job.dataloader_stall": 5,
    "job.desync": 5,
    "gpu.thermal": 6,
    "gpu.sdc": 6,
    "gpu.row_remap_failed": 6,
    "gpu.slow": 5,
    "gpu.row_remap_pending": 4,
    "link.errors": 4,
    "nic.degraded": 4,
    "link.flapping": 4,
    "job.rank_exit": 3,
    "job.app_error": 3,
    "job.hang": 2,
    "job.straggler": 1,
    "node.unstable": 2,
    "agent.lost": 1,
    "path.broken": 1,
}
DEPTH_OTHER = 0
#: From this depth on a fault can stop a job, whatever is done about it.
STOPS_JOB = 5
#: Consequences of a lost job: while a job is being recovered from a cause they open nothing of their own.
OF_THE_JOB = frozenset({"job.rank_exit", "job.app_error", "job.hang", "job.straggler", "job.desync", "job.dataloader_stall"})
#: Causes of many things at once, and what they explain.
OF_MANY = frozenset({"switch.down", "domain.lost", "path.broken", "monitor.blind"})
OF_SILENCE = frozenset({"node.lost", "node.hung", "agent.lost", "path.broken"})
OF_STORAGE = frozenset({"storage.full", "storage.errors", "storage.hang"})
OF_PORTS = frozenset({"nic.down", "link.flapping", "link.errors", "nic.degraded"})
#: What one more silence of an unstable node can look like: nobody is told of each.
OF_SHORT_SILENCE = frozenset({"agent.lost", "path.broken"})
#: What makes a machine come and go.
SHAKES = frozenset({"link.flapping", "node.reboot", "node.panic"})
#: What makes a machine silent; what takes it with all its parts.
SILENCES = frozenset(
    {"node.panic", "node.reboot", "node.lost", "node.hung", "nic.down", "gpu.fallen_off_bus", "gpu.driver_hang", "storage.hang"}
)
#: What can take its machine along when it is grave enough to cost the job its attempt.
CRASHES = frozenset({"gpu.gsp_hang", "gpu.ecc_uncontained", "gpu.nvlink"})
LOSE_THE_HOST = frozenset({"node.panic", "node.reboot", "node.lost", "node.hung"})
#: What is slow, and what makes it so.
SLOWNESS = frozenset({"job.straggler"})
SLOW = frozenset({"gpu.thermal", "gpu.slow", "gpu.ecc_contained", "gpu.nvlink", "storage.hang"})
#: A cause is told at most this long after its consequence: kernel logs and exporters are read with delay.
TOLD_LATE_SECONDS = 90.0


def explains(cause: Incident, effect: Incident) -> bool:
    """Whether `effect` is a consequence of `cause`, or the same thing seen another way."""
    same_node = bool(set(cause.nodes) & set(effect.nodes))
    shared = {job for job, attempt in effect.jobs.items() if cause.jobs.get(job, -1) == attempt}
    deep, shallow = DEPTHS.get(cause.fault, DEPTH_OTHER), DEPTHS.get(effect.fault, DEPTH_OTHER)
    near = abs(effect.opened_t - cause.opened_t) <= TOLD_LATE_SECONDS
    # A job that has lived with a fault since then has another reason to stop now; and who only tells a person of a fault does not
    # bring the job back: an end of it that asks for a restart stands by itself. (Below a dark switch it would only end again.)
    enough = cause.fault in OF_MANY or _rank(cause) >= _rank(effect)
    stops_job = cause.response == "restart" or (deep >= STOPS_JOB and near and enough)
    if effect.fault == "link.errors" and "job" in effect.subject and same_node and shared and cause.response == "restart":
        return deep > shallow  # its peers lost a machine whose own fault is known
    if effect.fault in OF_THE_JOB and shared and stops_job:
        return deep > shallow or (deep == shallow and cause.opened_t <= effect.opened_t)
    if cause.fault == "monitor.blind" and effect.fault == "job.hang":
        return "fleet" in cause.subject  # its steps come by the same way as the heartbeats that nobody hears
    if effect.fault == "job.snapshot_failed" and cause.fault in OF_STORAGE:
        # The storage stays as it is until somebody mends it: a snapshot that fails much later still fails for it.
        return bool(shared) and cause.opened_t <= effect.opened_t + TOLD_LATE_SECONDS
    if cause.fault in OF_MANY and "node" not in cause.subject:
        # What hangs below a dark switch or a silent rack is its consequence; so is the same switch told of in another way.
        same_switch = cause.subject.get("switch") is not None and cause.subject.get("switch") == effect.subject.get("switch")
        silent = effect.fault in OF_SILENCE and same_node
        dark = (
            effect.fault in OF_PORTS
            and same_node
            and cause.fault == "switch.down"
            and effect.extra.get("leaf") == cause.subject["switch"]
        )
        return silent or dark or (same_switch and (deep > shallow or cause.opened_t <= effect.opened_t))
    if cause.fault == "node.unstable" and effect.fault in OF_SHORT_SILENCE:
        return same_node  # one more of the silences that it has been told of; a node that is really lost is never explained so
    on_node = same_node and near and "node" in cause.subject and "node" in effect.subject
    return on_node and _on_one_node(cause, effect, deep, shallow)


def _on_one_node(cause: Incident, effect: Incident, deep: int, shallow: int) -> bool:
    """Whether one trouble of a machine explains another of the same machine, told within a short time."""
    earlier = cause.opened_t <= effect.opened_t
    if effect.fault == "node.unstable":
        return cause.fault in SHAKES
    if effect.fault in OF_SILENCE:
        crashes = cause.fault in CRASHES and cause.response == "restart"
        return deep > shallow and (cause.fault in SILENCES or crashes)
    if effect.fault.startswith("gpu."):
        if cause.fault.startswith("gpu."):
            # Several cards of one node at once have one cause; what asks for less never hides what asks for more.
            more, less = _rank(cause), _rank(effect)
            return (deep > shallow and more >= less) or (deep == shallow and (more > less or (more == less and earlier)))
        # What was no more than suspected of a card when its machine was lost asks for nothing more.
        return cause.fault in LOSE_THE_HOST and (earlier or effect.state is State.SUSPECTED)
    if effect.fault in OF_PORTS or effect.fault == "node.memory":
        return cause.fault in LOSE_THE_HOST
    return effect.fault in SLOWNESS and cause.fault in SLOW and deep > shallow


def _rank(incident: Incident) -> int:
    return RESPONSES.index(incident.response)
