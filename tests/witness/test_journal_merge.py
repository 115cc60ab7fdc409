"""The journals of several witnesses become one trace."""

import gzip
import json
from pathlib import Path

import pytest

from detectors.witness.journal_merge import merge
from outrider.errors import InputError


def write(folder: Path, name: str, file: str, times: list[float], tail: str = "") -> Path:
    (folder / name).mkdir(exist_ok=True)
    lines = ['{"kind": "fleet"}', *(json.dumps({"t": t, "kind": "xid", "to": [name]}) for t in times)]
    path = folder / name / file
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n" + tail).encode()))
    return path


def test_lines_come_in_time_order_after_one_header(tmp_path: Path) -> None:
    write(tmp_path, "w1", "signals.jsonl.gz", [1.0, 3.0])
    write(tmp_path, "w2", "signals.jsonl.gz", [2.0, 4.0], tail='{"t": 5.0, "ki')
    header, *lines = (json.loads(line) for line in merge(tmp_path, ("w1", "w2", "w3")))
    assert header == {"kind": "fleet"}
    assert [(line["t"], line["to"]) for line in lines] == [(1.0, ["w1"]), (2.0, ["w2"]), (3.0, ["w1"]), (4.0, ["w2"])]


def test_the_older_file_comes_first_unless_it_is_of_another_boot(tmp_path: Path) -> None:
    write(tmp_path, "w1", "signals.1.jsonl.gz", [1.0])
    write(tmp_path, "w1", "signals.jsonl.gz", [2.0])
    write(tmp_path, "w2", "signals.1.jsonl.gz", [9000.0])
    write(tmp_path, "w2", "signals.jsonl.gz", [1.5])
    _, *lines = (json.loads(line) for line in merge(tmp_path, ("w1", "w2")))
    assert [line["t"] for line in lines] == [1.0, 1.5, 2.0]


def test_a_file_that_was_cut_off_tells_what_came_before(tmp_path: Path) -> None:
    path = write(tmp_path, "w1", "signals.jsonl.gz", [float(index) for index in range(2000)])
    path.write_bytes(path.read_bytes()[:-50])
    lines = list(merge(tmp_path, ("w1",)))
    assert len(lines) > 1000


def test_no_journal_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no journal"):
        list(merge(tmp_path, ("w1",)))


def test_what_is_no_journal_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "w1").mkdir()
    (tmp_path / "w1" / "signals.jsonl.gz").write_bytes(b"plain text")
    with pytest.raises(InputError, match="cannot be read"):
        list(merge(tmp_path, ("w1",)))
