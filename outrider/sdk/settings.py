"""Where this rank stands: from the environment, with the defaults of a lone process. A value that makes no sense is passed over."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from outrider import launchers
from outrider.sdk.log import warn_once
from outrider.snapshots.layout import job_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The job's name, this rank's slot, the attempt and the fence under which it was started."""

    job: str = "job"
    slot: int = 0
    rank: int = 0
    world: int = 1
    attempt: int = 1
    fence: int = 0
    #: Place on the node, if it is told; the start to which torchrun's own restarts were added, where its agents count apart.
    gpu: int | None = None
    base: int | None = None
    agent: str | None = None
    root: Path | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str] | None = None) -> "Place":
        """Reads `OUTRIDER_JOB SLOT ATTEMPT FENCE AGENT SNAPSHOTS`, and what launchers say (`outrider.launchers`)."""
        table = os.environ if environment is None else environment
        for name in ("RANK", "WORLD_SIZE", "OUTRIDER_ATTEMPT"):
            _number(table, name, 0)
        rank = launchers.rank_of(table)[0] or 0
        job, root = launchers.job_name(table) or "job", table.get("OUTRIDER_SNAPSHOTS")
        try:
            job_folder(".", job)
        except ValueError as error:
            warn_once("job", f"name of the job (OUTRIDER_JOB, else its launcher's): {error}: no snapshots")
            root = None
        if root and not table.get("OUTRIDER_JOB") and job != "job":
            warn_once("name", f"snapshots are kept under {job!r}, the launcher's name of this job, and a start under another name "
                      "does not find them; OUTRIDER_JOB gives the job a name of its own")  # fmt: skip
        start = launchers.start_of(table)
        return cls(
            job=job,
            slot=_number(table, "OUTRIDER_SLOT", rank),
            rank=rank,
            world=launchers.world_of(table) or 1,
            attempt=start + launchers.restarts_of(table),
            fence=_number(table, "OUTRIDER_FENCE", 0),
            gpu=launchers.local_rank_of(table),
            base=start if launchers.counted_apart(table) else None,
            agent=table.get("OUTRIDER_AGENT") or None,
            root=Path(root) if root else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The SDK's times and sizes. Seconds, if the name says nothing else.

    Attributes:
        poll: how often the side thread looks (a command, a stall). 20 ms: a copy then follows its cause by 20 ms at worst.
        stall_steps: no step finished for this many median steps is a stall; below 2 every slow step would be one.
        stall_seconds: and for at least so long. Shorter would copy at each hiccup of the network.
        hold: how long a rank that raised a communication error stays alive waiting for the leader's word. The quorum needs
            seconds; a cluster that says nothing for a minute has no leader.
        grace: how long a rank lives after SIGTERM without a word. Schedulers commonly kill 10 to 30 s after it.
        patience: how long the one that could complete a snapshot waits for named ranks that do not write.
        publish: deadline of a snapshot that the rank writes on its own account.
        reconnect: pause between two attempts to reach the agent.
        own_freeze: a gap between two looks that makes the side thread ask whether its attempt was superseded.
    """

    poll: float = 0.02
    stall_steps: float = 3.0
    stall_seconds: float = 2.0
    hold: float = 60.0
    grace: float = 5.0
    patience: float = 2.0
    publish: float = 10.0
    reconnect: float = 2.0
    own_freeze: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the job wants: seed and reseeding, when periodic snapshots are made, how many are kept, how the state is spread."""

    seed: int = 0
    reseed: bool = True
    every_steps: int | None = None
    every_seconds: float | None = None
    keep: int = 3
    shards: int = 1
    limits: Limits = field(default_factory=Limits)


def why_not_writable(root: Path) -> str:
    """Why no snapshot can be written below `root`; empty if nothing speaks against it. Writes nothing."""
    folder = root
    try:
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if not folder.is_dir():
            return f"{folder} is no folder"
        if os.statvfs(folder).f_flag & os.ST_RDONLY:
            return f"{folder} can only be read"
        return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} may not be written by this user"
    except OSError as error:
        return f"{folder}: {error.strerror}"


def _number(table: Mapping[str, str], name: str, default: int) -> int:
    text = table.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        warn_once(name, f"{name}={text!r} is not a number: taken as {default}")
        return default
