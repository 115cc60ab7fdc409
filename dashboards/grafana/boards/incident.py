"""Incident: what happened when, layer by layer, and what was done about it."""

from alerts.rules.recording import grown
from dashboards.grafana.boards.parts import open_incidents
from dashboards.grafana.kit import AMBER, BLUE, GREEN, GREY, RED, SITE, Board, Query, Steps, lines, number, states, words
from dashboards.grafana.scope import choice, cluster, job, node, store

_EVENTS = f'outrider_incidents_total{{{SITE},fault=~"$fault"}}'
_SCOPE = f'{SITE},fault=~"$fault",node=~"$node|",job=~"$job|"'


def board() -> Board:
    made = Board(
        uid="outrider-incident",
        title="Outrider / Incident",
        description="Incidents over time: signals, votes, evidence by layer, actions and refusals, how long each part took.",
        variables=(store(), cluster(), choice("fault", "Fault", "label_values(outrider_incidents_total, fault)"), node(), job()),
    )
    made.add(open_incidents("Open incidents", ',fault=~"$fault",node=~"$node|",job=~"$job|"'), 16, 8)
    made.add(
        words(
            "How to read this",
            "One incident stands for one cause, however many signals tell of it. An incident's name is no label: the **Console** "
            "(link above) has each incident's evidence, votes, actions and what a person may decide; `outrider incidents ID` shows "
            "the same.\n\nThe fault's name leads to its **runbook**. Red marks are open incidents, blue ones are actions.",
        ),
        8,
        8,
    )
    _timeline(made)
    _evidence(made)
    _durations(made)
    return made


def _timeline(made: Board) -> None:
    made.row("Timeline")
    made.add(
        states(
            "Open incidents",
            "A line for each subject, from its confirmation to its end.",
            Query(
                expr=f"max by (fault, response, node, gpu, nic, switch, job) (outrider_incident_open{{{_SCOPE}}})",
                legend="{{fault}} {{node}} {{gpu}} {{nic}} {{switch}} {{job}}",
            ),
            {"1": ("open", RED)},
        ),
        24,
        8,
    )
    made.add(
        lines(
            "Incidents: what became of them",
            "Changes in the interval of the picture: suspected, confirmed, refuted, resolved, false alarms.",
            Query(
                expr=f"sum by (event) ({grown(_EVENTS, '$__rate_interval')})",
                legend="{{event}}",
            ),
            points=True,
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Actions",
            "What the leader asked for, and how it ended.",
            Query(
                expr=f"sum by (action, outcome) ({grown(f'outrider_actions_total{{{SITE}}}', '$__rate_interval')})",
                legend="{{action}} {{outcome}}",
            ),
            points=True,
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Held back",
            "Actions that a mode, a limit or a brake refused, by reason.",
            Query(expr=f"sum by (reason) ({grown(f'outrider_refusals_total{{{SITE}}}', '$__rate_interval')})", legend="{{reason}}"),
            points=True,
        ),
        8,
        8,
    )


def _evidence(made: Board) -> None:
    made.row("Signals and votes")
    made.add(
        lines(
            "Signals by kind",
            "What the witnesses took in a second; each witness hears the same, so the largest is shown.",
            Query(
                expr=f"max by (kind) (sum by (instance, kind) (rate(outrider_signals_total{{{SITE}}}[$__rate_interval])))",
                legend="{{kind}}",
            ),
            unit="cps",
        ),
        8,
        9,
    )
    made.add(
        lines(
            "Votes by witness",
            "Votes cast in the interval; a witness that abstains stood still itself.",
            Query(
                expr=f"sum by (witness, verdict) (increase(outrider_votes_total{{{SITE}}}[$__rate_interval]))",
                legend="{{witness}} {{verdict}}",
            ),
            points=True,
        ),
        8,
        9,
    )
    made.add(
        lines(
            "Kernel events",
            "What kernel logs of the chosen nodes told: panics, hung tasks, memory errors.",
            Query(
                expr=f'sum by (node, event) (node_event:outrider_kernel_events:increase5m{{{SITE},node=~"$node"}})',
                legend="{{node}} {{event}}",
            ),
            points=True,
        ),
        8,
        9,
    )


def _durations(made: Board) -> None:
    made.row("How it went in a day")
    counts: tuple[tuple[str, str, str, Steps], ...] = (
        ("confirmed", "Confirmed", "Incidents that a quorum confirmed.", ((None, BLUE),)),
        ("refuted", "Refuted", "Doubts that did not hold: nothing was done.", ((None, GREY),)),
        ("resolved", "Resolved", "Incidents that ended.", ((None, GREEN),)),
        ("false_alarm", "False alarms", "Incidents that a person called a false alarm.", ((None, GREEN), (1, AMBER), (5, RED))),
    )
    for event, title, about, steps in counts:
        expr = f'sum(fault_event:outrider_incidents:increase1d{{{SITE},fault=~"$fault",event="{event}"}}) or vector(0)'
        made.add(number(title, about, expr, steps=steps, decimals=0), 6, 4)
    for name, title, about in (
        ("detection", "Detection", "From the fault to its confirmation: heartbeat, time-out, quorum; 95th percentile over a day."),
        ("recovery", "Recovery", "From the restart to the first good step: load, rebuild, verify; 95th percentile over a day."),
    ):
        expr = f"max by (part) (part:outrider_{name}_seconds:p95_1d{{{SITE}}})"
        made.add(lines(title, about, Query(expr=expr, legend="{{part}}"), unit="s"), 12, 8)
