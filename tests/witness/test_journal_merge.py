"""The journals of several witnesses become one trace."""

import json
from pathlib import Path

import pytest

from detectors.witness.journal_merge import merge
from outrider.errors import InputError


def write(folder: Path, name: str, file: str, times: list[float], tail: str = "") -> None:
    (folder / name).mkdir(exist_ok=True)
    lines = ['{"kind": "fleet"}', *(json.dumps({"t": t, "kind": "xid", "to": [name]}) for t in times)]
    (folder / name / file).write_text("\n".join(lines) + "\n" + tail)


def test_lines_come_in_time_order_after_one_header(tmp_path: Path) -> None:
    write(tmp_path, "w1", "signals.jsonl", [1.0, 3.0])
    write(tmp_path, "w2", "signals.jsonl", [2.0, 4.0], tail='{"t": 5.0, "ki')
    header, *lines = (json.loads(line) for line in merge(tmp_path, ("w1", "w2", "w3")))
    assert header == {"kind": "fleet"}
    assert [(line["t"], line["to"]) for line in lines] == [(1.0, ["w1"]), (2.0, ["w2"]), (3.0, ["w1"]), (4.0, ["w2"])]


def test_the_older_file_comes_first_unless_it_is_of_another_boot(tmp_path: Path) -> None:
    write(tmp_path, "w1", "signals.1.jsonl", [1.0])
    write(tmp_path, "w1", "signals.jsonl", [2.0])
    write(tmp_path, "w2", "signals.1.jsonl", [9000.0])
    write(tmp_path, "w2", "signals.jsonl", [1.5])
    _, *lines = (json.loads(line) for line in merge(tmp_path, ("w1", "w2")))
    assert [line["t"] for line in lines] == [1.0, 1.5, 2.0]


def test_no_journal_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no journal"):
        list(merge(tmp_path, ("w1",)))
