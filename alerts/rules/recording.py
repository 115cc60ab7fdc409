"""Recording rules: what the dashboards would otherwise add up over a whole fleet each time somebody looks.

A fleet of 12,500 nodes has some twelve million series of GPUs, ports, lanes of modules and collectors (960 a node). Panels about
the fleet, a rack, a switch or a job read the few hundred series made here (12,500 where they are per node); only panels about one
node read the raw ones.
`site` (the cluster), `rack` and `switch` are labels that `outrider targets` gives every agent. Names follow
level:metric:operation.
"""

from typing import Final

#: Scrape jobs of deploy/prometheus/prometheus.yml.
AGENTS: Final = 'job="outrider-agents"'
_UNCORRECTED: Final = 'outrider_gpu_ecc_errors_total{kind="uncorrected"}'
#: The kernel's names of port counters (InfiniBand, RoCE, Ethernet) that tell of trouble, by what they tell of: regular expressions.
PORT_ERRORS: Final = (
    "symbol_error|link_error_recovery|link_downed|port_rcv_errors|port_rcv_remote_physical_errors|local_link_integrity_errors|"
    "excessive_buffer_overrun_errors|port_xmit_discards|.*rx_(crc_errors|symbol_err|pcs_symbol_err|discards)_phy|.*link_down_events.*|"
    "fec_uncorrectable_blocks"
)
PORT_RETRIES: Final = (
    "local_ack_timeout_err|packet_seq_err|out_of_sequence|rnr_nak_retry_err|implied_nak_seq_err|roce_adp_retrans|roce_slow_restart"
)
PORT_WAITS: Final = (
    "port_xmit_wait|np_cnp_sent|np_cnp_packets_sent|rp_cnp_handled|np_ecn_marked_roce_packets|.*[rt]x_.*pause|.*out_of_buffer"
)


def grown(selector: str, window: str) -> str:
    """How much counters of events grew in `window`. A counter of a process that counts from nothing is born with its first event,
    and `increase` does not see a birth: what was not there a window ago counts whole. Not for counters that hardware keeps."""
    return f"({selector} unless {selector} offset {window} or increase({selector}[{window}]))"


_PORTS: Final = f'counter=~"{PORT_ERRORS}|{PORT_RETRIES}|{PORT_WAITS}"'

#: name, expression. Only metrics of `outrider.metrics`, and `up`. Made at every evaluation: few series, or people wait for them.
RECORDING: Final[tuple[tuple[str, str], ...]] = (
    ("fault:outrider_incident_open:sum",
     "sum by (site, fault) (max without (instance, witness) (outrider_incident_open))"),
    ("node:outrider_incident_open:sum",
     'sum by (site, node) (max without (instance, witness) (outrider_incident_open{node!=""}))'),
    ("switch:outrider_incident_open:sum",
     'sum by (site, switch) (max without (instance, witness) (outrider_incident_open{switch!=""}))'),
    ("fault_event:outrider_incidents:increase1d", f"sum by (site, fault, event) ({grown('outrider_incidents_total', '1d')})"),
    ("action_outcome:outrider_actions:increase1d", f"sum by (site, action, outcome) ({grown('outrider_actions_total', '1d')})"),
    ("target:outrider_delivery_seconds:p99_5m",
     "histogram_quantile(0.99, sum by (site, target, le) (rate(outrider_delivery_seconds_bucket[5m])))"),
    ("part:outrider_detection_seconds:p95_1d",
     f"histogram_quantile(0.95, sum by (site, part, le) ({grown('outrider_detection_seconds_bucket', '1d')}))"),
    ("part:outrider_recovery_seconds:p95_1d",
     f"histogram_quantile(0.95, sum by (site, part, le) ({grown('outrider_recovery_seconds_bucket', '1d')}))"),
    ("rack:up:sum", f"sum by (site, rack) (up{{{AGENTS}}})"),
    ("rack:up:count", f"count by (site, rack) (up{{{AGENTS}}})"),
    ("switch:up:sum", f'sum by (site, switch) (up{{{AGENTS},switch!=""}})'),
    ("switch:up:count", f'count by (site, switch) (up{{{AGENTS},switch!=""}})'),
    ("job:outrider_job_attempt:max", "max by (site, job) (outrider_job_attempt)"),
    ("job:outrider_job_step:min", "min by (site, job) (outrider_job_step)"),
    ("job:outrider_job_ranks:sum", "sum by (site, job, phase) (outrider_job_ranks)"),
    ("job:outrider_job_step_seconds:max", "max by (site, job, part) (outrider_job_step_seconds)"),
    ("job:outrider_job_step_seconds:p50", "quantile by (site, job, part) (0.5, outrider_job_step_seconds)"),
    ("job:outrider_job_loss:avg", "avg by (site, job) (outrider_job_loss)"),
    ("job:outrider_job_tokens_per_second:sum", "sum by (site, job) (outrider_job_tokens_per_second)"),
    ("job:outrider_job_snapshot_step:max", "max by (site, job) (outrider_job_snapshot_step)"),
    ("job:outrider_job_snapshot_seconds:max", "max by (site, job, part) (outrider_job_snapshot_seconds)"),
    ("job:outrider_job_gradient_norm:max", "max by (site, job) (outrider_job_gradient_norm)"),
    ("job:outrider_job_gradient_norm:p50", "quantile by (site, job) (0.5, outrider_job_gradient_norm)"),
    ("job:outrider_job_learning_rate:max", "max by (site, job) (outrider_job_learning_rate)"),
)  # fmt: skip

#: Made once in SLOW_INTERVAL: each reads a series of every GPU, port or collector of the fleet, or a rate of every node.
SLOW_RECORDING: Final[tuple[tuple[str, str], ...]] = (
    ("collector:outrider_collector_success:sum", "sum by (site, collector) (outrider_collector_success)"),
    ("collector:outrider_collector_supported:sum", "sum by (site, collector) (outrider_collector_supported)"),
    ("collector:outrider_collector_duration_seconds:max", "max by (site, collector) (outrider_collector_duration_seconds)"),
    ("site:outrider_collector_errors:rate5m", "sum by (site) (rate(outrider_collector_errors_total[5m]))"),
    ("site:outrider_agent_failures:rate5m", "sum by (site) (rate(outrider_agent_failures_total[5m]))"),
    ("site:outrider_agent_child_restarts:rate5m", "sum by (site) (rate(outrider_agent_child_restarts_total[5m]))"),
    ("site:outrider_agent_signals_dropped:increase1h", "sum by (site) (increase(outrider_agent_signals_dropped_total[1h]))"),
    ("mount:outrider_storage_probe_seconds:max", "max by (site, mount) (outrider_storage_probe_seconds)"),
    ("mount:outrider_storage_probe_failed:count", "count by (site, mount) (outrider_storage_probe_ok == 0)"),
    ("collector:outrider_collector_age_seconds:max", "max by (site, collector) (outrider_collector_age_seconds)"),
    ("node:outrider_gpus_missing:sum", "sum by (site, rack, node) (outrider_gpus_expected - outrider_gpus)"),
    ("site:outrider_gpus_missing:sum", "sum by (site) (node:outrider_gpus_missing:sum)"),
    # Only what happened: a node without such events has no series.
    ("node_event:outrider_kernel_events:increase5m",
     f"sum by (site, node, event) ({grown('outrider_kernel_events_total', '5m')}) > 0"),
    ("node:outrider_gpu_xid_errors:increase1h", f"sum by (site, node, xid) ({grown('outrider_gpu_xid_errors_total', '1h')})"),
    ("node:outrider_gpu_ecc_uncorrected:increase1h", f"sum by (site, node) (increase({_UNCORRECTED}[1h]))"),
    ("node:outrider_gpu_nvlink_errors:increase1h", "sum by (site, node) (increase(outrider_gpu_nvlink_errors_total[1h]))"),
    ("node:outrider_gpu_temperature_celsius:max", "max by (site, node) (outrider_gpu_temperature_celsius)"),
    ("node:outrider_gpu_throttled:sum", "sum by (site, node, reason) (outrider_gpu_throttled)"),
    ("node:outrider_gpu_power_watts:sum", "sum by (site, rack, node) (outrider_gpu_power_watts)"),
    ("node:outrider_gpu_utilization_ratio:avg", "avg by (site, node) (outrider_gpu_utilization_ratio)"),
    ("site:outrider_gpu_power_watts:sum", "sum by (site) (node:outrider_gpu_power_watts:sum)"),
    ("site:outrider_gpu_utilization_ratio:avg", "avg by (site) (node:outrider_gpu_utilization_ratio:avg)"),
    ("switch:outrider_port_up:sum", "sum by (site, switch) (outrider_port_up)"),
    ("switch:outrider_port_up:count", "count by (site, switch) (outrider_port_up)"),
    # Modules that hold up an alarm (not a warning); a node without one has no series.
    ("node:outrider_module_alarms:count",
     'count by (site, switch, node) (count without (flag) (outrider_module_flag{flag=~".+_alarm"} == 1))'),
    ("switch:outrider_module_supported:sum", "sum by (site, switch) (outrider_module_supported)"),
    ("switch:outrider_module_supported:count", "count by (site, switch) (outrider_module_supported)"),
    ("node:outrider_port_carrier_changes:increase1h",
     "sum by (site, node) (increase(outrider_port_carrier_changes_total[1h]))"),
    ("node_counter:outrider_port_events:rate5m",
     f"sum by (site, switch, node, counter) (rate(outrider_port_events_total{{{_PORTS}}}[5m]))"),
    ("switch_counter:outrider_port_events:rate5m", "sum by (site, switch, counter) (node_counter:outrider_port_events:rate5m)"),
    ("job:outrider_job_snapshots:increase1h",
     f"sum by (site, job, state, cause) ({grown('outrider_job_snapshots_total', '1h')})"),
    ("job:outrider_job_exits:increase5m", f"sum by (site, job, outcome) ({grown('outrider_job_exits_total', '5m')})"),
)  # fmt: skip
SLOW_INTERVAL: Final = "1m"
