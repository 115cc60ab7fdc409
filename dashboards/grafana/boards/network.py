"""Network: ports, counters, flaps and pauses, by leaf switch and by node."""

from alerts.rules.recording import PORT_ERRORS, PORT_RETRIES, PORT_WAITS
from dashboards.grafana.boards.parts import TO_NETWORK, TO_NODE, WHOLE_IS_WELL, open_incidents, top_nodes
from dashboards.grafana.kit import RED, SITE, ZERO_IS_WELL, Board, Column, Query, grid, lines, number
from dashboards.grafana.scope import choice, cluster, node, store

_LEAF = f'{SITE},switch=~"$switch"'
_NODE = f'{_LEAF},node=~"$node"'
_ALL = f"{PORT_ERRORS}|{PORT_RETRIES}|{PORT_WAITS}"


def board() -> Board:
    made = Board(
        uid="outrider-network",
        title="Outrider / Network",
        description="Ports that are up, errors, retries, congestion and pauses, flaps; by leaf switch, then by node and port.",
        variables=(
            store(),
            cluster(),
            choice("switch", "Leaf", f"label_values(switch:up:count{{{SITE}}}, switch)"),
            node(everything=False),
        ),
    )
    _leaves(made)
    _ports(made)
    return made


def _leaves(made: Board) -> None:
    made.row("By leaf")
    ports, up = f"sum(switch:outrider_port_up:count{{{_LEAF}}})", f"sum(switch:outrider_port_up:sum{{{_LEAF}}})"
    made.add(
        number("Ports up", "Share of ports that are active.", f"{up} / {ports}", unit="percentunit", steps=WHOLE_IS_WELL), 8, 4
    )
    made.add(number("Ports down", "Ports that are not active.", f"{ports} - {up}", steps=ZERO_IS_WELL), 8, 4)
    answer = f"sum(switch:up:sum{{{_LEAF}}}) / sum(switch:up:count{{{_LEAF}}})"
    made.add(number("Nodes that answer", "Below the chosen leaves.", answer, unit="percentunit", steps=WHOLE_IS_WELL), 8, 4)
    made.add(
        grid(
            "Leaves",
            "Ports and nodes below each leaf. One leaf with many ports down is the leaf, many leaves with one each are the ports.",
            (
                f"switch:outrider_port_up:count{{{_LEAF}}} - switch:outrider_port_up:sum{{{_LEAF}}}",
                f"switch:up:sum{{{_LEAF}}} / switch:up:count{{{_LEAF}}}",
            ),
            (
                Column(name="switch", title="switch", link=TO_NETWORK),
                Column(name="Value #A", title="ports down", steps=ZERO_IS_WELL),
                Column(name="Value #B", title="nodes that answer", unit="percentunit", steps=WHOLE_IS_WELL),
            ),
        ),
        12,
        8,
    )
    made.add(open_incidents("Network incidents", ',fault=~"(nic|link|switch|domain|path)[.].+",switch=~"$switch|"'), 12, 8)
    for title, about, names in (
        ("Errors by leaf", "Symbols, CRC, recoveries: a cable, an optic or a port.", PORT_ERRORS),
        ("Retries by leaf", "Lost or late packets that were sent again.", PORT_RETRIES),
        (
            "Congestion and pauses by leaf",
            "Waiting to send, congestion marks, pauses: without errors they are load, no fault.",
            PORT_WAITS,
        ),
    ):
        made.add(
            lines(
                title,
                about,
                Query(
                    expr=f"topk(20, sum by (switch, counter) ({_by_leaf(names)}))",
                    legend="{{switch}} {{counter}}",
                ),
                unit="cps",
            ),
            8,
            8,
        )


def _ports(made: Board) -> None:
    made.row("By node and port")
    made.add(
        top_nodes(
            "Flaps",
            "Nodes whose interfaces changed their carrier the most in an hour.",
            f"node:outrider_port_carrier_changes:increase1h{{{SITE}}}",
            "changes",
        ),
        8,
        8,
    )
    made.add(
        grid(
            "Ports that are down",
            "Each port that is not active.",
            (f"outrider_port_up{{{_NODE}}} == 0",),
            (
                Column(name="node", title="node", link=TO_NODE),
                Column(name="nic", title="nic"),
                Column(name="port", title="port"),
                Column(name="switch", title="switch"),
            ),
        ),
        8,
        8,
    )
    made.add(
        top_nodes(
            "Errors by node",
            "Nodes with the most errors in a second.",
            f"sum by (node) ({_by_node(PORT_ERRORS)})",
            "errors",
            unit="cps",
        ),
        8,
        8,
    )
    made.add(
        lines(
            "Rate of the ports",
            "What the ports of the chosen nodes run at, the slowest 20; a port that trained down shows a step.",
            Query(expr=f"bottomk(20, outrider_port_rate_bytes_per_second{{{_NODE}}})", legend="{{node}} {{nic}} {{port}}"),
            unit="Bps",
        ),
        12,
        8,
    )
    made.add(
        lines(
            "Counters of the chosen nodes",
            "Errors, retries and waits, the largest 20.",
            Query(
                expr=f"topk(20, sum by (node, counter) ({_by_node(_ALL)}))",
                legend="{{node}} {{counter}}",
            ),
            unit="cps",
            steps=((None, "transparent"), (1, RED)),
        ),
        12,
        8,
    )


def _by_leaf(names: str) -> str:
    return f'switch_counter:outrider_port_events:rate5m{{{_LEAF},counter=~"{names}"}}'


def _by_node(names: str) -> str:
    return f'node_counter:outrider_port_events:rate5m{{{SITE},node=~"$node",counter=~"{names}"}}'
