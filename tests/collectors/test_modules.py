"""Modules and error correction: memory pages in the three layouts, the kernel's answers, what is told of them and what never is.

The pages `SFF` and `CMIS` are those of facebook/fboss, fboss/qsfp_service/module/tests/FakeTransceiverImpl.cpp (as far as they are
read here); the SFP's were put together by the tables of SFF-8472.
"""

import errno
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import ethtool_netlink
from collectors.emulated.cards import EmulatedCard, fec_answer
from collectors.emulated.node import EmulatedNode
from collectors.ethtool_netlink import KernelCards, attributes, parse_answer, parse_fec
from collectors.frame.types import Note, NotSupported, Outcome, Place, Readings
from collectors.module_pages import KINDS, Module, read_module
from collectors.modules import Modules, read_sensors
from collectors.ports import Ports
from outrider.config.collectors import CollectorsSection

SFF_LOWER = bytes.fromhex(
    "0d0002abbccdc03000c5f3c53cc503000000000000001f04000080dd0000000000001223233413311212141411112222333341414242434344440000"
).ljust(128, b"\0")
SFF_UPPER = bytes.fromhex(
    "0d100c040000004040020005670000320000000046414345544553542020202020202020070000004 6544c34313051453243202020202020"
    "4120426807d046970001 04d04d5245303142302020202020202020203134303530322020 0a000022".replace(" ", "")
).ljust(128, b"\0")
CMIS_LOWER = bytes.fromhex("1e40000700000000005b00000000284580fc").ljust(128, b"\0")
CMIS_UPPER = bytes.fromhex("1e4641434554455354").ljust(17, b" ").ljust(128, b"\0")
CMIS_TOLD = bytearray(bytes.fromhex("000003001e000000000065a41bee20df5700410f00009d3800f0772f07070603").ljust(128, b"\0"))
CMIS_TOLD[31:33] = b"\x03\x07"  # what is measured: temperature, supply; bias, light sent, light received
CMIS_LANES = bytes.fromhex(
    "2435000000 00000a0b0c0d0203040506070809050 60a0b0c0d0053 34510c502052230000000000000000 5e9d61d1688661b60000000000000000"
    "0fc00f8116b4143800000000000000 00".replace(" ", "")
).ljust(128, b"\0")


def reader(pages: dict[tuple[int, int, int], bytes]) -> Any:
    return lambda page, offset, address: pages[page, offset, address]


def sfp(*, external: bool = False) -> dict[tuple[int, int, int], bytes]:
    base, more = bytearray(128), bytearray(128)
    base[0], base[92] = 0x03, 0x50 if external else 0x68
    base[20:36], base[40:56], base[68:84] = b"FS".ljust(16), b"SFP-10GSR-85".ljust(16), b"F2220644072".ljust(16)
    struct.pack_into(">hHHHH", more, 96, round(50.41 * 256), 32811, 3000, 5000, 4000)
    if external:
        struct.pack_into(">HhHhHhHh", more, 76, 512, 10, 256, 0, 256, -256, 256, 0)
        struct.pack_into(">5f", more, 56, 0.0, 0.0, 0.0, 2.0, 5.0)
    more[112], more[113], more[116], more[117] = 0x80, 0x40, 0x80, 0x40
    return {(0, 0, 0x50): bytes(base), (0, 0, 0x51): bytes(more)}


def test_an_sfp_is_read_as_ethtool_shows_it() -> None:
    module = read_module(reader(sfp()))
    assert (module.kind, module.vendor, module.part, module.serial) == ("SFP", "FS", "SFP-10GSR-85", "F2220644072")
    assert module.temperature == pytest.approx(50.41, abs=0.01) and module.supply == pytest.approx(3.2811)
    assert (module.bias[0], module.sent[0], module.received[0]) == pytest.approx((6e-3, 5e-4, 4e-4))
    assert module.flags == (
        "temperature_high_alarm", "temperature_high_warning", "receive_power_low_alarm", "receive_power_low_warning",
    )  # fmt: skip


def test_an_sfp_that_is_calibrated_outside_is_corrected_by_its_constants() -> None:
    module = read_module(reader(sfp(external=True)))
    assert module.bias[0] == pytest.approx((3000 * 2 + 10) * 2e-6) and module.temperature == pytest.approx(49.41, abs=0.01)
    assert module.received[0] == pytest.approx((2 * 4000 + 5) * 1e-7)


@given(st.sampled_from(sorted(KINDS)), st.data())
def test_whatever_a_module_says_no_reading_is_other_than_a_number(kind: int, data: st.DataObject) -> None:
    def half(page: int, offset: int, address: int) -> bytes:
        told = bytearray(data.draw(st.binary(min_size=128, max_size=128)))
        if (page, offset, address) == (0, 0, 0x50):
            told[0], told[92] = kind, told[92] | 0x50  # diagnostics, to be corrected by constants, where SFF-8472 has them
        if address == 0x51:
            struct.pack_into(">5f", told, 56, *data.draw(st.lists(st.floats(width=32), min_size=5, max_size=5)))
        return bytes(told)

    module = read_module(half)
    told = [module.temperature, module.supply, *module.bias, *module.sent, *module.received]
    assert all(math.isfinite(reading) for reading in told if reading is not None)


def test_a_qsfp_is_read() -> None:
    module = read_module(reader({(0, 0, 0x50): SFF_LOWER, (0, 128, 0x50): SFF_UPPER}))
    assert (module.kind, module.vendor, module.part) == ("QSFP+", "FACETEST", "FTL410QE2C")
    assert module.temperature == pytest.approx(31.0156, abs=1e-3) and module.supply == pytest.approx(3.2989)
    assert module.bias == pytest.approx((0x1414 * 2e-6, 0x1111 * 2e-6, 0x2222 * 2e-6, 0x3333 * 2e-6))
    assert len(module.received) == 4 and module.received[0] == pytest.approx(0x1223 * 1e-7)
    assert {"temperature_high_alarm", "temperature_low_alarm", "supply_high_warning", "supply_low_warning"} <= set(module.flags)
    assert "temperature_high_warning" not in module.flags and "supply_high_alarm" not in module.flags


def test_a_cmis_module_is_read() -> None:
    pages = {(0, 0, 0x50): CMIS_LOWER, (0, 128, 0x50): CMIS_UPPER, (1, 128, 0x50): bytes(CMIS_TOLD), (0x11, 128, 0x50): CMIS_LANES}
    module = read_module(reader(pages))
    assert (module.kind, module.vendor) == ("QSFP-CMIS", "FACETEST")
    assert module.temperature == pytest.approx(40.27, abs=0.01) and module.supply == pytest.approx(3.3020)
    assert module.sent[:4] == pytest.approx((2.13e-3, 2.0748e-3, 2.0512e-3, 2.1027e-3), rel=1e-4)
    assert module.received[0] == pytest.approx(0x0FC0 * 1e-7) and module.bias[0] == pytest.approx(0x5E9D * 2e-6)
    # 0x5b: temperature high and low alarm, low warning; supply high alarm, high warning
    told = {flag for flag in module.flags if flag.startswith(("temperature", "supply"))}
    assert told == {
        "temperature_high_alarm", "temperature_low_alarm", "temperature_low_warning", "supply_high_alarm", "supply_high_warning",
    }  # fmt: skip


def test_lanes_that_a_cmis_module_does_not_have_are_left_out() -> None:
    upper = bytearray(CMIS_UPPER)
    upper[210 - 128] = 0xF0
    pages = {
        (0, 0, 0x50): CMIS_LOWER,
        (0, 128, 0x50): bytes(upper),
        (1, 128, 0x50): bytes(CMIS_TOLD),
        (0x11, 128, 0x50): CMIS_LANES,
    }
    assert len(read_module(reader(pages)).sent) == 4


@pytest.mark.parametrize(
    "pages",
    [
        {(0, 0, 0x50): b"\x11".ljust(128, b"\0"), (0, 128, 0x50): SFF_UPPER},
        {(0, 0, 0x50): b"\x03".ljust(128, b"\0")},
        {(0, 0, 0x50): b"\x18\x40\x80".ljust(128, b"\0"), (0, 128, 0x50): CMIS_UPPER},
        {(0, 0, 0x50): b"\x18\x40\x00".ljust(128, b"\0"), (0, 128, 0x50): CMIS_UPPER, (1, 128, 0x50): bytes(128)},
    ],
    ids=["copper QSFP28", "copper SFP", "copper QSFP-DD", "CMIS that measures nothing"],
)
def test_what_a_module_does_not_measure_is_absent_and_never_zero(pages: dict[tuple[int, int, int], bytes]) -> None:
    module = read_module(reader(pages))
    assert (module.temperature, module.supply, module.bias, module.sent, module.received) == (None, None, (), (), ())
    assert module.flags == ()


@pytest.mark.parametrize("first", [b"", b"\x11", bytes(128), b"\xff" * 128], ids=["nothing", "cut", "zeros", "ones"])
def test_junk_in_a_module_is_an_error_of_that_module(first: bytes) -> None:
    with pytest.raises(ValueError):
        read_module(lambda page, offset, address: first)


def test_every_page_of_noise_is_read_or_refused() -> None:
    for seed in range(256):
        page = bytes((seed * 7 + place * place) % 256 for place in range(128))
        try:
            assert isinstance(read_module(lambda *_, page=page, seed=seed: bytes([seed]) + page[1:]), Module)
        except ValueError:
            continue


# --- error correction -------------------------------------------------------------------------------------------------


def test_error_correction_is_read_with_its_lanes() -> None:
    fec = parse_fec(fec_answer("rs", (256, 255, 1), (145, 128, 17)))
    assert (fec.active, fec.configured) == ("rs", ("rs",))
    assert fec.totals == {"corrected_blocks": 256, "uncorrectable_blocks": 145}
    assert fec.lanes == {"corrected_blocks": (255, 1), "uncorrectable_blocks": (128, 17)}


def test_a_driver_that_counts_nothing_has_no_counters() -> None:
    fec = parse_fec(fec_answer("baser"))
    assert (fec.active, fec.totals, fec.lanes) == ("baser", {}, {})


@pytest.mark.parametrize("cut", range(0, 120, 3))
def test_an_answer_cut_short_costs_what_is_cut(cut: int) -> None:
    answer = fec_answer("rs", (1, 2, 3), (4, 5, 6))
    whole, told = parse_fec(answer), parse_fec(answer[:cut])
    assert told.active in ("", whole.active) and set(told.configured) <= set(whole.configured)
    assert told.totals.items() <= whole.totals.items() and told.lanes.items() <= whole.lanes.items()


def test_the_kernels_refusal_is_its_error() -> None:
    body = struct.pack("=i", -errno.EOPNOTSUPP) + bytes(16)
    refusal = struct.pack("=IHHII", 16 + len(body), 2, 0, 7, 0) + body
    with pytest.raises(OSError, match="not supported"):
        parse_answer(refusal, 7)
    assert parse_answer(refusal, 8) is None
    with pytest.raises(OSError, match="cut short"):
        parse_answer(refusal[:20], 7)
    assert attributes(b"\x03\0\1\0") == {}


# --- the collectors ---------------------------------------------------------------------------------------------------


class Bench:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "sys"
        (self.root / "class/net/eth0/device").mkdir(parents=True)
        (self.root / "class/net/eth0/operstate").write_text("up\n")
        self.section = CollectorsSection(sysfs_root=str(self.root), interval_seconds=10.0)
        self.place = Place(node="n1", boot="b", state_dir=str(folder), section=self.section)
        self.card = EmulatedCard(self.root, "eth0")
        self.modules = Modules(self.place, Note())
        self.now = 0.0

    def read(self) -> Outcome:
        self.now += 60.0
        assert self.modules.supported() is None
        return self.modules.read(self.now)

    def told(self) -> list[list[str]]:
        outcome = self.read()
        assert isinstance(outcome, Readings)
        return [signal.data["module_alarms"] for signal in outcome.signals]

    def page(self) -> dict[tuple[str, ...], float]:
        outcome = self.read()
        assert isinstance(outcome, Readings)
        return {(sample.name, *sample.labels.values()): sample.value for sample in outcome.samples or []}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_values_stand_on_the_page_by_lane(bench: Bench) -> None:
    page = bench.page()
    assert page["outrider_module_temperature_celsius", "eth0", "1"] == 45.0
    assert page["outrider_module_receive_power_watts", "eth0", "1", "3"] == pytest.approx(1e-3)
    assert page["outrider_module_info", "eth0", "1", "QSFP28", "EMULATED", "QSFP28-100G-SR4", "SN-eth0"] == 1.0
    assert page["outrider_module_supported", "eth0", "1"] == 1.0


def test_an_alarm_is_told_when_it_stands_and_when_it_ends(bench: Bench) -> None:
    """A flag of one reading may be left from the time when the cable was plugged."""
    assert bench.told() == []
    bench.card.complain(hot=True)
    assert bench.told() == []
    assert bench.told() == [["temperature_high_alarm"]]
    assert bench.told() == []
    bench.card.complain(dark=True)
    assert bench.told() == [[]]
    assert bench.told() == [["receive_power_low_alarm"]]
    assert ("outrider_module_flag", "eth0", "1", "receive_power_low_alarm") in bench.page()


def test_an_alarm_says_which_module_it_is_and_whether_its_port_has_a_link(bench: Bench) -> None:
    bench.card.complain(dark=True)
    assert bench.told() == []
    (bench.root / "class/net/eth0/operstate").write_text("down\n")
    outcome = bench.read()
    assert isinstance(outcome, Readings)
    (told,) = outcome.signals
    assert told.data == {
        "module_alarms": ["receive_power_low_alarm"], "up": False,
        "module": {"vendor": "EMULATED", "part": "QSFP28-100G-SR4", "serial": "SN-eth0"},
    }  # fmt: skip
    assert told.text == "module of eth0 (EMULATED QSFP28-100G-SR4, serial SN-eth0): receive power low alarm"
    (bench.root / "class/net/eth0/operstate").write_text("up\n")
    assert bench.told() == [["receive_power_low_alarm"]]  # the link is back, and the light is not


def test_a_card_without_a_readable_module_says_so(bench: Bench) -> None:
    (bench.root / "class/net/eth0/ethtool/module-50-00").unlink()
    outcome = bench.read()
    assert isinstance(outcome, NotSupported) and "eth0: operation not supported" in outcome.reason


def test_a_module_that_is_pulled_takes_its_values_along(bench: Bench) -> None:
    (bench.root / "class/net/eth0/device/hwmon/hwmon3").mkdir(parents=True)
    (bench.root / "class/net/eth0/device/hwmon/hwmon3/temp1_input").write_text("51000\n")
    assert bench.page()["outrider_module_supported", "eth0", "1"] == 1.0
    (bench.root / "class/net/eth0/ethtool/module-50-00").unlink()
    page = bench.page()
    assert page["outrider_module_supported", "eth0", "1"] == 0.0
    assert not any(name[0] == "outrider_module_temperature_celsius" for name in page)
    assert page["outrider_nic_temperature_celsius", "eth0", "temp1"] == 51.0


def test_a_cards_own_sensor_at_its_limit_is_an_alarm(bench: Bench) -> None:
    folder = bench.root / "class/net/eth0/device/hwmon/hwmon0"
    folder.mkdir(parents=True)
    for name, text in {"temp1_input": "105000", "temp1_crit": "105000", "temp1_label": "asic", "temp2_input": "junk"}.items():
        (folder / name).write_text(text + "\n")
    assert read_sensors(bench.root / "class/net/eth0/device") == {"asic": (105.0, 105.0)}
    assert bench.told() == [["asic_temperature_high_alarm"]]


def test_each_turn_reads_one_port_and_each_port_has_its_turn(tmp_path: Path) -> None:
    node = EmulatedNode(tmp_path, gpus=1, ports=4)
    place = Place(node="n1", boot="b", state_dir=str(tmp_path), section=CollectorsSection(sysfs_root=str(node.sysfs)))
    modules, asked = Modules(place, Note()), []
    real = modules._cards.module
    modules._cards.module = lambda interface, *rest: (asked.append(interface), real(interface, *rest))[1]  # type: ignore[method-assign]
    modules.read(0.0)
    assert sorted(set(asked)) == ["ens0", "ens1", "ens2", "ens3"]
    seen = []
    for turn in range(1, 5):
        asked.clear()
        modules.read(15.0 * turn)
        seen += sorted(set(asked))
    assert sorted(seen) == ["ens0", "ens1", "ens2", "ens3"]
    assert modules.interval_seconds == 15.0
    node.close()


def test_ports_count_corrected_blocks_for_the_page_and_uncorrectable_ones_for_the_witness(bench: Bench) -> None:
    ports = Ports(bench.place, Note())
    assert ports.supported() is None

    def read(now: float) -> tuple[dict[str, Any], dict[tuple[str, ...], float]]:
        outcome = ports.read(now)
        assert isinstance(outcome, Readings)
        told = next((s.data for s in outcome.signals if s.kind == "port_counters"), {})
        return told, {(s.name, *s.labels.values()): s.value for s in outcome.samples or []}

    assert read(0.0)[0] == {"fec_uncorrectable_blocks": 0}
    bench.card.fec(corrected=1_000_000)
    told, page = read(10.0)
    assert told == {}
    assert page["outrider_port_events_total", "eth0", "1", "fec_corrected_blocks"] == 1_000_000.0
    assert page["outrider_port_fec_events_total", "eth0", "1", "0", "corrected_blocks"] == 1_000_000.0
    assert page["outrider_port_fec_mode", "eth0", "1", "rs"] == 1.0
    bench.card.fec(corrected=2_000_000, uncorrectable=7)
    assert read(20.0)[0] == {"fec_uncorrectable_blocks": 7}
    (bench.root / "class/net/eth0/ethtool/fec").unlink()
    _, page = read(30.0)
    assert page["outrider_port_fec_mode", "eth0", "1", "unsupported"] == 1.0
    assert not any("fec" in part for name in page for part in name if name[0] == "outrider_port_events_total")


@pytest.mark.real
def test_the_real_kernel_answers_for_a_real_interface() -> None:
    """The loopback has neither: the kernel's own refusal, not a silence and not a zero."""
    cards = KernelCards()
    for ask in (lambda: cards.fec("lo"), lambda: cards.module("lo", 0, 0)):
        with pytest.raises(OSError) as refused:
            ask()
        assert refused.value.errno in (errno.EOPNOTSUPP, errno.EPERM)
    with pytest.raises(OSError, match="No such device"):
        cards.fec("nosuch0")
    cards.close()


def test_a_kernel_that_does_not_answer_is_an_error_and_its_late_answer_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute:
        closed = False

        def settimeout(self, _: float) -> None: ...

        def send(self, _: bytes) -> None: ...

        def recv(self, _: int) -> bytes:
            raise TimeoutError("timed out")

        def close(self) -> None:
            self.closed = True

    mute = Mute()
    monkeypatch.setattr(ethtool_netlink.socket, "socket", lambda *_: mute)
    cards = KernelCards()
    with pytest.raises(TimeoutError):
        cards.fec("eth0")
    assert mute.closed
