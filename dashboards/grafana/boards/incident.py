"""Incident: what happened when, layer by layer, and what was done about it."""

from typing import Final

from alerts.rules.recording import grown
from dashboards.grafana.boards.parts import open_incidents
from dashboards.grafana.kit import AMBER, BLUE, GREEN, GREY, RED, SITE, Board, Chart, Number, Steps, states, words
from dashboards.grafana.scope import choice, cluster, job, node, store

_EVENTS: Final = f'outrider_incidents_total{{{SITE},fault=~"$fault"}}'
_ACTIONS: Final = f"outrider_actions_total{{{SITE}}}"
_REFUSALS: Final = f"outrider_refusals_total{{{SITE}}}"
_SCOPE: Final = f'{SITE},fault=~"$fault",node=~"$node|",job=~"$job|"'
_STEP: Final = "$__rate_interval"
_TIMELINE: Final = (
    Chart("Incidents: what became of them",
          "Changes in the interval of the picture: suspected, confirmed, refuted, resolved, false alarms.",
          {"{{event}}": f"sum by (event) ({grown(_EVENTS, _STEP)})"}, points=True),
    Chart("Actions", "What the leader asked for, and how it ended.",
          {"{{action}} {{outcome}}": f"sum by (action, outcome) ({grown(_ACTIONS, _STEP)})"}, points=True),
    Chart("Held back", "Actions that a mode, a limit or a brake refused, by reason.",
          {"{{reason}}": f"sum by (reason) ({grown(_REFUSALS, _STEP)})"}, points=True),
)  # fmt: skip
_EVIDENCE: Final = (
    Chart("Signals by kind", "What the witnesses took in a second; each witness hears the same, so the largest is shown.",
          {"{{kind}}": f"max by (kind) (sum by (instance, kind) (rate(outrider_signals_total{{{SITE}}}[{_STEP}])))"}, "cps"),
    Chart("Votes by witness", "Votes cast in the interval; a witness that abstains stood still itself.",
          {"{{witness}} {{verdict}}": f"sum by (witness, verdict) (increase(outrider_votes_total{{{SITE}}}[{_STEP}]))"},
          points=True),
    Chart("Kernel events", "What kernel logs of the chosen nodes told: panics, hung tasks, memory errors.",
          {"{{node}} {{event}}": f'sum by (node, event) (node_event:outrider_kernel_events:increase5m{{{SITE},node=~"$node"}})'},
          points=True),
)  # fmt: skip
#: Event, title, what it says, colours.
_COUNTS: Final[tuple[tuple[str, str, str, Steps], ...]] = (
    ("confirmed", "Confirmed", "Incidents that a quorum confirmed.", ((None, BLUE),)),
    ("refuted", "Refuted", "Doubts that did not hold: nothing was done.", ((None, GREY),)),
    ("resolved", "Resolved", "Incidents that ended.", ((None, GREEN),)),
    ("false_alarm", "False alarms", "Incidents that a person called a false alarm.", ((None, GREEN), (1, AMBER), (5, RED))),
)
_DURATIONS: Final = tuple(
    Chart(name.capitalize(), f"{about}; 95th percentile over a day.",
          {"{{part}}": f"max by (part) (part:outrider_{name}_seconds:p95_1d{{{SITE}}})"}, "s")
    for name, about in (
        ("detection", "From the fault to its confirmation: heartbeat, time-out, quorum"),
        ("recovery", "From the restart to the first good step: load, rebuild, verify"),
    )
)  # fmt: skip


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
    made.row("Timeline")
    subjects = f"max by (fault, response, node, gpu, nic, switch, job) (outrider_incident_open{{{_SCOPE}}})"
    legend = "{{fault}} {{node}} {{gpu}} {{nic}} {{switch}} {{job}}"
    about = "A line for each subject, from its confirmation to its end."
    made.add(states("Open incidents", about, legend, subjects, {"1": ("open", RED)}), 24, 8)
    made.charts(8, 8, *_TIMELINE)
    made.row("Signals and votes")
    made.charts(8, 9, *_EVIDENCE)
    made.row("How it went in a day")
    for event, title, said, steps in _COUNTS:
        expr = f'sum(fault_event:outrider_incidents:increase1d{{{SITE},fault=~"$fault",event="{event}"}}) or vector(0)'
        made.numbers(6, Number(title, said, expr, steps, decimals=0))
    made.charts(12, 8, *_DURATIONS)
    return made
