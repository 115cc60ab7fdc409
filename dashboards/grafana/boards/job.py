"""Job: does it step, where does its time go, who is slow, and what would a restart lose."""

from dashboards.grafana.boards.parts import TO_NODE, open_incidents
from dashboards.grafana.kit import AMBER, BLUE, GREEN, RED, SITE, ZERO_IS_WELL, Board, Column, Query, grid, lines, number
from dashboards.grafana.scope import cluster, job, store

_JOB = f'{SITE},job=~"$job"'
_RANKS = f"sum(job:outrider_job_ranks:sum{{{_JOB}}})"
#: Rank time outside of training, in the period of the picture.
_LOST = (
    f'sum by (phase) (sum_over_time(job:outrider_job_ranks:sum{{{_JOB},phase!="train"}}[$__range:$__interval]))'
    " * $__interval_ms / 1000 > 0"
)


def board() -> Board:
    made = Board(
        uid="outrider-job",
        title="Outrider / Job",
        description="Steps, loss, the split of a step's time, stragglers, ranks by node, goodput, and lost time by cause.",
        variables=(store(), cluster(), job(several=False)),
    )
    _now(made)
    _training(made)
    _time(made)
    _ranks(made)
    return made


def _now(made: Board) -> None:
    made.row("Now")
    step = f"min(job:outrider_job_step:min{{{_JOB}}})"
    made.add(number("Step", "Last step that every rank finished.", step, steps=((None, BLUE),)), 4, 4)
    made.add(
        number(
            "Steps in a minute",
            "Zero while the job stands still.",
            f"clamp_min(max(delta(job:outrider_job_step:min{{{_JOB}}}[5m])), 0) / 5",
            steps=((None, RED), (0.01, GREEN)),
            decimals=1,
        ),
        4,
        4,
    )
    made.add(
        number("Attempt", "Which start of the job this is.", f"max(job:outrider_job_attempt:max{{{_JOB}}})", steps=((None, BLUE),)),
        3,
        4,
    )
    made.add(number("Ranks", "Ranks that live.", _RANKS, steps=((None, BLUE),)), 3, 4)
    made.add(
        number(
            "Goodput (ETTR)",
            "Rank time in training over the time that all ranks could have trained, in the period of the picture; "
            "time in which ranks were gone counts as lost.",
            f'sum(sum_over_time(job:outrider_job_ranks:sum{{{_JOB},phase="train"}}[$__range:$__interval]))'
            f" * $__interval_ms / 1000 / (max_over_time({_RANKS}[$__range:$__interval]) * $__range_s)",
            unit="percentunit",
            steps=((None, RED), (0.8, AMBER), (0.95, GREEN)),
            decimals=1,
            graph=False,
        ),
        4,
        4,
    )
    made.add(
        number(
            "Since snapshot",
            "Steps that a restart from the newest snapshot would repeat; a copy at the moment of the fault makes it one at most.",
            f"{step} - max(job:outrider_job_snapshot_step:max{{{_JOB}}})",
            steps=((None, BLUE),),
        ),
        3,
        4,
    )
    made.add(
        number("Open incidents", "About this job.", f"count(outrider_incident_open{{{_JOB}}}) or vector(0)", steps=ZERO_IS_WELL),
        3,
        4,
    )


def _training(made: Board) -> None:
    made.row("Training")
    made.add(
        lines(
            "Loss",
            "Mean over the ranks that tell it.",
            Query(expr=f"job:outrider_job_loss:avg{{{_JOB}}}", legend="{{job}}"),
            minimum=None,
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Steps",
            "It goes back at a restart, and not far.",
            Query(expr=f"job:outrider_job_step:min{{{_JOB}}}", legend="step"),
            Query(expr=f"job:outrider_job_snapshot_step:max{{{_JOB}}}", legend="newest snapshot"),
            minimum=None,
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Tokens in a second",
            "Over all ranks, as the last steps went.",
            Query(expr=f"job:outrider_job_tokens_per_second:sum{{{_JOB}}}", legend="{{job}}"),
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Gradient norm",
            "Median and largest of the nodes: they differ where one node computes something else.",
            Query(expr=f"job:outrider_job_gradient_norm:p50{{{_JOB}}}", legend="median"),
            Query(expr=f"job:outrider_job_gradient_norm:max{{{_JOB}}}", legend="largest"),
        ),
        12,
        8,
    )
    made.add(
        lines(
            "Learning rate",
            "As the trainer tells it.",
            Query(expr=f"job:outrider_job_learning_rate:max{{{_JOB}}}", legend="learning rate"),
        ),
        12,
        8,
    )
    made.add(open_incidents("Incidents of this job", ',job=~"$job"'), 24, 6)


def _time(made: Board) -> None:
    made.row("Where the time goes")
    made.add(
        lines(
            "Step time",
            "The slowest rank, split: data (waiting for the loader), compute, wait (for other ranks).",
            Query(expr=f"max by (part) (job:outrider_job_step_seconds:max{{{_JOB}}})", legend="{{part}}"),
            unit="s",
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Ranks by phase",
            "Ranks in each phase. All but `train` is lost time, by its cause.",
            Query(expr=f"sum by (phase) (job:outrider_job_ranks:sum{{{_JOB}}})", legend="{{phase}}"),
            stacked=True,
        ),
        8,
        8,
    )
    made.add(
        grid(
            "Lost time by cause",
            "Rank time outside of training, in the period of the picture.",
            (_LOST,),
            (Column(name="phase", title="cause"), Column(name="Value #A", title="rank time", unit="s")),
        ),
        8,
        8,
    )


def _ranks(made: Board) -> None:
    made.row("Ranks and stragglers")
    slow = f'max by (node) (outrider_job_step_seconds{{{_JOB},part="compute"}})'
    middle = f'scalar(max(job:outrider_job_step_seconds:p50{{{_JOB},part="compute"}}))'
    made.add(
        grid(
            "Stragglers",
            "Nodes whose own compute takes longest, against the job's median. In lockstep everybody's step is as long as the "
            "slowest one's, so only the compute part tells who it is.",
            (f"topk(15, {slow} / {middle})", f"topk(15, {slow})"),
            (
                Column(name="node", title="node", link=TO_NODE),
                Column(name="Value #A", title="times the median", steps=((None, GREEN), (1.1, AMBER), (1.3, RED))),
                Column(name="Value #B", title="compute", unit="s"),
            ),
        ),
        8,
        9,
    )
    made.add(
        grid(
            "Ranks by node",
            "How many ranks of the job each node has, in which phase.",
            (f"sum by (node, phase) (outrider_job_ranks{{{_JOB}}})",),
            (
                Column(name="node", title="node", link=TO_NODE),
                Column(name="phase", title="phase"),
                Column(name="Value #A", title="ranks"),
            ),
        ),
        8,
        9,
    )
    made.add(
        lines(
            "Spread of the step",
            "Compute part of the step: median and slowest node.",
            Query(expr=f'max(job:outrider_job_step_seconds:p50{{{_JOB},part="compute"}})', legend="median"),
            Query(expr=f'max(job:outrider_job_step_seconds:max{{{_JOB},part="compute"}})', legend="slowest"),
            unit="s",
        ),
        8,
        9,
    )
    made.add(
        lines(
            "Ends of ranks",
            "Processes that ended within five minutes: with status 0, with another, or unknown.",
            Query(expr=f"sum by (outcome) (job:outrider_job_exits:increase5m{{{_JOB}}})", legend="{{outcome}}"),
            points=True,
        ),
        24,
        6,
    )
