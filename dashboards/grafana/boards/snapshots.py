"""Snapshots: is there one to go back to, how old, how much does it cost, do emergency ones succeed."""

from dashboards.grafana.boards.parts import TO_JOB
from dashboards.grafana.kit import AMBER, GREEN, RED, SITE, ZERO_IS_WELL, Board, Column, Query, grid, lines, number
from dashboards.grafana.scope import cluster, job, store

_JOB = f'{SITE},job=~"$job"'
_HOUR = f"job:outrider_job_snapshots:increase1h{{{_JOB}"


def board() -> Board:
    made = Board(
        uid="outrider-snapshots",
        title="Outrider / Snapshots",
        description="By job: the newest, what a restart would repeat, failures, emergency copies, how long each part takes.",
        variables=(store(), cluster(), job()),
    )
    _now(made)
    _course(made)
    return made


def _now(made: Board) -> None:
    made.row("Now")
    failed = f'sum({_HOUR},state="failed"}}) or vector(0)'
    made.add(number("Failed in an hour", "What ranks told of snapshots that failed.", failed, steps=ZERO_IS_WELL, decimals=0), 6, 4)
    committed = f'sum({_HOUR},state="committed"}}) or vector(0)'
    made.add(
        number(
            "Committed in an hour",
            "What ranks told of snapshots that are complete.",
            committed,
            steps=((None, AMBER), (1, GREEN)),
            decimals=0,
        ),
        6,
        4,
    )
    emergency = f'sum({_HOUR},state="committed",cause="emergency"}}) or vector(0)'
    made.add(number("Emergency ones in an hour", "Committed at the moment of a fault.", emergency, decimals=0), 6, 4)
    restored = f'sum({_HOUR},state="restored"}}) or vector(0)'
    made.add(number("Ranks restored in an hour", "Ranks that began from a snapshot.", restored, decimals=0), 6, 4)
    made.add(
        grid(
            "Jobs",
            "The newest snapshot, and how many steps a restart from it would repeat if no copy could be made at the fault.",
            (
                f"job:outrider_job_step:min{{{_JOB}}}",
                f"job:outrider_job_snapshot_step:max{{{_JOB}}}",
                f"job:outrider_job_step:min{{{_JOB}}} - job:outrider_job_snapshot_step:max{{{_JOB}}}",
            ),
            (
                Column(name="job", title="job", link=TO_JOB),
                Column(name="Value #A", title="step"),
                Column(name="Value #B", title="newest snapshot"),
                Column(name="Value #C", title="steps since"),
            ),
        ),
        12,
        9,
    )
    made.add(
        lines(
            "Steps since the newest snapshot",
            "A saw: each tooth is an interval. A line that only climbs is a job without snapshots.",
            Query(expr=f"job:outrider_job_step:min{{{_JOB}}} - job:outrider_job_snapshot_step:max{{{_JOB}}}", legend="{{job}}"),
        ),
        12,
        9,
    )


def _course(made: Board) -> None:
    made.row("How they go")
    made.add(
        lines(
            "By state and cause",
            "What ranks told in an hour: begun, staged in memory, committed, failed, restored.",
            Query(expr=f"sum by (state, cause) ({_HOUR}}})", legend="{{state}} {{cause}}"),
        ),
        12,
        9,
    )
    made.add(
        lines(
            "How long it takes",
            "The slowest node's latest: copy (training stands still), write (in the background), verify and load (at a restart).",
            Query(expr=f"job:outrider_job_snapshot_seconds:max{{{_JOB}}}", legend="{{job}} {{part}}"),
            unit="s",
        ),
        12,
        9,
    )
    made.add(
        lines(
            "Storage probes of the nodes",
            "The slowest probes of shared mounts: a snapshot that hangs begins here.",
            Query(expr=f"topk(10, max by (mount) (mount:outrider_storage_probe_seconds:max{{{SITE}}}))", legend="{{mount}}"),
            unit="s",
            steps=((None, "transparent"), (5, RED)),
        ),
        12,
        8,
    )
    made.add(
        lines(
            "Mounts that do not answer",
            "Nodes on which the last probe of the mount failed or did not come back.",
            Query(expr=f"sum by (mount) (mount:outrider_storage_probe_failed:count{{{SITE}}})", legend="{{mount}}"),
        ),
        12,
        8,
    )
