"""Flight records picked up when they are whole, asked for on suspicion; NCCL RAS asked twice, and only then."""

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from ras_double import FakeRas

from collectors import ras as ras_module
from collectors.flight import Flight
from collectors.frame.types import CollectorError, LocalRank, News, Note, NotSupported, Place, Readings
from collectors.ras import Ras, ask
from outrider.config.collectors import CollectorsSection
from outrider.signals import Signal

# Form of PyTorch's flight recorder, version 2.10.
DUMP = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 7, "last_started_collective": 7, "last_completed_collective": 6}},
    "entries": [
        {
            "process_group": ["0", "default_pg"], "collective_seq_id": 7, "p2p_seq_id": 0, "op_id": 7, "is_p2p": False,
            "profiling_name": "nccl:all_reduce", "input_sizes": [[1024]], "output_sizes": [[1024]], "state": "started",
        }
    ],
}  # fmt: skip


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder, self.now = folder, 0.0
        self.dumps = folder / "dumps"
        self.dumps.mkdir()
        section = CollectorsSection(flight_dir=str(self.dumps), flight_pipe=str(folder / "pipe_"))
        self.collector = Flight(Place(node="n1", boot="b", state_dir=str(folder), section=section), Note())
        self.collector.told(News(ranks=[LocalRank(job="j1", rank=3, slot=3, attempt=2, pid=1)]))

    def read(self) -> list[Signal]:
        self.now += 1.0
        outcome = self.collector.read(self.now)
        assert isinstance(outcome, Readings)
        return outcome.signals


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_a_dump_is_told_once_when_it_has_come_to_rest(bench: Bench, form: str) -> None:
    bench.read()
    content = pickle.dumps(DUMP) if form == "pickle" else json.dumps(DUMP).encode()
    (bench.dumps / "nccl_trace_rank_3").write_bytes(content)
    assert bench.read() == []
    (signal,) = bench.read()
    assert (signal.kind, signal.job, signal.rank) == ("flight_record", "j1", 3)
    group = signal.data["0"]
    assert (group["enqueued"], group["started"], group["completed"]) == (7, 7, 6)
    assert "all_reduce" in group["op"] and signal.data["attempt"] == 2
    assert bench.read() == []


def test_a_dump_that_was_there_before_is_old(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (bench.dumps / "nccl_trace_rank_3").write_bytes(pickle.dumps(DUMP))
    assert bench.read() == [] and bench.read() == [] and bench.read() == []


@pytest.mark.parametrize(
    "content", [b"", b"junk", pickle.dumps(DUMP)[:40], b"cos\nsystem\n(S'false'\ntR."], ids=["empty", "junk", "half", "code"]
)
def test_junk_and_code_are_passed_over(bench: Bench, content: bytes) -> None:
    bench.read()
    (bench.dumps / "nccl_trace_rank_3").write_bytes(content)
    assert [signal for _ in range(4) for signal in bench.read()] == []


def test_on_suspicion_the_ranks_of_that_job_are_asked_once(bench: Bench) -> None:
    pipe = Path(f"{bench.folder}/pipe_3.pipe")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    ranks = [LocalRank(job="j1", rank=3, slot=3, attempt=2, pid=1), LocalRank(job="j1", rank=4, slot=4, attempt=2, pid=2)]
    for _ in range(3):
        bench.collector.told(News(ranks=ranks, suspected_job="j1"))
        bench.read()
    assert os.read(reader, 100) == b"1"
    assert bench.collector.asked == 1
    os.close(reader)


STATUS = {
    "nccl_version": "2.28.7", "communicators_count": 1,
    "communicators": [
        {
            "hash": "0xabc", "secondary_hash": "0x1", "size": 4, "ranks_count": 4, "missing_ranks_count": 0,
            "ranks": [
                {"rank": rank, "host": "n1", "pid": 100 + rank, "cuda_dev": rank, "nvml_dev": rank,
                 "status": {"init_state": 0, "async_error": 0, "finalize_called": False, "destroy_flag": False,
                            "abort_flag": False},
                 "collective_counts": {"AllReduce": 41 if rank == 2 else 42}}
                for rank in range(4)
            ],
            "missing_ranks": [],
        }
    ],
    "ras": {"collection_time_sec": 0.1, "timeouts_count": 0},
}  # fmt: skip


@pytest.fixture
def server() -> Iterator[FakeRas]:
    made = FakeRas(json.dumps(STATUS))
    yield made
    made.close()


def make_ras(server: FakeRas, folder: Path) -> Ras:
    section = CollectorsSection(ras_address=server.address)
    return Ras(Place(node="n1", boot="b", state_dir=str(folder), section=section), Note())


def suspect(job: str, rank: int = 0) -> News:
    return News(ranks=[LocalRank(job=job, rank=rank, slot=0, attempt=1, pid=1)], suspected_job=job)


def test_ras_is_not_asked_without_suspicion_nor_from_every_node(server: FakeRas, tmp_path: Path) -> None:
    ras = make_ras(server, tmp_path)
    ras.read(1.0)
    ras.told(suspect("j1", rank=5))
    ras.read(2.0)
    assert server.asked == 0


def test_a_rank_that_stays_behind_in_two_answers_is_told(server: FakeRas, tmp_path: Path) -> None:
    ras = make_ras(server, tmp_path)
    ras.told(suspect("j1"))
    first = ras.read(1.0)
    assert isinstance(first, Readings) and first.signals == []
    assert isinstance(between := ras.read(5.0), Readings) and between.signals == [] and server.asked == 1
    second = ras.read(11.5)
    assert isinstance(second, Readings)
    (signal,) = second.signals
    assert (signal.kind, signal.job, signal.rank, signal.data["last_enqueued"], signal.data["front"]) == (
        "collective_timeout", "j1", 2, 41, 42,
    )  # fmt: skip
    ras.read(30.0)
    assert server.asked == 2


def test_a_rank_that_moves_on_is_not_told(server: FakeRas, tmp_path: Path) -> None:
    ras = make_ras(server, tmp_path)
    ras.told(suspect("j1"))
    ras.read(1.0)
    server.answer = server.answer.replace("41", "43").replace("42", "44")
    second = ras.read(11.5)
    assert isinstance(second, Readings) and second.signals == []


def test_a_peer_that_ras_cannot_reach_is_told_as_the_askers_complaint(server: FakeRas, tmp_path: Path) -> None:
    """The dead cannot complain: the rank that asks does, of its peer; in the text form a dead process has no rank."""
    server.answer = (
        "NCCL version 2.24.3 compiled with CUDA 12.8\nJob summary\n===========\n\nErrors\n======\n\nDEAD\n"
        "  1 job process is considered dead (unreachable via the RAS network)\n  Process 77 on node 10.0.0.7 managing GPU 5\n\n"
        "#0-0 (cf264af53edbe986) INCOMPLETE\n  Missing communicator data from 1 rank\n"
        "  Rank 21 -- GPU 5 managed by process 77 on node 10.0.0.7\n"
    )
    ras = make_ras(server, tmp_path)
    ras.told(suspect("j1"))
    outcome = ras.read(1.0)
    assert isinstance(outcome, Readings)
    assert [(s.kind, s.rank, s.data["peer"], s.data.get("peer_rank"), s.data["status"]) for s in outcome.signals] == [
        ("collective_error", 0, "10.0.0.7", None, "dead"), ("collective_error", 0, "10.0.0.7", 21, "missing"),
    ]  # fmt: skip


def test_a_ras_that_says_nothing_is_an_error_within_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = FakeRas(mood="silent")
    with pytest.raises(CollectorError, match="timed out"):
        ask(server.address, seconds=0.2)
    server.close()
    with pytest.raises(CollectorError, match="refused"):
        ask("127.0.0.1:1")
    monkeypatch.setattr(ras_module, "ANSWER_SECONDS", 0.2)
    empty = Ras(Place(node="n1", boot="b", state_dir=str(tmp_path), section=CollectorsSection()), Note())
    assert isinstance(empty.supported(), NotSupported)
