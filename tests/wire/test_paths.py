"""A relative path in the site's file counts from the file's folder, wherever a command or service is started."""

import asyncio
import os
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from detectors.witness.ledger_sqlite import SqliteLedger
from outrider.cli.shell import main
from outrider.config.ledger import LedgerSection
from outrider.config.paths import path_fields
from outrider.config.security import SecuritySection
from outrider.config.site import read_config, section_types
from outrider.config.snapshots import SnapshotsSection
from outrider.config.targets import SlurmTarget

#: Every setting that is a path, each a relative one.
WHOLE = """
[agent]
run_dir = "to/it"
state_dir = "to/it"
metrics_tls_cert = "to/it"
metrics_tls_key = "to/it"
[collectors]
sysfs_root = "to/it"
proc_root = "to/it"
kmsg_path = "to/it"
journalctl = "to/it"
nvml_library = "to/it"
flight_dir = "to/it"
flight_pipe = "to/it"
tensorboard_dir = "to/it"
mounts = [{ path = "to/it" }]
rank_logs = [{ glob = "to/it" }]
train_logs = [{ glob = "to/it" }]
[console]
reports_dir = "to/it"
[ledger]
path = "to/it"
[security]
heartbeat_key_file = "to/it"
agent_token_file = "to/it"
operator_token_file = "to/it"
viewer_token_file = "to/it"
[snapshots]
root = "to/it"
[witness]
state_dir = "to/it"
members = [{ name = "w1", http_port = 1, heartbeat_port = 1, tls_cert = "to/it", tls_key = "to/it", tls_ca = "to/it" }]
[alerts]
metrics_tls_cert = "to/it"
metrics_tls_key = "to/it"
targets = [{ name = "a", url = "http://x/", secret_files = ["to/it", "to/it"], ca_file = "to/it" }]
alertmanagers = [{ name = "b", urls = ["http://x/"], token_file = "to/it" }]
notify = [{ name = "c", url_file = "to/it" }]
slurm = [{ name = "d", token_file = "to/it", scontrol = "to/it", rank_map_dir = "to/it" }]
kubernetes = [{ name = "e", token_file = "to/it", ca_file = "to/it" }]
hosts = [{ name = "f", start = ["./x"], stop = ["./x"], state_dir = "to/it" }]
receivers = [{ name = "g", slack_url_file = "to/it" }]
"""
#: Files that another program opens and finds by a rule of its own.
OTHERS = {"alerts.receivers.pagerduty_key_file", "alerts.receivers.slack_url_file"}
LIKE_A_PATH = ("_file", "_files", "_dir", "_path", "_root", "_cert", "_key", "_ca", "_library", "_pipe", ".path", ".root", ".glob")


def fields(kind: Any, name: str) -> Iterator[tuple[str, bool]]:
    """All settings below a section: (name, whether it is a path)."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            here = f"{name}.{field.name}"
            yield here, bool(path_fields(kind).get(field.name))
            for one in (field.type, *typing.get_args(field.type)):
                yield from fields(one, here)


def values(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """What stands in every setting that is a path: (name, path)."""
    if isinstance(value, tuple):
        for one in value:
            yield from values(one, name)
    elif isinstance(value, msgspec.Struct):
        kinds = path_fields(type(value))
        for field in type(value).__struct_fields__:
            held, here = getattr(value, field), f"{name}.{field}"
            if kinds.get(field):
                yield from ((here, one) for one in (held if isinstance(held, tuple) else (held,)))
            else:
                yield from values(held, here)


ALL = {name: path for section, kind in section_types().items() for name, path in fields(kind, section)}


@pytest.mark.parametrize("told", ["absolute", "relative"])
def test_every_relative_path_counts_from_the_files_folder(told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "site" / "site.toml").write_text(WHOLE)
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = read_config(tmp_path / "site" / "site.toml" if told == "absolute" else "../site/site.toml")
    read = [pair for name, section in config.sections.items() for pair in values(section, name)]
    assert {name for name, _ in read} == {name for name, path in ALL.items() if path}
    assert {name: os.path.realpath(path) for name, path in read} == {name: str(tmp_path / "site" / "to" / "it") for name, _ in read}


def test_every_setting_that_looks_like_a_path_is_one() -> None:
    alike = {name for name in ALL if name.endswith(LIKE_A_PATH)}
    assert {name for name in alike if not ALL[name]} == OTHERS


def test_defaults_count_from_the_files_folder_and_empty_ones_stay_empty(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('[alerts]\nslurm = [{ name = "d" }]\n')
    config = read_config(path)
    assert config.get(LedgerSection).path == str(tmp_path / "outrider-state" / "ledger.db")
    assert config.get(SnapshotsSection).root == "" and config.get(SecuritySection).agent_token_file == ""
    slurm = next(one for name, one in values(config.sections["alerts"], "alerts") if name == "alerts.slurm.scontrol")
    assert slurm == SlurmTarget(name="x").scontrol == "scontrol"  # a program's plain name is looked up on PATH


def test_without_a_file_paths_count_from_here() -> None:
    assert read_config(None).get(LedgerSection).path == LedgerSection().path


def test_a_command_finds_the_ledger_from_wherever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(make(SqliteLedger(LedgerSection(path=str(tmp_path / "site" / "state" / "ledger.db")))))
    (tmp_path / "site" / "site.toml").write_text('[ledger]\npath = "state/ledger.db"\n')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["outbox", "--config", "site/site.toml"])
    assert (ended.value.code, capsys.readouterr().err) == (0, "")


async def make(ledger: SqliteLedger) -> None:
    await ledger.open()
    await ledger.close()
