"""Two things at once: what belongs together is one incident, and a second layer is heard however it names its subject."""

from typing import Any

import pytest
from traces import actions, confirmed, final, header, run

SECONDARY_74 = "NVLink: fatal error detected on link 3(0x100000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
FATAL_SXID = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"


def pause(t: float, node: str, value: float | None = None, **data: Any) -> dict[str, Any]:
    return {"t": t, "kind": "pause", "node": node, "value": value, "data": data}


def link(t: float, node: str, state: str) -> dict[str, Any]:
    return {"t": t, "kind": "link", "node": node, "nic": "mlx5_0", "port": "1", "data": {"state": state}}


def storage_full(t: float, node: str) -> dict[str, Any]:
    error = "ENOSPC: No space left on device"
    return {
        "t": t, "kind": "storage", "node": node, "mount": "/ckpt", "data": {"operation": "write", "ok": False, "error": error},
    }  # fmt: skip


@pytest.mark.parametrize("peer", [{"peer": 0}, {"peer": "n1"}, {"peer_rank": 1}, {"peer_node": "n1"}])
def test_a_lost_peer_is_understood_however_it_is_named(peer: dict[str, Any]) -> None:
    errors = [
        {"t": 41.0 + rank / 10, "kind": "collective_error", "job": "j1", "rank": rank, "data": {"status": 12, **peer}}
        for rank in (2, 5)
    ]
    lines = run(header(until=70), pause(40.5, "n1", kernel=False), *errors)
    [incident] = final(lines)
    assert (incident["fault"], incident["subject"]) == ("node.lost", {"node": "n1"})
    assert "communication" in incident["layers"]


def test_an_address_that_looks_like_no_rank_accuses_nobody() -> None:
    error = {"t": 41.0, "kind": "collective_error", "job": "j1", "rank": 2, "data": {"status": 12, "peer": 99}}
    assert not actions(run(header(until=70), pause(40.5, "n1", kernel=False), error))


def test_a_job_that_stands_since_a_link_of_its_card_went_down_is_restarted() -> None:
    down = [
        {"t": 30.0 + 20 * n, "kind": "nvlink", "node": "n2", "gpu": 1, "data": {"link": 4, "down": int(n >= 2)}} for n in range(8)
    ]
    assert confirmed(run(header(until=300), *down)) == [("gpu.nvlink", "page")], "the job goes on: a person looks at it"
    [incident] = final(run(header(until=300), pause(68.0, "n2", heartbeats=False, steps=True), *down))
    assert (incident["fault"], incident["response"]) == ("gpu.nvlink", "restart")
    assert set(incident["layers"]) == {"hardware", "application"}


def test_a_job_that_has_long_lived_with_a_lost_link_stands_for_another_reason() -> None:
    down = [{"t": 30.0 + 20 * n, "kind": "nvlink", "node": "n2", "gpu": 1, "data": {"link": 4, "down": n}} for n in range(2)]
    lines = run(header(until=320), pause(200.0, "n2", heartbeats=False, steps=True), *down)
    assert "gpu.nvlink" not in {line["fault"] for line in final(lines) if line["response"] == "restart"}


def test_ports_that_come_back_with_their_switch_are_no_blinks_of_their_own() -> None:
    nodes = [f"n{index}" for index in range(1, 6)]
    signals = [link(40 + k / 10, node, "down") for k, node in enumerate(nodes)]
    signals += [link(70 + k / 10, node, "up") for k, node in enumerate(nodes)]
    lines = run(header(until=200, nics=2), *signals, pause(40, "n1", 31, heartbeats=False, steps=True))
    assert {line["fault"] for line in final(lines)} == {"switch.down"}


@pytest.mark.parametrize("late", [1.0, 300.0])
def test_a_snapshot_that_fails_for_a_full_disk_is_the_disks_matter(late: float) -> None:
    failed = {"t": 40 + late, "kind": "snapshot", "job": "j1", "rank": 0, "value": 9, "data": {"state": "failed"}}
    lines = run(header(until=500), storage_full(40, "n1"), failed)
    assert [line["fault"] for line in final(lines)] == ["storage.full"]


def test_a_full_disk_of_a_machine_without_the_job_explains_nothing_of_it() -> None:
    failed = {"t": 41, "kind": "snapshot", "job": "j1", "rank": 0, "value": 9, "data": {"state": "failed"}}
    lines = run(header(until=100), storage_full(40, "n5"), failed)
    assert {line["fault"] for line in final(lines)} == {"storage.full", "job.snapshot_failed"}


@pytest.mark.parametrize(("stands", "response"), [(True, "restart"), (False, "page")])
def test_a_fatal_switch_line_is_never_only_recorded(stands: bool, response: str) -> None:
    signals: list[dict[str, Any]] = [
        {"t": 40, "kind": "sxid", "node": "n2", "value": 20034, "data": {"pci": "0000:05:00.0"}, "text": FATAL_SXID},
        *(
            {"t": 40.2 + gpu / 10, "kind": "xid", "node": "n2", "gpu": gpu, "value": 74, "data": {"pci": f"0000:1{gpu}:00"},
             "text": f"NVRM: Xid (PCI:0000:1{gpu}:00): 74, {SECONDARY_74}"}
            for gpu in (0, 1)
        ),
    ]  # fmt: skip
    if stands:
        signals.append(pause(40, "n2", heartbeats=False, steps=True))
    [incident] = final(run(header(until=200), *signals))
    assert (incident["fault"], incident["response"]) == ("gpu.nvlink", response)


def test_a_refusal_for_maintenance_names_each_part_once() -> None:
    on = {"t": 30, "kind": "maintenance", "node": "n5", "value": "on"}
    lost = {"t": 40, "kind": "xid", "node": "n5", "value": 79, "data": {"pci": "0000:3b:00"}}
    refused = [line["refused"] for line in run(header(until=90), on, lost) if line["event"] == "refused"]
    assert refused and set(refused) == {"maintenance of n5"}


def test_a_node_that_stays_dead_when_the_others_are_heard_again_is_lost_after_a_limit_of_its_own() -> None:
    """While nobody could be heard no silence counts; afterwards the dead one is not forgotten."""
    head = header(nodes=12, spares=4, until=300)
    back = [pause(60.2, f"n{index}", 60, heartbeats=True, steps=False) for index in range(2, 13)]
    lines = run(head, pause(60.2, "n1"), *back)
    assert [(line["fault"], line["response"]) for line in final(lines)][:2] == [("monitor.blind", "page"), ("node.lost", "restart")]
    lost = next(line["t"] for line in lines if line["event"] == "confirmed" and line["fault"] == "node.lost")
    assert 145.0 <= lost <= 160.0, "its silence before the blindness and after it make the hard limit together"


@pytest.mark.parametrize("later", [1.0, 12.0, 25.0])
def test_a_node_that_is_heard_a_little_later_than_the_others_is_not_taken_out(later: float) -> None:
    back = [pause(60.2, f"n{index}", 60 + later * (index == 1)) for index in range(1, 13)]
    lines = run(header(nodes=12, spares=4, until=300), *back)
    assert not {"quarantine", "restart"} & set(actions(lines))


def test_nobody_heard_is_one_incident_though_no_step_is_heard_either() -> None:
    lines = run(header(nodes=12, spares=4, until=300), *(pause(60.2, f"n{index}") for index in range(1, 13)))
    assert [line["fault"] for line in final(lines)] == ["monitor.blind"]


def test_a_job_is_not_restarted_twice_for_a_stuck_card_and_its_silent_machine() -> None:
    stuck = {"t": 40, "kind": "xid", "node": "n1", "value": 119, "data": {"pci": "0000:3b:00"}}
    lines = run(header(until=300), stuck, pause(45, "n1"))
    assert actions(lines).count("restart") == 1
    assert [line["response"] for line in final(lines)] == ["restart"]


@pytest.mark.parametrize("event", ["machine_check", "memory_uncorrected"])
@pytest.mark.parametrize("panic", [True, False])
def test_bad_memory_that_takes_its_machine_along_is_one_incident(event: str, panic: bool) -> None:
    signals: list[dict[str, Any]] = [
        {"t": 40, "kind": "kernel", "node": "n1", "data": {"event": event}, "text": "EDAC MC0: 1 UE memory read error"},
        pause(41, "n1"),
    ]
    if panic:
        signals.append({"t": 40.5, "kind": "kernel", "node": "n1", "data": {"event": "panic"}, "text": "Kernel panic"})
    lines = run(header(until=150), *signals)
    assert [(line["fault"], line["response"]) for line in final(lines)] == [("node.panic" if panic else "node.lost", "restart")]


@pytest.mark.parametrize("what", ["loss", "grad_norm"])
@pytest.mark.parametrize("local_norms", [False, True])
def test_a_replica_whose_numbers_leave_the_others_computes_wrongly(what: str, local_norms: bool) -> None:
    def told(number: int, rank: int) -> dict[str, float]:
        numbers = {"loss": 3.0 - 0.01 * number, "grad_norm": 0.4 + 0.01 * (number % 7)}
        if local_norms:  # each rank its own: nothing to compare
            numbers["grad_norm"] += 0.001 * rank
        if number >= 20 and rank == 3:
            numbers[what] += 0.07
        return numbers

    steps = [
        {"t": 4.0 * (n + 1), "kind": "step", "job": "j1", "rank": rank, "value": n, "data": told(n, rank)}
        for n in range(30) for rank in range(8)
    ]  # fmt: skip
    lines = final(run(header(until=121, step_s=None), *steps))
    wrong = [line["subject"].get("rank") for line in lines if line["fault"] == "gpu.sdc"]
    assert wrong == ([] if local_norms and what == "grad_norm" else [3])


@pytest.mark.parametrize("behind", [-1, 1])
def test_a_rank_told_of_another_step_than_the_others_is_no_wrong_replica(behind: int) -> None:
    """Agents look at their pages twice a second: at a step's end one look may find it and the next one's not."""
    steps = []
    for n in range(1, 90, 3):
        for rank in range(8):
            step = n + behind * (rank == 3 and n % 10 == 0)
            numbers = {"loss": 3.0 - 0.01 * step, "grad_norm": 0.4 + 0.01 * (step % 7)}
            at = 4.0 * (n + 1) + (0.1 if behind < 0 and rank == 3 else 0.01 * rank)
            steps.append({"t": at, "kind": "step", "job": "j1", "rank": rank, "value": step, "data": numbers})
    lines = final(run(header(until=370, step_s=None), *sorted(steps, key=lambda line: line["t"])))
    assert [line["fault"] for line in lines if line["fault"] == "gpu.sdc"] == []


def test_what_peers_say_of_a_machine_with_a_lost_card_is_the_cards_matter() -> None:
    lost = {"t": 40, "kind": "xid", "node": "n2", "gpu": 1, "value": 79, "data": {"pci": "0000:3b:00"}}
    errors = [{"t": 40.5, "kind": "collective_error", "job": "j1", "rank": rank, "data": {"peer": 3}} for rank in (0, 1, 5)]
    ended = enumerate((3, 0, 1, 5))
    exits = [{"t": 41 + n / 10, "kind": "process_exit", "job": "j1", "rank": rank, "value": -6} for n, rank in ended]
    lines = run(header(until=120), lost, *errors, *exits, pause(40, "n2", heartbeats=False, steps=True))
    assert [line["fault"] for line in final(lines)] == ["gpu.fallen_off_bus"]


def test_a_stop_told_of_before_its_cause_became_sure_is_not_told_of_twice() -> None:
    lines = run(header(until=200, nics=4), link(60, "n2", "down"), pause(60, "n2", heartbeats=False, steps=True))
    assert [(line["fault"], line["response"]) for line in final(lines)] == [("nic.down", "restart")]
    assert actions(lines).count("restart") == 1
