"""Fixtures of the collectors' tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from collector_site import Site

from collectors.emulated.node import EmulatedNode


@pytest.fixture
def make_site(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def make(witnesses: int = 1, extra: str = "", node: EmulatedNode | None = None) -> Site:
        sites.append(Site(tmp_path, witnesses, extra, node))
        return sites[-1]

    yield make
    for site in sites:
        site.close()
