"""Fleet: is the cluster well, where not, and who does not report."""

from typing import Final

from dashboards.grafana.boards.parts import SOME_ARE_WELL, SWITCH, WHOLE_IS_WELL, open_incidents, top_nodes
from dashboards.grafana.kit import AMBER, GREEN, RED, SITE, ZERO_IS_WELL, Board, Chart, Column, Number, Steps, bars, grid
from dashboards.grafana.scope import cluster, store


def _nodes(state: str) -> str:
    return f'sum(max by (site) (outrider_nodes{{{SITE},state="{state}"}}))'


_NUMBERS: Final = (
    Number("Nodes healthy", "Nodes with no incident and no doubt.", _nodes("healthy"), ((None, GREEN),)),
    Number("Nodes suspect", "Doubted by at least one witness, not confirmed.", _nodes("suspect"), ((None, GREEN), (1, AMBER))),
    Number("Nodes lost", "With a confirmed incident.", _nodes("lost"), ZERO_IS_WELL),
    Number("Spares free", "Spare nodes that no incident has claimed; none means that the next loss waits for a repair.",
           f"sum(max by (site) (outrider_spares_free{{{SITE}}}))", SOME_ARE_WELL),
    Number("Open incidents", "Confirmed and not yet over.", f"sum(fault:outrider_incident_open:sum{{{SITE}}}) or vector(0)",
           ZERO_IS_WELL),
    Number("Brake", "1 while a brake holds every action back (mass failure, blind, paused by a person).",
           f"max(outrider_brake{{{SITE}}})", ZERO_IS_WELL),
    Number("GPUs missing", "GPUs that nodes should have and the driver does not show.",
           f"sum(site:outrider_gpus_missing:sum{{{SITE}}})", ZERO_IS_WELL),
    Number("Nodes that report", "Share of agents that answer.", f"sum(rack:up:sum{{{SITE}}}) / sum(rack:up:count{{{SITE}}})",
           WHOLE_IS_WELL, "percentunit"),
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
_WORKS: Final = f"sum by (collector) (collector:outrider_collector_success:sum{{{SITE}}})"
_HAS: Final = f"sum by (collector) (collector:outrider_collector_supported:sum{{{SITE}}})"


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
    made.numbers(3, *_NUMBERS)
    made.add(open_incidents("Open incidents", ""), 14, 9)
    nodes = f"sum by (state) (max by (site, state) (outrider_nodes{{{SITE}}}))"
    made.charts(10, 9, Chart("Nodes by state", "As the leader of the witnesses sees them.", {"{{state}}": nodes}, stacked=True))


def _places(made: Board) -> None:
    made.row("By rack and switch")
    reports = f"bottomk(20, rack:up:sum{{{SITE}}} / rack:up:count{{{SITE}}})"
    about = "Racks with the smallest share of agents that answer; a whole rack points to power."
    made.add(bars("Nodes that report, by rack", about, "{{rack}}", reports, "percentunit", WHOLE_IS_WELL, 1), 8, 9)
    switches = (
        f"switch:up:sum{{{SITE}}} / switch:up:count{{{SITE}}}",
        f"switch:outrider_incident_open:sum{{{SITE}}}",
        f"switch:outrider_port_up:sum{{{SITE}}} / switch:outrider_port_up:count{{{SITE}}}",
    )
    columns = (
        SWITCH,
        Column("Value #A", "nodes that report", "percentunit", steps=WHOLE_IS_WELL),
        Column("Value #B", "incidents", steps=ZERO_IS_WELL),
        Column("Value #C", "ports up", "percentunit", steps=WHOLE_IS_WELL),
    )
    about = "Leaf switches by the share of nodes below them that answer, their open incidents and ports that are up."
    made.add(grid("Switches", about, switches, columns), 8, 9)
    faults = f"sum by (fault) (fault:outrider_incident_open:sum{{{SITE}}})"
    about = "Each class of the catalogue that is open."
    made.charts(8, 9, Chart("Open incidents by fault", about, {"{{fault}}": faults}, stacked=True))


def _offenders(made: Board) -> None:
    made.row("Top offenders")
    for title, about, expr, heading in _OFFENDERS:
        made.add(top_nodes(title, about, expr, heading), 8, 8)
    hottest = f"node:outrider_gpu_temperature_celsius:max{{{SITE}}}"
    heat: Steps = ((None, GREEN), (80, AMBER), (87, RED))
    made.add(top_nodes("Hottest GPUs", "Nodes by their hottest GPU.", hottest, "hottest", "celsius", heat), 8, 8)
    day = f"sum by (event) (fault_event:outrider_incidents:increase1d{{{SITE}}})"
    about = "Changes of incidents over a day: false alarms belong near zero."
    made.charts(8, 8, Chart("Incidents in a day", about, {"{{event}}": day}))
    made.charts(
        12, 8,
        Chart("GPU utilisation", "Mean share of time with a kernel on the GPU; a hung collective also shows 100 %.",
              {"{{site}}": f"site:outrider_gpu_utilization_ratio:avg{{{SITE}}}"}, "percentunit", maximum=1),
        Chart("GPU power", "Power of all GPUs; it falls before anything else when a job stands still.",
              {"{{site}}": f"site:outrider_gpu_power_watts:sum{{{SITE}}}"}, "watt"),
    )  # fmt: skip


def _coverage(made: Board) -> None:
    made.row("Coverage")
    columns = (
        Column("collector", "collector"), Column("Value #A", "nodes with its source"), Column("Value #B", "nodes where it works"),
        Column("Value #C", "oldest reading", "s", steps=((None, GREEN), (120, AMBER), (600, RED))),
    )  # fmt: skip
    oldest = f"max by (collector) (collector:outrider_collector_age_seconds:max{{{SITE}}})"
    about = (
        "On how many nodes each collector has its source, on how many it works, and its oldest reading. "
        "What is not read is unknown, not healthy."
    )
    made.add(grid("Collectors", about, (_HAS, _WORKS, oldest), columns), 12, 10)
    share = {"{{collector}}": f"{_WORKS} / {_HAS}"}
    about = "Of the nodes that have its source."
    made.charts(12, 10, Chart("Share of nodes where a collector works", about, share, "percentunit", maximum=1))
