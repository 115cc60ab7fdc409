"""Network: ports, counters, flaps, pauses, error correction and modules, by leaf switch and by node."""

from typing import Final

from alerts.rules.recording import PORT_ERRORS, PORT_RETRIES, PORT_WAITS
from dashboards.grafana.boards.modules import modules
from dashboards.grafana.boards.parts import NODE, SWITCH, WHOLE_IS_WELL, open_incidents, top_nodes
from dashboards.grafana.kit import AMBER, GREEN, RED, SITE, ZERO_IS_WELL, Board, Chart, Column, Number, grid
from dashboards.grafana.scope import choice, cluster, node, store

_LEAF: Final = f'{SITE},switch=~"$switch"'
_NODE: Final = f'{_LEAF},node=~"$node"'
_PORTS: Final = f"sum(switch:outrider_port_up:count{{{_LEAF}}})"
_UP: Final = f"sum(switch:outrider_port_up:sum{{{_LEAF}}})"
_READ: Final = f"sum(switch:outrider_module_supported:sum{{{_LEAF}}})"
_ALARMS: Final = f"node:outrider_module_alarms:count{{{_LEAF}}}"
_LOST: Final = f'switch_counter:outrider_port_events:rate5m{{{_LEAF},counter="fec_uncorrectable_blocks"}}'
_ANSWER: Final = f"switch:up:sum{{{_LEAF}}} / switch:up:count{{{_LEAF}}}"


def _by_leaf(names: str) -> dict[str, str]:
    expr = f'switch_counter:outrider_port_events:rate5m{{{_LEAF},counter=~"{names}"}}'
    return {"{{switch}} {{counter}}": f"topk(20, sum by (switch, counter) ({expr}))"}


def _by_node(names: str) -> str:
    return f'node_counter:outrider_port_events:rate5m{{{SITE},node=~"$node",counter=~"{names}"}}'


_NUMBERS: Final = (
    Number("Ports up", "Share of ports that are active.", f"{_UP} / {_PORTS}", WHOLE_IS_WELL, "percentunit"),
    Number("Ports down", "Ports that are not active.", f"{_PORTS} - {_UP}", ZERO_IS_WELL),
    Number("Nodes that answer", "Below the chosen leaves.",
           f"sum(switch:up:sum{{{_LEAF}}}) / sum(switch:up:count{{{_LEAF}}})", WHOLE_IS_WELL, "percentunit"),
    Number("Blocks beyond correction", "Lost packets of all ports; a good link has none for hours.", f"sum({_LOST})",
           ((None, GREEN), (0.1, AMBER), (10, RED)), "cps"),
    Number("Modules with an alarm", "Cables, optics or cards that hold one up; unknown where none can be read.",
           f"sum({_ALARMS}) or {_READ} * 0", ZERO_IS_WELL),
    Number("Modules read", "Share of ports whose module's memory can be read; of the others nothing is known.",
           f"{_READ} / sum(switch:outrider_module_supported:count{{{_LEAF}}})", unit="percentunit"),
)  # fmt: skip
_LEAVES: Final = (
    Chart("Errors by leaf", "Symbols, CRC, recoveries, lost blocks: a cable, an optic or a port.", _by_leaf(PORT_ERRORS), "cps"),
    Chart("Retries by leaf", "Lost or late packets that were sent again.", _by_leaf(PORT_RETRIES), "cps"),
    Chart("Congestion and pauses by leaf", "Waiting to send, congestion marks, pauses: without errors they are load, no fault.",
          _by_leaf(PORT_WAITS), "cps"),
)  # fmt: skip
_BEYOND: Final = Chart(
    "Blocks beyond correction by leaf", "What error correction could not mend: lost packets. A good link has none for hours.",
    {"{{switch}}": f"topk(20, sum by (switch) ({_LOST}))"}, "cps",
)  # fmt: skip
_CHOSEN: Final = (
    Chart("Rate of the ports", "What the ports of the chosen nodes run at, the slowest 20; a port that trained down shows a step.",
          {"{{node}} {{nic}} {{port}}": f"bottomk(20, outrider_port_rate_bytes_per_second{{{_NODE}}})"}, "Bps", low=True),
    Chart("Counters of the chosen nodes", "Errors, retries and waits, the largest 20.",
          {"{{node}} {{counter}}": f"topk(20, sum by (node, counter) ({_by_node(f'{PORT_ERRORS}|{PORT_RETRIES}|{PORT_WAITS}')}))"},
          "cps", ((None, "transparent"), (1, RED))),
)  # fmt: skip


def board() -> Board:
    made = Board(
        uid="outrider-network",
        title="Outrider / Network",
        description="Ports, errors, retries, congestion, flaps, error correction, modules; by leaf switch, then by node and port.",
        variables=(
            store(),
            cluster(),
            choice("switch", "Leaf", f"label_values(switch:up:count{{{SITE}}}, switch)"),
            node(everything=False),
        ),
    )
    made.row("By leaf")
    made.numbers(4, *_NUMBERS)
    about = "Ports and nodes below each leaf. One leaf with many ports down is the leaf, many leaves with one each are the ports."
    down = f"switch:outrider_port_up:count{{{_LEAF}}} - switch:outrider_port_up:sum{{{_LEAF}}}"
    columns = (
        SWITCH,
        Column("Value #A", "ports down", steps=ZERO_IS_WELL),
        Column("Value #B", "nodes that answer", "percentunit", steps=WHOLE_IS_WELL),
    )
    made.add(grid("Leaves", about, (down, _ANSWER), columns), 12, 8)
    made.add(open_incidents("Network incidents", ',fault=~"(nic|link|switch|domain|path)[.].+",switch=~"$switch|"'), 12, 8)
    made.charts(8, 8, *_LEAVES)
    made.charts(12, 8, _BEYOND)
    made.add(top_nodes("Module alarms", "Nodes with the most modules that hold up an alarm.", _ALARMS, "modules"), 12, 8)
    made.row("By node and port")
    flaps, about = f"node:outrider_port_carrier_changes:increase1h{{{SITE}}}", "whose interfaces changed their carrier the most"
    made.add(top_nodes("Flaps", f"Nodes {about} in an hour.", flaps, "changes"), 8, 8)
    ports = (NODE, *(Column(name, name) for name in ("nic", "port", "switch")))
    made.add(grid("Ports that are down", "Each port that is not active.", (f"outrider_port_up{{{_NODE}}} == 0",), ports), 8, 8)
    errors = f"sum by (node) ({_by_node(PORT_ERRORS)})"
    made.add(top_nodes("Errors by node", "Nodes with the most errors in a second.", errors, "errors", unit="cps"), 8, 8)
    made.charts(12, 8, *_CHOSEN)
    modules(made)
    return made
