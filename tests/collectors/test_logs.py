"""Logs of ranks and trainers: followed over rotation and truncation, floods held back, steps read from what trainers print."""

import json
from pathlib import Path

import pytest

from collectors import tails as tails_module
from collectors.frame.types import LocalRank, News, Note, NotSupported, Place, Readings
from collectors.logs import Logs, PathNames, parse_json_step
from outrider.config.collectors import CollectorsSection, LogEntry
from outrider.signals import Signal

# Shapes of PyTorch's watchdog and of NCCL's IB transport (proxy and net_ib warnings).
WATCHDOG = (
    "[rank3]:[E1129 10:00:00.123456789 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600032 milliseconds before "
    "timing out."
)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 0.0
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.start()

    def start(self, **more: object) -> None:
        section = CollectorsSection(
            rank_logs=(LogEntry(glob=f"{self.logs}/{{job}}/rank{{rank}}.log"),),
            train_logs=(LogEntry(glob=f"{self.logs}/*.jsonl", job="j9"),),
        )
        self.collector = Logs(Place(node="n1", boot="b", state_dir=str(self.folder), section=section), Note())

    def write(self, name: str, text: str) -> Path:
        path = self.logs / name
        path.parent.mkdir(exist_ok=True)
        with open(path, "a") as file:
            file.write(text)
        return path

    def read(self, seconds: float = 1.0) -> list[Signal]:
        self.now += seconds
        outcome = self.collector.read(self.now)
        assert isinstance(outcome, Readings)
        self.collector.handed_over()
        self.page = {s.name: s.value for s in outcome.samples or []}
        return outcome.signals


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_watchdogs_word_is_told_with_job_and_rank(bench: Bench) -> None:
    bench.read()
    bench.write("j1/rank3.log", "hello\n" + WATCHDOG + "\n")
    (signal,) = bench.read()
    assert (signal.kind, signal.job, signal.rank, signal.node, signal.source) == ("collective_timeout", "j1", 3, "n1", "logs")
    assert signal.data["seq"] == 42 and signal.data["elapsed_s"] == pytest.approx(600.032)


def test_the_rank_comes_from_the_path_where_the_line_has_none(bench: Bench) -> None:
    bench.read()
    bench.write(
        "j1/rank7.log",
        "torch.distributed.DistBackendError: NCCL error in: x, remote process exited\n"
        + WATCHDOG[9:].replace("[Rank 3] ", "")
        + "\n",
    )
    assert {signal.rank for signal in bench.read()} == {7}


def test_what_stood_in_a_file_at_the_first_start_is_old(bench: Bench) -> None:
    bench.write("j1/rank3.log", WATCHDOG + "\n")
    assert bench.read() == []
    bench.write("j1/rank3.log", WATCHDOG + "\n")
    assert len(bench.read()) == 1


def test_a_restart_goes_on_where_it_was(bench: Bench) -> None:
    bench.read()
    bench.write("j1/rank3.log", WATCHDOG + "\n")
    assert len(bench.read()) == 1
    bench.write("j1/rank3.log", WATCHDOG + "\n")
    bench.start()
    assert len(bench.read()) == 1
    assert bench.read() == []


def test_rotation_and_truncation_are_followed(bench: Bench) -> None:
    path = bench.write("j1/rank3.log", "start\n")
    bench.read()
    path.rename(path.with_suffix(".log.1"))
    bench.write("j1/rank3.log", WATCHDOG + "\n")
    assert len(bench.read()) == 1
    path.write_text("")
    assert bench.read() == []
    path.write_text(WATCHDOG + "\n")
    assert len(bench.read()) == 1


def test_half_a_line_waits_for_its_other_half(bench: Bench) -> None:
    bench.read()
    bench.write("j1/rank3.log", WATCHDOG[:50])
    assert bench.read() == []
    bench.write("j1/rank3.log", WATCHDOG[50:] + "\n")
    assert len(bench.read()) == 1


def test_a_line_of_megabytes_is_passed_over_and_the_next_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails_module, "BLOCK_BYTES", 4096)
    bench.read()
    bench.write("j1/rank3.log", "x" * 50_000 + "\n" + WATCHDOG + "\n")
    told = [signal for _ in range(20) for signal in bench.read()]
    assert [signal.kind for signal in told] == ["collective_timeout"]


def test_a_flood_is_held_back_and_counted(bench: Bench) -> None:
    bench.read()
    bench.write("j1/rank3.log", (WATCHDOG + "\n") * 300)
    told = bench.read()
    assert len(told) <= 21
    assert bench.page["outrider_rank_log_suppressed_total"] >= 279
    (later,) = bench.read(seconds=30.0)
    assert later.data["count"] >= 279


def test_json_lines_are_steps_and_only_the_last_of_a_block_is_told(bench: Bench) -> None:
    bench.read()
    bench.write("t.jsonl", "".join(json.dumps({"step": n, "loss": 2.0 - n / 10, "lr": 1e-3}) + "\n" for n in range(5)))
    (signal,) = bench.read()
    assert (signal.kind, signal.value, signal.job, signal.data) == ("step", 4, "j9", {"loss": 1.6, "lr": 0.001})


def test_a_job_that_speaks_for_itself_has_no_printed_steps(bench: Bench) -> None:
    bench.read()
    bench.collector.told(News(ranks=[LocalRank(job="j9", rank=0, slot=0, attempt=2, pid=1)]))
    bench.write("t.jsonl", json.dumps({"step": 1, "loss": 2.0}) + "\n")
    assert bench.read() == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"step": 3, "loss": 1.5}', (3, {"loss": 1.5})),
        ('{"global_step": 4, "train/loss": NaN}', None),
        ('{"step": "x", "loss": 1}', None),
        ('{"step": 3}', None),
        ("{broken", None),
        ("[1]", None),
        ('{"step": true, "loss": 1}', None),
    ],
)
def test_json_steps(line: str, expected: object) -> None:
    found = parse_json_step(line)
    if "NaN" in line:
        assert found is not None and found[1]["loss"] != found[1]["loss"]
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("glob", "path", "expected"),
    [
        ("/l/{job}/rank{rank}.log", "/l/j-1/rank12.log", ("j-1", 12)),
        ("/l/**/{job}_{rank}.out", "/l/a/b/llm_7.out", ("llm", 7)),
        ("/l/*.log", "/l/x.log", (None, None)),
        ("/l/*.log", "/m/x.log", None),
    ],
)
def test_names_in_paths(glob: str, path: str, expected: object) -> None:
    assert PathNames(LogEntry(glob=glob)).names(path) == expected


def test_no_files_named_is_not_supported(tmp_path: Path) -> None:
    absent = Logs(Place(node="n1", boot="b", state_dir=str(tmp_path), section=CollectorsSection()), Note()).supported()
    assert isinstance(absent, NotSupported)


def test_many_files_and_junk_are_survived(bench: Bench) -> None:
    bench.read()
    for number in range(50):
        bench.write(f"j1/rank{number}.log", "\x00\x1b[31m junk \ufffd\n" * 20)
    assert bench.read() == []
    assert bench.page["outrider_rank_log_files"] == 50.0
