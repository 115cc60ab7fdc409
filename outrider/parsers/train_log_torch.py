"""What PyTorch's process groups, gloo, the store and torchelastic print.

Source: shapes of PyTorch 2.0 to 2.13 (ProcessGroupNCCL, TraceUtils' desync report, c10d TCPStore, elastic agent and
multiprocessing api), gloo's tcp transport, and NVIDIA Resiliency Extension's rank monitor. Who prints a time-out is an
observer; only what `docs` calls "P" or "S" names a culprit: that judgement is made by the reader of the records, not here.
"""

from typing import Any, Final

from outrider.parsers.train_log_rule import Gates, gate, numbers, rule

#: The process group of a watchdog line: `[PG ID 2 PG GUID 7(tp_1) Rank 5]` (2.5 and later), `[PG 2 (tp_1) Rank 5]`, `[PG 2
#: Rank 5]`.
_GROUP: Final = r"(?:\[PG (?:ID \d{1,6} PG GUID )?(?P<group>[\w.:-]{1,80}) ?(?:\((?P<desc>[^)]{1,80})\))? Rank \d{1,7}\].{0,80}?)?"
_ENQUEUED: Final = (
    _GROUP + r"(?:(?:at NCCL work|at work|work sequence id): (?P<seq>\d{1,18}),? ?(?:PG status: )?)?"
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,18}), last completed (?:NCCL )?work: (?P<completed>-?\d{1,18})"
)


def _ranks(data: dict[str, Any]) -> dict[str, Any] | None:
    """Turns the text of a rank list into numbers; without one the line says nothing."""
    data["ranks"] = numbers(data["ranks"])
    return data if data["ranks"] else None


_WATCHDOG: Final[Gates] = (
    gate(
        "atchdog ca",
        rule(
            "watchdog_timeout",
            "collective operation timeout",
            _GROUP + r"WorkNCCL\((?:SeqNum|OpId)=(?P<seq>\d{1,18}), OpType=(?P<op>\w{1,40})(?:, TensorShape=\[[\d, ]{0,200}\])?"
            r"(?:, NumelIn=(?P<numel_in>\d{1,18}), NumelOut=(?P<numel_out>\d{1,18}))?, Timeout\(ms\)=(?P<timeout_ms>\d{1,12})\)"
            r"(?: ran for (?P<elapsed_ms>\d{1,15}) milliseconds)?",
        ),
    ),
    gate(
        "watchdog got stuck", rule("watchdog_stuck", "watchdog got stuck", r"watchdog got stuck for (?P<seconds>\d{1,9}) seconds")
    ),
    # A CUDA error inside a teardown line is told by the rules for CUDA errors, which are asked first.
    gate("terminated with exception", rule("teardown", "terminated with exception")),
    gate(
        "ast enqueued",
        rule(
            "dump_signal",
            "dump signal",
            _GROUP + r"dump signal .{0,60}?from\s+rank (?P<from_rank>\d{1,7}).{0,200}?[Ll]ast enqueued (?:NCCL )?work: "
            r"(?P<enqueued>-?\d{1,18}), last completed (?:NCCL )?work: (?P<completed>-?\d{1,18})",
        ),
        rule("watchdog_status", "ast enqueued", _ENQUEUED),
    ),
    gate(
        "dump signal",
        rule(
            "dump_signal", "dump signal", r"dump signal .{0,60}?from\s+(?:rank (?P<from_rank>\d{1,7})|this local rank|another rank)"
        ),
    ),
    gate("Heartbeat monitor timed out", rule("monitor_timeout", "Heartbeat monitor timed out")),
    gate(
        "Did not get ",
        rule(
            "section_timeout",
            " heartbeat",
            r"Did not get (?:initial|subsequent) heartbeat(?:\. Waited (?P<seconds>[\d.]{1,12}) seconds)?",
        ),
    ),
    gate(
        "has been open for",
        rule(
            "section_timeout",
            "has been open for",
            r"Section '(?P<section>[\w.-]{1,60})' has been open for (?P<seconds>[\d.]{1,12})",
        ),
    ),
    gate("acquire GIL", rule("gil_hang", "acquire GIL", r"Could not acquire GIL within \d{1,6} ms")),
    gate("timed out in blocking wait", rule("watchdog_blocking_wait", "timed out in blocking wait")),
    gate("avoid data inconsistency", rule("teardown", "taking the entire process down")),
    gate("async exception", rule("teardown", "async exception")),
    gate("was aborted on rank", rule("teardown", "was aborted on rank")),
    gate(
        "retrieving ncclUniqueId",
        rule("init_store_error", "got error", r"setting up NCCL communicators? and retrieving ncclUniqueId.{0,400}got error"),
    ),
)

_DESYNC: Final[Gates] = (
    gate(
        "joined but didn't",
        rule(
            "desync_unfinished",
            "but didn't finish collective",
            r"\[(?P<ranks>[\d, -]{1,2000})\] joined but didn't finish collective #(?P<seq>\d{1,18})",
            fix=_ranks,
        ),
    ),
    gate(
        "never joined any",
        rule("desync_never", "never joined any", r"ranks \[(?P<ranks>[\d, -]{1,2000})\].{0,120}never joined any", fix=_ranks),
    ),
    gate(
        "didn't join collective",
        rule(
            "desync_missing",
            "didn't join collective",
            r"\[(?P<ranks>[\d, -]{1,2000})\] finished collective #(?P<finished>\d{1,18}), but didn't join collective "
            r"#(?P<seq>\d{1,18})",
            fix=_ranks,
        ),
    ),
    gate(
        "Timeout at collective",
        rule(
            "desync_timeout",
            "Timeout at collective",
            r"\[(?P<rank>\d{1,7})\] Timeout at collective: (?P<op>\w{1,40}), #(?P<seq>\d{1,18})",
        ),
    ),
    gate(
        "are the lagging ranks",
        rule("desync_never", "lagging ranks", r"ranks \[(?P<ranks>[\d, -]{1,2000})\] are the lagging ranks", fix=_ranks),
    ),
    gate(
        "ollective",
        rule(
            "collective_mismatch",
            "ismatch",
            r"(?:Detected mismatch between collectives on ranks|collectives? (?:type )?mismatch|mismatched collectives?)"
            r"(?:.{0,200}?Rank (?P<rank>\d{1,7}) is running collective)?",
        ),
    ),
)

_GLOO: Final[Gates] = (
    gate(
        " by peer",
        rule("gloo_closed", "gloo", r"Connection (?P<how>closed|reset) by peer \[?(?P<peer>[\w.:-]{1,60}?)\]?:\d{1,5}"),
        rule("gloo_closed", "gloo", r"Read error \[?(?P<peer>[\w.:-]{1,60}?)\]?:\d{1,5}: Connection (?P<how>reset) by peer"),
        rule("gloo_closed", "Connection closed by peer", r"Connection (?P<how>closed) by peer \[(?P<peer>[\w.:-]{1,60})\]:\d{1,5}"),
        rule("gloo_closed", "Read error", r"Read error \[(?P<peer>[\w.:-]{1,60})\]:\d{1,5}: Connection (?P<how>reset) by peer"),
    ),
    gate(
        "Timed out waiting",
        rule("gloo_timeout", "operation to complete", r"Timed out waiting (?P<ms>\d{1,12})ms for (?P<side>recv|send) operation"),
    ),
    gate("timeout caused pair closure", rule("gloo_secondary", "timeout caused pair closure")),
    gate("connectFullMesh failed", rule("gloo_connect", "connectFullMesh failed")),
    gate(
        "monitoredBarrier",
        rule(
            "barrier_missing", "failed to pass", r"Ranks? (?P<ranks>[\d, -]{1,2000}?) failed to pass monitoredBarrier", fix=_ranks
        ),
        rule("barrier_timeout", "timed out in", r"Rank (?P<rank>\d{1,7}).{0,80}timed out in monitoredBarrier"),
    ),
)

_STORE: Final[Gates] = (
    gate("recvValue failed", rule("store_lost", "recvValue failed")),
    gate("sendBytes failed", rule("store_lost", "sendBytes failed")),
    gate("failed to recv, got", rule("store_lost", "failed to recv, got 0 bytes")),
    gate(
        "client socket has timed out",
        rule(
            "store_unreachable",
            "client socket",
            r"timed out after (?P<ms>\d{1,9})ms while trying to connect to \((?P<peer>[^,)]{1,120}), \d{1,5}\)",
        ),
    ),
    gate("wait timeout after", rule("store_timeout", "keys:", r"wait timeout after \d{1,9}ms, keys: (?P<key>\S{1,200})")),
    gate("Socket Timeout", rule("store_timeout", "Socket Timeout")),
)

_ELASTIC: Final[Gates] = (
    gate(
        "(exitcode: ",
        rule(
            "elastic_exit",
            "failed (exitcode: ",
            r"failed \(exitcode: (?P<exitcode>-?\d{1,4})\) local_rank: (?P<local_rank>\d{1,4}) \(pid: (?P<pid>\d{1,9})\)",
        ),
    ),
    gate(
        "closing signal",
        rule("elastic_closing", "closing signal", r"Sending process (?P<pid>\d{1,9}) closing signal (?P<signal>\w{1,12})"),
    ),
    gate("Unable to shutdown process", rule("elastic_closing", "Unable to shutdown process")),
    gate(
        "did not exit after",
        rule("elastic_stuck", "did not exit after", r"Process (?P<pid>\d{1,9}) did not exit after (?P<signal>\w{1,12}) within"),
    ),
    gate("got signal", rule("signal_received", "got signal", r"Process (?P<agent_pid>\d{1,9}) got signal: (?P<signal>\d{1,3})")),
    gate("death signal", rule("signal_received", "death signal", r"Received (?P<signal>\w{1,20}) death signal")),
    gate("will restart worker group", rule("elastic_restart", "Worker group"), rule("elastic_membership", "Detected")),
    gate("Starting worker group", rule("attempt", "Starting worker group")),
    gate("Root Cause (first observed", rule("elastic_root", "Root Cause (first observed")),
    # The items of the ChildFailedError block, one field a line; the reader joins them.
    gate(
        "exitcode  : ",
        rule("elastic_field", "exitcode  :", r"exitcode  : (?P<exitcode>-?\d{1,4}) \(pid: (?P<pid>\d{1,9})\)"),
    ),
    gate(
        "      : ",
        rule("elastic_field", "host ", r"host      : (?P<node>[\w.-]{1,253})"),
        rule("elastic_field", "time ", r"time      : (?P<time>[\d:_-]{19})"),
        rule("elastic_field", "rank ", r"rank      : (?P<rank>\d{1,7}) \(local_rank: (?P<local_rank>\d{1,4})\)"),
    ),
)

TORCH_GATES: Final[Gates] = _WATCHDOG + _DESYNC + _GLOO + _STORE + _ELASTIC
