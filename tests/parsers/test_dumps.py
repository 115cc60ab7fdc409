"""Flight records, stacks and RAS answers: forms that exist, and whatever may come instead."""

import json
import pickle
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.errors import InputError
from outrider.parsers.flight import make_dump, read_json, read_pickle
from outrider.parsers.ras import is_ras, parse_ras
from outrider.parsers.stacks import parse_stacks

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(PLAIN, st.integers(3, pickle.HIGHEST_PROTOCOL))
def test_plain_data_are_read_as_pickle_reads_them(value: Any, protocol: int) -> None:
    content = pickle.dumps(value, protocol=protocol)
    assert read_pickle(content) == value


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_give_data_or_one_clear_error(content: bytes) -> None:
    for whole in (content, b"\x80\x04" + content):
        try:
            make_dump(read_pickle(whole))
        except InputError as error:
            assert "\n" not in str(error)


class Call:
    def __reduce__(self) -> Any:
        return (print, ("executed",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_code_is_refused(protocol: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="code in it"):
        read_pickle(pickle.dumps([Call()], protocol=protocol))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x04cos\nsystem\n(S'true'\ntR.",
        b"(ios\nsystem\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02\x82\x01.",
        b"Ppersistent\n.",
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",
        b"\x80\x04r" + struct.pack("<I", 1 << 31) + b".",
    ],
)
def test_tricks_are_refused_without_harm(content: bytes) -> None:
    with pytest.raises(InputError):
        read_pickle(content)


@settings(max_examples=200, deadline=None)
@given(PLAIN)
def test_any_data_make_a_dump_or_one_clear_error(value: Any) -> None:
    for raw in (value, {"entries": [value], "pg_config": {"0": value}, "pg_status": value}, {"entries": value, "rank": value}):
        try:
            make_dump(raw)
        except InputError:
            continue


def test_the_old_list_form_and_gloos_states_are_read() -> None:
    dump = make_dump(
        [{"pg_id": 0, "seq_id": 5, "profiling_name": "gloo:all_reduce", "state": "scheduled", "retired": True}], rank=3
    )
    assert (dump.rank, dump.calls[0].seq, dump.calls[0].state, dump.calls[0].op) == (3, 5, "completed", "all_reduce")


def test_point_to_point_ends_are_read() -> None:
    dump = make_dump(
        {"entries": [{"pg_id": 1, "p2p_seq_id": 7, "profiling_name": "nccl:recv 1<-0", "state": "started", "is_p2p": True}]}
    )
    assert (dump.calls[0].source, dump.calls[0].target, dump.calls[0].p2p) == (0, 1, True)


def test_a_broken_json_line_is_named() -> None:
    with pytest.raises(InputError, match="file:2: is not JSON"):
        read_json('{"entries": []}\n{"entr', "file")


PYSPY = """==> n1 rank 3 pid 77 state D <==
Process 77: python3 train.py
Python v3.11.9 (/usr/bin/python3.11)

Thread 77 (idle): "MainThread"
    _fsync (torch/distributed/checkpoint/filesystem.py:402)
    <module> (train.py:402)
Thread 0x7F1C2A3FF640 (active+gil): "worker"
    dumps (json/encoder.py:200)
==> n1 kernel <==
[1.0] INFO: task python3:77 blocked for more than 122 seconds.
"""
FAULTHANDLER = """Fatal Python error: Segmentation fault

Thread 0x00007f1c2a3ff640 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait

Current thread 0x00007f1c2b5ff740 (most recent call first):
  File "/app/train.py", line 10 in forward
  File "/app/train.py", line 40 in <module>
"""


def test_py_spy_sections_are_read() -> None:
    dump = parse_stacks(PYSPY.splitlines())
    one = dump.processes[0]
    assert (one.node, one.rank, one.pid, one.state) == ("n1", 3, 77, "D")
    assert one.main is not None and one.main.frames[0].function == "_fsync"
    assert one.threads[1].flags == {"active", "gil"}
    assert dump.kernels[0].lines[0][0] == 11


def test_faulthandler_text_is_read() -> None:
    one = parse_stacks(FAULTHANDLER.splitlines()).processes[0]
    assert one.main is not None and [frame.function for frame in one.main.frames] == ["forward", "<module>"]


RAS = """NCCL version 2.24.3 compiled with CUDA 12.8
Job summary
===========
Communicators... (0.00s)
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 6650
  Rank 9 has launched up to operation 6649 -- GPU 1 managed by process 483072 on node 10.0.0.1
"""


def test_ras_text_names_the_lagging_rank() -> None:
    assert is_ras(RAS)
    poll = parse_ras(RAS)[0]
    lagging = poll.lagging["0-0 27a079b828ff1a75 AllReduce"][0]
    assert (lagging.rank, lagging.count, lagging.node, lagging.gpu) == (9, 6649, "10.0.0.1", 1)


def test_ras_json_says_the_same() -> None:
    ranks = [
        {
            "rank": n,
            "host": "n1",
            "pid": 5,
            "cuda_dev": n,
            "status": {"async_error": 0},
            "collective_counts": {"AllReduce": 6 - (n == 3)},
        }
        for n in range(4)
    ]
    dead = {"rank": 4, "host": "n2", "pid": 6, "cuda_dev": 0, "status": {"considered_dead": True}}
    text = json.dumps(
        {"communicators_count": 1, "communicators": [{"hash": "ab", "size": 5, "ranks": ranks, "missing_ranks": [dead]}]}
    )
    poll = parse_ras(text)[0]
    assert [one.rank for ranks in poll.lagging.values() for one in ranks] == [3]
    assert [(one.rank, one.node) for one in poll.dead] == [(4, "n2")]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300), st.sampled_from([PYSPY, FAULTHANDLER, RAS]), st.integers(0, 400))
def test_any_text_is_survived(text: str, shape: str, at: int) -> None:
    mixed = shape[:at] + text + shape[at:]
    parse_stacks(mixed.splitlines())
    parse_ras(mixed)
    parse_ras("{" + text)
