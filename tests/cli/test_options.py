"""Every command that takes settings looks for them in the same places; what is not there is said, and not made by a question."""

import gzip
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from detectors.witness.starter import write_starter
from outrider.cli.options import DEFAULT_CONFIG
from outrider.cli.shell import main

POINTS = {point.name: point for point in entry_points(group="outrider.commands")}


def tree(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, by the words that call them."""
    yield name, command
    if isinstance(command, click.Group):
        for word, below in sorted(command.commands.items()):
            yield from tree(f"{name} {word}", below)


COMMANDS = dict(pair for name, point in sorted(POINTS.items()) for pair in tree(name, point.load()))
#: Commands that take settings nowhere: they ask nothing of a site.
WITHOUT = {"drill", "runbooks", "outbox schema"}
#: Commands of a group, which may have the settings before their name too.
BELOW = {name for name in COMMANDS if " " in name} - WITHOUT
WITH = {name: option for name, command in COMMANDS.items() for option in command.params if "--config" in option.opts}
#: Questions that only the ledger's file answers.
QUESTIONS = {
    "outbox": ["outbox"], "outbox gone": ["outbox", "gone"], "outbox retry": ["outbox", "retry", "--all"],
    "outbox enable": ["outbox", "enable", "t1"], "would-have": ["would-have"], "would-have json": ["would-have", "--json"],
    "export": ["export", "0123"], "journal": ["journal"],
}  # fmt: skip


def test_all_commands_but_those_of_no_site_take_settings() -> None:
    assert COMMANDS.keys() - WITH.keys() == WITHOUT


@pytest.mark.parametrize("name", sorted(WITH.keys() - BELOW))
def test_each_command_looks_for_settings_in_the_same_places(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    took: list[Path | None] = []
    looking = click.Command(name, params=[WITH[name]], callback=lambda config: took.append(config))
    monkeypatch.chdir(tmp_path)

    def read(*arguments: str, **environment: str) -> Path | None:
        done = CliRunner(env=environment).invoke(looking, list(arguments), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return took[-1]

    assert read() is None
    (tmp_path / DEFAULT_CONFIG).touch()
    assert read() == Path(DEFAULT_CONFIG)
    assert read(OUTRIDER_CONFIG="env.toml") == Path("env.toml")
    assert read("--config", "told.toml", OUTRIDER_CONFIG="env.toml") == Path("told.toml")


@pytest.mark.parametrize("name", sorted(BELOW))
def test_settings_may_stand_before_and_behind_the_name_of_a_groups_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took: list[Path | None] = []
    group_name, word = name.split()
    group = COMMANDS[group_name]
    assert isinstance(group, click.Group)
    looking = click.Command(word, params=[WITH[name]], callback=lambda config: took.append(config))
    monkeypatch.setitem(group.commands, word, looking)
    monkeypatch.chdir(tmp_path)

    def read(*arguments: str, **environment: str) -> Path | None:
        done = CliRunner(env=environment).invoke(group, list(arguments), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return took[-1]

    assert read(word) is None
    assert read(word, OUTRIDER_CONFIG="env.toml") == Path("env.toml")
    told = ["--config", "told.toml"]
    for arguments in ([*told, word], [word, *told], ["--config", "other.toml", word, *told]):
        assert read(*arguments, OUTRIDER_CONFIG="env.toml") == Path("told.toml")


@pytest.mark.parametrize("words", ["--json gone", "--state dead retry --all", "--limit 3 schema"])
def test_an_option_of_the_group_that_a_command_would_pass_over_is_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["outbox", *words.split()])
    told = capsys.readouterr()
    assert (ended.value.code, told.out, told.err.count("\n")) == (2, "", 1) and words.split()[0] in told.err


@pytest.mark.parametrize("settings", [False, True], ids=["no settings", "settings"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_without_a_ledger_is_refused_in_one_line_and_makes_none(
    question: str, settings: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    if settings:
        write_starter(tmp_path / DEFAULT_CONFIG)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as ended:
        main(QUESTIONS[question])
    told = capsys.readouterr()
    assert (ended.value.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert ("no ledger is here" in told.err or "no journal" in told.err) or (not settings and "no outrider.toml" in told.err)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "words",
    ["doctor", "targets out", "deliver", "test", "journal", "witness --name w1", "status", "top --once", "incidents", "pause"],
)
def test_what_is_nothing_without_settings_says_so_and_makes_nothing(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the wrong folder: no empty lists for Prometheus, no deliverer of an empty outbox, no verdict on defaults."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OUTRIDER_CONFIG", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    told = capsys.readouterr()
    assert (ended.value.code, told.out, told.err.count("\n")) == (2, "", 1) and f"no {DEFAULT_CONFIG} here" in told.err
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_enough_ends_a_journal_in_silence(tmp_path: Path) -> None:
    """`outrider journal | head` is no mistake of anybody's."""
    write_starter(tmp_path / DEFAULT_CONFIG)
    signals = tmp_path / "outrider-state" / "w1" / "signals.jsonl.gz"
    signals.parent.mkdir(parents=True)
    line = '{"t":1.0,"kind":"step","node":"n1","job":"a","rank":0,"value":1,"to":["w1"]}\n'
    text = '{"kind":"fleet","nodes":[{"node":"n1"}],"witnesses":["w1"]}\n' + line * 20_000  # more than a pipe holds
    signals.write_bytes(gzip.compress(text.encode()))
    command = [sys.executable, "-m", "outrider.cli.shell", "journal"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as asked:
        assert asked.stdout is not None and asked.stderr is not None
        assert asked.stdout.readline()
        asked.stdout.close()
        assert asked.stderr.read() == b""


def test_targets_may_be_tried_before_there_is_a_ledger_and_make_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / DEFAULT_CONFIG).write_text("[[alerts.targets]]\nname = 't1'\nurl = 'http://127.0.0.1:9/'\n")
    with pytest.raises(SystemExit) as ended:
        main(["test"])
    assert ended.value.code == 1 and "t1" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == [DEFAULT_CONFIG]


@pytest.mark.parametrize("words", ["--out fleet.toml", "--picture site.dot"])
def test_what_writes_a_file_says_so(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_starter(tmp_path / DEFAULT_CONFIG)
    with pytest.raises(SystemExit) as ended:
        main(["topology", *words.split()])
    told = capsys.readouterr()
    assert (ended.value.code, told.out, told.err) == (0, "", f"outrider: wrote {words.split()[1]}\n")


@pytest.mark.parametrize("wrong", ["--push nowhere --token-file token", "--push http://127.0.0.1:9 --token-file none"])
def test_dashboards_that_cannot_be_sent_are_not_written(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("secret")
    with pytest.raises(SystemExit) as ended:
        main(["dashboards", "boards", *wrong.split(), "--dry-run"])
    assert ended.value.code == 2 and not (tmp_path / "boards").exists()


@pytest.mark.parametrize("words", [["nccl", "status=12"], ["xid", "79"], ["gpu.nvlink"]])
def test_an_explanation_says_its_title_once(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["explain", *words])
    title = capsys.readouterr().out.splitlines()[0].split("  ")
    assert len(title) == len(set(title)) and not (len(title) == 2 and title[0].endswith(title[1]))
