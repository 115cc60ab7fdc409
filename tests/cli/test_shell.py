"""The first help that a new user sees."""

from importlib.metadata import EntryPoint, entry_points

import click
import pytest
from click.testing import CliRunner

from outrider.cli.shell import GROUPS, OTHERS, Shell, outrider
from outrider.errors import OutriderError


def test_every_command_stands_under_one_heading() -> None:
    """A command of this house that nobody put under a heading would stand among strangers'."""
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(point.name for point in entry_points(group="outrider.commands"))


def test_the_help_shows_whole_sentences_in_groups() -> None:
    text = CliRunner().invoke(outrider, ["--help"]).output
    assert "..." not in text.partition("[ARGS]...")[2]
    headings = [line.rstrip(":") for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == ["Options", *GROUPS]


def test_a_command_whose_extra_is_missing_or_that_is_a_strangers_leaves_the_help_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = EntryPoint("inspect", "no_such_package.anywhere:command", "outrider.commands")
    stranger = EntryPoint("zebra", "outrider.explain.command:explain", "outrider.commands")
    monkeypatch.setattr(Shell, "_points", lambda self: {"inspect": missing, "zebra": stranger})
    text = CliRunner().invoke(outrider, ["--help"]).output
    assert "needs the package no_such_package" in text and OTHERS in text and "zebra" in text
    with pytest.raises(OutriderError, match="needs the package no_such_package"):
        outrider.get_command(click.Context(outrider), "inspect")
