"""Outrider itself: who watches the watchers."""

from dashboards.grafana.boards.parts import TO_NODE
from dashboards.grafana.kit import (
    AMBER,
    BLUE,
    GREEN,
    RED,
    SITE,
    ZERO_IS_WELL,
    Board,
    Column,
    Query,
    Steps,
    grid,
    lines,
    number,
    states,
)
from dashboards.grafana.scope import cluster, store


def board() -> Board:
    made = Board(
        uid="outrider-itself",
        title="Outrider / Outrider itself",
        description="Witnesses, leader, brakes, deliveries, and the agents' own health.",
        variables=(store(), cluster()),
    )
    _now(made)
    _witnesses(made)
    _delivery(made)
    _agents(made)
    return made


def _now(made: Board) -> None:
    made.row("Now")
    numbers: tuple[tuple[str, str, str, Steps], ...] = (
        (
            "Witnesses",
            "Witnesses that answer Prometheus.",
            f'count(outrider_build_info{{{SITE},component="witness"}}) or vector(0)',
            ((None, RED), (2, AMBER), (3, GREEN)),
        ),
        (
            "Leaders",
            "One a cluster is right: none decides nothing, two for long is a fault.",
            f"sum(outrider_witness_leader{{{SITE}}})",
            ((None, RED), (1, GREEN), (2, AMBER)),
        ),
        ("Agents that answer", "Agents that Prometheus can read.", f"sum(rack:up:sum{{{SITE}}})", ((None, BLUE),)),
        (
            "Dead letters",
            "Messages that were given up; `outrider outbox --state dead` lists them.",
            f'max(outrider_outbox_rows{{{SITE},state="dead"}})',
            ZERO_IS_WELL,
        ),
        (
            "Targets left alone",
            "Receivers that took nothing for a while.",
            f"sum(max by (target) (outrider_target_breaker_open{{{SITE}}}))",
            ZERO_IS_WELL,
        ),
        (
            "Signals lost",
            "In an hour, at agents: memory and disk were full.",
            f"sum(site:outrider_agent_signals_dropped:increase1h{{{SITE}}})",
            ZERO_IS_WELL,
        ),
    )
    for title, about, expr, steps in numbers:
        made.add(number(title, about, expr, steps=steps), 4, 4)


def _witnesses(made: Board) -> None:
    made.row("Witnesses")
    made.add(
        states(
            "Leader",
            "Who holds the lease.",
            Query(expr=f"outrider_witness_leader{{{SITE}}}", legend="{{witness}}"),
            {"1": ("leads", GREEN), "0": ("watches", BLUE)},
        ),
        8,
        8,
    )
    made.add(
        states(
            "Brakes",
            "What holds every action back.",
            Query(expr=f"max by (brake) (outrider_brake{{{SITE}}})", legend="{{brake}}"),
            {"1": ("held", RED), "0": ("free", GREEN)},
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Lag",
            "How late each witness's own clock tick came; above half a second it abstains.",
            Query(expr=f"outrider_witness_lag_seconds{{{SITE}}}", legend="{{witness}}"),
            unit="s",
            steps=((None, "transparent"), (0.5, RED)),
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Heartbeats",
            "Taken in a second by each witness; forged or replayed ones are a wrong key or an attack.",
            Query(
                expr=f"sum by (witness, result) (rate(outrider_heartbeats_total{{{SITE}}}[$__rate_interval]))",
                legend="{{witness}} {{result}}",
            ),
            unit="cps",
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Signals",
            "Taken in a second by each witness.",
            Query(expr=f"sum by (witness) (rate(outrider_signals_total{{{SITE}}}[$__rate_interval]))", legend="{{witness}}"),
            unit="cps",
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Actions in a day",
            "What was asked for and how it ended; what failed or timed out is for a person.",
            Query(
                expr=f"sum by (action, outcome) (action_outcome:outrider_actions:increase1d{{{SITE}}})",
                legend="{{action}} {{outcome}}",
            ),
        ),
        8,
        8,
    )


def _delivery(made: Board) -> None:
    made.row("Delivery")
    made.add(
        lines(
            "Outbox",
            "Messages that wait, were sent and await their effect, failed, or were given up.",
            Query(expr=f"max by (state) (outrider_outbox_rows{{{SITE}}})", legend="{{state}}"),
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Attempts",
            "By target and outcome.",
            Query(
                expr=f"sum by (target, outcome) (rate(outrider_deliveries_total{{{SITE}}}[$__rate_interval]))",
                legend="{{target}} {{outcome}}",
            ),
            unit="cps",
        ),
        8,
        8,
    )
    made.add(
        lines(
            "How long a delivery takes",
            "99th percentile by target over five minutes.",
            Query(expr=f"max by (target) (target:outrider_delivery_seconds:p99_5m{{{SITE}}})", legend="{{target}}"),
            unit="s",
        ),
        8,
        8,
    )


def _agents(made: Board) -> None:
    made.row("Agents")
    made.add(
        grid(
            "Versions",
            "Programs by version; a fleet in the middle of an upgrade has two.",
            (f"count by (component, version) (outrider_build_info{{{SITE}}})",),
            (
                Column(name="component", title="component"),
                Column(name="version", title="version"),
                Column(name="Value #A", title="programs"),
            ),
        ),
        8,
        8,
    )
    made.add(
        grid(
            "Agents that are late",
            "Agents whose loop runs behind, the worst ten.",
            (f"topk(10, outrider_agent_lag_seconds{{{SITE}}})",),
            (
                Column(name="node", title="node", link=TO_NODE),
                Column(name="Value #A", title="lag", unit="s", steps=((None, GREEN), (0.5, RED))),
            ),
        ),
        8,
        8,
    )
    made.add(
        grid(
            "Agents cut off from a witness",
            "Agents whose last exchange with the witness failed, by witness.",
            (f"count by (witness) (outrider_agent_witness_up{{{SITE}}} == 0)",),
            (Column(name="witness", title="witness"), Column(name="Value #A", title="agents", steps=ZERO_IS_WELL)),
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Failures inside agents",
            "Callbacks that raised, collectors that failed, children that had to be replaced.",
            Query(expr=f"sum(site:outrider_agent_failures:rate5m{{{SITE}}})", legend="callbacks"),
            Query(expr=f"sum(site:outrider_collector_errors:rate5m{{{SITE}}})", legend="collectors"),
            Query(expr=f"sum(site:outrider_agent_child_restarts:rate5m{{{SITE}}})", legend="children replaced"),
            unit="cps",
        ),
        12,
        8,
    )
    made.add(
        lines(
            "Slowest readings",
            "How long the last reading took, by collector, the slowest node.",
            Query(expr=f"max by (collector) (collector:outrider_collector_duration_seconds:max{{{SITE}}})", legend="{{collector}}"),
            unit="s",
        ),
        12,
        8,
    )
