"""Pages of metrics for tests of the judge: scrapes in a row, and what it says of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from detectors.inspect.context import make_context
from detectors.inspect.findings import Finding, strongest_first
from detectors.inspect.metrics import judge
from detectors.inspect.sources import Source

Rows = list[str]


def page(*scrapes: tuple[float, Rows]) -> str:
    return "".join(f"# t={t}\n" + "\n".join(rows) + "\n" for t, rows in scrapes)


def always(rows: Callable[[float], Rows]) -> str:
    return page(*((t, rows(t)) for t in (0, 30, 60)))


def judged(text: str, folder: Path, site: dict[str, Any]) -> list[Finding]:
    """The findings of a page, the strongest first."""
    path = folder / "page.prom"
    path.write_text(text)
    return strongest_first(judge([Source(path)], make_context(site)))
