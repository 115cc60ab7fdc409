"""What schedulers and launchers say about the end of a job: Slurm, Kubernetes, signals, providers, and a training that is done.

Source: Slurm's slurmstepd, srun and slurmctld messages (20.11 to 24.05), Kubernetes' event reasons and container states,
Kueue's and
Volcano's eviction reasons, and the messages with which common trainers answer a signal or end by themselves.
"""

from typing import Any, Final

from outrider.parsers.train_log_rule import Gates, gate, numbers, rule

#: Reasons with which Slurm cancels, by what they mean for the job.
_CANCEL_KINDS: Final = (
    ("TIME LIMIT", "time_limit"), ("PREEMPT", "preempted"), ("NODE FAIL", "node_failure"), ("NODE NOT RESPONDING", "node_failure"),
    ("OUT OF MEMORY", "oom"), ("MEMORY", "oom"), ("REQUEUE", "requeued"), ("SIGNAL", "cancelled"), ("RESERVATION", "cancelled"),
)  # fmt: skip


def _cancelled(data: dict[str, Any]) -> dict[str, Any]:
    reason = str(data.pop("reason", "") or "").upper()
    data["kind"] = next((kind for text, kind in _CANCEL_KINDS if text in reason), "cancelled")
    return data


def _tasks(data: dict[str, Any]) -> dict[str, Any]:
    """The tasks of an srun line; one single task is a rank when ranks are tasks, which the reader must judge."""
    data["tasks"] = numbers(data["tasks"])
    return data


def _kind(kind: str) -> Any:
    return lambda data: data | {"kind": kind}


_SLURM: Final[Gates] = (
    gate(
        "slurm",
        rule(
            "cancelled",
            " CANCELLED AT ",
            r"\*\*\* (?P<level>JOB|STEP) (?P<job>[\w.+]{1,40}) ON (?P<node>[\w.,\[\]-]{1,200}) CANCELLED AT \S{8,30}"
            r"(?: DUE (?:TO|to) (?P<reason>[A-Za-z ]{2,60}))?",
            fix=_cancelled,
        ),
        rule("stepd_terminated", "STEPD TERMINATED", r"STEP (?P<job>[\w.+]{1,40}) STEPD TERMINATED ON (?P<node>[\w.-]{1,120})"),
        rule("slurm_oom", "oom", r"Detected \d{1,6} oom[_-]kill event.{0,10}in (?:StepId=)?(?P<job>[\w.+]{1,40})"),
        rule(
            "cancelled", "ime limit exhausted", r"ime limit exhausted for (?:JobId=|job )(?P<job>\d{1,12})", fix=_kind("time_limit")
        ),
        rule("cancelled", "preempt", r"[Pp]reempt(?:ed|ing) (?:job )?(?:JobId=)?(?P<job>\d{1,12})", fix=_kind("preempted")),
        rule("node_failure", "not responding", r"[Nn]odes? (?P<node>[\w.\[\],-]{1,120}) not responding"),
        rule("node_failure", "failure of node", r"failure of node (?P<node>[\w.-]{1,120})"),
    ),
    gate(
        "srun: ",
        rule("node_failure", "ode failure", r"[Nn]ode failure(?: on (?P<node>[\w.\[\],-]{1,120}))?"),
        rule("node_failure", "not responding", r"[Nn]odes? (?P<node>[\w.\[\],-]{1,120}) (?:is )?not responding"),
        rule(
            "task_exit",
            ": task",
            r"(?P<node>[\w.-]{1,120}): tasks? (?P<tasks>[\d,\s-]{1,400}): (?:Exited with exit code (?P<exitcode>\d{1,3})|"
            r"(?P<reason>[A-Z][\w ()]{2,60}))",
            fix=_tasks,
        ),
        rule("cancelled", "job allocation", r"Force Terminated (?:job|JobId=)\s?(?P<job>\d{1,12})", fix=_kind("cancelled")),
        rule("user_stop", "interrupt", r"interrupt \(|sending Ctrl-C"),
        rule("launcher_end", "erminating", r"[Tt]erminating (?:StepId|job step)|termination"),
        rule("launcher_end", "Job step aborted"),
    ),
    gate(
        "scancel",
        rule("cancelled", "scancel", r"\bscancel\b(?: (?P<job>\d{1,12}))?", fix=_kind("cancelled")),
    ),
)

_KUBERNETES: Final[Gates] = (
    gate("OOMKilled", rule("pod_oom", "OOMKilled")),
    gate(
        "reempt",
        rule(
            "cancelled",
            "reempt",
            r"\bPreempt(?:ed|ing)\b(?: (?:by|to accommodate|in favor)|\s+pod/|$|:)|PreemptionByScheduler|(?:job|workload|pod|"
            r"jobset)\b.{0,80}\b(?:was |is |being |will be )?preempted|DUE TO PREEMPTION|[Pp]reemption (?:notice|signal)",
            fix=_kind("preempted"),
        ),
    ),
    gate("low on resource", rule("pod_pressure", "low on resource", r"low on resource: (?P<resource>[\w-]{1,40})")),
    gate("evicting pod", rule("cancelled", "evicting pod", fix=_kind("evicted"))),
    gate("TaintManagerEviction", rule("node_failure", "TaintManagerEviction")),
    gate(
        "Evict",
        rule(
            "cancelled",
            "Evict",
            r"EvictionByEvictionAPI|\bEvicted\b.{0,120}(?:[Pp]reempt|maximum execution time|DeactivatedBy|drain)",
            fix=_kind("evicted"),
        ),
    ),
    gate("DeadlineExceeded", rule("cancelled", "DeadlineExceeded", fix=_kind("time_limit"))),
    gate(
        "NotReady",
        rule(
            "node_failure",
            "NotReady",
            r"NodeNotReady(?:.{0,120}?\bnode[/ ](?P<node>[\w.-]{1,120}))?|[Nn]ode[/ ](?P<node2>[\w.-]{1,120}) (?:status is "
            r"now: )?(?:is )?(?:now )?NotReady",
        ),
    ),
    gate("Stopping container", rule("cancelled", "Stopping container", fix=_kind("deleted"))),
    gate("eleting pod", rule("cancelled", "eleting pod", fix=_kind("deleted"))),
    gate(
        " suspended",
        rule("cancelled", "uspended", r"\b(?:Job|JobSet|Workload|workload|job)\b.{0,60}\b[Ss]uspended\b", fix=_kind("cancelled")),
    ),
    gate("exit code 137", rule("killed", "exit code 137")),
    gate("xitCode", rule("pod_exit", "xitCode", r"[Ee]xitCode[\"': ]{1,4}(?P<exitcode>-?\d{1,3})")),
)

_SIGNALS: Final[Gates] = (
    *(
        gate(
            word,
            rule(
                "signal_received",
                word,
                r"(?i:received|caught|got)\s+(?:signal:? )?(?:\d{1,2} ?\(?)?(?P<signal>SIG(?:TERM|INT|"
                r"USR1|USR2|HUP|CONT|XCPU))|(?P<signal2>SIG(?:TERM|INT|USR1|USR2|HUP)) (?:signal )?(?:was )?(?:received|caught)",
                fix=lambda data: {"signal": data.get("signal") or data.get("signal2")},
            ),
        )
        for word in ("SIGTERM", "SIGINT", "SIGUSR", "SIGHUP", "SIGCONT", "SIGXCPU")
    ),
    gate(
        " signal",
        rule(
            "signal_received",
            " signal",
            r"(?i:(?:received|caught|got) (?:termination |shutdown |stop )?signal)(?:[ :]{1,3}(?P<signal>(?:2|10|12|15))\b|"
            r"\s*$|[,.;])",
        ),
    ),
    gate(
        "eclaim",
        rule(
            "reclaim",
            "eclaim",
            r"(?i:spot|instance|node|vm|capacity)\b.{0,80}\breclaim|\breclaim\w{0,4}\b.{0,60}\b(?i:spot|instance|node|vm)",
        ),
    ),
    gate("nterruption", rule("reclaim", "nterruption", r"(?i:spot|instance)\b.{0,40}interruption(?: notice| warning)?")),
    gate(
        "aintenance",
        rule(
            "reclaim",
            "aintenance",
            r"(?i:TERMINATE_ON_HOST_MAINTENANCE|(?:host|scheduled|upcoming) maintenance (?:event|notice|window))",
        ),
    ),
)

_END: Final[Gates] = (
    gate("exiting program", rule("done", "exiting program")),
    gate(
        "raining ",
        rule("done", "after training is done"),
        rule(
            "done",
            "raining ",
            r"\b[Tt]raining (?:is |has |was )?(?:completed?|finished|done|ended)\b(?! (?:step|epoch|iteration|batch))",
        ),
    ),
    gate(
        "eached",
        rule("done", "`Trainer.fit` stopped"),
        rule("done", "eached max", r"[Rr]eached max(?:imum)?[ _]?(?:steps|number of steps|epochs|iterations|tokens|duration)"),
    ),
)

SCHEDULER_GATES: Final[Gates] = _SLURM + _KUBERNETES + _SIGNALS + _END
