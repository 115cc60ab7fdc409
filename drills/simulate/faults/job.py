"""Faults of storage, data and the application."""

from typing import Any

from drills.simulate.cell import JOB
from drills.simulate.episode import Episode
from drills.simulate.faults.parts import (
    NCCL_TIMEOUT_SECONDS,
    Victim,
    fallout,
    rank_dies,
    rank_of,
    script,
    slow_rank,
    timeouts,
    truth,
)


@script("storage.hang")
def storage_hang(episode: Episode, victim: Victim, t: float) -> None:
    """The shared file system stands still: every node's trial write hangs, and the job in its next save."""
    truth(episode, "storage.hang", t, victim, place={"mount": "/data", "server": "fs1"}, poisoned=True,
           nodes=tuple(episode.cell.members))  # fmt: skip
    start = t + episode.uniform(5, 30)
    episode.tell(start, "phase", job=JOB, value="checkpoint", data={"attempt": episode.job.attempt})
    episode.at(start, episode.job_run.hold, ("storage", ""))
    for node in episode.cell.members:
        for number in range(4):
            data = {"operation": "write", "seconds": 10.0 + 30 * number, "ok": False, "error": "deadline"}
            episode.send(
                t + episode.uniform(8, 12) + 30 * number, node, "storage", mount="/data", server="fs1", data=data, source="storage"
            )
    episode.ends(t + 240)


@script("storage.full")
def storage_full(episode: Episode, victim: Victim, t: float) -> None:
    truth(
        episode,
        "storage.full",
        t,
        victim,
        accept=("job.snapshot_failed",),
        stops=False,
        place={"mount": "/data", "node": victim.node},
    )
    data = {"operation": "write", "seconds": 0.01, "ok": False, "error": "ENOSPC"}
    for number in range(3):
        episode.send(t + 10 * number + episode.uniform(0, 2), victim.node, "storage", mount="/data", data=data, source="storage")


@script("job.rank_exit")
def rank_exit(episode: Episode, victim: Victim, t: float) -> None:
    rank = rank_of(episode, victim)
    truth(episode, "job.rank_exit", t, victim, accept=("job.app_error",), place={"rank": rank, "node": victim.node})
    rank_dies(episode, victim, t, -11 if episode.rng.random() < 0.5 else 1)


@script("job.app_error")
def app_error(episode: Episode, victim: Victim, t: float) -> None:
    """A bug that every rank runs into: all of them end within two seconds, with the same exception."""
    truth(episode, "job.app_error", t, victim, accept=("job.rank_exit",), place={"job": JOB})
    for rank in range(len(episode.cell.fleet.jobs[0].slots)):
        episode.exit(t + episode.uniform(0, 2), rank, 1)


@script("job.oom")
def oom(episode: Episode, victim: Victim, t: float) -> None:
    rank = rank_of(episode, victim)
    truth(episode, "job.oom", t, victim, accept=("job.rank_exit",), place={"rank": rank, "node": victim.node})
    episode.send(t + 0.2, victim.node, "kernel", data={"event": "oom"}, source="kmsg",
                 text="Out of memory: Killed process 4242 (python) total-vm:98765432kB")  # fmt: skip
    episode.exit(t, rank, -9, "oom")
    fallout(episode, rank, t)


@script("job.hang")
def hang(episode: Episode, victim: Victim, t: float) -> None:
    """One rank never enters a collective; nothing but the steps, the flight records and the watchdog tells of it."""
    rank = rank_of(episode, victim)
    accept = ("job.desync", "job.dataloader_stall")
    truth(episode, "job.hang", t, victim, accept=accept, place={"rank": rank, "node": victim.node})
    episode.at(t, episode.job_run.hold, ("app", ""))
    _records(episode, rank, t + episode.uniform(30, 34))
    timeouts(episode, t + NCCL_TIMEOUT_SECONDS)
    episode.ends(t + NCCL_TIMEOUT_SECONDS + 60)


def _records(episode: Episode, missing: int, t: float) -> None:
    """Flight records, asked for on suspicion: in its data-parallel group one rank has not enqueued what the others wait for."""
    job = episode.cell.fleet.jobs[0]
    for rank, (node, _) in enumerate(job.slots):
        mine = missing in next(group for group in job.groups["dp"] if rank in group)
        behind = 1 if rank == missing else 0
        data: dict[str, Any] = {
            "dp": {"enqueued": 500 - behind, "started": 500 - behind, "completed": 499, "op": "ALLREDUCE"},
            "tp": {"enqueued": 9_000 + (1 if not behind else 0), "started": 9_000, "completed": 9_000, "op": "ALLREDUCE"},
        }
        if not mine:
            data["dp"] = {"enqueued": 500, "started": 500, "completed": 500, "op": "ALLREDUCE"}
        episode.send(
            t + episode.uniform(0, 1),
            node,
            "flight_record",
            job=JOB,
            rank=rank,
            data={"attempt": episode.job.attempt, **data},
            source="flight",
        )


@script("job.dataloader_stall")
def dataloader_stall(episode: Episode, victim: Victim, t: float) -> None:
    rank = rank_of(episode, victim)
    truth(episode, "job.dataloader_stall", t, victim, accept=("job.hang",), place={"rank": rank, "node": victim.node})
    episode.at(t, episode.job_run.hold, ("app", ""))
    episode.send(
        t,
        victim.node,
        "phase",
        job=JOB,
        rank=rank,
        value="data",
        data={"attempt": episode.job.attempt, "progress": 17},
        source="sdk",
    )
    timeouts(episode, t + NCCL_TIMEOUT_SECONDS)
    episode.ends(t + NCCL_TIMEOUT_SECONDS + 60)


@script("job.straggler")
def straggler(episode: Episode, victim: Victim, t: float) -> None:
    """One rank computes 1.3 times as long as the others, for good; nothing of the machine says why."""
    rank = rank_of(episode, victim)
    accept = ("gpu.slow", "gpu.thermal")
    truth(episode, "job.straggler", t, victim, accept=accept, stops=False, place={"rank": rank, "node": victim.node})
    episode.at(t, slow_rank, episode, rank, 1.3)


@script("job.loss_nan")
def loss_nan(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "job.loss_nan", t, victim, accept=("job.loss_spike",), stops=False, place={"job": JOB}, poisoned=True)

    def spoil() -> None:
        episode.job_run.step_data = lambda _step: {"loss": float("nan"), "grad_norm": float("nan")}

    episode.at(t, spoil)


@script("job.loss_spike")
def loss_spike(episode: Episode, victim: Victim, t: float) -> None:
    truth(episode, "job.loss_spike", t, victim, accept=("job.loss_nan",), stops=False, place={"job": JOB})

    def spoil() -> None:
        episode.job_run.step_data = lambda step: {"loss": 9.0 - 0.4 * (step % 7), "grad_norm": 55.0 + step % 5}

    episode.at(t, spoil)
