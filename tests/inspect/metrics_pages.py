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


def assert_told(findings: list[Finding], wanted: tuple[str, str, str, dict[str, Any]] | None) -> None:
    """Above `watch` there is nothing (None), or the one finding with this fault, culprit, response and part of its subject."""
    found = [one for one in findings if one.response not in ("ignore", "watch")]
    if wanted is None:
        assert not found, found
    else:
        assert len(found) == 1, [(one.fault, one.explanation) for one in found]
        fault, culprit, response, subject = wanted
        assert (found[0].fault, found[0].culprit, found[0].response) == (fault, culprit, response)
        assert {key: found[0].subject.get(key) for key in subject} == subject
