"""Short words for the panels that our dashboards are made of. Build time only: needs grafana-foundation-sdk.

Every panel has a title, a description, a unit and, where it has several lines, a legend. `Board` places panels from left to right
in rows of 24 columns, so that none overlaps another.
"""

from dataclasses import dataclass, field, replace
from typing import Any, Final

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, statetimeline, table, text, timeseries
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

#: The variable that names the Prometheus-compatible store.
STORE: Final = model.DataSourceRef(type_val="prometheus", uid="${store}")
COLUMNS: Final = 24
#: Stands in every expression for the scope of the dashboard: the chosen clusters.
SITE: Final = 'site=~"$cluster"'

GREEN, AMBER, RED, BLUE, GREY = "green", "orange", "red", "blue", "text"
Steps = tuple[tuple[float | None, str], ...]
#: Zero is well, one or more is not.
ZERO_IS_WELL: Final[Steps] = ((None, GREEN), (1, RED))


@dataclass(frozen=True)
class Number:
    """One large number, with its recent course (`graph`) or as it stands now."""

    title: str
    about: str
    expr: str
    steps: Steps = ((None, BLUE),)
    unit: str = "short"
    decimals: int | None = None
    graph: bool = True


@dataclass(frozen=True)
class Chart:
    """Lines over time. `lines`: legend -> expression; `points`: counts of events, each shown; `low`: the lowest matter, and come
    first in the legend."""

    title: str
    about: str
    lines: dict[str, str]
    unit: str = "short"
    steps: Steps = ()
    stacked: bool = False
    points: bool = False
    low: bool = False
    minimum: float | None = 0
    maximum: float | None = None


@dataclass(kw_only=True)
class Board:
    """One dashboard on its way. `uid` never changes: links lead to it."""

    uid: str
    title: str
    description: str
    variables: tuple[Any, ...]
    panels: list[Any] = field(default_factory=list)
    _x: int = 0
    _y: int = 0
    _height: int = 0
    _number: int = 0

    def row(self, title: str) -> None:
        """A heading; what follows stands under it."""
        self._break()
        self.panels.append((dashboard.Row(title).id(self._next()).grid_pos(model.GridPos(h=1, w=COLUMNS, x=0, y=self._y)), True))
        self._y += 1

    def add(self, panel: Any, width: int, height: int) -> None:
        """Places a panel to the right of the last one, or below where there is no room."""
        if self._x + width > COLUMNS:
            self._break()
        panel.id(self._next()).grid_pos(model.GridPos(h=height, w=width, x=self._x, y=self._y))
        self.panels.append((panel, False))
        self._x += width
        self._height = max(self._height, height)

    def numbers(self, width: int, *numbers: Number) -> None:
        """Large numbers side by side."""
        for one in numbers:
            self.add(_number(one), width, 4)

    def charts(self, width: int, height: int, *charts: Chart) -> None:
        """Pictures over time, one after the other."""
        for one in charts:
            self.add(_chart(one), width, height)

    def _break(self) -> None:
        self._x, self._y, self._height = 0, self._y + self._height, 0

    def _next(self) -> int:
        self._number += 1
        return self._number


def _number(one: Number) -> Any:
    panel = _framed(stat.Panel(), one.title, one.about, one.unit, one.steps, one.decimals)
    return (
        panel.with_target(_range(one.expr, "A") if one.graph else _instant(one.expr, "A"))
        .graph_mode(looks.BigValueGraphMode.AREA if one.graph else looks.BigValueGraphMode.NONE)
        .color_mode(looks.BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("unknown")
    )


def _chart(one: Chart) -> Any:
    panel = _framed(timeseries.Panel(), one.title, one.about, one.unit, one.steps, 0 if one.points else None)
    for place, (legend, expr) in enumerate(one.lines.items()):
        panel = panel.with_target(_range(expr, chr(ord("A") + place), legend))
    panel = (
        panel.legend(
            common.VizLegendOptions().display_mode(looks.LegendDisplayMode.TABLE).placement(looks.LegendPlacement.BOTTOM)
            .show_legend(True).calcs(["lastNotNull", "max"]).sort_by("Last *").sort_desc(not one.low)
        )
        .tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING))
        .line_width(1)
        .fill_opacity(60 if one.stacked else 8)
        .show_points(looks.VisibilityMode.ALWAYS if one.points else looks.VisibilityMode.NEVER)
        .span_nulls(False)
    )  # fmt: skip
    if one.stacked:
        panel = panel.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL).group("A"))
    if one.steps:
        panel = panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(looks.GraphThresholdsStyleMode.LINE))
    if one.minimum is not None:
        panel = panel.min(one.minimum)
    return panel if one.maximum is None else panel.max(one.maximum)


def states(title: str, about: str, legend: str, expr: str, names: dict[str, tuple[str, str]]) -> Any:
    """States over time, a line each. Args: names: value -> (word, colour)."""
    mapping = model.ValueMap(
        options={value: model.ValueMappingResult(text=word, color=colour, index=place)
                 for place, (value, (word, colour)) in enumerate(names.items())}
    )  # fmt: skip
    return (
        _framed(statetimeline.Panel(), title, about, "short", ((None, GREY),), None)
        .with_target(_range(expr, "A", legend))
        .mappings([mapping])
        .show_value(looks.VisibilityMode.AUTO)
        .merge_values(True)
        .row_height(0.85)
        .line_width(0)
        .fill_opacity(70)
        .per_page(20)
        .legend(_legend())
        .tooltip(common.VizTooltipOptions().mode(looks.TooltipDisplayMode.SINGLE))
    )


def bars(title: str, about: str, legend: str, expr: str, unit: str, steps: Steps, maximum: float) -> Any:
    """A bar for each thing, as it stands now."""
    return (
        _framed(bargauge.Panel(), title, about, unit, steps, None)
        .with_target(_instant(expr, "A", legend))
        .display_mode(looks.BarGaugeDisplayMode.GRADIENT)
        .orientation(looks.VizOrientation.HORIZONTAL)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .show_unfilled(True)
        .min(0)
        .max(maximum)
    )


@dataclass(frozen=True)
class Column:
    """A column of a table: the label or value it shows, its heading, and how. `link`: (title, address)."""

    name: str
    title: str
    unit: str = ""
    decimals: int | None = None
    link: tuple[str, str] | None = None
    steps: Steps = ()


def grid(title: str, about: str, queries: tuple[str, ...], columns: tuple[Column, ...]) -> Any:
    """A table of what stands now. Columns that are not named are left out; values are `Value #A`, `Value #B`, .."""
    panel = _framed(table.Panel(), title, about, "short", ((None, GREY),), None).filterable(True)
    for place, expr in enumerate(queries):
        panel = panel.with_target(_instant(expr, chr(ord("A") + place), shape=PromQueryFormat.TABLE))
    # With one query Grafana calls the value `Value`; with several, after the merge, `Value #A` ..
    named = [column if len(queries) > 1 or column.name != "Value #A" else _renamed(column) for column in columns]
    names = [column.name for column in named]
    order = {name: place for place, name in enumerate(names)}
    titles = {column.name: column.title for column in named}
    # What would keep rows of several queries apart (the metric's name) goes before they are joined, the cluster after it.
    for step, options in (
        ("filterFieldsByName", {"include": {"names": [*names, "site"]}}),
        ("merge", {}),
        ("organize", {"excludeByName": {"site": True}, "indexByName": order, "renameByName": titles}),
    ):
        panel = panel.with_transformation(model.DataTransformerConfig(id_val=step, options=options))
    for column in named:
        properties = []
        if column.unit:
            properties.append(model.DynamicConfigValue(id_val="unit", value=column.unit))
        if column.decimals is not None:
            properties.append(model.DynamicConfigValue(id_val="decimals", value=column.decimals))
        if column.link:
            link = {"title": column.link[0], "url": column.link[1]}
            properties.append(model.DynamicConfigValue(id_val="links", value=[link]))
        if column.steps:
            properties.append(model.DynamicConfigValue(id_val="thresholds", value=_thresholds(column.steps).build()))
            cell = {"type": "color-text"}
            properties.append(model.DynamicConfigValue(id_val="custom.cellOptions", value=cell))
        if properties:
            panel = panel.override_by_name(column.title, properties)
    return panel


def words(title: str, markdown: str) -> Any:
    """A text."""
    return text.Panel().title(title).mode("markdown").content(markdown).transparent(True)


def _renamed(column: Column) -> Column:
    return replace(column, name="Value")


def _framed(panel: Any, title: str, about: str, unit: str, steps: Steps, decimals: int | None) -> Any:
    panel = panel.title(title).description(about).datasource(STORE).unit(unit)
    if steps:
        panel = panel.thresholds(_thresholds(steps))
    return panel if decimals is None else panel.decimals(decimals)


def _thresholds(steps: Steps) -> Any:
    made = [model.Threshold(value=value, color=colour) for value, colour in steps]
    return dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(made)


def _legend() -> Any:
    mode = common.VizLegendOptions().display_mode(looks.LegendDisplayMode.LIST)
    return mode.placement(looks.LegendPlacement.BOTTOM).show_legend(True)


def _range(expr: str, name: str, legend: str = "") -> Any:
    made = prometheus.Dataquery().expr(expr).ref_id(name).range().datasource(STORE)
    return made.legend_format(legend or "__auto")


def _instant(expr: str, name: str, legend: str = "", shape: PromQueryFormat = PromQueryFormat.TIME_SERIES) -> Any:
    made = prometheus.Dataquery().expr(expr).ref_id(name).instant().format(shape).datasource(STORE)
    return made.legend_format(legend or "__auto")
