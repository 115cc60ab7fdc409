"""Fleet: is the cluster well, where not, and who does not report."""

from typing import Final

from dashboards.grafana.boards.parts import TO_NETWORK, WHOLE_IS_WELL, open_incidents, top_nodes
from dashboards.grafana.kit import AMBER, GREEN, RED, SITE, ZERO_IS_WELL, Board, Column, Query, Steps, bars, grid, lines, number
from dashboards.grafana.scope import cluster, store

#: Title, what it says, expression, colours.
_NUMBERS: Final[tuple[tuple[str, str, str, Steps], ...]] = (
    ("Nodes healthy", "Nodes with no incident and no doubt.", f'sum(max by (site) (outrider_nodes{{{SITE},state="healthy"}}))',
     ((None, GREEN),)),
    ("Nodes suspect", "Doubted by at least one witness, not confirmed.",
     f'sum(max by (site) (outrider_nodes{{{SITE},state="suspect"}}))', ((None, GREEN), (1, AMBER))),
    ("Nodes lost", "With a confirmed incident.", f'sum(max by (site) (outrider_nodes{{{SITE},state="lost"}}))', ZERO_IS_WELL),
    ("Spares free", "Spare nodes that no incident has claimed; none means that the next loss waits for a repair.",
     f"sum(max by (site) (outrider_spares_free{{{SITE}}}))", ((None, RED), (1, GREEN))),
    ("Open incidents", "Confirmed and not yet over.",
     f"sum(fault:outrider_incident_open:sum{{{SITE}}}) or vector(0)", ZERO_IS_WELL),
    ("Brake", "1 while a brake holds every action back (mass failure, blind, paused by a person).",
     f"max(outrider_brake{{{SITE}}})", ZERO_IS_WELL),
    ("GPUs missing", "GPUs that nodes should have and the driver does not show.",
     f"sum(site:outrider_gpus_missing:sum{{{SITE}}})", ZERO_IS_WELL),
)  # fmt: skip
#: Reasons of a low clock that are faults; a software power limit is none.
_HEAT: Final = 'reason=~".*(thermal|brake|hw_slowdown).*"'
#: Title, what it says, expression, heading of the value.
_OFFENDERS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("Nodes by open incidents", "Nodes with the most open incidents.", f"node:outrider_incident_open:sum{{{SITE}}}", "incidents"),
    ("XIDs in an hour", "Nodes whose driver reported the most errors in an hour.",
     f"sum by (node) (node:outrider_gpu_xid_errors:increase1h{{{SITE}}})", "XIDs"),
    ("Uncorrected ECC in an hour", "Nodes with uncorrected memory errors in an hour.",
     f"node:outrider_gpu_ecc_uncorrected:increase1h{{{SITE}}}", "errors"),
    ("Carrier changes in an hour", "Nodes whose ports went down or up the most.",
     f"node:outrider_port_carrier_changes:increase1h{{{SITE}}}", "changes"),
    ("NVLink errors in an hour", "Nodes with the most errors of links between GPUs in an hour.",
     f"node:outrider_gpu_nvlink_errors:increase1h{{{SITE}}}", "errors"),
    ("Throttled GPUs", "Nodes by GPUs whose clock heat or a power brake holds back; a software power limit is no fault.",
     f"sum by (node) (node:outrider_gpu_throttled:sum{{{SITE},{_HEAT}}})", "GPUs"),
)  # fmt: skip


def board() -> Board:
    made = Board(
        uid="outrider-fleet",
        title="Outrider / Fleet",
        description="Health by rack and switch, open incidents, the worst nodes, and how much of the fleet is watched.",
        variables=(store(), cluster()),
    )
    _now(made)
    _places(made)
    _offenders(made)
    _coverage(made)
    return made


def _now(made: Board) -> None:
    made.row("Now")
    for title, about, expr, steps in _NUMBERS:
        made.add(number(title, about, expr, steps=steps), 3, 4)
    report = f"sum(rack:up:sum{{{SITE}}}) / sum(rack:up:count{{{SITE}}})"
    made.add(number("Nodes that report", "Share of agents that answer.", report, unit="percentunit", steps=WHOLE_IS_WELL), 3, 4)
    made.add(open_incidents("Open incidents", ""), 14, 9)
    nodes = f"sum by (state) (max by (site, state) (outrider_nodes{{{SITE}}}))"
    seen = "As the leader of the witnesses sees them."
    made.add(lines("Nodes by state", seen, Query(expr=nodes, legend="{{state}}"), stacked=True), 10, 9)


def _places(made: Board) -> None:
    made.row("By rack and switch")
    made.add(
        bars(
            "Nodes that report, by rack",
            "Racks with the smallest share of agents that answer; a whole rack points to power.",
            Query(expr=f"bottomk(20, rack:up:sum{{{SITE}}} / rack:up:count{{{SITE}}})", legend="{{rack}}"),
            unit="percentunit",
            steps=WHOLE_IS_WELL,
            maximum=1,
        ),
        8,
        9,
    )
    made.add(
        grid(
            "Switches",
            "Leaf switches by the share of nodes below them that answer, their open incidents and ports that are up.",
            (
                f"switch:up:sum{{{SITE}}} / switch:up:count{{{SITE}}}",
                f"switch:outrider_incident_open:sum{{{SITE}}}",
                f"switch:outrider_port_up:sum{{{SITE}}} / switch:outrider_port_up:count{{{SITE}}}",
            ),
            (
                Column(name="switch", title="switch", link=TO_NETWORK),
                Column(name="Value #A", title="nodes that report", unit="percentunit", steps=WHOLE_IS_WELL),
                Column(name="Value #B", title="incidents", steps=ZERO_IS_WELL),
                Column(name="Value #C", title="ports up", unit="percentunit", steps=WHOLE_IS_WELL),
            ),
        ),
        8,
        9,
    )
    made.add(
        lines(
            "Open incidents by fault",
            "Each class of the catalogue that is open.",
            Query(expr=f"sum by (fault) (fault:outrider_incident_open:sum{{{SITE}}})", legend="{{fault}}"),
            stacked=True,
        ),
        8,
        9,
    )


def _offenders(made: Board) -> None:
    made.row("Top offenders")
    for title, about, expr, heading in _OFFENDERS:
        made.add(top_nodes(title, about, expr, heading), 8, 8)
    hottest = f"node:outrider_gpu_temperature_celsius:max{{{SITE}}}"
    heat: Steps = ((None, GREEN), (80, AMBER), (87, RED))
    made.add(top_nodes("Hottest GPUs", "Nodes by their hottest GPU.", hottest, "hottest", "celsius", heat), 8, 8)
    made.add(
        lines(
            "Incidents in a day",
            "Changes of incidents over a day: false alarms belong near zero.",
            Query(expr=f"sum by (event) (fault_event:outrider_incidents:increase1d{{{SITE}}})", legend="{{event}}"),
        ),
        8,
        8,
    )
    made.add(
        lines(
            "GPU utilisation",
            "Mean share of time with a kernel on the GPU; a hung collective also shows 100 %.",
            Query(expr=f"site:outrider_gpu_utilization_ratio:avg{{{SITE}}}", legend="{{site}}"),
            unit="percentunit",
            maximum=1,
        ),
        12,
        8,
    )
    made.add(
        lines(
            "GPU power",
            "Power of all GPUs; it falls before anything else when a job stands still.",
            Query(expr=f"site:outrider_gpu_power_watts:sum{{{SITE}}}", legend="{{site}}"),
            unit="watt",
        ),
        12,
        8,
    )


def _coverage(made: Board) -> None:
    made.row("Coverage")
    made.add(
        grid(
            "Collectors",
            "On how many nodes each collector has its source, on how many it works, and its oldest reading. "
            "What is not read is unknown, not healthy.",
            (
                f"sum by (collector) (collector:outrider_collector_supported:sum{{{SITE}}})",
                f"sum by (collector) (collector:outrider_collector_success:sum{{{SITE}}})",
                f"max by (collector) (collector:outrider_collector_age_seconds:max{{{SITE}}})",
            ),
            (
                Column(name="collector", title="collector"),
                Column(name="Value #A", title="nodes with its source"),
                Column(name="Value #B", title="nodes where it works"),
                Column(name="Value #C", title="oldest reading", unit="s", steps=((None, GREEN), (120, AMBER), (600, RED))),
            ),
        ),
        12,
        10,
    )
    made.add(
        lines(
            "Share of nodes where a collector works",
            "Of the nodes that have its source.",
            Query(
                expr=f"sum by (collector) (collector:outrider_collector_success:sum{{{SITE}}}) / "
                f"sum by (collector) (collector:outrider_collector_supported:sum{{{SITE}}})",
                legend="{{collector}}",
            ),
            unit="percentunit",
            maximum=1,
        ),
        12,
        10,
    )
