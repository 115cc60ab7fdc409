"""Which processes are ranks, by what their starter put into their environment. Pure.

Source of the meaning: proc(5), torchrun's and Slurm's manuals.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from outrider.launchers import counted_apart, job_name, local_rank_of, rank_of, restarts_of, start_of

#: Programs that start ranks and inherit nothing from them.
_STARTERS = frozenset(
    {"bash", "sh", "dash", "zsh", "srun", "slurmstepd", "env", "tini", "dumb-init", "mpirun", "orted", "prterun", "sudo"}
)
_WANTED = frozenset(
    {
        "OUTRIDER_JOB", "OUTRIDER_AGENT", "OUTRIDER_ATTEMPT", "OUTRIDER_SLOT", "RANK", "LOCAL_RANK", "WORLD_SIZE",
        "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID", "SLURM_PROCID", "SLURM_LOCALID",
        "SLURM_NTASKS", "SLURM_RESTART_COUNT", "SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE", "JOB_COMPLETION_INDEX", "HOSTNAME",
        "KUBERNETES_SERVICE_HOST", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PET_NNODES", "PET_NPROC_PER_NODE",
        "JOBSET_NAME", "JOBSET_RESTART_ATTEMPT", "JOB_NAME", "TORCHELASTIC_MAX_RESTARTS", "SLURM_STEP_NUM_TASKS",
    }
)  # fmt: skip
#: Ranks and zombies followed on one node.
RANKS_MAX = 128


@dataclass(frozen=True)
class Process:
    """One process: `born` in clock ticks since boot; `environment` only what names a rank."""

    pid: int
    parent: int
    born: int
    command: str
    environment: dict[str, str] = field(default_factory=dict)
    #: How often its environment has been read.
    looks: int = 1


@dataclass(frozen=True)
class Found:
    """A process that is a rank. `gpu`: its local rank. `base`: the job's start, where `attempt` has this node's own restarts on top
    of it (several agents of torchrun count each for itself); None: `attempt` is the job's."""

    job: str
    rank: int
    pid: int
    born: int
    attempt: int = 1
    gpu: int | None = None
    told_by: str = ""
    base: int | None = None
    pod: str = ""
    oom_file: str = ""
    oom_kills: int = 0


def parse_stat(text: str) -> tuple[str, str, int, int] | None:
    """(command, state letter, parent, born) from /proc/PID/stat; the command may hold blanks and brackets."""
    try:
        head, tail = text[: text.rindex(")")], text[text.rindex(")") + 2 :].split()
        return head.partition("(")[2], tail[0], int(tail[1]), int(tail[19])
    except (ValueError, IndexError):
        return None


def parse_environment(text: str) -> dict[str, str]:
    """What names a rank, from /proc/PID/environ."""
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value[:4096] for name, _, value in pairs if name in _WANTED}


def name_rank(process: Process) -> Found | None:
    """The rank that a process says it is, or None."""
    env = process.environment
    job, (rank, told_by) = job_name(env), rank_of(env)
    if rank is None or not job:
        return None
    start, restarts = start_of(env), restarts_of(env)
    base = start if counted_apart(env) else None
    return Found(job, rank, process.pid, process.born, start + restarts, local_rank_of(env), told_by, base)


def belongs_here(process: Process, node: str) -> bool:
    """Whether a process is this node's: where several nodes are emulated on one machine, its agent's socket says whose it is."""
    socket = process.environment.get("OUTRIDER_AGENT", "")
    return not socket or Path(socket).parent.name == node


def choose_ranks(processes: Iterable[Process]) -> list[Found]:
    """One process a rank: the topmost with that name that is no starter. Data loaders inherit the name; they are below."""
    by_pid = {process.pid: process for process in processes}
    named = {pid: found for pid, process in by_pid.items() if (found := name_rank(process)) and process.command not in _STARTERS}
    by_torchrun = {one.job for one in named.values() if one.told_by == "torchrun"}
    # torchrun itself carries Slurm's or the pod's name, its workers one of their own: theirs is the surer one.
    named = {pid: one for pid, one in named.items() if one.told_by not in ("slurm", "kubernetes") or one.job not in by_torchrun}
    chosen = []
    for pid, found in named.items():
        above, same = by_pid[pid].parent, False
        while above in by_pid and not same:
            other = named.get(above)
            same = other is not None and (other.job, other.rank) == (found.job, found.rank)
            above = by_pid[above].parent
        if not same:
            chosen.append(found)
    return sorted(chosen, key=lambda one: (one.job, one.rank, one.pid))[:RANKS_MAX]
