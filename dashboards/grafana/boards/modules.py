"""Cables, optical modules and error correction of chosen nodes: rows of the network board."""

from typing import Any, Final

from dashboards.grafana.boards.parts import NODE
from dashboards.grafana.kit import RED, SITE, Board, Chart, Column, grid

_NODE: Final = f'{SITE},switch=~"$switch",node=~"$node"'
_PORT: Final = "{{node}} {{nic}} {{port}}"
_LANE: Final = f"{_PORT} lane {{{{lane}}}}"
_JOINED: Final = "site, node, nic, port"
#: The least light that a module's memory can say (SFF-8636, CMIS): a dark lane is drawn there, at -40 dBm, and not left out.
_DARK_WATTS: Final = "1e-7"


def _of(metric: str, more: str = "") -> str:
    return f"outrider_{metric}{{{_NODE}{more}}}"


def _dbm(metric: str) -> str:
    return f"10 * log10(1000 * clamp_min({_of(metric)}, {_DARK_WATTS}))"


def _blocks(kind: str) -> str:
    counter = _of("port_events_total", f',counter="fec_{kind}_blocks"')
    return f"topk(20, sum by (node, nic, port) (rate({counter}[$__rate_interval])))"


_BY_LANE: Final = _of("port_fec_events_total", ',kind="corrected_blocks"')
_CHARTS: Final = (
    Chart("Blocks beyond correction", "Each is a lost packet; the largest 20 ports. A good link has none for hours.",
          {_PORT: _blocks("uncorrectable")}, "cps", ((None, "transparent"), (10, RED))),
    Chart("Light received", "By lane, the weakest 20; -40 dBm is none. One lane: a fibre or the other end's laser; all: the cable.",
          {_LANE: f"bottomk(20, {_dbm('module_receive_power_watts')})"}, "dBm", low=True, minimum=None),
    Chart("Light sent", "By lane, the weakest 20. -40 dBm is none.",
          {_LANE: f"bottomk(20, {_dbm('module_transmit_power_watts')})"}, "dBm", low=True, minimum=None),
    Chart("Laser bias", "Current by lane, the largest 20. One that grows while its light does not is a laser that wears out.",
          {_LANE: f"topk(20, {_of('module_laser_bias_amperes')})"}, "amp"),
    Chart("Temperature", "Of modules and of cards, the hottest 20 of each; optics are made for up to about 70 C.",
          {_PORT: f"topk(20, {_of('module_temperature_celsius')})",
           "{{node}} {{nic}} {{sensor}}": f"topk(20, {_of('nic_temperature_celsius')})"}, "celsius"),
    Chart("Supply", "Voltage of the modules, the lowest 20; 3.3 V is meant.",
          {_PORT: f"bottomk(20, {_of('module_supply_volts')})"}, "volt", low=True, minimum=None),
    Chart("Blocks corrected", "The largest 20 ports. Normal on a fast link; a port far above its peers is worth a look.",
          {_PORT: _blocks("corrected")}, "cps"),
    Chart("Blocks corrected by lane", "The largest 20, where the driver tells. One lane: its laser or fibre; all: the cable.",
          {_LANE: f"topk(20, sum by (node, nic, port, lane) (rate({_BY_LANE}[$__rate_interval])))"}, "cps"),
)  # fmt: skip


def modules(made: Board) -> None:
    """Adds the row."""
    made.row("Modules and error correction")
    made.add(_table("Flags that stand", "What modules and cards complain of: alarms make `nic.degraded`, warnings are only shown.",
                    f"{_of('module_flag')} == 1", "flag"), 8, 8)  # fmt: skip
    about = "Ports whose module's memory cannot be read (driver, rights, no module): nothing is known of it."
    made.add(_table("Modules that cannot be read", about, f"{_of('module_supported')} == 0"), 8, 8)
    made.charts(8, 8, *_CHARTS)
    # Of a port whose module was just changed both stand in the store for a moment: one of them.
    info = f"topk by ({_JOINED}) (1, {_of('module_info')})"
    mode = _of("port_fec_mode")
    joined = f"{mode} * on ({_JOINED}) group_left (kind, vendor, part, serial) {info} or on ({_JOINED}) {mode}"
    about = "What is plugged in. `none` on a fast link is a wrong setting, `unsupported` a driver that does not tell."
    made.add(_table("Modules in the ports", about, joined, "mode", "kind", "vendor", "part", "serial"), 16, 8)


def _table(title: str, about: str, expr: str, *more: str) -> Any:
    headings = {"mode": "error correction"}
    return grid(title, about, (expr,), (NODE, *(Column(name, headings.get(name, name)) for name in ("nic", "port", *more))))
