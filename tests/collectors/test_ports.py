"""Ports: states and counters from a tree like /sys, and the kernel's own messages. Formats: sysfs-class-infiniband ABI."""

import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors import netlink
from collectors.ethtool import read_statistics
from collectors.frame.types import Note, NotSupported, Outcome, Place, Readings
from collectors.ports import Ports, parse_ib_state
from outrider.config.collectors import CollectorsSection


class Tree:
    """A /sys of RDMA ports and one card without RDMA."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for number in range(2):
            port = self.port(f"mlx5_{number}")
            for folder in (port / "counters", port / "hw_counters", root / f"class/infiniband/mlx5_{number}/device/net/ib{number}"):
                folder.mkdir(parents=True)
            self.set(f"mlx5_{number}", state="4: ACTIVE", phys_state="5: LinkUp", rate="400 Gb/sec (4X NDR)")
            self.count(f"mlx5_{number}", "counters", link_downed=0, symbol_error=3, port_xmit_data=1000)
            self.count(f"mlx5_{number}", "hw_counters", local_ack_timeout_err=0, lifespan=10)
        net = root / "class/net/eth0"
        (net / "device").mkdir(parents=True)
        (net / "statistics").mkdir()
        for name, text in {"operstate": "up", "carrier": "1", "speed": "100000", "carrier_changes": "2"}.items():
            (net / name).write_text(text + "\n")
        (net / "statistics/rx_crc_errors").write_text("0\n")
        (root / "class/net/lo").mkdir()

    def port(self, nic: str) -> Path:
        return self.root / f"class/infiniband/{nic}/ports/1"

    def set(self, nic: str, **texts: str) -> None:
        for name, text in texts.items():
            (self.port(nic) / name).write_text(text + "\n")

    def count(self, nic: str, folder: str, **values: object) -> None:
        for name, value in values.items():
            (self.port(nic) / folder / name).write_text(f"{value}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "sys")


@pytest.fixture
def ports(tree: Tree) -> Ports:
    section = CollectorsSection(sysfs_root=str(tree.root))
    made = Ports(Place(node="n1", boot="b", state_dir="/nowhere", section=section, nics={"mlx5_0": "leaf1"}), Note())
    assert made.supported() is None
    return made


def links(outcome: Outcome) -> list[tuple[object, ...]]:
    assert isinstance(outcome, Readings)
    return [
        (s.nic, s.data["state"], s.data.get("rate_gbps"), s.data.get("rate_max_gbps")) for s in outcome.signals if s.kind == "link"
    ]


def counters(outcome: Outcome) -> dict[object, dict[str, object]]:
    assert isinstance(outcome, Readings)
    return {s.nic: s.data for s in outcome.signals if s.kind == "port_counters"}


def test_every_port_is_told_once_and_then_only_its_changes(tree: Tree, ports: Ports) -> None:
    assert links(ports.read(0.0)) == [
        ("mlx5_0", "up", 400.0, 400.0),
        ("mlx5_1", "up", 400.0, 400.0),
        ("eth0", "up", 100.0, 100.0),
    ]
    assert links(ports.read(1.0)) == []
    tree.set("mlx5_1", state="1: DOWN", phys_state="2: Polling")
    assert links(ports.read(2.0)) == [("mlx5_1", "down", None, None)]
    tree.set("mlx5_1", state="4: ACTIVE", phys_state="5: LinkUp", rate="200 Gb/sec (4X HDR)")
    assert links(ports.read(3.0)) == [("mlx5_1", "up", 200.0, 400.0)]


def test_a_device_that_vanishes_is_down(tree: Tree, ports: Ports) -> None:
    ports.read(0.0)
    shutil.rmtree(tree.root / "class/infiniband/mlx5_0")
    assert links(ports.read(1.0)) == [("mlx5_0", "down", None, None)]
    assert links(ports.read(2.0)) == []


def test_an_empty_socket_is_no_fault_unless_the_fleet_names_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for nic in ("mlx5_0", "mlx5_1"):
        tree.set(nic, state="1: DOWN", phys_state="3: Disabled")
    section = CollectorsSection(sysfs_root=str(tmp_path))
    made = Ports(Place(node="n1", boot="b", state_dir="/", section=section, nics={"mlx5_0": "leaf1"}), Note())
    assert [one[:2] for one in links(made.read(0.0))] == [("mlx5_0", "down"), ("eth0", "up")]


def test_counters_that_are_judged_are_told_while_they_move_and_once_more(tree: Tree, ports: Ports) -> None:
    first = counters(ports.read(0.0))
    assert first["mlx5_0"] == {"link_downed": 0, "symbol_error": 3, "local_ack_timeout_err": 0}
    assert set(counters(ports.read(10.0))) == set()
    tree.count("mlx5_0", "counters", symbol_error=50, port_xmit_data=9999)
    assert counters(ports.read(20.0))["mlx5_0"]["symbol_error"] == 50
    assert set(counters(ports.read(30.0))) == {"mlx5_0"}
    assert set(counters(ports.read(40.0))) == set()


def test_traffic_is_for_the_page_and_not_for_the_witnesses(tree: Tree, ports: Ports) -> None:
    outcome = ports.read(0.0)
    assert isinstance(outcome, Readings)
    page = {(s.name, *s.labels.values()): s.value for s in outcome.samples or []}
    assert page["outrider_port_events_total", "mlx5_0", "1", "port_xmit_data"] == 1000.0
    assert page["outrider_port_up", "mlx5_0", "1"] == 1.0
    assert page["outrider_port_rate_bytes_per_second", "mlx5_0", "1"] == 5e10
    assert page["outrider_port_carrier_changes_total", "eth0"] == 2.0
    tree.count("mlx5_0", "counters", port_xmit_data=5)
    again = ports.read(10.0)
    assert isinstance(again, Readings)
    assert next(s.value for s in again.samples or [] if s.name == "outrider_port_resets_total") == 1.0


@pytest.mark.parametrize("junk", ["", "banana", "\x00\x01", "-", "9" * 4000, "4 ACTIVE"])
def test_junk_in_a_file_costs_that_file(tree: Tree, ports: Ports, junk: str) -> None:
    ports.read(0.0)
    tree.set("mlx5_0", state=junk, rate=junk)
    tree.count("mlx5_0", "counters", symbol_error=junk)
    tree.set("mlx5_1", state="1: DOWN")
    heard = links(ports.read(10.0))
    assert ("mlx5_1", "down", None, None) in heard


@pytest.mark.parametrize(
    ("state", "up", "rate"),
    [("4: ACTIVE", True, 400.0), ("2: INIT", False, 400.0), ("3: ARMED", False, 400.0), ("1: DOWN", False, 400.0)],
)
def test_only_active_is_up(state: str, up: bool, rate: float) -> None:
    parsed = parse_ib_state(state, "5: LinkUp", "400 Gb/sec (4X NDR)")
    assert parsed is not None and (parsed.up, parsed.rate_gbps) == (up, rate)


def test_nothing_there_is_told_with_its_reason(tmp_path: Path) -> None:
    section = CollectorsSection(sysfs_root=str(tmp_path))
    absent = Ports(Place(node="n1", boot="b", state_dir="/", section=section), Note()).supported()
    assert isinstance(absent, NotSupported) and "no RDMA device" in absent.reason


def link_message(name: bytes, flags: int, operstate: int, carrier: int, kind: int = 16) -> bytes:
    def attribute(number: int, value: bytes) -> bytes:
        return struct.pack("=HH", 4 + len(value), number) + value + bytes(-len(value) % 4)

    body = struct.pack("=BxHiII", 0, 1, 7, flags, 0)
    body += attribute(3, name + b"\0") + attribute(16, bytes([operstate])) + attribute(33, bytes([carrier]))
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def test_link_messages_are_read() -> None:
    datagram = link_message(b"eth0", 0x10001, 6, 1) + link_message(b"eth1", 0x1, 2, 0) + link_message(b"eth2", 0, 6, 1, 17)
    assert netlink.parse_links(datagram) == [("eth0", True, False), ("eth1", False, False), ("eth2", False, True)]


@pytest.mark.parametrize("cut", [0, 5, 15, 16, 20, 33, 40, 47])
def test_a_message_cut_short_is_passed_over(cut: int) -> None:
    assert netlink.parse_links(link_message(b"eth0", 1, 2, 0)[:cut]) == []


@pytest.fixture
def pair() -> Iterator[str]:
    """A real virtual interface, `odt0`, with its peer."""
    made = subprocess.run(["ip", "link", "add", "odt0", "type", "veth", "peer", "name", "odt1"], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no right to make network interfaces")
    for name in ("odt0", "odt1"):
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    yield "odt0"
    subprocess.run(["ip", "link", "del", "odt0"], check=False)


@pytest.mark.real
def test_a_real_link_that_falls_is_told_by_the_kernel_at_once(pair: str) -> None:
    ports = Ports(Place(node="n1", boot="b", state_dir="/", section=CollectorsSection(interfaces=(pair,))), Note())
    assert ports.supported() is None
    until = time.monotonic() + 3.0
    while (pair, "up") not in [one[:2] for one in links(ports.read(time.monotonic()))]:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert "peer_ifindex" in read_statistics(pair)
    subprocess.run(["ip", "link", "set", "odt1", "down"], check=True)
    began = time.monotonic()
    heard = links(ports.read(began))
    assert (pair, "down", None, None) in heard
    assert time.monotonic() - began < 0.5
    ports.close()
