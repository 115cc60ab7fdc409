"""Reading shipped dashboards: their panels, expressions, and what Grafana would put in place of a variable."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

#: What stands for Grafana's variables in a test.
VALUES = {
    "${store}": "p", "$cluster": ".*", "$node": ".*", "$job": ".*", "$fault": ".*", "$switch": ".*", "$__rate_interval": "10s",
    "$__range_s": "10", "$__range": "10s", "$__interval_ms": "1000", "$__interval": "1s",
}  # fmt: skip


class Expression(NamedTuple):
    """One query: where it stands, and whether it is asked at each point of the picture or once."""

    board: str
    panel: str
    expr: str
    ranged: bool

    @property
    def filled(self) -> str:
        return filled(self.expr)


class Choice(NamedTuple):
    """A variable whose values come from a label of series."""

    board: str
    name: str
    selector: str
    label: str


def choices(boards: dict[str, dict[str, Any]]) -> Iterator[Choice]:
    for name, board in boards.items():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
                assert asked, variable["query"]
                yield Choice(name, variable["name"], filled(asked[1]), asked[2])


def filled(text: str) -> str:
    """An expression as it goes to Prometheus."""
    for name, value in VALUES.items():
        text = text.replace(name, value)
    return text


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions(boards: dict[str, dict[str, Any]]) -> Iterator[Expression]:
    for name, board in boards.items():
        for panel in panels(board):
            for target in panel.get("targets", []):
                yield Expression(name, panel["title"], target["expr"], bool(target.get("range")))
        for mark in board["annotations"]["list"]:
            yield Expression(name, f"annotation {mark['name']}", mark["expr"], True)
