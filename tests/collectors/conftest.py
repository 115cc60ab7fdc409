"""Fixtures of the collectors' tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from collector_site import Site


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def make(witnesses: int = 1, extra: str = "") -> Site:
        sites.append(Site(tmp_path, witnesses, extra))
        return sites[-1]

    yield make
    for site in sites:
        site.close()
