"""What a rank's environment says of its whole job: how many ranks there are, in how many groups, after how many restarts. Pure.

Source: torchrun's manual (environment variables: WORLD_SIZE, LOCAL_WORLD_SIZE, GROUP_WORLD_SIZE, TORCHELASTIC_*; PET_* are its own
arguments), Kubernetes' Indexed Jobs (JOB_COMPLETION_INDEX), JobSet's and Kubeflow's documentation (JOBSET_NAME, PET_NNODES).
"""

import re
from collections.abc import Mapping

#: Ranks of one job; more is a broken environment.
WORLD_MAX = 200_000
#: What torchrun calls a job that nobody named (static rendezvous).
_NAMELESS = "none"
_POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")


def number_of(environment: Mapping[str, str], name: str) -> int | None:
    """A whole number of the environment, or None."""
    text = environment.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


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


def world_of(environment: Mapping[str, str]) -> int | None:
    """How many ranks the job has; None where nobody says."""
    world = number_of(environment, "WORLD_SIZE")
    if world is None:
        nodes, each = number_of(environment, "PET_NNODES"), number_of(environment, "PET_NPROC_PER_NODE")
        world = nodes * each if nodes and each else None
    return world if world and 0 < world <= WORLD_MAX else None


def counted_apart(environment: Mapping[str, str]) -> bool:
    """Whether several agents of torchrun run the job: each counts restarts for itself, and they disagree."""
    return (number_of(environment, "GROUP_WORLD_SIZE") or 1) > 1


def pod_uid(cgroup: str) -> str:
    """The uid of the pod that a process of this /proc/PID/cgroup is in; empty if it is in none."""
    match = _POD.search(cgroup)
    return match[1].replace("_", "-") if match else ""
