"""A key that nobody reads is never passed over in silence: the site's file refuses it, formats that may grow tell of it."""

import json
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from detectors.inspect.command import inspect
from detectors.replay.command import explain_incident, replay
from outrider.config.loader import ConfigError
from outrider.config.site import read_config, section_types
from outrider.unknown_keys import KEYS_MAX

HEAD: dict[str, Any] = {
    "kind": "fleet", "nodes": [{"node": "n1", "gpus": 1}, {"node": "n2", "gpus": 1}],
    "jobs": [{"job": "j", "slots": [["n1", 0]]}], "until": 5.0, "auto": {"heartbeat_s": 1.0},
    "links": [{"from": "a", "to": "b"}],
}  # fmt: skip
LINE: dict[str, Any] = {"t": 1.0, "kind": "xid", "node": "n1", "gpu": 0, "value": 79}
PAUSE: dict[str, Any] = {"t": 2.0, "kind": "pause", "node": "n2", "value": 1.0, "data": {"steps": True}}
CONTEXT: dict[str, Any] = {
    "node": "n1", "inventory": [{"node": "n1", "index": 0}], "phase": {"name": "train"}, "expected": {"gpus": 1},
    "topology": {"nics": {}}, "limits": {"any_s": 1}, "ranks": {"0": ["n1", 0]},
}  # fmt: skip


def tables(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every table that a site's file may have: (its name, how it is opened)."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield path, "[{}]"
        for field in msgspec.structs.fields(kind):
            arguments = typing.get_args(field.type)
            here = (*path, field.encode_name)
            inside = {tuple: (arguments[:1], here, "[[{}]]"), dict: (arguments[1:2], (*here, "'a.b'"), "[{}]")}
            for one, place, how in [inside.get(typing.get_origin(field.type), ((field.type,), here, "[{}]"))]:
                if isinstance(one[0], type) and issubclass(one[0], msgspec.Struct):
                    yield place, how


ALL = [pair for name, kind in section_types().items() for pair in tables(kind, (name,))]


@pytest.mark.parametrize(("path", "how"), ALL, ids=[".".join(path) for path, _ in ALL])
def test_every_table_of_a_sites_file_refuses_an_unknown_key_by_its_line(path: tuple[str, ...], how: str, tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(f"\n{how.format('.'.join(path))}\nzzz = 1\n")
    with pytest.raises(ConfigError) as error:
        read_config(file)
    told = [problem for problem in error.value.problems if (problem.key or "").endswith(".zzz")]
    assert [problem.line for problem in told] == [3] and "unknown key" in str(told[0])


def trace(folder: Path, *lines: dict[str, Any]) -> Path:
    file = folder / "trace.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def warned(command: Any, *arguments: str | Path) -> list[str]:
    done = CliRunner().invoke(command, [str(one) for one in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    assert "unknown key" not in done.stdout
    return [line for line in done.stderr.splitlines() if "unknown key" in line]


READERS = {"replay": (replay, []), "explain-incident": (explain_incident, []), "inspect": (inspect, ["--kind", "trace", "--json"])}
STRANGE = {
    "header": ((HEAD | {"spare": []}, LINE), 1, "spare: ", "'spares'"),
    "its nodes": ((HEAD | {"nodes": [{"node": "n1", "gpu": 1}, {"node": "n2", "gpu": 1}]},), 1, "nodes[0].gpu: ", "'gpus'"),
    "job of the header": ((HEAD | {"jobs": [{"job": "j", "slot": []}]}, LINE), 1, "jobs[0].slot: ", "'slots'"),
    "auto": ((HEAD | {"auto": {"heartbeats_s": 1.0}}, LINE), 1, "auto.heartbeats_s: ", "'heartbeat_s'"),
    "cable": ((HEAD | {"links": [{"from": "a", "to": "b", "gbps": 4}]}, LINE), 1, "links[0].gbps: ", "from and to"),
    "signal": ((HEAD, LINE, LINE | {"nod": "n1"}, LINE | {"nod": "n2"}), 3, "nod: ", "'node'"),
    "pause": ((HEAD, LINE, PAUSE | {"data": {"heartbeat": False}}), 3, "data.heartbeat: ", "'heartbeats'"),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("lines", "line", "key", "near"), STRANGE.values(), ids=STRANGE)
def test_an_unknown_key_of_a_trace_is_told_once_with_its_place(
    lines: tuple[dict[str, Any], ...], line: int, key: str, near: str, reader: str, tmp_path: Path
) -> None:
    file = trace(tmp_path, *lines)
    command, options = READERS[reader]
    said = warned(command, *options, file)
    assert len(said) == 1 and f"{file}:{line}: {key}" in said[0] and near in said[0]


@pytest.mark.parametrize("reader", READERS)
def test_a_trace_without_strange_keys_warns_of_nothing(reader: str, tmp_path: Path) -> None:
    command, options = READERS[reader]
    assert warned(command, *options, trace(tmp_path, HEAD, LINE, PAUSE, LINE | {"t": 3.0, "value": float("nan")})) == []


def test_a_file_full_of_strange_keys_is_not_told_whole(tmp_path: Path) -> None:
    lines = [LINE | {f"strange{number}": 1} for number in range(KEYS_MAX + 50)]
    said = warned(replay, trace(tmp_path, HEAD, *lines))
    assert len(said) == KEYS_MAX + 1 and "more that are not told" in said[-1]


@pytest.mark.parametrize(
    ("changed", "key", "line"),
    [
        ({"inventry": []}, "inventry", 4),
        ({"inventory": [{"node": "n1", "indx": 0}]}, "inventory[0].indx", 7),
        ({"phase": {"nme": "train"}}, "phase.nme", 5),
        ({"expected": {"gpu": 1}}, "expected.gpu", 5),
        ({"topology": {"nic": {}}}, "topology.nic", 5),
    ],
)
def test_an_unknown_key_of_the_context_is_told_with_its_line(changed: dict[str, Any], key: str, line: int, tmp_path: Path) -> None:
    context, log = tmp_path / "context.json", tmp_path / "kernel.log"
    context.write_text(json.dumps({"node": "n1", "job": None} | changed, indent=1))
    log.write_text("[1.0] an ordinary line\n")
    said = warned(inspect, "--kind", "kmsg", "--context", context, log)
    assert len(said) == 1 and f"{context}:{line}: {key}: " in said[0]


def test_all_that_the_context_knows_is_read_without_a_word(tmp_path: Path) -> None:
    context, log = tmp_path / "context.json", tmp_path / "kernel.log"
    context.write_text(json.dumps(CONTEXT))
    log.write_text("[1.0] an ordinary line\n")
    assert warned(inspect, "--kind", "kmsg", "--context", context, log) == []


@pytest.mark.parametrize(
    ("cable", "words"), [('{ from = "a" }', "no two switches"), ('{ from = "a", to = "b", gbps = 4 }', "gbps: unknown key")]
)
def test_a_cable_of_the_sites_file_joins_two_switches_and_says_no_more(cable: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    file.write_text(f"[fleet]\nlinks = [{cable}]\n")
    with pytest.raises(ConfigError, match=words):
        read_config(file)
