"""Snapshots: is there one to go back to, how old, how much does it cost, do emergency ones succeed."""

from typing import Final

from dashboards.grafana.boards.parts import JOB
from dashboards.grafana.kit import AMBER, BLUE, GREEN, RED, SITE, ZERO_IS_WELL, Board, Chart, Column, Number, Steps, grid
from dashboards.grafana.scope import cluster, job, store

_JOB: Final = f'{SITE},job=~"$job"'
_HOUR: Final = f"job:outrider_job_snapshots:increase1h{{{_JOB}"
_STEP: Final = f"job:outrider_job_step:min{{{_JOB}}}"
_NEWEST: Final = f"job:outrider_job_snapshot_step:max{{{_JOB}}}"
#: A snapshot may be told of a moment before the step that it holds.
_SINCE: Final = f"clamp_min({_STEP} - {_NEWEST}, 0)"
#: Title, what it says, matchers, colours.
_COUNTS: Final[tuple[tuple[str, str, str, Steps], ...]] = (
    ("Failed in an hour", "What ranks told of snapshots that failed.", 'state="failed"', ZERO_IS_WELL),
    ("Committed in an hour", "What ranks told of snapshots that are complete.", 'state="committed"', ((None, AMBER), (1, GREEN))),
    ("Emergency ones in an hour", "Committed at the moment of a fault.", 'state="committed",cause="emergency"', ((None, BLUE),)),
    ("Ranks restored in an hour", "Ranks that began from a snapshot.", 'state="restored"', ((None, BLUE),)),
)
_AGE: Final = Chart(
    "Steps since the newest snapshot", "A saw: each tooth is an interval. A line that only climbs is a job without snapshots.",
    {"{{job}}": _SINCE},
)  # fmt: skip
_COURSE: Final = (
    Chart("By state and cause", "What ranks told in an hour: begun, staged in memory, committed, failed, restored.",
          {"{{state}} {{cause}}": f"sum by (state, cause) ({_HOUR}}})"}),
    Chart("How long it takes", "The slowest node's latest: copy (training stands still), write (in the background), verify and "
          "load (at a restart).", {"{{job}} {{part}}": f"job:outrider_job_snapshot_seconds:max{{{_JOB}}}"}, "s"),
)  # fmt: skip
_STORAGE: Final = (
    Chart("Storage probes of the nodes", "The slowest probes of shared mounts: a snapshot that hangs begins here.",
          {"{{mount}}": f"topk(10, max by (mount) (mount:outrider_storage_probe_seconds:max{{{SITE}}}))"}, "s",
          ((None, "transparent"), (5, RED))),
    Chart("Mounts that do not answer", "Nodes on which the last probe of the mount failed or did not come back.",
          {"{{mount}}": f"sum by (mount) (mount:outrider_storage_probe_failed:count{{{SITE}}})"}),
)  # fmt: skip


def board() -> Board:
    made = Board(
        uid="outrider-snapshots",
        title="Outrider / Snapshots",
        description="By job: the newest, what a restart would repeat, failures, emergency copies, how long each part takes.",
        variables=(store(), cluster(), job()),
    )
    made.row("Now")
    for title, said, where, steps in _COUNTS:
        made.numbers(6, Number(title, said, f"sum({_HOUR},{where}}}) or vector(0)", steps, decimals=0))
    columns = (JOB, Column("Value #A", "step"), Column("Value #B", "newest snapshot"), Column("Value #C", "steps since"))
    about = "The newest snapshot, and how many steps a restart from it would repeat if no copy could be made at the fault."
    made.add(grid("Jobs", about, (_STEP, _NEWEST, _SINCE), columns), 12, 9)
    made.charts(12, 9, _AGE)
    made.row("How they go")
    made.charts(12, 9, *_COURSE)
    made.charts(12, 8, *_STORAGE)
    return made
