"""`[plan]`: what is known of a site, for `outrider plan`. Options on the command line come before it."""

import msgspec


class PlanSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each key is the option of the same name. None: not told; 0 seconds: costs nothing."""

    #: Cards in the job, more than 0. Not needed with `mtbf_hours`.
    gpus: float | None = None
    #: Cards in a node, more than 0.
    gpus_per_node: float = 8
    #: Share of cards that fail in a year (0.01 = 1 %). One rate only.
    afr: float | None = None
    #: Failures that stop a job, for 1000 days of a node. One rate only.
    failures_per_1000_node_days: float | None = None
    #: Hours between two failures of the whole job. One rate only.
    mtbf_hours: float | None = None
    #: Failures seen in `observed_days`: the rate as it was counted. One rate only.
    observed_failures: float | None = None
    #: Days in which `observed_failures` were seen.
    observed_days: float | None = None
    #: Seconds for which one save holds the training up. None: from `parameters` and `bandwidth_gbytes`, else 60.
    save_seconds: float | None = None
    #: Seconds of training between two saves. None: the best interval (Young's).
    interval_seconds: float | None = None
    #: Seconds from the decision to the first new step: schedule, start, load, rebuild.
    restart_seconds: float = 300
    #: Seconds from the failure to the decision.
    detect_seconds: float = 0
    #: Days over which survival is asked.
    days: float = 7
    #: Hours for which a failed node is away. None: 0.12 % of the time, as fitted to ByteRobust.
    repair_hours: float | None = None
    #: Chance with which the spares suffice, between 0 and 1.
    spare_target: float = 0.99
    #: Parameters of the model.
    parameters: float | None = None
    #: Bytes of state for each parameter; 12 is Adam in float32 (parameter and two moments).
    bytes_per_parameter: float = 12
    #: Gigabytes (1e9) a second that the storage takes from the whole job.
    bandwidth_gbytes: float | None = None
    #: Seconds of one training step: what is lost if a snapshot is taken at the fault.
    step_seconds: float | None = None
