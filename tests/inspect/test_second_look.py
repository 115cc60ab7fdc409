"""What a second pair of eyes tried: each table row is a trap that once gave a wrong answer, or a twin of one that did not."""

# ruff: noqa: E501 (raw machine text is kept as it is printed)

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from detectors.inspect.command import inspect

NODES = [{"node": f"t-{i}", "rack": "r1", "gpus": 8, "nics": {"mlx5_6": "leaf-6", "mlx5_7": "leaf-7"}} for i in range(5)]
SLOTS = [[f"t-{i}", g] for i in range(4) for g in range(8)]


def fleet(until: float = 400.0, steps: bool = True) -> dict[str, Any]:
    job = {"job": "j1", "slots": SLOTS, "groups": {"dp": [list(range(32))]}, "limits": {"train_s": 300}}
    auto = {"heartbeat_s": 1.0} | ({"step_s": {"j1": 4.0}} if steps else {})
    return {
        "kind": "fleet",
        "nodes": NODES,
        "jobs": [job],
        "witnesses": ["w1", "w2", "w3"],
        "spares": ["t-4"],
        "until": until,
        "auto": auto,
    }


def link(t: float, state: str) -> dict[str, Any]:
    return {
        "t": t,
        "kind": "link",
        "node": "t-1",
        "nic": "mlx5_6",
        "port": "1",
        "data": {"state": state, "rate_gbps": 400 if state == "up" else 0, "rate_max_gbps": 400},
    }


def stop_steps(t: float, seconds: float | None) -> dict[str, Any]:
    return {"t": t, "kind": "pause", "node": "t-1", "value": seconds, "data": {"heartbeats": False, "steps": True}}


def call(t: float, seconds: float) -> dict[str, Any]:
    return {
        "t": t,
        "kind": "driver_call",
        "node": "t-2",
        "gpu": 6,
        "value": seconds,
        "data": {"call": "nvmlDeviceGetUtilizationRates"},
    }


def told_steps(losses: list[float]) -> list[dict[str, Any]]:
    return [
        {"t": 4.0 + 4 * k, "kind": "step", "job": "j1", "value": k, "data": {"step_s": 4.0, "loss": loss}}
        for k, loss in enumerate(losses)
    ]


def cards(t: float, odd: bool) -> list[dict[str, Any]]:
    rows = []
    for i, (node, gpu) in enumerate(SLOTS):
        idle = odd and (node, gpu) == ("t-2", 6)
        state = {"util": 0, "power_w": 72} if idle else {"util": 100, "power_w": 118 if odd else 655}
        rows.append(
            {
                "t": round(t + i / 1000, 3),
                "kind": "gpu_state",
                "node": node,
                "gpu": gpu,
                "source": "nvml",
                "data": {**state, "power_limit_w": 700},
            }
        )
    return rows


def ask(
    tmp_path: Path, kind: str | None, text: str | list[Any], context: dict[str, Any] | None = None, *more: str
) -> tuple[int, list[dict[str, Any]]]:
    if not isinstance(text, str):
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in text)
    (tmp_path / "input").write_text(text)
    (tmp_path / "context.json").write_text(json.dumps(context or {}))
    chosen = ["--kind", kind] if kind else []
    done = CliRunner().invoke(
        inspect,
        [*chosen, "--context", str(tmp_path / "context.json"), "--json", *more, str(tmp_path / "input")],
        standalone_mode=False,
    )
    assert done.exception is None, done.exception
    return done.return_value, [json.loads(line) for line in done.stdout.splitlines()]


SILENT = {
    "a stall of 100 s that ends by itself, within its limit": [fleet(), stop_steps(41, 100.0)],
    "a driver call that is late while the job steps on": [fleet(), call(60, 12.0)],
    "steps that end with the record": [fleet(until=230, steps=False), *told_steps([2.5 - k / 1000 for k in range(45)])],
    "a loss told in one digit that never moved": [fleet(until=190, steps=False), *told_steps([2.6] * 45)],
}


@pytest.mark.parametrize("trace", SILENT.values(), ids=SILENT.keys())
def test_nothing_is_opened_for(trace: list[Any], tmp_path: Path) -> None:
    status, found = ask(tmp_path, "trace", trace)
    assert status == 0 and all(one["response"] in ("ignore", "watch") for one in found)


def test_a_driver_call_that_never_returns_is_still_a_page(tmp_path: Path) -> None:
    status, found = ask(tmp_path, "trace", [fleet(), call(60, 12.0), call(120, 72.0)])
    assert status == 1 and [(one["fault"], one["response"]) for one in found] == [("gpu.driver_hang", "page")]


def test_a_port_that_blinks_eight_times_is_one_incident(tmp_path: Path) -> None:
    blinks = [link(50 + 90 * i + (0 if state == "down" else 26), state) for i in range(8) for state in ("down", "up")]
    _, found = ask(tmp_path, "trace", [fleet(until=900.0), *blinks])
    assert [(one["fault"], one["response"], one["subject"]["nic"]) for one in found] == [("link.flapping", "page", "mlx5_6")]
    assert found[0]["evidence"][0]["text"].startswith("t=50 link t-1 mlx5_6 state=down")


def test_the_idle_card_is_remembered_while_its_job_stands(tmp_path: Path) -> None:
    trace = [fleet(until=700.0), *cards(20, odd=False), stop_steps(30, None), *cards(90, odd=True)]
    _, [one] = ask(tmp_path, "trace", trace)
    assert (one["response"], one["culprit"], one["subject"]["rank"]) == ("restart", "gpu", 22)
    assert "rank 22 is idle" in one["explanation"]


XID79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID31 = "NVRM: Xid (PCI:0000:19:00): 31, pid=7, name=train, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_0 faulted @ 0x7ea3_51c82000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"


def test_a_program_error_beside_a_lost_gpu_is_no_incident_of_its_own(tmp_path: Path) -> None:
    text = [f"[100.1] {XID31}", f"[900.5] {XID79}"]
    _, found = ask(tmp_path, "kmsg", text, {"node": "n1"})
    assert [one["fault"] for one in found] == ["gpu.fallen_off_bus"]
    _, shown = ask(tmp_path, "kmsg", text, {"node": "n1"}, "--all")
    assert ("job.app_error", "ignore") in {(one["fault"], one["response"]) for one in shown}


def test_faults_of_two_machines_in_one_journal_are_two_incidents(tmp_path: Path) -> None:
    text = [
        f"2026-06-14T03:00:01.5+00:00 ka kernel: {XID79}",
        "2026-06-14T04:00:01.5+00:00 kb kernel: Kernel panic - not syncing: Fatal exception",
    ]
    _, found = ask(tmp_path, None, text)
    assert {(one["fault"], one["subject"]["node"]) for one in found} == {("gpu.fallen_off_bus", "ka"), ("node.panic", "kb")}


def test_a_journal_of_programs_alone_is_read_and_not_believed(tmp_path: Path) -> None:
    assert ask(tmp_path, None, [f"Jun 14 03:00:01 n1 python3[771]: {XID79}"]) == (0, [])


@pytest.mark.parametrize(
    "head", ["[n2] kernel: [1234.5] ", "[n2] kernel: ", "2026-06-11 03:12:40 n2 kernel: ", "[2026-06-11 03:12:40] n2 kernel: "]
)
def test_a_kernel_line_in_a_job_log_is_the_cause_whatever_the_collector_puts_before_it(head: str, tmp_path: Path) -> None:
    wait = "[rank0]:[E1103 04:13:00.5 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=3, NumelOut=3, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
    _, found = ask(tmp_path, "train_log", [head + XID79, wait], {"job": "j1"})
    assert [(one["fault"], one["subject"]["node"]) for one in found] == [("gpu.fallen_off_bus", "n2")]


def test_a_rank_that_prints_the_kernels_words_is_not_believed(tmp_path: Path) -> None:
    assert ask(tmp_path, "train_log", [f"[rank3] kernel: {XID79}", "[rank3] step 5 loss 2.1"], {"job": "j1"}) == (0, [])


def test_the_node_that_slurm_lost_is_not_the_one_whose_daemon_says_so(tmp_path: Path) -> None:
    text = [
        "slurmstepd: error: *** JOB 557 ON n1 CANCELLED AT 2026-07-10T00:00:01 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        "srun: error: Node failure on n3",
    ]
    _, found = ask(tmp_path, "train_log", text, {"job": "557"})
    assert [(one["fault"], one["subject"]["node"]) for one in found] == [("node.lost", "n3")]


def test_loaders_of_several_machines_that_wait_are_the_storages_matter(tmp_path: Path) -> None:
    ranks = {str(rank): [f"n{rank // 4}", rank % 4] for rank in range(8)}
    slow = [
        f"[rank{r}] 2026-11-03 04:09:11 loader: batch 88 not ready after 360 s (worker 2 pid 61 blocked in read)"
        for r in (1, 2, 5, 6)
    ]
    waits = [
        f"[rank{r}]:[E1103 04:13:00.5 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, NumelIn=3, NumelOut=3, Timeout(ms)=600000) ran for 600060 milliseconds before timing out."
        for r in (0, 3, 4, 7)
    ]
    _, found = ask(tmp_path, "train_log", [*slow, *waits], {"job": "j1", "ranks": ranks})
    assert [(one["fault"], one["culprit"]) for one in found] == [("job.dataloader_stall", "storage")]


def gauge(t: int, pod: str, last: int, count: int) -> list[str]:
    labels = f'gpu="5",UUID="GPU-x",pci_bus_id="00000000:BB:00.0",Hostname="n1",pod="{pod}"'
    return [f"# t={t}", f"DCGM_FI_DEV_XID_ERRORS{{{labels}}} {last}", f'DCGM_EXP_XID_ERRORS_COUNT{{{labels},xid="31"}} {count}']


def test_four_pods_in_turn_that_fail_on_one_gpu_point_at_the_gpu(tmp_path: Path) -> None:
    page = [
        line
        for n, pod in enumerate("abcd")
        for line in (*gauge(3600 * n, pod, 31 if n else 0, 0), *gauge(3600 * n + 60, pod, 31, 1))
    ]
    _, found = ask(tmp_path, "metrics", page)
    assert [(one["culprit"], one["subject"]["gpu"], one["response"]) for one in found] == [("gpu", 5, "drain")]


def test_drops_and_retrainings_of_one_port_are_one_incident(tmp_path: Path) -> None:
    page = [f"# t={t}" if name is None else f'node_infiniband_{name}{{device="mlx5_2",port="1",instance="{node}:9100"}} {value if node == "p1" else 0}'
            for t in (0, 600, 1200) for node, name, value in [("", None, 0), *((node, name, value) for node in ("p0", "p1", "p2") for name, value in (("link_downed_total", t // 60), ("link_error_recovery_total", t // 50)))]]  # fmt: skip
    _, found = ask(tmp_path, "metrics", page, {"instances": {f"p{i}:9100": f"p{i}" for i in range(3)}})
    assert [(one["subject"]["node"], one["subject"]["nic"], one["response"]) for one in found] == [("p1", "mlx5_2", "page")]


def test_a_job_that_begins_anew_beside_its_snapshots_has_lost_its_state(tmp_path: Path) -> None:
    saved = {"t": 100.0, "kind": "snapshot", "job": "j1", "value": 24, "data": {"state": "committed"}}
    again = [{**line, "t": line["t"] + 140} for line in told_steps([11.2 - k / 100 for k in range(20)])]
    phases = [
        {"t": t, "kind": "phase", "job": "j1", "value": name} for t, name in ((104.0, "end"), (120.0, "init"), (138.0, "train"))
    ]
    trace = [fleet(until=230, steps=False), *told_steps([2.5 - k / 1000 for k in range(24)]), saved, *phases, *again]
    _, found = ask(tmp_path, "trace", trace)
    assert [(one["fault"], one["response"]) for one in found] == [("job.resume_mismatch", "page")]
    assert "begins anew" in found[0]["explanation"]


def test_a_pods_name_does_not_hide_the_node_that_the_site_knows(tmp_path: Path) -> None:
    text = ["[pod/train-worker-3/pytorch] [rank27]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"]
    _, [one] = ask(tmp_path, "train_log", text, {"job": "j1", "ranks": {"27": ["gn-062", 3]}})
    assert (one["culprit"], one["subject"]["node"], one["subject"]["rank"]) == ("gpu", "gn-062", 27)


@pytest.mark.parametrize(
    ("stands", "told"), [(True, [("link.flapping", "restart")]), (False, [])], ids=["job stands", "job steps on"]
)
def test_a_blink_whose_transport_never_came_back_is_no_blink(stands: bool, told: list[tuple[str, str]], tmp_path: Path) -> None:
    lost = [
        {
            "t": 60.0 + n,
            "kind": "collective_error",
            "job": "j1",
            "rank": rank,
            "data": {"status": 12, "peer": "t-1", "device": "mlx5_6"},
        }
        for n, rank in enumerate((0, 16, 24))
    ]
    stop = [stop_steps(50.0, None)] if stands else []
    _, found = ask(tmp_path, "trace", [fleet(), link(50, "down"), *stop, link(52.5, "up"), *lost])
    assert [(one["fault"], one["response"]) for one in found if one["response"] not in ("ignore", "watch")] == told
