"""Draws a dashboard's JSON with a Prometheus' data as a page, roughly as Grafana would: for eyes, where Grafana cannot be had.

Panels stand where the JSON puts them; titles, units, thresholds, legends, columns and mappings are those of the JSON.
"""

import html
import time
from collections.abc import Callable
from typing import Any

from grafana_panels import filled
from grafana_site import Site, with_numbers

COLOURS = {"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c", "blue": "#5794f2", "text": "#ccccdc", "transparent": "none"}
LINES = (
    "#73bf69",
    "#f2cc0c",
    "#8ab8ff",
    "#ff780a",
    "#f2495c",
    "#5794f2",
    "#b877d9",
    "#37872d",
    "#fa6400",
    "#1f60c4",
    "#c4162a",
    "#8f3bb8",
)
SIGNS = {"celsius": "°C", "watt": "W", "cps": "/s", "volt": "V", "dBm": "dBm"}
#: Pixels: one column of the grid, one row of it.
COLUMN, ROW = 58, 38
Values = list[tuple[float, float]]
STYLE = f"""<style>
body {{ background: #111217; color: #ccccdc; font: 13px Inter, system-ui, sans-serif; margin: 12px; width: {24 * COLUMN}px; }}
.board {{ position: relative; }}
.panel {{ position: absolute; box-sizing: border-box; border: 1px solid #2c2f36; background: #181b1f;
border-radius: 3px; padding: 6px 9px; overflow: hidden; }} .row {{ border: 0; background: none; font-size: 16px; }}
h3 {{ font-size: 13px; margin: 0 0 4px; font-weight: 500; white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }}
.stat {{ font-size: 34px; text-align: center; margin-top: 18px; white-space: nowrap; }}
table {{ border-collapse: collapse; width: 100%; }}
td, th {{ text-align: left; border-bottom: 1px solid #2c2f36; padding: 3px 6px; white-space: nowrap; }}
th {{ color: #6e9fff; font-weight: 500; }}
.legend {{ font-size: 11px; max-height: 78px; overflow: hidden; }} .legend div {{ white-space: nowrap; }}
.none {{ color: #8e8e9e; text-align: center; margin-top: 25px; }} .bar {{ height: 15px; }}
.bars div {{ margin: 3px 0; white-space: nowrap; }} svg text {{ fill: #9fa7b3; font-size: 10px; }}
</style>"""


def said(value: float, unit: str, decimals: int | None = None) -> str:
    """A number in the words of Grafana's units."""
    match unit:
        case "percentunit":
            return f"{value * 100:.{1 if decimals is None else decimals}f}%"
        case "s":
            for limit, scale, name in (
                (1e-3, 1e6, "µs"),
                (1, 1e3, "ms"),
                (120, 1, "s"),
                (7200, 1 / 60, "min"),
                (172800, 1 / 3600, "h"),
            ):
                if abs(value) < limit:
                    return f"{value * scale:.3g} {name}"
            return f"{value / 86400:.3g} d"
        case "amp":
            return f"{value * 1e3:.3g} mA" if abs(value) < 1 else f"{value:.3g} A"
        case "celsius" | "watt" | "cps" | "volt" | "dBm":
            return f"{_short(value, decimals)} {SIGNS[unit]}"
        case "bytes" | "Bps":
            return f"{_short(value, decimals)}B{'/s' if unit == 'Bps' else ''}"
    return _short(value, decimals)


def _short(value: float, decimals: int | None) -> str:
    for limit, name in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")):
        if abs(value) >= limit:
            return f"{value / limit * (10 if name == ' k' else 1):.3g}{name}"
    return f"{value:.{decimals}f}" if decimals is not None else f"{value:.4g}"


def page(board: dict[str, Any], site: Site, seconds: int, at: Callable[[str], str] = filled) -> str:
    """The page of a board. Args: seconds: how far back lines go; at: what stands in an expression for the variables."""
    parts, bottom = [], 0
    for panel in board["panels"]:
        place = panel["gridPos"]
        bottom = max(bottom, place["y"] + place["h"])
        box = f"left:{place['x'] * COLUMN}px;top:{place['y'] * ROW}px;"
        box += f"width:{place['w'] * COLUMN - 6}px;height:{place['h'] * ROW - 6}px"
        kind = "row" if panel["type"] == "row" else "panel"
        body = "" if kind == "row" else _body(panel, site, seconds, at)
        parts.append(f'<div class="panel {kind}" style="{box}"><h3>{html.escape(panel.get("title") or "")}</h3>{body}</div>')
    whole = f'<div class="board" style="height:{bottom * ROW}px">{"".join(parts)}</div>'
    return f'<!doctype html><meta charset="utf-8">{STYLE}<h2>{html.escape(board["title"])}</h2>{whole}'


def _body(panel: dict[str, Any], site: Site, seconds: int, at: Callable[[str], str]) -> str:
    if panel["type"] == "text":
        return f"<p>{html.escape(panel['options']['content'])}</p>"
    found = []
    for target in panel["targets"]:
        asked = at(target["expr"])
        series = with_numbers(site.ask_range(asked, seconds) if target.get("range") else site.ask(asked))
        found.append([(_legend(target.get("legendFormat", ""), one["metric"]), one["metric"], _values(one)) for one in series])
    if not any(found):
        return f'<p class="none">{panel["fieldConfig"]["defaults"].get("noValue", "No data")}</p>'
    flat = [one for series in found for one in series]
    width, height = panel["gridPos"]["w"] * COLUMN - 30, panel["gridPos"]["h"] * ROW - 42
    match panel["type"]:
        case "stat":
            return _stat(panel, flat)
        case "bargauge":
            return _bars(panel, flat, width)
        case "table":
            return _table(panel, found)
        case "state-timeline":
            return _states(panel, flat, width, seconds)
    return _lines(panel, flat, width, height, seconds)


def _values(one: dict[str, Any]) -> Values:
    pairs = one.get("values") or [one["value"]]
    return [(float(t), float(value)) for t, value in pairs if value != "NaN"]


def _legend(form: str, labels: dict[str, str]) -> str:
    if form == "__auto":
        return ", ".join(f"{name}={value}" for name, value in labels.items()) or "value"
    for name, value in labels.items():
        form = form.replace(f"{{{{{name}}}}}", value)
    while "{{" in form:
        form = form[: form.index("{{")] + form[form.index("}}") + 2 :]
    return " ".join(form.split())


def _colour(value: float, config: dict[str, Any]) -> str:
    found = "text"
    for step in (config.get("thresholds") or {}).get("steps", []):
        if step.get("value") is None or value >= step["value"]:
            found = step["color"]
    return COLOURS.get(found, found)


def _defaults(panel: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = panel["fieldConfig"]["defaults"]
    return made


def _stat(panel: dict[str, Any], flat: list[Any]) -> str:
    config = _defaults(panel)
    value = flat[0][2][-1][1]
    told = said(value, config["unit"], config.get("decimals"))
    return f'<div class="stat" style="color:{_colour(value, config)}">{html.escape(told)}</div>'


def _bars(panel: dict[str, Any], flat: list[Any], width: int) -> str:
    config, lines = _defaults(panel), []
    most = config.get("max") or max(one[2][-1][1] for one in flat) or 1
    for name, _, values in flat:
        value = values[-1][1]
        bar = (
            f'<div class="bar" style="width:{max(2, value / most * width * 0.7):.0f}px;background:{_colour(value, config)}"></div>'
        )
        lines.append(f"<div>{html.escape(name)} {html.escape(said(value, config['unit'], config.get('decimals')))}{bar}</div>")
    return f'<div class="bars">{"".join(lines)}</div>'


def _table(panel: dict[str, Any], found: list[list[Any]]) -> str:
    steps = {one["id"]: one["options"] for one in panel["transformations"]}
    kept, titles = steps["filterFieldsByName"]["include"]["names"], steps["organize"]["renameByName"]
    names = [name for name in kept if not steps["organize"]["excludeByName"].get(name)]
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for place, series in enumerate(found):
        column = "Value" if len(found) == 1 else f"Value #{chr(ord('A') + place)}"
        for _, labels, values in series:
            known = {name: value for name, value in labels.items() if name in kept}
            rows.setdefault(tuple(sorted(known.items())), dict(known))[column] = values[-1][1]
    special = {
        one["matcher"]["options"]: {item["id"]: item["value"] for item in one["properties"]}
        for one in panel["fieldConfig"]["overrides"]
    }
    lines = ["".join(f"<th>{html.escape(titles[name])}</th>" for name in names)]
    for row in rows.values():
        cells = []
        for name in names:
            value, config = row.get(name, ""), special.get(titles[name], {})
            colour = _colour(value, config) if isinstance(value, float) and "thresholds" in config else "inherit"
            told = said(value, config.get("unit", "short"), config.get("decimals")) if isinstance(value, float) else str(value)
            cells.append(f'<td style="color:{colour}">{html.escape(told)}</td>')
        lines.append("".join(cells))
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _states(panel: dict[str, Any], flat: list[Any], width: int, seconds: int) -> str:
    names = _defaults(panel)["mappings"][0]["options"]
    left, scale, now = 260, (width - 270) / seconds, time.time()
    lines = []
    for place, (name, _, values) in enumerate(flat[:20]):
        lines.append(f'<text x="0" y="{place * 20 + 13}">{html.escape(name)}</text>')
        for (t, value), (after, _) in zip(values, [*values[1:], (values[-1][0] + 1, 0)], strict=True):
            where = f'x="{left + (t - now + seconds) * scale:.1f}" width="{min(after - t, 2) * scale + 0.6:.1f}"'
            colour = COLOURS.get(names.get(f"{value:g}", {}).get("color", "text"), "#888")
            lines.append(f'<rect {where} y="{place * 20}" height="17" fill="{colour}"/>')
    told = " · ".join(one["text"] for one in names.values())
    return f'<svg width="{width}" height="{20 * len(flat)}">{"".join(lines)}</svg><div class="legend">{html.escape(told)}</div>'


def _lines(panel: dict[str, Any], flat: list[Any], width: int, height: int, seconds: int) -> str:
    config = _defaults(panel)
    legend = min(len(flat) + 1, 6) * 14
    tall, left, now = height - legend - 16, 62, time.time()
    if (config["custom"].get("stacking") or {}).get("mode") == "normal":
        flat = _stacked(flat)
    points = [value for _, _, values in flat for _, value in values]
    low, high = min([*points, config.get("min", points[0])]), max([*points, config.get("max", points[0])])
    span = (high - low) or 1.0
    x = lambda t: left + (t - now + seconds) / seconds * (width - left - 4)  # noqa: E731
    y = lambda value: tall - (value - low) / span * (tall - 8)  # noqa: E731
    drawn = []
    for share in (0, 0.5, 1):
        level = low + share * span
        drawn.append(f'<line x1="{left}" x2="{width}" y1="{y(level):.0f}" y2="{y(level):.0f}" stroke="#2c2f36"/>')
        drawn.append(
            f'<text x="0" y="{y(level) + 3:.0f}">{html.escape(said(level, config["unit"], config.get("decimals")))}</text>'
        )
    told, first_high = [], panel["options"]["legend"]["sortDesc"]
    for place, (name, _, values) in enumerate(sorted(flat, key=lambda one: one[2][-1][1], reverse=first_high)):
        colour = LINES[place % len(LINES)]
        if config["custom"].get("showPoints") == "always":
            drawn += [f'<circle cx="{x(t):.1f}" cy="{y(value):.1f}" r="2" fill="{colour}"/>' for t, value in values]
        path = " ".join(f"{x(t):.1f},{y(value):.1f}" for t, value in values)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.4"/>')
        last, most = (
            said(one, config["unit"], config.get("decimals")) for one in (values[-1][1], max(value for _, value in values))
        )
        told.append(
            f'<div style="color:{colour}">{html.escape(name)} &nbsp; last {html.escape(last)} &nbsp; max {html.escape(most)}</div>'
        )
    return f'<svg width="{width}" height="{tall + 14}">{"".join(drawn)}</svg><div class="legend">{"".join(told)}</div>'


def _stacked(flat: list[Any]) -> list[Any]:
    below: dict[float, float] = {}
    made = []
    for name, labels, values in flat:
        lifted = [(t, below.get(t, 0.0) + value) for t, value in values]
        below |= dict(lifted)
        made.append((name, labels, lifted))
    return made
