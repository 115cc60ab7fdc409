"""What all dashboards share: variables, annotations, links, and how a board becomes JSON. Build time only."""

import json
from typing import Any, Final

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model

from alerts.rules.recording import grown
from dashboards.grafana.kit import STORE, Board

#: Every dashboard of ours carries it; the links between them go by it.
TAG: Final = "outrider"
#: Bases of links; `outrider dashboards --config FILE` puts the site's own in their place.
RUNBOOK_URL: Final = "https://outrider.example/runbooks/${__data.fields.fault}"
CONSOLE_URL: Final = "https://outrider.example/console"

_ACTIONS: Final = 'outrider_actions_total{site=~"$cluster",outcome!="dry_run"}'
#: name, expression, colour, title, text: each stretch of time in which the expression has a series becomes one mark.
ANNOTATIONS: Final[tuple[tuple[str, str, str, str, str], ...]] = (
    ("Incidents", 'max without (instance, witness) (outrider_incident_open{site=~"$cluster"}) > 0', "red",
     "{{fault}}", "{{response}}: {{culprit}} {{node}} {{gpu}} {{nic}} {{switch}} {{job}}"),
    ("Actions", f"sum by (action, outcome) ({grown(_ACTIONS, '1m')}) > 0", "blue",
     "{{action}} {{outcome}}", "An action of the leader."),
    ("Brakes", 'max by (brake) (outrider_brake{site=~"$cluster"}) > 0', "orange", "brake: {{brake}}", "Every action is held back."),
)  # fmt: skip


def store() -> Any:
    """Which Prometheus-compatible store."""
    return dashboard.DatasourceVariable("store").label("Store").type("prometheus")


def choice(name: str, label: str, query: str, *, several: bool = True, everything: bool = True) -> Any:
    """A variable whose values come from a label."""
    made = (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(STORE)
        .query(query)
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
        .multi(several)
    )
    return made.include_all(True).all_value(".*").current(_ALL) if everything else made


_ALL: Final = model.VariableOption(selected=True, text="All", value="$__all")


def cluster() -> Any:
    """Which clusters."""
    return choice("cluster", "Cluster", "label_values(outrider_build_info, site)")


def job(*, several: bool = True) -> Any:
    """Which jobs, of the chosen clusters."""
    query = 'label_values(outrider_job_attempt{site=~"$cluster"}, job)'
    return choice("job", "Job", query, several=several, everything=several)


def node(*, several: bool = True, everything: bool = True) -> Any:
    """Which nodes, of the chosen clusters. Args: everything: all at once is a choice; not where raw series are read over time."""
    query = 'label_values(outrider_agent_lag_seconds{site=~"$cluster"}, node)'
    return choice("node", "Node", query, several=several, everything=several and everything)


def render(board: Board, *, since: str = "now-3h", refresh: str = "30s") -> dict[str, Any]:
    """The dashboard as Grafana's JSON."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([TAG])
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time(since, "now")
        .refresh(refresh)
        .timezone("browser")
        .variables(list(board.variables))
        .links([_siblings(), _console()])
        .annotations([_annotation(*entry) for entry in ANNOTATIONS])
    )
    for panel, is_row in board.panels:
        made = made.with_row(panel) if is_row else made.with_panel(panel)
    told: dict[str, Any] = json.loads(json.dumps(made.build(), cls=JSONEncoder))
    for mark, (_, _, _, title, text) in zip(told["annotations"]["list"], ANNOTATIONS, strict=True):
        # The typed builder does not know these fields of Prometheus' own annotations.
        mark.update(titleFormat=title, textFormat=text, step="30s", useValueForTime=False)
    return told


def _annotation(name: str, expr: str, colour: str, *_: str) -> Any:
    return dashboard.AnnotationQuery().name(name).datasource(STORE).enable(True).hide(False).icon_color(colour).expr(expr)


def _siblings() -> Any:
    link = dashboard.DashboardLink("Outrider").type(model.DashboardLinkType.DASHBOARDS).tags([TAG])
    return link.as_dropdown(True).include_vars(True).keep_time(True)


def _console() -> Any:
    link = dashboard.DashboardLink("Console").type(model.DashboardLinkType.LINK).url(CONSOLE_URL).icon("external link")
    return link.tooltip("Evidence, votes, and what a person may decide").target_blank(True)
