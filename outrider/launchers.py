"""What a rank's environment says of its job, whoever started it: its name, rank, world and start. Pure, standard library only.

The SDK, in the rank, and the node's agent, from outside, ask the same functions: so a job has one name.
Source: torchrun's manual (environment variables: WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_WORLD_SIZE, TORCHELASTIC_*; PET_* are its own
arguments), Slurm's manual of srun (output environment variables), Kubernetes' Indexed Jobs (JOB_COMPLETION_INDEX), JobSet's and
Kubeflow's documentation (JOBSET_NAME, PET_NNODES).
"""

from collections.abc import Mapping

#: Ranks of one job; more is a broken environment.
WORLD_MAX = 200_000
#: What torchrun calls a job that nobody named (static rendezvous).
_NAMELESS = "none"


def number_of(environment: Mapping[str, str], name: str) -> int | None:
    """A whole number of the environment, or None."""
    text = environment.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def job_name(environment: Mapping[str, str]) -> str:
    """`OUTRIDER_JOB` if it is set, else the name of Slurm, Kubernetes or torchrun, in this order; empty: nobody named the job."""
    if told := environment.get("OUTRIDER_JOB"):
        return told
    if environment.get("SLURM_JOB_ID"):
        return f"slurm-{environment['SLURM_JOB_ID']}"
    return kubernetes_name(environment) if _in_pod(environment) else torchrun_name(environment)


def torchrun_name(environment: Mapping[str, str]) -> str:
    """The job's name under torchrun: its run id; where there is none, the place where its ranks meet, the same on every node."""
    run = environment.get("TORCHELASTIC_RUN_ID", "")
    if run and run != _NAMELESS:
        return run
    address, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    return f"torchrun-{address}-{port}" if run and address and port else ""


def kubernetes_name(environment: Mapping[str, str]) -> str:
    """The job's name in Kubernetes: what it is told to be, else the pod's name without its index and its random end."""
    told = environment.get("JOBSET_NAME") or environment.get("JOB_NAME")
    return told or environment.get("HOSTNAME", "").rpartition("-")[0].rpartition("-")[0]


def rank_of(environment: Mapping[str, str]) -> tuple[int | None, str]:
    """The rank, and who gave it: `torchrun`, `slurm`, `kubernetes`, or `outrider` for one whose starter only named the job."""
    if "RANK" in environment:
        plain = "OUTRIDER_JOB" in environment and "TORCHELASTIC_RUN_ID" not in environment
        return number_of(environment, "RANK"), "outrider" if plain else "torchrun"
    if environment.get("SLURM_JOB_ID"):
        return number_of(environment, "SLURM_PROCID"), "slurm"
    return (number_of(environment, "JOB_COMPLETION_INDEX"), "kubernetes") if _in_pod(environment) else (None, "")


def local_rank_of(environment: Mapping[str, str]) -> int | None:
    """The rank's place on its node; None where nobody says."""
    return number_of(environment, "LOCAL_RANK" if "LOCAL_RANK" in environment else "SLURM_LOCALID")


def world_of(environment: Mapping[str, str]) -> int | None:
    """How many ranks the job has; None where nobody says."""
    world = number_of(environment, "WORLD_SIZE")
    if world is None:
        nodes, each = number_of(environment, "PET_NNODES"), number_of(environment, "PET_NPROC_PER_NODE")
        world = nodes * each if nodes and each else number_of(environment, "SLURM_STEP_NUM_TASKS")
    return world if world and 0 < world <= WORLD_MAX else None


def start_of(environment: Mapping[str, str]) -> int:
    """Which start of the job this is, from 1: as Outrider's launchers count, else one more than the restarts of Slurm or JobSet."""
    told = number_of(environment, "OUTRIDER_ATTEMPT")
    if told is not None:
        return told
    name = "SLURM_RESTART_COUNT" if environment.get("SLURM_JOB_ID") else "JOBSET_RESTART_ATTEMPT"
    return 1 + (number_of(environment, name) or 0)


def restarts_of(environment: Mapping[str, str]) -> int:
    """How often torchrun has started the ranks anew within this start."""
    return number_of(environment, "TORCHELASTIC_RESTART_COUNT") or 0


def counted_apart(environment: Mapping[str, str]) -> bool:
    """Whether several agents of torchrun restart the job's ranks: each counts for itself, and they disagree."""
    several = (number_of(environment, "GROUP_WORLD_SIZE") or 1) > 1
    return several and number_of(environment, "TORCHELASTIC_MAX_RESTARTS") != 0


def _in_pod(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("KUBERNETES_SERVICE_HOST")) and "JOB_COMPLETION_INDEX" in environment
