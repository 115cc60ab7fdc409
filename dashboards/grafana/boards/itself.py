"""Outrider itself: who watches the watchers."""

from typing import Final

from dashboards.grafana.boards.parts import NODE
from dashboards.grafana.kit import AMBER, BLUE, GREEN, RED, SITE, ZERO_IS_WELL, Board, Chart, Column, Number, grid, states
from dashboards.grafana.scope import cluster, store
from outrider.tls import LAST_SECONDS, SOON_SECONDS

_STEP: Final = "$__rate_interval"
_NUMBERS: Final = (
    Number("Witnesses", "Witnesses that answer Prometheus.",
           f'count(outrider_build_info{{{SITE},component="witness"}}) or vector(0)',
           ((None, RED), (2, AMBER), (3, GREEN))),
    Number("Leaders", "One a cluster is right: none decides nothing, two for long is a fault.",
           f"sum(outrider_witness_leader{{{SITE}}})", ((None, RED), (1, GREEN), (2, AMBER))),
    Number("Agents that answer", "Agents that Prometheus can read.", f"sum(rack:up:sum{{{SITE}}})"),
    Number("Dead letters", "Messages that were given up; `outrider outbox --state dead` lists them.",
           f'max(outrider_outbox_rows{{{SITE},state="dead"}})', ZERO_IS_WELL),
    Number("Targets left alone", "Receivers that took nothing for a while.",
           f"sum(max by (target) (outrider_target_breaker_open{{{SITE}}}))", ZERO_IS_WELL),
    Number("Signals lost", "In an hour, at agents: memory and disk were full.",
           f"sum(site:outrider_agent_signals_dropped:increase1h{{{SITE}}})", ZERO_IS_WELL),
)  # fmt: skip
_WITNESSES: Final = (
    Chart("Lag", "How late each witness's own clock tick came; above half a second it abstains.",
          {"{{witness}}": f"outrider_witness_lag_seconds{{{SITE}}}"}, "s", ((None, "transparent"), (0.5, RED))),
    Chart("Heartbeats", "Taken in a second by each witness; forged or replayed ones are a wrong key or an attack.",
          {"{{witness}} {{result}}": f"sum by (witness, result) (rate(outrider_heartbeats_total{{{SITE}}}[{_STEP}]))"}, "cps"),
    Chart("Signals", "Taken in a second by each witness.",
          {"{{witness}}": f"sum by (witness) (rate(outrider_signals_total{{{SITE}}}[{_STEP}]))"}, "cps"),
    Chart("Actions in a day", "What was asked for and how it ended; what failed or timed out is for a person.",
          {"{{action}} {{outcome}}": f"sum by (action, outcome) (action_outcome:outrider_actions:increase1d{{{SITE}}})"}),
)  # fmt: skip
_DELIVERY: Final = (
    Chart("Outbox", "Messages that wait, were sent and await their effect, failed, or were given up.",
          {"{{state}}": f"max by (state) (outrider_outbox_rows{{{SITE}}})"}),
    Chart("Attempts", "By target and outcome.",
          {"{{target}} {{outcome}}": f"sum by (target, outcome) (rate(outrider_deliveries_total{{{SITE}}}[{_STEP}]))"}, "cps"),
    Chart("How long a delivery takes", "99th percentile by target over five minutes.",
          {"{{target}}": f"max by (target) (target:outrider_delivery_seconds:p99_5m{{{SITE}}})"}, "s"),
)  # fmt: skip
_AGENTS: Final = (
    Chart("Failures inside agents", "Callbacks that raised, collectors that failed, children that had to be replaced.",
          {"callbacks": f"sum(site:outrider_agent_failures:rate5m{{{SITE}}})",
           "collectors": f"sum(site:outrider_collector_errors:rate5m{{{SITE}}})",
           "children replaced": f"sum(site:outrider_agent_child_restarts:rate5m{{{SITE}}})"}, "cps"),
    Chart("Slowest readings", "How long the last reading took, by collector, the slowest node.",
          {"{{collector}}": f"max by (collector) (collector:outrider_collector_duration_seconds:max{{{SITE}}})"}, "s"),
)  # fmt: skip
#: Title, what it says, expression, columns.
_TABLES: Final = (
    ("Versions", "Programs by version; a fleet in the middle of an upgrade has two.",
     f"count by (component, version) (outrider_build_info{{{SITE}}})",
     (Column("component", "component"), Column("version", "version"), Column("Value #A", "programs"))),
    ("Agents that are late", "Agents whose loop runs behind, the worst ten.", f"topk(10, outrider_agent_lag_seconds{{{SITE}}})",
     (NODE, Column("Value #A", "lag", "s", steps=((None, GREEN), (0.5, RED))))),
    ("Agents cut off from a witness", "Agents whose last exchange with the witness failed, by witness.",
     f"count by (witness) (outrider_agent_witness_up{{{SITE}}} == 0)",
     (Column("witness", "witness"), Column("Value #A", "agents", steps=ZERO_IS_WELL))),
)  # fmt: skip
_CERTIFICATES: Final = "Listeners that speak TLS, the ten whose certificate ends first; none speaks it where this is empty."
_ENDS: Final = f"bottomk(10, outrider_tls_not_after_timestamp_seconds{{{SITE}}} - time())"
_LISTENERS: Final = (
    Column("listener", "listener"),
    Column("instance", "address"),
    Column("Value #A", "ends in", "s", steps=((None, RED), (LAST_SECONDS, AMBER), (SOON_SECONDS, GREEN))),
)


def board() -> Board:
    made = Board(
        uid="outrider-itself",
        title="Outrider / Outrider itself",
        description="Witnesses, leader, brakes, deliveries, and the agents' own health.",
        variables=(store(), cluster()),
    )
    made.row("Now")
    made.numbers(4, *_NUMBERS)
    made.row("Witnesses")
    leads = {"1": ("leads", GREEN), "0": ("watches", BLUE)}
    made.add(states("Leader", "Who holds the lease.", "{{witness}}", f"outrider_witness_leader{{{SITE}}}", leads), 8, 8)
    held, brakes = {"1": ("held", RED), "0": ("free", GREEN)}, f"max by (brake) (outrider_brake{{{SITE}}})"
    made.add(states("Brakes", "What holds every action back.", "{{brake}}", brakes, held), 8, 8)
    made.charts(8, 8, *_WITNESSES)
    made.row("Delivery")
    made.charts(8, 8, *_DELIVERY)
    made.row("Agents")
    for title, about, expr, columns in _TABLES:
        made.add(grid(title, about, (expr,), columns), 8, 8)
    made.charts(12, 8, *_AGENTS)
    made.row("Certificates")
    made.add(grid("Certificates", _CERTIFICATES, (_ENDS,), _LISTENERS), 24, 6)
    return made
