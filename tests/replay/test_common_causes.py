"""What many parts share is one incident that names it, and no node is drained for it."""

from typing import Any

import pytest
from traces import actions, final, header, run

NODES = 24


def site(**more: Any) -> dict[str, Any]:
    """24 nodes in 6 racks; each device on a leaf of its own, leaves of 8 nodes; a job over all."""
    head = header(nodes=NODES, spares=2, until=200, rack=lambda index: f"r{index // 4}")
    for index, node in enumerate(head["nodes"]):
        node["nics"] = {f"mlx5_{k}": f"leaf-{index // 8}-{k}" for k in range(4)}
        node["power"] = f"feed-{index // 12}"
    return head | more


def dark(t: float, node: int, nic: int, state: str = "down") -> dict[str, Any]:
    return {"t": t, "kind": "link", "node": f"n{node}", "nic": f"mlx5_{nic}", "port": 1, "data": {"state": state}}


def storage(t: float, node: int, ok: bool, mount: str = "/ckpt", server: str | None = None) -> dict[str, Any]:
    data = {"operation": "write", "seconds": 0.1 if ok else 45.0, "ok": ok} | ({} if ok else {"error": "hang"})
    return {"t": t, "kind": "storage", "node": f"n{node}", "mount": mount, "server": server, "data": data}


def harmless(lines: list[dict[str, Any]]) -> bool:
    return not {"drain", "quarantine", "restart"} & set(actions(lines))


SHARED: dict[str, tuple[list[dict[str, Any]], str, dict[str, str]]] = {
    "a rail across its leaves": ([dark(40 + n / 50, n, 2) for n in range(1, NODES + 1)], "domain.lost", {"rail": "mlx5_2"}),
    "a rail of which most is dark": ([dark(40 + n / 50, n, 2) for n in range(1, 22)], "domain.lost", {"rail": "mlx5_2"}),
    "a leaf": ([dark(40 + n / 50, n, 1) for n in range(9, 17)], "switch.down", {"switch": "leaf-1-1"}),
    "a leaf and a port elsewhere": (
        [dark(40 + n / 50, n, 1) for n in (*range(9, 17), 3)], "switch.down", {"switch": "leaf-1-1"},
    ),
    "a rack over all its leaves": (
        [dark(40 + n / 50 + k / 500, n, k) for n in range(5, 9) for k in range(4)], "domain.lost", {"rack": "r1"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SHARED)
def test_ports_that_go_dark_together_name_what_they_share(case: str) -> None:
    signals, fault, subject = SHARED[case]
    lines = run(site(), *signals)
    many = [line for line in final(lines) if line["fault"] in ("switch.down", "domain.lost")]
    assert [(line["fault"], line["subject"]) for line in many] == [(fault, subject)]
    others = [line for line in final(lines) if line not in many]
    assert len(others) <= (1 if "elsewhere" in case else 0) and harmless(lines)


def test_a_rail_that_goes_dark_leaf_by_leaf_becomes_one_incident_and_ends_when_it_is_back() -> None:
    signals = [dark(40 + 6 * ((n - 1) // 8) + n / 50, n, 2) for n in range(1, NODES + 1)]
    signals += [dark(120 + n / 50, n, 2, "up") for n in range(1, NODES + 1)]
    lines = run(site(), *signals)
    [one] = [line for line in final(lines) if line["response"] == "page"]
    assert (one["subject"], one["event"]) == ({"rail": "mlx5_2"}, "resolved") and harmless(lines)


@pytest.mark.parametrize("server", [None, "nfs1"])
def test_a_mount_that_hangs_for_many_nodes_is_one_incident_that_names_the_mount(server: str | None) -> None:
    good = [storage(20 + n / 50, n, True, server=server) for n in range(1, NODES + 1)]
    hung = [storage(60 + n / 3, n, False, server=server) for n in range(1, NODES + 1)]
    lines = run(site(), *good, *hung)
    [one] = final(lines)
    assert one["fault"] == "storage.hang" and one["culprit"] == "storage" and one["subject"]["mount"] == "/ckpt"
    assert "node" not in one["subject"] and harmless(lines)


def test_a_mount_that_hangs_for_one_rack_alone_is_not_the_mounts_fault() -> None:
    hung = [storage(60 + n / 10 + 15 * k, n, n not in range(5, 9)) for k in range(3) for n in range(1, NODES + 1)]
    lines = run(site(), *[storage(20 + n / 50, n, True) for n in range(1, NODES + 1)], *hung)
    [one] = final(lines)
    assert one["fault"] == "storage.hang" and one["subject"] == {"rack": "r1", "mount": "/ckpt"} and harmless(lines)
