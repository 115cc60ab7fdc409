"""Faults and false alarms as traces: one incident a cause, rightly named, and nothing for what is none."""

from typing import Any

import pytest
from traces import actions, confirmed, final, header, run


def xid(t: float, code: int, node: str = "n1", pci: str = "0000:3b:00", **more: Any) -> dict[str, Any]:
    return {
        "t": t,
        "kind": "xid",
        "node": node,
        "source": "kmsg",
        "value": code,
        "data": {"pci": pci, **more.pop("data", {})},
        **more,
    }


def step(t: float, number: int, rank: int | None = None, **data: Any) -> dict[str, Any]:
    return {"t": t, "kind": "step", "job": "j1", "value": number, "data": data} | ({} if rank is None else {"rank": rank})


def pause(t: float, node: str, value: float | None = None, **more: Any) -> dict[str, Any]:
    return {"t": t, "kind": "pause", "node": node, "value": value, **more}


def test_a_healthy_job_is_left_alone() -> None:
    assert run(header(until=600)) == []


@pytest.mark.parametrize("seconds", [1.0, 3.0, 8.0, 20.0, 30.0])
def test_a_paused_host_is_not_taken_out(seconds: float) -> None:
    lines = run(header(until=150), pause(40, "n1", seconds))
    assert not actions(lines) and all(line["response"] == "watch" for line in lines)


def test_a_dead_node_without_any_other_evidence_is_lost_at_the_hard_limit() -> None:
    lines = run(header(until=150), pause(40.5, "n1"))
    [incident] = final(lines)
    assert (incident["fault"], incident["subject"]) == ("node.lost", {"node": "n1"})
    when = next(line["t"] for line in lines if line["event"] == "confirmed" and line["fault"] == "node.lost")
    assert 75.0 <= when <= 76.3
    assert actions(lines)[-3:] == ["snapshot", "quarantine", "restart"]


def test_a_dead_kernel_and_complaining_peers_confirm_within_seconds() -> None:
    errors = [
        {"t": 41.0 + rank / 10, "kind": "collective_error", "job": "j1", "rank": rank, "data": {"peer": "n1", "status": 12}}
        for rank in (2, 5)
    ]
    lines = run(header(until=90), pause(40.5, "n1", data={"kernel": False}), *errors)
    [incident] = final(lines)
    assert incident["fault"] == "node.lost" and "communication" in incident["layers"]
    assert next(line["t"] for line in lines if line["event"] == "confirmed") <= 46.5


def test_a_stopped_node_whose_kernel_answers_is_hung_after_its_limit() -> None:
    lines = run(header(until=150), pause(40.5, "n1", data={"kernel": True}))
    assert [line["fault"] for line in final(lines)] == ["node.hung"]
    assert next(line["t"] for line in lines if line["event"] == "confirmed") >= 100.0


@pytest.mark.parametrize("to", [["w1"], ["w1", "w2"], ["w1", "w2", "w3"]])
def test_heartbeats_lost_on_the_way_are_not_above_watch(to: list[str]) -> None:
    lines = run(header(until=120), pause(40, "n1", 25.0, to=to, data={"heartbeats": True, "steps": False}))
    assert not actions(lines) and not confirmed(lines)


def test_an_unreachable_node_whose_job_steps_on_is_a_broken_path() -> None:
    lines = run(header(until=120), pause(40, "n1", None, data={"heartbeats": True, "steps": False}))
    assert confirmed(lines) == [("path.broken", "page")] and actions(lines) == ["page"]


def test_a_rack_that_falls_silent_is_one_incident_and_no_drain() -> None:
    head = header(nodes=24, spares=0, until=150, rack=lambda index: f"r{index // 8}")
    lines = run(head, *(pause(40 + index / 10, f"n{index}") for index in range(1, 9)))
    [incident] = final(lines)
    assert (incident["fault"], incident["subject"]["rack"], incident["response"]) == ("domain.lost", "r0", "page")
    assert not set(actions(lines)) & {"drain", "quarantine", "restart"}


def test_a_tenth_of_all_agents_silent_is_our_own_blindness() -> None:
    head = header(nodes=80, spares=0, gpus=1, until=150, rack=lambda index: f"r{index // 8}")
    lost = [f"n{index}" for index in range(1, 81, 8)]
    lines = run(head, *(pause(40, node, 60.0, data={"heartbeats": True, "steps": False}) for node in lost))
    assert [line["fault"] for line in final(lines)] == ["monitor.blind"]
    assert not set(actions(lines)) & {"drain", "quarantine", "restart"}


def test_a_stale_code_of_an_older_boot_is_nothing() -> None:
    beats = [{"t": t, "kind": "heartbeat", "node": "n1", "data": {"seq": t + 1, "boot": "b2"}} for t in range(60)]
    old = xid(20, 79, data={"boot": "b1", "observed_s": -500.0})
    assert run(header(until=60, heartbeat_s=None, job=False, spares=0), *beats, old) == []


def test_a_code_told_by_an_exporter_under_its_pods_name_is_the_same_card() -> None:
    head = header(until=80)
    head["nodes"][0]["uuids"] = ["GPU-a", "GPU-b"]
    head["nodes"][0]["pcis"] = ["0000:3b:00", "0000:5d:00"]
    told = {"t": 50, "kind": "xid", "node": "dcgm-x", "gpu": 0, "source": "dcgm", "value": 79, "uuid": "GPU-a"}
    lines = run(head, xid(40, 79), told)
    [incident] = final(lines)
    assert incident["subject"] == {"node": "n1", "gpu": 0, "pci": "0000:3b:00", "uuid": "GPU-a", "job": "j1", "rank": 0}


def test_a_lost_card_is_confirmed_at_once_and_its_node_replaced() -> None:
    wanted = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    stop = pause(40.5, "n1", None, data={"heartbeats": False, "steps": True})
    lines = run(header(until=80), xid(40, 79), xid(40.2, 154, text=wanted), stop)
    assert confirmed(lines) == [("gpu.fallen_off_bus", "restart")]
    assert lines[1]["t"] == 40.0 and actions(lines) == ["snapshot", "quarantine", "restart"]


def test_a_soft_code_waits_for_a_second_layer() -> None:
    assert confirmed(run(header(until=70), xid(40, 119))) == []
    lines = run(header(until=90), xid(40, 119), {"t": 45, "kind": "process_exit", "job": "j1", "rank": 1, "value": 1})
    assert confirmed(lines) == [("gpu.gsp_hang", "restart")]


def test_a_code_read_after_the_exit_takes_the_incident_over_and_amends_the_recovery() -> None:
    exit_ = {"t": 40, "kind": "process_exit", "job": "j1", "rank": 0, "value": 1}
    lines = run(header(until=80), exit_, xid(42, 79), pause(40.1, "n1", None, data={"heartbeats": False, "steps": True}))
    [incident] = final(lines)
    assert incident["fault"] == "gpu.fallen_off_bus"
    fences = [line["fence"] for line in lines if line["event"] == "action" and line["action"] == "restart"]
    assert fences == sorted(set(fences)) and len(fences) == 2


@pytest.mark.parametrize("reason", ["preempted", "time_limit", "cancelled", "requeued"])
def test_what_the_scheduler_stopped_is_no_fault(reason: str) -> None:
    end = [
        {"t": 40 + r / 100, "kind": "process_exit", "job": "j1", "rank": r, "value": -15, "data": {"reason": reason}}
        for r in range(8)
    ]
    lines = run(header(until=600), *end, pause(40, "n1", None, data={"heartbeats": False, "steps": True}))
    assert not actions(lines) and not confirmed(lines)


def test_victims_of_a_rank_that_died_join_its_incident() -> None:
    lines = run(
        header(until=80),
        {"t": 40.00, "kind": "collective_error", "job": "j1", "rank": 1, "data": {"peer": "n2"}},
        {"t": 40.01, "kind": "process_exit", "job": "j1", "rank": 1, "value": -6},
        {"t": 40.10, "kind": "process_exit", "job": "j1", "rank": 2, "value": -9},
        {"t": 40.20, "kind": "process_exit", "job": "j1", "rank": 3, "value": -15},
    )  # fmt: skip
    [incident] = final(lines)
    assert (incident["fault"], incident["subject"]["rank"]) == ("job.rank_exit", 2)


def test_an_eval_that_moves_is_no_hang_and_one_that_stops_is() -> None:
    phases = [{"t": 41, "kind": "phase", "job": "j1", "value": "eval"}]
    moving = [
        {"t": 41 + 60 * k, "kind": "phase", "job": "j1", "rank": 0, "value": "eval", "data": {"progress": k}} for k in range(1, 20)
    ]
    head = header(until=1300, limits={"train_s": 300, "eval_s": 600})
    back = [{"t": 1240, "kind": "phase", "job": "j1", "value": "train"}]
    assert run(head, *phases, *moving, *back) == []
    lines = run(head, *phases, *moving[:3])
    assert confirmed(lines) == [("job.hang", "restart")] and 820 <= lines[0]["t"] <= 830


def test_a_loader_that_does_not_deliver_is_named_with_its_rank() -> None:
    lines = run(
        header(until=500, limits={"train_s": 300, "data_s": 120}),
        {"t": 41, "kind": "phase", "job": "j1", "rank": 5, "value": "data"},
        pause(41, "n3", None, data={"heartbeats": False, "steps": True}),
    )  # fmt: skip
    [incident] = final(lines)
    assert (incident["fault"], incident["culprit"], incident["subject"]["rank"]) == ("job.dataloader_stall", "data", 5)


def test_flight_records_name_the_rank_that_never_joined() -> None:
    head = header(until=200)
    head["jobs"][0]["groups"] = {"tp": [[0, 1], [2, 3], [4, 5], [6, 7]], "dp": [[0, 2, 4, 6], [1, 3, 5, 7]]}
    records = []
    for rank in range(8):
        tp = {"enqueued": 100, "started": 100, "completed": 100, "op": "all_gather"}
        dp = {"enqueued": 50, "started": 50, "completed": 49, "op": "reduce_scatter"}
        if rank == 4:
            tp, dp = tp | {"enqueued": 101, "completed": 100}, dp | {"enqueued": 49}
        if rank == 5:
            dp = dp | {"enqueued": 49}
        records.append({"t": 90 + rank / 10, "kind": "flight_record", "job": "j1", "rank": rank, "data": {"tp": tp, "dp": dp}})
    lines = run(head, pause(40, "n3", None, data={"heartbeats": False, "steps": True}), *records)
    [incident] = final(lines)
    assert (incident["fault"], incident["subject"]["rank"], incident["response"]) == ("job.hang", 5, "restart")


def test_one_idle_card_among_spinning_ones_is_named_without_any_driver_call() -> None:
    def state(t: float, node: str, gpu: int, util: int, power: int) -> dict[str, Any]:
        data = {"util": util, "power_w": power, "power_limit_w": 700}
        return {"t": t, "kind": "gpu_state", "node": node, "gpu": gpu, "source": "nvml", "data": data}

    states = [
        state(90 + n / 100, f"n{n}", g, *((0, 70) if (n, g) == (3, 1) else (100, 110))) for n in range(1, 5) for g in range(2)
    ]
    lines = run(header(until=200), pause(40, "n3", None, data={"heartbeats": False, "steps": True}), *states)
    [incident] = final(lines)
    assert incident["subject"]["rank"] == 5 and incident["culprit"] == "gpu" and incident["response"] == "restart"


def steps(slow: Any, count: int = 24) -> list[dict[str, Any]]:
    """`count` steps of 8 ranks; `slow(step)` is the rank that computes longer in it, or None."""
    signals, t = [], 0.0
    for number in range(count):
        late = slow(number)
        t += 3.0 if late is None else 4.3
        for rank in range(8):
            compute = 4.2 if rank == late else 2.9
            wait = 0.1 if rank == late or late is None else 1.4
            signals.append(step(t, number, rank, step_s=3.0 if late is None else 4.3, compute_s=compute, wait_s=wait, data_s=0.02))
    return signals


def test_a_rank_that_is_slow_again_and_again_is_named_within_six_steps() -> None:
    lines = run(header(until=110, step_s=None), *steps(lambda number: 3 if number >= 8 else None))
    [incident] = final(lines)
    assert (incident["fault"], incident["subject"]["rank"], incident["response"]) == ("job.straggler", 3, "page")
    assert lines[0]["t"] <= 8 * 3.0 + 6 * 4.3 + 0.1


def test_ranks_that_take_turns_to_be_slow_are_nobodys_fault() -> None:
    lines = run(header(until=110, step_s=None), *steps(lambda number: (number * 5) % 8 if number % 3 else None))
    assert not actions(lines)


def test_a_port_that_blinks_once_is_watched_and_one_that_goes_on_blinking_is_told() -> None:
    def link(t: float, state: str) -> dict[str, Any]:
        data = {"state": state, "rate_gbps": 400 if state == "up" else 0, "rate_max_gbps": 400}
        return {"t": t, "kind": "link", "node": "n2", "nic": "mlx5_1", "port": "1", "data": data}

    once = run(header(until=300, nics=4), link(40, "down"), link(43, "up"))
    assert confirmed(once) == [("link.flapping", "watch")]
    flaps = [link(40 + 60 * k + d, s) for k in range(4) for d, s in ((0, "down"), (3, "up"))]
    [incident] = [line for line in final(run(header(until=400, nics=4), *flaps)) if line["response"] == "page"]
    assert incident["fault"] == "link.flapping" and incident["subject"]["nic"] == "mlx5_1"


def test_a_dark_port_of_a_job_that_stands_still_moves_the_node() -> None:
    down = {"t": 40, "kind": "link", "node": "n2", "nic": "mlx5_1", "port": 1, "data": {"state": "down"}}
    error = {"t": 60, "kind": "collective_error", "job": "j1", "rank": 2, "node": "n2", "data": {"peer": "n3", "device": "mlx5_1"}}
    lines = run(header(until=90, nics=4), down, error, pause(40, "n2", None, data={"heartbeats": False, "steps": True}))
    [incident] = final(lines)
    assert (incident["fault"], incident["response"], incident["subject"]["node"]) == ("nic.down", "restart", "n2")


def test_all_ports_of_one_node_are_one_incident() -> None:
    down = [
        {"t": 40 + k / 10, "kind": "link", "node": "n2", "nic": f"mlx5_{k}", "port": 1, "data": {"state": "down"}} for k in range(4)
    ]
    lines = run(header(until=120, nics=4), *down)
    [incident] = final(lines)
    assert incident["subject"] == {"node": "n2"} and incident["culprit"] == "node"


@pytest.mark.parametrize("bad", ["NaN", "Infinity"])
def test_a_loss_that_is_no_number_pages_and_moves_nobody(bad: str) -> None:
    series = [step(4.0 * k, k, loss=2.5 - k / 1000) for k in range(20)] + [step(80, 20, loss=float(bad.replace("Infinity", "inf")))]
    lines = run(header(until=90, step_s=None), *series)
    assert confirmed(lines) == [("job.loss_nan", "page")] and actions(lines) == ["page"]


def test_a_loss_that_goes_missing_is_told() -> None:
    series = [step(4.0 * k, k, **({"loss": 2.5 - k / 1000} if k < 20 else {}), lr=1e-4) for k in range(30)]
    lines = run(header(until=120, step_s=None), *series)
    assert confirmed(lines) == [("job.loss_nan", "page")]


def test_a_loss_that_stands_exactly_still_is_told_with_a_snapshot() -> None:
    series = [step(4.0 * k, k, loss=2.5 - k / 1000 if k < 20 else 2.48) for k in range(35)]
    lines = run(header(until=140, step_s=None), *series)
    assert confirmed(lines) == [("job.loss_stagnant", "page")] and actions(lines) == ["page", "snapshot"]


def test_a_loss_spike_is_only_watched() -> None:
    series = [step(4.0 * k, k, loss=(2.5 if k != 30 else 9.0) + (k % 5) / 200) for k in range(60)]
    lines = run(header(until=240, step_s=None), *series)
    assert confirmed(lines) == [("job.loss_spike", "watch")] and not actions(lines)


def snapshot(t: float, state: str, **data: Any) -> dict[str, Any]:
    return {"t": t, "kind": "snapshot", "job": "j1", "value": 100, "data": {"state": state, **data}}


@pytest.mark.parametrize(("key", "value"), [("data_cursor", 0), ("lr", 0.0), ("scheduler_step", 0), ("optimizer_step", 99)])
def test_what_was_restored_must_be_what_was_saved(key: str, value: float) -> None:
    saved = {"data_cursor": 4000, "lr": 1e-4, "scheduler_step": 100, "optimizer_step": 100}
    head = header(until=60, step_s=None)
    lines = run(head, snapshot(10, "committed", **saved), snapshot(50, "restored", **{**saved, key: value}))
    assert confirmed(lines) == [("job.resume_mismatch", "page")] and "drain" not in actions(lines)
    assert run(head, snapshot(10, "committed", **saved), snapshot(50, "restored", **saved)) == []


def test_a_loss_that_jumps_over_a_resume_is_a_mismatch() -> None:
    before = [step(4.0 * k, k, loss=2.5 + (k % 5) / 100) for k in range(30)]
    after = [step(200 + 4.0 * k, 30 + k, loss=7.5 + (k % 5) / 100) for k in range(10)]
    restored = {"t": 190, "kind": "snapshot", "job": "j1", "value": 29, "data": {"state": "restored"}}
    phases = [{"t": 122, "kind": "phase", "job": "j1", "value": "init"}]
    lines = run(header(until=240, step_s=None), *before, *phases, restored, *after)
    assert ("job.resume_mismatch", "page") in confirmed(lines)


def test_storage_that_hangs_for_one_client_names_the_client_and_for_all_names_the_server() -> None:
    def op(t: float, node: str, seconds: float, ok: bool = True) -> dict[str, Any]:
        data = {"operation": "write", "seconds": seconds, "ok": ok}
        return {"t": t, "kind": "storage", "node": node, "mount": "/ckpt", "server": "nfs1", "data": data}

    good = [op(30 + k, f"n{k}", 0.1) for k in range(1, 5)]
    [one] = final(run(header(until=100), *good, op(60, "n2", 45.0, False)))
    assert (one["fault"], one["subject"].get("node")) == ("storage.hang", "n2")
    [all_] = final(run(header(until=100), *good, *(op(60 + k, f"n{k}", 45.0, False) for k in range(1, 5))))
    assert (all_["subject"].get("node"), all_["subject"]["server"]) == (None, "nfs1")


def test_a_panic_needs_no_second_voice() -> None:
    lines = run(header(until=60), {"t": 40, "kind": "kernel", "node": "n2", "data": {"event": "panic"}, "text": "Kernel panic"})
    assert confirmed(lines) == [("node.panic", "restart")] and lines[0]["t"] == 40


def test_a_reboot_with_work_is_told_as_such() -> None:
    beats = [{"t": t, "kind": "heartbeat", "node": "n1", "data": {"seq": t + 1, "boot": "b1"}} for t in range(40)]
    beats += [{"t": t, "kind": "heartbeat", "node": "n1", "data": {"seq": t - 59, "boot": "b2"}} for t in range(60, 90)]
    others = [
        {"t": t + 0.1, "kind": "heartbeat", "node": f"n{n}", "data": {"seq": t + 1, "boot": "x"}}
        for t in range(90)
        for n in (2, 3, 4, 5)
    ]
    lines = run(header(until=90, heartbeat_s=None), *beats, *others, pause(40, "n1", None))
    assert [line["fault"] for line in final(lines)] == ["node.reboot"]


def test_a_second_lost_node_amends_the_recovery_and_never_shares_a_spare() -> None:
    panic = [{"t": t, "kind": "kernel", "node": node, "data": {"event": "panic"}} for t, node in ((40, "n1"), (43, "n2"))]
    lines = run(header(nodes=7, spares=2, until=60), *panic)
    restarts = [line for line in lines if line["event"] == "action" and line["action"] == "restart"]
    assert [len(line["target"]["replace"]) for line in restarts] == [2, 4] and restarts[1]["fence"] > restarts[0]["fence"]
    taken = {item["from"]: item["to"] for item in restarts[1]["target"]["replace"]}
    assert taken == {"n1": "n6", "n2": "n7"}


def test_a_node_in_maintenance_is_not_judged() -> None:
    window = [
        {"t": 30, "kind": "maintenance", "node": "n1", "value": "on"},
        {"t": 100, "kind": "maintenance", "node": "n1", "value": "off"},
    ]
    lines = run(header(until=160), *window, pause(40, "n1", 55.0, data={"heartbeats": True, "steps": False}))
    assert lines == []


HELD = {"heartbeats": False, "steps": True}
NVLINK = (
    "NVRM: Xid (PCI:{}): 74, pid=1, name=python, NVLink: fatal error detected on link 14(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
)


def beat(t: float, node: str, seq: int, boot: str = "b") -> dict[str, Any]:
    return {"t": t, "kind": "heartbeat", "node": node, "data": {"seq": seq, "boot": boot}}


def timeouts(late: int | None, missing: int | None) -> list[dict[str, Any]]:
    told: dict[str, Any] = {"group": "dp", "op": "ALLREDUCE", "elapsed_s": 600, "last_completed": 100}
    return [
        {"t": 640 + rank / 50, "kind": "collective_timeout", "job": "j1", "rank": rank,
         "data": {**told, "last_enqueued": 100 if rank == late else 101}}
        for rank in range(8) if rank != missing
    ]  # fmt: skip


def exit_of(rank: int, code: int) -> dict[str, Any]:
    return {"t": 40, "kind": "process_exit", "job": "j1", "rank": rank, "value": code}


def dark(t: float, node: str) -> dict[str, Any]:
    return {"t": t, "kind": "link", "node": node, "nic": "mlx5_1", "port": 1, "data": {"state": "down"}}


def pauses(t: float, node: str, count: int) -> dict[str, Any]:
    data = {"tx_prio3_pause": count if node == "n2" else 0, "rx_prio3_pause": 0 if node == "n2" else count}
    return {"t": t, "kind": "port_counters", "node": node, "nic": "mlx5_1", "port": 1, "data": data}


def lost_peers(accused: str) -> list[dict[str, Any]]:
    """Ranks of other nodes lose their peer there, and abort."""
    errors = [
        {"t": 40 + r / 10, "kind": "collective_error", "job": "j1", "rank": r, "node": f"n{r // 2 + 1}", "data": {"peer": accused}}
        for r in range(8)
        if f"n{r // 2 + 1}" != accused
    ]
    exits = [{"t": 41 + r / 10, "kind": "process_exit", "job": "j1", "rank": r, "value": -6} for r in range(8)]
    return [*errors, *exits]


def hung_task(text: str) -> dict[str, Any]:
    return {
        "t": 100,
        "kind": "kernel",
        "node": "n2",
        "data": {"event": "hung_task"},
        "text": f"INFO: task python3:1 blocked. {text}",
    }


ONE_CAUSE: dict[str, tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]] = {
    "a task that hangs in the GPU driver": (
        header(until=200), [pause(40, "n2", None, data=HELD), hung_task("os_acquire_rwlock_write [nvidia]")],
        {"fault": "gpu.driver_hang", "response": "restart", "node": "n2"},
    ),
    "a task that hangs in its file system's client": (
        header(until=200), [pause(40, "n2", None, data=HELD), hung_task("nfs_wait_bit_killable")],
        {"fault": "storage.hang", "response": "restart", "culprit": "node", "node": "n2"},
    ),
    "time-outs of all ranks but one that says nothing": (
        header(until=900, limits={"train_s": 1200}), [pause(40, "n3", None, data=HELD), *timeouts(None, 5)],
        {"fault": "job.hang", "response": "restart", "rank": 5, "node": "n3"},
    ),
    "time-outs that show one rank behind": (
        header(until=900, limits={"train_s": 1200}), [pause(40, "n3", None, data=HELD), *timeouts(5, None)],
        {"fault": "job.hang", "response": "restart", "rank": 5},
    ),
    "an NVLink that both its ends tell of": (
        header(until=100),
        [*(xid(40 + k, 74, pci=pci, text=NVLINK.format(pci)) for k, pci in enumerate(("0000:3b:00", "0000:5d:00"))),
         {"t": 42, "kind": "process_exit", "job": "j1", "rank": 0, "value": 1}],
        {"fault": "gpu.nvlink", "response": "restart", "pci": "0000:3b:00"},
    ),
    "a lost card whose loss sprays other codes": (
        header(until=100),
        [xid(40, 79), xid(41, 45, pci="0000:5d:00"), {"t": 41, "kind": "process_exit", "job": "j1", "rank": 0, "value": -6}],
        {"fault": "gpu.fallen_off_bus", "response": "restart"},
    ),
    "a part of a leaf switch": (
        header(nodes=12, spares=0, until=100, nics=2),
        [dark(40 + n / 50, f"n{n}") for n in (1, 2, 3, 4)],
        {"fault": "switch.down", "response": "page", "switch": "leaf-1"},
    ),
    "the sender of pause frames and not those who get them": (
        header(until=200, nics=2),
        [pauses(10.0 * k + n / 10, f"n{n}", k * 50000) for k in range(12) for n in (1, 2, 3)],
        {"fault": "nic.congestion", "response": "page", "node": "n2"},
    ),
    "memory that the kernel had to take back by killing": (
        header(until=100),
        [{"t": 39, "kind": "kernel", "node": "n2", "data": {"event": "oom"}, "text": "Out of memory: Killed process 1 (python)"},
         {"t": 40, "kind": "process_exit", "job": "j1", "rank": 3, "value": -9}],
        {"fault": "job.oom", "response": "restart", "rank": 3},
    ),
    "a node that all its peers lose while it beats on": (
        header(until=100), [pause(40, "n3", None, data=HELD), *lost_peers("n3")],
        {"fault": "link.errors", "response": "restart", "node": "n3", "culprit": "nic"},
    ),
    "a rank that stopped one step before all others": (
        header(until=120, step_s=None),
        [step(4.0 * k + 4, k, r, step_s=4.0) for k in range(15) for r in range(8) if (k, r) != (14, 6)],
        {"fault": "job.hang", "response": "page", "rank": 6, "node": "n4"},
    ),
    "a save that does not end": (
        header(until=400, limits={"train_s": 300, "checkpoint_s": 200}),
        [{"t": 41, "kind": "phase", "job": "j1", "value": "checkpoint"}],
        {"fault": "job.hang", "response": "restart", "culprit": "storage"},
    ),
    "all cards of a node lost at once": (
        header(until=100, gpus=4),
        [xid(40 + k / 10, 79, pci=f"0000:{k + 16:x}:00") for k in range(4)],
        {"fault": "gpu.fallen_off_bus", "response": "restart", "culprit": "node", "node": "n1"},
    ),
    "a snapshot older than the newest": (
        header(until=100, step_s=None),
        [{"t": t, "kind": "snapshot", "job": "j1", "value": v, "data": {"state": s}}
         for t, v, s in ((10, 100, "committed"), (20, 200, "committed"), (60, 100, "restored"))],
        {"fault": "job.resume_mismatch", "response": "page"},
    ),
    "a rank whose loss alone differs": (
        header(until=140, step_s=None),
        [step(4.0 * k + r / 100, k, r, loss=2.5 - k / 1000 + 0.1 * (r == 3 and k >= 20)) for k in range(30) for r in range(8)],
        {"fault": "gpu.sdc", "response": "page", "rank": 3},
    ),
    "a card that is throttled and slow": (
        header(until=110, step_s=None),
        [*({"t": 5.0 * k, "kind": "gpu_state", "node": "n2", "gpu": 1, "source": "nvml",
            "data": {"sm_mhz": 900, "sm_mhz_max": 1980, "temp_c": 92, "throttle": ["hw_thermal_slowdown"]}} for k in range(20)),
         *steps(lambda number: 3)],
        {"fault": "gpu.thermal", "response": "drain", "rank": 3},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("head", "signals", "expected"), ONE_CAUSE.values(), ids=ONE_CAUSE)
def test_one_cause_is_one_incident(head: dict[str, Any], signals: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    [incident] = final(run(head, *signals))
    assert {key: ({**incident["subject"], **incident})[key] for key in expected} == expected


NOTHING: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "an agent that counts anew without a start number": (
        header(nodes=1, spares=0, until=90, heartbeat_s=None, job=False),
        [*(beat(t, "n1", 500 + t) for t in range(30)), *(beat(t + 0.5, "n1", t - 29) for t in range(30, 90))],
    ),
    "heartbeats each five seconds": (header(until=200, heartbeat_s=5.0), []),
    "heartbeats that come twice and out of order": (
        header(nodes=1, spares=0, until=60, heartbeat_s=None, job=False),
        sorted((beat(t + d, "n1", t) for t in range(1, 60) for d in (0.0, 0.4, 1.7)), key=lambda one: one["t"]),
    ),
    "corrected memory errors": (
        header(until=100),
        [{"t": 20 + k, "kind": "ecc", "node": "n2", "gpu": 1, "data": {"corrected": k * 1000}} for k in range(20)],
    ),
    "a code of a program without an exit": (header(until=200), [xid(40, 94)]),
    "an injected code": (header(until=100), [xid(40, 79, data={"injected": True})]),
    "a job that is over": (
        header(until=600),
        [pause(40, "n1", None, data=HELD), *(exit_of(r, 0) for r in range(8))],
    ),
    "steps of an attempt that is over": (
        header(until=100),
        [{"t": 50, "kind": "process_exit", "job": "j1", "rank": 1, "value": 1, "data": {"attempt": 0}}],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("head", "signals"), NOTHING.values(), ids=NOTHING)
def test_what_is_no_fault_is_not_above_watch(head: dict[str, Any], signals: list[dict[str, Any]]) -> None:
    lines = run(head, *signals)
    assert not actions(lines) and all(line["response"] in ("ignore", "watch") for line in lines)
