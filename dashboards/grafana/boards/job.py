"""Job: does it step, where does its time go, who is slow, and what would a restart lose."""

from typing import Final

from dashboards.grafana.boards.parts import NODE, open_incidents
from dashboards.grafana.kit import AMBER, GREEN, RED, SITE, ZERO_IS_WELL, Board, Chart, Column, Number, grid
from dashboards.grafana.scope import cluster, job, store

_JOB: Final = f'{SITE},job=~"$job"'
_STEP: Final = f"job:outrider_job_step:min{{{_JOB}}}"
_SNAPSHOT: Final = f"job:outrider_job_snapshot_step:max{{{_JOB}}}"
_RANKS: Final = f"sum(job:outrider_job_ranks:sum{{{_JOB}}})"
#: Rank time in and outside of training, in the period of the picture.
_TRAINED: Final = (
    f'sum(sum_over_time(job:outrider_job_ranks:sum{{{_JOB},phase="train"}}[$__range:$__interval])) * $__interval_ms / 1000'
)
_LOST: Final = (
    f'sum by (phase) (sum_over_time(job:outrider_job_ranks:sum{{{_JOB},phase!="train"}}[$__range:$__interval]))'
    " * $__interval_ms / 1000 > 0"
)
_COMPUTE: Final = f'{_JOB},part="compute"'
#: Width and number, side by side.
_NUMBERS: Final = (
    (4, Number("Step", "Last step that every rank finished.", f"min({_STEP})")),
    (4, Number("Steps in a minute", "Zero while the job stands still.", f"clamp_min(max(delta({_STEP}[5m])), 0) / 5",
               ((None, RED), (0.01, GREEN)), decimals=1)),
    (3, Number("Attempt", "Which start of the job this is.", f"max(job:outrider_job_attempt:max{{{_JOB}}})")),
    (3, Number("Ranks", "Ranks that live.", _RANKS)),
    (4, Number("Goodput (ETTR)", "Rank time in training over the time that all ranks could have trained, in the period of the "
               "picture; time in which ranks were gone counts as lost.",
               f"{_TRAINED} / (max_over_time({_RANKS}[$__range:$__interval]) * $__range_s)",
               ((None, RED), (0.8, AMBER), (0.95, GREEN)), "percentunit", 1, graph=False)),
    (3, Number("Since snapshot", "Steps that a restart from the newest snapshot would repeat; a copy at the moment of the fault "
               "makes it one at most.", f"clamp_min(min({_STEP}) - max({_SNAPSHOT}), 0)")),
    (3, Number("Open incidents", "About this job, its nodes, their GPUs and what they hang on.",
               f"count(max without (instance, witness) (outrider_job_incident_open{{{_JOB}}})) or vector(0)", ZERO_IS_WELL)),
)  # fmt: skip
_TRAINING: Final = (
    Chart("Loss", "Mean over the ranks that tell it.", {"{{job}}": f"job:outrider_job_loss:avg{{{_JOB}}}"}, minimum=None),
    Chart("Steps", "It goes back at a restart, and not far.", {"step": _STEP, "newest snapshot": _SNAPSHOT}, minimum=None),
    Chart("Tokens in a second", "Over all ranks, as the last steps went.",
          {"{{job}}": f"job:outrider_job_tokens_per_second:sum{{{_JOB}}}"}),
)  # fmt: skip
_OPTIMIZER: Final = (
    Chart("Gradient norm", "Median and largest of the nodes: they differ where one node computes something else.",
          {"median": f"job:outrider_job_gradient_norm:p50{{{_JOB}}}", "largest": f"job:outrider_job_gradient_norm:max{{{_JOB}}}"}),
    Chart("Learning rate", "As the trainer tells it.", {"learning rate": f"job:outrider_job_learning_rate:max{{{_JOB}}}"}),
)  # fmt: skip
_TIME: Final = (
    Chart("Step time", "The slowest rank, split: data (waiting for the loader), compute, wait (for other ranks).",
          {"{{part}}": f"max by (part) (job:outrider_job_step_seconds:max{{{_JOB}}})"}, "s"),
    Chart("Ranks by phase", "Ranks in each phase. All but `train` is lost time, by its cause.",
          {"{{phase}}": f"sum by (phase) (job:outrider_job_ranks:sum{{{_JOB}}})"}, stacked=True),
)  # fmt: skip
_SPREAD: Final = Chart(
    "Spread of the step", "Compute part of the step: median and slowest node.",
    {"median": f"max(job:outrider_job_step_seconds:p50{{{_COMPUTE}}})",
     "slowest": f"max(job:outrider_job_step_seconds:max{{{_COMPUTE}}})"}, "s",
)  # fmt: skip
_ENDS: Final = Chart(
    "Ends of ranks", "Processes that ended within five minutes: with status 0, with another, or unknown.",
    {"{{outcome}}": f"sum by (outcome) (job:outrider_job_exits:increase5m{{{_JOB}}})"}, points=True,
)  # fmt: skip


def board() -> Board:
    made = Board(
        uid="outrider-job",
        title="Outrider / Job",
        description="Steps, loss, the split of a step's time, stragglers, ranks by node, goodput, and lost time by cause.",
        variables=(store(), cluster(), job(several=False)),
    )
    made.row("Now")
    for width, number in _NUMBERS:
        made.numbers(width, number)
    made.row("Training")
    made.charts(8, 8, *_TRAINING)
    made.charts(12, 8, *_OPTIMIZER)
    made.add(open_incidents("Incidents of this job", ',job=~"$job"', "outrider_job_incident_open"), 24, 6)
    made.row("Where the time goes")
    made.charts(8, 8, *_TIME)
    about, columns = "Rank time outside of training, in the period of the picture.", (Column("phase", "cause"),)
    made.add(grid("Lost time by cause", about, (_LOST,), (*columns, Column("Value #A", "rank time", "s"))), 8, 8)
    _ranks(made)
    return made


def _ranks(made: Board) -> None:
    made.row("Ranks and stragglers")
    slow = f"max by (node) (outrider_job_step_seconds{{{_COMPUTE}}})"
    middle = f"scalar(max(job:outrider_job_step_seconds:p50{{{_COMPUTE}}}))"
    about = (
        "Nodes whose own compute takes longest, against the job's median. In lockstep everybody's step is as long as the "
        "slowest one's, so only the compute part tells who it is: the trainer must report it (`compute_s`)."
    )
    slower = Column("Value #A", "times the median", steps=((None, GREEN), (1.1, AMBER), (1.3, RED)))
    queries = (f"topk(15, {slow} / {middle})", f"topk(15, {slow})")
    made.add(grid("Stragglers", about, queries, (NODE, slower, Column("Value #B", "compute", "s"))), 8, 9)
    ranks, about = (
        f"sum by (node, phase) (outrider_job_ranks{{{_JOB}}})",
        "How many ranks of the job each node has, in which phase.",
    )
    made.add(grid("Ranks by node", about, (ranks,), (NODE, Column("phase", "phase"), Column("Value #A", "ranks"))), 8, 9)
    made.charts(8, 9, _SPREAD)
    made.charts(24, 6, _ENDS)
