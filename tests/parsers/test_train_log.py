"""Lines of training logs: every known form is read, the ordinary is not, and no line takes long."""

# ruff: noqa: E501 (raw machine text is kept as it is printed)

import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.parsers.nccl import IB_STATUS
from outrider.parsers.train_log import _SEARCHED, GATES, Scanner, parse_line, to_signal

FORMS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, TensorShape=[1024, 4], Timeout(ms)=1800000) ran for 1802000 milliseconds before timing out.",
        "watchdog_timeout",
        {"seq": 12, "op": "ALLREDUCE", "elapsed_ms": 1802000},
    ),
    (
        "[rank3]:[E626 01:02:03.5 ProcessGroupNCCL.cpp:607] [PG 2 (tp_1) Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=_ALLGATHER_BASE, NumelIn=1, NumelOut=8, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.",
        "watchdog_timeout",
        {"group": "2", "desc": "tp_1"},
    ),
    (
        "[rank3]:[E626 01:02:03.5 ProcessGroupNCCL.cpp:607] [PG ID 2 PG GUID 7(tp_1) Rank 1] Timeout at NCCL work: 12, last enqueued NCCL work: 14, last completed NCCL work: 11.",
        "watchdog_status",
        {"seq": 12, "enqueued": 14, "completed": 11, "group": "7"},
    ),
    (
        "[rank3]:[E626 01:02:03.5 ProcessGroupNCCL.cpp:607] [PG 0 Rank 3] Exception (either an error or timeout) detected by watchdog at work: 12, last enqueued NCCL work: 14, last completed NCCL work: 11.",
        "watchdog_status",
        {"seq": 12},
    ),
    (
        "[rank3]:[E626 01:02:03.5 ProcessGroupNCCL.cpp:1400] [PG ID 0 PG GUID 0(default_pg) Rank 3] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.",
        "watchdog_stuck",
        {"seconds": 480},
    ),
    (
        "[rank3]:[E626 01:02:03.5 ProcessGroupNCCL.cpp:1400] [PG 0 Rank 3] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=3",
        "monitor_timeout",
        {},
    ),
    (
        "[rank3]:[E626 01:02:03.5 ProcessGroupNCCL.cpp:1400] Could not acquire GIL within 300 ms on exit, possible GIL induced hang",
        "gil_hang",
        {},
    ),
    ("   - [5, 7] joined but didn't finish collective #12 (count from 1)", "desync_unfinished", {"ranks": [5, 7], "seq": 12}),
    (
        "   - [5] finished collective #11, but didn't join collective #12 (count from 1)",
        "desync_missing",
        {"ranks": [5], "seq": 12, "finished": 11},
    ),
    (
        "- To our best knowledge, ranks [5,6] are the lagging ranks that caused this timeout. They never joined any collectives",
        "desync_never",
        {"ranks": [5, 6]},
    ),
    ("- [3] Timeout at collective: ALLREDUCE, #12", "desync_timeout", {"op": "ALLREDUCE"}),
    (
        "n1:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.9<333> with error 12, opcode 0, len 0, vendor err 129 (Send)",
        "ib_completion",
        {"status": 12, "vendor": 129, "peer": "10.0.0.9<333>"},
    ),
    (
        "n1:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.9<333> with status=12 opcode=32600 len=0 vendor err 129 (Recv) localGid fe80::1 remoteGidsfe80::2",
        "ib_completion",
        {"status": 12, "local_gid": "fe80::1", "remote_gid": "fe80::2"},
    ),
    (
        "n1:1:2 [0] transport/net_ib.cc:1 NCCL WARN NET/IB: Got completion from peer 10.0.0.9<333> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send localGid fe80::1 remoteGidsfe80::2 hca mlx5_3",
        "ib_completion",
        {"status": 12, "nic": "mlx5_3"},
    ),
    (
        "n1:1:2 [0] NCCL WARN NET/IB : mlx5_2:1 Got async event : port error",
        "ib_async",
        {"nic": "mlx5_2", "port": 1, "event": "port error"},
    ),
    (
        "n1:1:2 [0] NCCL WARN NET/IB : mlx5_2:1 Got non-fatal async event: port active(9)",
        "ib_async",
        {"event": "port active", "number": 9},
    ),
    (
        "n1:1:2 [0] NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0",
        "ib_call",
        {"call": "ibv_modify_qp"},
    ),
    (
        "n1:1:2 [0] misc/socket.cc:46 NCCL WARN socketProgress: Connection closed by remote peer n9.site<41877>",
        "peer_closed",
        {"peer": "n9.site<41877>"},
    ),
    (
        "n1:1:2 [0] misc/socket.cc:46 NCCL WARN socketProgressOpt: Call to recv from 10.0.0.9<41877> failed : Connection reset by peer",
        "peer_reset",
        {"peer": "10.0.0.9<41877>"},
    ),
    ("n1:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>", "address", {"address": "10.0.0.1"}),
    (
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:525] Connection closed by peer [10.0.0.9]:1234. This is typically caused by a remote worker crashing.",
        "gloo_closed",
        {"peer": "10.0.0.9", "how": "closed"},
    ),
    (
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Read error [10.0.0.9]:1234: Connection reset by peer",
        "gloo_closed",
        {"how": "reset"},
    ),
    (
        "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation to complete",
        "gloo_timeout",
        {"side": "recv"},
    ),
    ("[Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 600000 ms", "barrier_missing", {"ranks": [3, 5]}),
    (
        "E0419 09:41:13.101 5490 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: -9) local_rank: 3 (pid: 5566) of binary: python",
        "elastic_exit",
        {"exitcode": -9},
    ),
    (
        "Process 77 did not exit after SIGKILL within 30s; abandoning. Worker may be in uninterruptible kernel sleep",
        "elastic_stuck",
        {},
    ),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.12 GiB. GPU 3 has a total capacity of 79.11 GiB",
        "cuda_oom",
        {"tried": "3.12 GiB"},
    ),
    (
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.90 GiB total capacity; 14 GiB already allocated)",
        "cuda_oom",
        {},
    ),
    (
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "cuda_error",
        {"error": "an illegal memory access was encountered"},
    ),
    (
        "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1237: operator(): block: [1,0,0], thread: [2,0,0] Assertion `srcIndex < srcSelectDimSize` failed.",
        "device_assert",
        {"message": "srcIndex < srcSelectDimSize"},
    ),
    ("RuntimeError: DataLoader worker (pid 61230) is killed by signal: Bus error. ", "loader_killed", {"signal": "Bus error"}),
    ("RuntimeError: DataLoader worker (pid(s) 61230, 61231) exited unexpectedly", "loader_exited", {}),
    ("RuntimeError: DataLoader timed out after 600 seconds", "loader_stall", {"seconds": 600.0}),
    (
        "slurmstepd: error: *** STEP 9.0 ON gn[1-4] CANCELLED AT 2026-07-10T00:00:01 DUE TO TIME LIMIT ***",
        "cancelled",
        {"kind": "time_limit", "level": "STEP"},
    ),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=9.0. Some of the step tasks have been OOM Killed.", "slurm_oom", {}),
    ("srun: error: gn-033: tasks 8-11: Exited with exit code 1", "task_exit", {"tasks": [8, 9, 10, 11], "exitcode": 1}),
    ("srun: error: Node failure on gn-033", "node_failure", {}),
    (
        "ERROR:megatron.core.rerun_state_machine:Unexpected result tensor(nan) on rank 3 at iteration #41207 invocation #2 (message='x')",
        "rerun_unexpected",
        {"step": 41207},
    ),
    ("Rank 3, node n1, device 5, iteration #7: Possible transient error!", "rerun", {"verdict": "transient", "step": 7}),
    (
        "[2024-09-15 00:13:28,307] [INFO] [loss_scaler.py:183:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4096, reducing to 2048",
        "overflow",
        {"scale": 4096},
    ),
]

STEPS: list[tuple[str, dict[str, float]]] = [
    (
        " iteration    51204/  190000 | elapsed time per iteration (ms): 6120.4 | learning rate: 2.1E-05 | lm loss: 2.011874E+00 | loss scale: 1.0 | grad norm: 0.311 | number of skipped iterations:   0 | number of nan iterations:   2 |",
        {
            "step": 51204,
            "total": 190000,
            "loss": 2.011874,
            "grad_norm": 0.311,
            "step_s": 6.1204,
            "lr": 2.1e-05,
            "scale": 1.0,
            "nans": 2,
        },
    ),
    ("{'loss': 1.2345, 'grad_norm': 0.5, 'learning_rate': 1.9e-05, 'epoch': 0.12}", {"loss": 1.2345, "grad_norm": 0.5}),
    ("{'loss': '1.2345', 'grad_norm': '0.5', 'learning_rate': '1.9e-05', 'epoch': '0.12'}", {"loss": 1.2345}),
    (
        "[rank0]:2026-01-01 00:00:01,100 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.1234  \x1b[38mgrad_norm:  2.1  \x1b[33mmemory: 40.2GiB(42%)",
        {"step": 10, "loss": 7.1234, "grad_norm": 2.1},
    ),
    ("steps: 10 loss: 2.3456 iter time (s): 0.512 samples/sec: 31.2", {"step": 10, "loss": 2.3456, "step_s": 0.512}),
    (
        "Epoch 0:  10%|█         | 100/1000 [01:00<09:00, v_num=0, reduced_train_loss=2.300, global_step=99.00, train_step_timing in s=3.40]",
        {"loss": 2.3, "step_s": 3.4},
    ),
    (
        "Training epoch 0, iteration 10/1000 | lr: 1e-05 | global_step: 10 | reduced_train_loss: 10.2 | train_step_timing in s: 1.2",
        {"step": 10, "loss": 10.2, "step_s": 1.2},
    ),
    ("iter 100: loss 2.3210, time 50.11ms, mfu 30.1%", {"step": 100, "loss": 2.321}),
    ('{"step": 12, "loss": NaN, "grad_norm": Infinity}', {"step": 12, "loss": math.nan, "grad_norm": math.inf}),
    ("step=1200 loss=-inf lr=3e-4", {"step": 1200, "loss": -math.inf}),
]

ORDINARY = [
    "INFO nanoseconds per step, banana, nan_to_num is used",
    "check_for_nan_in_loss_and_grad .................. True",
    "loss scale window set to 1000",
    "INFO: no error found, Errors: 0",
    "gn-1:7741:7802 [1] NCCL INFO Channel 03/0 : 3[1] -> 2[2] via P2P/CUMEM",
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
    "UserWarning: torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly",
    "dataset loaded in 3.2 s",
    "",
]


@pytest.mark.parametrize(("line", "what", "data"), FORMS, ids=lambda value: value[:40] if isinstance(value, str) else "")
def test_a_known_form_is_read(line: str, what: str, data: dict[str, Any]) -> None:
    record = parse_line(line)
    assert record is not None and record.what == what, record
    assert {key: record.data.get(key) for key in data} == data
    assert Scanner().feed(f"noise\n{line}\nnoise\n".encode()) == [(1, record)]


@pytest.mark.parametrize(("line", "data"), STEPS, ids=lambda value: value[:30] if isinstance(value, str) else "")
def test_a_step_line_is_read(line: str, data: dict[str, float]) -> None:
    record = parse_line(line)
    assert record is not None and record.what == "step", record
    for key, value in data.items():
        assert record.data[key] == pytest.approx(value, nan_ok=True), key


@pytest.mark.parametrize("line", ORDINARY)
def test_ordinary_text_says_nothing(line: str) -> None:
    assert parse_line(line) is None


def test_printer_time_and_peer_come_from_their_own_places() -> None:
    record = parse_line(
        "[2026-06-11 03:12:41] gn-131:7741:7802 [1] transport/net_ib/p2p.cc:688 NCCL WARN NET/IB: Got completion from peer 10.77.9.6<44120> with "
        "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129  localGid ::ffff:10.78.0.31 remoteGids::ffff:10.78.0.6 hca mlx5_0"
    )
    assert record is not None
    assert (record.node, record.pid, record.gpu, record.data["remote_gid"]) == ("gn-131", 7741, 1, "::ffff:10.78.0.6")
    assert record.wall == 1781147561.0


def test_records_become_signals_of_the_design() -> None:
    step = parse_line("iteration 7/10 | lm loss: 2.0E+00 | grad norm: 0.3 |")
    wait = parse_line(FORMS[0][0])
    assert step is not None and wait is not None
    signal = to_signal(step, 5.0, node="n1", job="j1")
    assert signal is not None and (signal.kind, signal.value, signal.data["loss"]) == ("step", 7, 2.0)
    signal = to_signal(wait, 5.0, node="n1", job="j1")
    assert signal is not None and (signal.kind, signal.rank, signal.data["elapsed_s"]) == ("collective_timeout", 3, 1802.0)


def test_flush_errors_are_secondary_and_retries_are_about_the_path() -> None:
    assert (IB_STATUS[5].blame, IB_STATUS[12].blame, IB_STATUS[13].blame) == ("secondary", "path", "peer")


_SHAPES = [line for line, *_ in FORMS] + [line for line, _ in STEPS]
_LITERALS = sorted({rule.literal for _, rules in GATES for rule in rules} | {literal for literal, _ in GATES})


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=400) | st.lists(st.sampled_from(_LITERALS) | st.text(max_size=8), max_size=20).map("".join))
def test_any_text_is_survived(text: str) -> None:
    for number, record in Scanner().feed(text.encode("utf-8", "surrogatepass")):
        assert 0 <= number <= text.count("\n")
        assert record.what


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(_SHAPES), st.integers(0, 400), st.text(max_size=6), st.integers(0, 20))
def test_a_damaged_known_line_is_survived(line: str, at: int, text: str, cut: int) -> None:
    parse_line(line[:at] + text + line[at + cut :])


def test_no_line_takes_long() -> None:
    slowest = 0.0
    for literal in _LITERALS:
        for fill in ("1 ", "rank 1 ", "loss ", "[", "a.b:", "PG ID 1 "):
            line = ((literal + fill) * 600)[:4096]
            begin = time.process_time()
            parse_line(line)
            slowest = max(slowest, time.process_time() - begin)
    assert slowest < 0.5  # seconds; a pattern that backtracks without bound takes minutes


def test_no_literal_holds_a_digit_so_that_forms_can_be_remembered() -> None:
    assert not [literal for literal in _SEARCHED if any(48 <= byte <= 57 for byte in literal)]


def test_a_remembered_form_hides_no_later_line() -> None:
    scanner = Scanner()
    ordinary = b"INFO pass 1 took 3 s\n" * 3
    assert scanner.feed(ordinary + b"DataLoader timed out after 5 seconds\n" + ordinary) == []
    assert [(number, record.what) for number, record in scanner.feed(ordinary + b"DataLoader timed out after 500 seconds\n")] == [
        (3, "loader_stall")
    ]


def test_a_line_of_ten_megabytes_is_survived() -> None:
    assert Scanner().feed(b"Error: " * 1_400_000) is not None
