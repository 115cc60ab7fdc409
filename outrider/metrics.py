"""The metrics that Outrider's programs expose: one table, which the exporters, the Prometheus rules and the dashboards share.

Nothing else may name a metric. Standard library only. Names follow the Prometheus conventions: prefix, base unit, `_total` for
counters. Labels have bounded values: no incident id, no rank, no step, no text.
"""

from dataclasses import dataclass
from typing import Final, Literal, cast

from outrider.agent_metrics import AGENT_METRICS

MetricType = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. `room`: whose page it stands on."""

    name: str
    type: MetricType
    help: str
    room: Literal["witness", "deliverer", "agent", "every"]
    labels: tuple[str, ...] = ()
    #: Upper bounds of a histogram's buckets.
    buckets: tuple[float, ...] = ()


#: Seconds, from a fast packet to a slow restart.
SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 35.0, 60.0, 120.0, 300.0, 900.0)

#: The labels that say whom an open incident is about; a label that does not apply is empty.
INCIDENT_LABELS: Final = ("fault", "culprit", "response", "node", "gpu", "nic", "switch", "job")

_ALL: Final[tuple[Metric, ...]] = (
    Metric(name="outrider_build_info", type="gauge", room="every", labels=("version", "component"),
           help="Always 1; says which program of which version answers."),
    Metric(name="outrider_tls_not_before_timestamp_seconds", type="gauge", room="every", labels=("listener",),
           help="When the certificate that new connections see begins to serve: witness, deliverer, agent."),
    Metric(name="outrider_tls_not_after_timestamp_seconds", type="gauge", room="every", labels=("listener",),
           help="When it ends, or one of the authorities that stand in its file, whichever is first."),
    Metric(name="outrider_tls_reload_failures_total", type="counter", room="every", labels=("part",),
           help="Replaced files that do not serve, while those from before stay in use: certificate (and key), authority."),
    # -- the witness ---------------------------------------------------------------------------------------------------
    Metric(name="outrider_incident_open", type="gauge", room="witness", labels=INCIDENT_LABELS,
           help="1 for each incident that is confirmed and not yet resolved; the series goes away when it ends."),
    Metric(name="outrider_job_incident_open", type="gauge", room="witness", labels=INCIDENT_LABELS,
           help="1 for each job that an open incident touches: also those of its nodes, GPUs and switches."),
    Metric(name="outrider_incidents_total", type="counter", room="witness", labels=("fault", "event"),
           help="Changes of incidents: suspected, confirmed, refuted, resolved, false_alarm."),
    Metric(name="outrider_actions_total", type="counter", room="witness", labels=("action", "outcome"),
           help="Actions by the leader: asked, done, failed, timed_out, refused, dry_run."),
    Metric(name="outrider_refusals_total", type="counter", room="witness", labels=("reason",),
           help="Actions that a mode, a limit or a brake held back, by reason code."),
    Metric(name="outrider_votes_total", type="counter", room="witness", labels=("verdict",),
           help="Votes that this witness cast."),
    Metric(name="outrider_signals_total", type="counter", room="witness", labels=("kind",),
           help="Signals that this witness took in."),
    Metric(name="outrider_heartbeats_total", type="counter", room="witness", labels=("result",),
           help="Heartbeats: good, late, replayed, forged."),
    Metric(name="outrider_nodes", type="gauge", room="witness", labels=("state",),
           help="Nodes by state: healthy, suspect, lost, quarantined, maintenance, spare."),
    Metric(name="outrider_spares_free", type="gauge", room="witness", help="Spare nodes that no incident has claimed."),
    Metric(name="outrider_witness_leader", type="gauge", room="witness", help="1 where this witness holds the leader's lease."),
    Metric(name="outrider_witness_lag_seconds", type="gauge", room="witness", help="How late this witness's own clock tick came."),
    Metric(name="outrider_brake", type="gauge", room="witness", labels=("brake",),
           help="1 while a brake holds every action back: mass, blind, paused."),
    Metric(name="outrider_detection_seconds", type="histogram", room="witness", labels=("part",), buckets=SECONDS,
           help="From the fault to its confirmation: heartbeat, timeout, quorum, total."),
    Metric(name="outrider_recovery_seconds", type="histogram", room="witness", labels=("part",), buckets=SECONDS,
           help="From the restart to the first good step: load, rebuild, verify, total."),
    # -- the deliverer -------------------------------------------------------------------------------------------------
    Metric(name="outrider_outbox_rows", type="gauge", room="deliverer", labels=("state",),
           help="Rows of the outbox by state: pending, sent, failed, dead."),
    Metric(name="outrider_deliveries_total", type="counter", room="deliverer", labels=("target", "outcome"),
           help="Attempts to deliver: accepted, retry, refused, gone."),
    Metric(name="outrider_delivery_seconds", type="histogram", room="deliverer", labels=("target",), buckets=SECONDS,
           help="How long one attempt took."),
    Metric(name="outrider_target_breaker_open", type="gauge", room="deliverer", labels=("target",),
           help="1 while a target is left alone after failures, or for good after it said that it is gone."),
    # -- the agent's own health (the collectors' readings are listed by the agent) -----------------------------------------
    Metric(name="outrider_collector_success", type="gauge", room="agent", labels=("collector",),
           help="1 where the collector's last reading went well; absent where the node has nothing for it."),
    Metric(name="outrider_collector_age_seconds", type="gauge", room="agent", labels=("collector",),
           help="Age of the collector's last good reading."),
)  # fmt: skip

#: Every metric by its name.
METRICS: Final[dict[str, Metric]] = {metric.name: metric for metric in _ALL} | {
    name: Metric(name=name, type=cast(MetricType, kind), labels=labels, help=text, room="agent")
    for name, kind, labels, text in AGENT_METRICS
}


def metric(name: str) -> Metric:
    """One entry; a KeyError is a bug of ours: a name that nothing exposes."""
    return METRICS[name]
