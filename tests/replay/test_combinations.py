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
