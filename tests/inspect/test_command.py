"""`outrider inspect` as people and programs call it: kinds, files, folders, gzip, standard input, exit status, bad input."""
# ruff: noqa: E501 (raw lines keep their length)

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from detectors.inspect.command import inspect
from detectors.inspect.kinds import KINDS, guess_kind
from detectors.inspect.sources import LINE_BYTES_MAX, Source

LOST = "[  100.1] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
PAGE = '# t=0\nDCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="5",UUID="GPU-5",Hostname="n1"} 1\n'


def call(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(inspect, [str(one) for one in arguments], input=stdin, standalone_mode=False)


def run(*arguments: str | Path, stdin: bytes | None = None) -> tuple[int, list[dict], str]:
    """Exit status, findings and the message on standard error, through the shell that people use."""
    import subprocess
    import sys

    command = [sys.executable, "-m", "outrider.cli.shell", "inspect", *(str(one) for one in arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60)
    lines = done.stdout.decode().splitlines()
    found = [json.loads(line) for line in lines] if "--json" in arguments else []
    return done.returncode, found, done.stderr.decode()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kernel.log"
    path.write_text("[   99.0] an ordinary line\n" + LOST)
    return path


def test_the_public_form_of_a_finding(log: Path) -> None:
    found = json.loads(call(log, "--json").output)
    assert list(found) == [
        "fault", "culprit", "subject", "layers", "decisive", "response", "repair", "xids", "evidence", "explanation", "state",
    ]  # fmt: skip
    assert found["fault"] == "gpu.fallen_off_bus" and found["subject"] == {"pci": "0000:3b:00"}
    assert found["xids"] == [{"xid": 79, "pci": "0000:3b:00", "root": True}]
    assert found["evidence"] == [{"line": 2, "text": LOST.strip()}] and found["state"] == "open"


def test_the_answer_for_people_says_what_where_why_and_what_next(log: Path) -> None:
    answer = call(log).output
    for word in (
        "RESTART",
        "gpu.fallen_off_bus",
        "0000:3b:00",
        "Xid 79",
        "certain",
        "boot the node",
        "lspci -s 0000:3b:00",
        "line 2",
    ):
        assert word in answer, word


def test_the_exit_status_says_whether_anybody_is_needed(log: Path, tmp_path: Path) -> None:
    quiet = tmp_path / "quiet.log"
    quiet.write_text("[   99.0] an ordinary line\n")
    assert call(log).return_value == 1
    result = call(quiet)
    assert result.return_value == 0 and "Nothing that needs anybody" in result.output


def test_findings_at_ignore_are_shown_only_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "kernel.log"
    path.write_text("[1.0] NVRM: Xid (PCI:0000:b9:00): 14, pid=3, name=inject, Ch 0\n")
    assert call(path, "--json").output == ""
    assert '"ignore"' in call(path, "--json", "--all").output


def test_gzip_and_standard_input_are_read_as_they_are(log: Path, tmp_path: Path) -> None:
    packed = tmp_path / "kernel.log.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    assert json.loads(call(packed, "--json").output)["fault"] == "gpu.fallen_off_bus"
    for content in (log.read_bytes(), packed.read_bytes()):
        status, found, _ = run("-", "--json", stdin=content)
        assert status == 1 and found[0]["fault"] == "gpu.fallen_off_bus"


def test_a_folder_of_several_kinds_is_read_and_what_is_no_log_is_passed_over(log: Path, tmp_path: Path) -> None:
    (tmp_path / "page.prom").write_text(PAGE)
    (tmp_path / "picture").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10)
    status, found, told = run(tmp_path, "--json")
    assert status == 1 and {one["fault"] for one in found} == {"gpu.fallen_off_bus", "gpu.row_remap_failed"}
    assert all("file" in one["evidence"][0] for one in found)
    assert "passed over" in told and "picture" in told


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty", b"", "is empty"),
        ("blank", b"\n\n  \n", "is empty"),
        ("binary", bytes(range(256)) * 100, "is binary data"),
        ("utf16", "[1.0] NVRM: Xid".encode("utf-16"), "UTF-16"),
        ("cut.gz", gzip.compress(LOST.encode() * 1000)[:-30], "damaged gzip"),
        ("notgz.gz", b"\x1f\x8bnot gzip at all", "damaged gzip"),
        ("verse", b"roses are red\nviolets are blue\n", "none of the kinds"),
    ],
)
def test_a_file_that_cannot_be_judged_is_one_clear_line_and_exit_two(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    status, found, told = run(path, "--json")
    assert status == 2 and not found
    assert says in told and name in told and len(told.splitlines()) == 1 and "Traceback" not in told


def test_a_missing_file_and_a_bad_context_are_one_clear_line(log: Path, tmp_path: Path) -> None:
    status, _, told = run(tmp_path / "nowhere", "--json")
    assert status == 2 and "nowhere" in told and len(told.splitlines()) == 1
    for content in ("{", "[]", '{"ranks": {"x": 1}}', '{"inventory": 3}', '{"expected": 5}', '{"expected": {"gpus": "many"}}'):
        context = tmp_path / "context.json"
        context.write_text(content)
        status, _, told = run(log, "--json", "--context", context)
        assert status == 2 and "context.json" in told and len(told.splitlines()) == 1, (content, told)


def test_a_mistake_in_the_sites_overrides_names_the_key(log: Path, tmp_path: Path) -> None:
    config = tmp_path / "site.toml"
    config.write_text('[catalogue.xid.79]\nresponse = "shout"\n')
    status, _, told = run(log, "--json", "--config", config)
    assert status == 2 and "catalogue" not in told.splitlines()[0].split(":")[0] and "shout" in told
    config.write_text('[catalogue.xid.79]\nrespons = "page"\n')
    status, _, told = run(log, "--json", "--config", config)
    assert status == 2 and "respons" in told
    config.write_text('[catalogue.xid.7900]\nresponse = "page"\n')
    status, _, told = run(log, "--json", "--config", config)
    assert status == 2 and "7900" in told
    config.write_text('[catalogue.xid.79]\nresponse = "page"\n')
    status, found, _ = run(log, "--json", "--config", config)
    assert found[0]["response"] == "page"


GUESSES = {
    "kmsg": (LOST, "Mar 12 07:10:02 n1 kernel: [ 1.0] foo\n" * 3, "4,1227,437812449932,-;NVRM: foo\n", "[Thu Mar 12 07:10:02 2026] usb\n"),
    "metrics": (PAGE, "# TYPE up gauge\nup 1\n"),
    "dump": ('==> n1 rank 0 pid 7 state D <==\nProcess 7: python\n', '{"rank": 0, "pg_config": {}, "pg_status": {}}\n'),
    "trace": ('{"kind": "fleet", "nodes": []}\n',),
    "train_log": ("[rank5] 2026-11-03 04:04:11 loader: batch 8 not ready\n", " iteration  51204/ 190000 | lm loss: 2.01E+00 |\n"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in GUESSES.items() for text in texts])
def test_the_kind_is_guessed_from_the_content(tmp_path: Path, kind: str, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    assert guess_kind(Source(path)) == kind and kind in KINDS


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * (2 * LINE_BYTES_MAX) + b"\n" + LOST.encode())
    lines = list(Source(path).lines())
    assert max(map(len, lines)) < 2 * LINE_BYTES_MAX and lines[-1] == LOST.strip()


def test_lines_are_the_same_however_the_blocks_fall(tmp_path: Path) -> None:
    wanted = [f"line {n} " + "é" * (n % 50) for n in range(60_000)]
    path = tmp_path / "many"
    path.write_text("\r\n".join(wanted), newline="")
    assert list(Source(path).lines()) == wanted


def test_a_pipe_that_delivers_little_by_little_is_read_whole(tmp_path: Path) -> None:
    import os
    import threading

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        with pipe.open("wb", buffering=0) as out:
            for byte in b"[   99.0] an ordinary line\n" + LOST.encode():
                out.write(bytes([byte]))

    writer = threading.Thread(target=write)
    writer.start()
    found = json.loads(call(pipe, "--json").output)
    writer.join(10)
    assert found["fault"] == "gpu.fallen_off_bus" and found["evidence"][0]["line"] == 2
