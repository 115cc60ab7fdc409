"""GPUs by NVML, against a fake library in C that the tests build: what is unknown stays unknown, what is lost keeps its name."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.emulated.nvml import FakeGpus, build_library
from collectors.frame.identity import Identities
from collectors.frame.types import Note, NotSupported, Outcome, Place, Readings
from collectors.nvml import Nvml
from outrider.config.collectors import CollectorsSection
from outrider.signals import Signal

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

UUID = "GPU-00000000-0000-0000-0000-000000000003"


class Bench:
    """A fake library of its own, its GPUs, and a collector on them."""

    def __init__(self, folder: Path, library: Path, gpus: int = 8) -> None:
        self.folder = folder
        self.library = folder / "libnvidia-ml.so.1"
        shutil.copy(library, self.library)  # another file is another library, with a state of its own
        self.gpus = FakeGpus(folder / "gpus", gpus)
        self.collector = self.start()
        self.now = 0.0

    def start(self, expected: int = 0) -> Nvml:
        section = CollectorsSection(nvml_library=str(self.library))
        place = Place(node="n1", boot="b1", state_dir=str(self.folder), section=section, gpus=expected)
        self.collector = Nvml(place, Note())
        return self.collector

    def read(self, seconds: float = 10.0) -> list[Signal]:
        assert self.collector.supported() is None
        self.now += seconds
        outcome: Outcome = self.collector.read(self.now)
        assert isinstance(outcome, Readings)
        if outcome.samples is not None:
            self.page = {(s.name, *s.labels.values()): s.value for s in outcome.samples}
        return outcome.signals

    def of(self, signals: list[Signal], kind: str) -> list[Signal]:
        return [signal for signal in signals if signal.kind == kind]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def bench(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv("OUTRIDER_FAKE_NVML", str(tmp_path / "gpus"))
    made = Bench(tmp_path, library)
    yield made
    made.collector.close()


def test_every_gpu_is_read_whole(bench: Bench) -> None:
    signals = bench.read()
    states = bench.of(signals, "gpu_state")
    assert [signal.gpu for signal in states] == list(range(8))
    third = states[3]
    assert (third.uuid, third.pci, third.node) == (UUID, "0000:4b:00", "n1")
    assert third.data == {
        "sm_mhz": 1980, "sm_mhz_max": 1980, "temp_c": 55, "power_w": 600.0, "power_limit_w": 700.0, "util": 99, "throttle": [],
        "recovery_action": 0,
    }  # fmt: skip
    assert bench.of(signals, "gpu_count")[0].value == 8
    assert len(bench.of(signals, "ecc")) == 8 * 4
    assert bench.page["outrider_gpu_memory_used_bytes", "3", UUID] == 6e10
    assert bench.page["outrider_gpu_nvlinks_down", "3", UUID] == 0.0
    assert bench.page["outrider_gpus",] == 8.0


def test_counters_are_told_when_they_change(bench: Bench) -> None:
    bench.read()
    assert {signal.kind for signal in bench.read()} == {"gpu_state"}
    bench.gpus.set(3, ecc__volatile__uncorrected__dram=2, remap__pending=1, pcie__width=8)
    signals = bench.read()
    (ecc,) = bench.of(signals, "ecc")
    assert (ecc.gpu, ecc.data) == (3, {"corrected": 0, "uncorrected": 2, "scope": "volatile", "where": "dram"})
    assert bench.of(signals, "row_remap")[0].data["pending"] == 1
    assert bench.of(signals, "pcie")[0].data["width"] == 8


def test_a_link_that_goes_down_is_told_with_what_stood_before(bench: Bench) -> None:
    bench.read()
    bench.gpus.set(2, nvlink5__down=1)
    told = bench.of(bench.read(), "nvlink")
    assert [(one.gpu, one.link, one.data["down"]) for one in told] == [(2, 5, 0), (2, 5, 1)]
    bench.gpus.set(2, nvlink7__replay=900, field52=900)
    told = bench.of(bench.read(), "nvlink")
    assert [(one.link, one.data["replay"]) for one in told] == [(7, 0), (7, 900)]


def test_reasons_of_a_slow_clock_are_words(bench: Bench) -> None:
    bench.gpus.set(1, throttle=0x8 | 0x40, sm_mhz=600)
    state = bench.of(bench.read(), "gpu_state")[1]
    assert (state.data["throttle"], state.data["sm_mhz"]) == (["hw_slowdown", "hw_thermal"], 600)
    assert bench.page["outrider_gpu_throttled", "1", UUID[:-1] + "1", "hw_thermal"] == 1.0


def test_an_xid_event_is_told_within_a_second_and_once(bench: Bench) -> None:
    bench.read()
    bench.gpus.xid(3, 79)
    (event,) = bench.read(seconds=1.0)
    assert (event.kind, event.value, event.gpu, event.uuid, event.pci) == ("xid", 79, 3, UUID, "0000:4b:00")
    assert bench.read(seconds=1.0) == []


def test_a_lost_gpu_keeps_its_name_and_its_series_leave(bench: Bench) -> None:
    bench.read()
    bench.gpus.set(3, lost=1)
    signals = bench.read()
    (count,) = bench.of(signals, "gpu_count")
    assert (count.value, count.data) == (7, {"expected": 8, "lost": [UUID]})
    assert not any(UUID in key for key in bench.page)
    again = bench.of(bench.read(), "gpu_count")[0]
    assert (again.value, again.data["expected"]) == (7, 8)
    known = Identities(str(bench.folder)).by_pci("00000000:4B:00.0")
    assert known is not None and known.uuid == UUID


def test_a_gpu_that_the_driver_no_longer_shows_is_missing_also_after_a_restart(bench: Bench) -> None:
    bench.read()
    bench.gpus.set_count(7)
    assert bench.of(bench.read(), "gpu_count")[0].value == 7
    bench.collector.close()
    bench.start()
    assert bench.of(bench.read(), "gpu_count")[0].data["expected"] == 8


def test_a_gpu_that_comes_back_is_counted_again(bench: Bench) -> None:
    bench.read()
    bench.gpus.set(3, lost=1)
    bench.read()
    bench.gpus.set(3, lost=0)
    bench.read()
    assert bench.of(bench.read(), "gpu_count") == [] or bench.page["outrider_gpus",] == 8.0


def test_what_a_gpu_does_not_support_is_left_out(tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTRIDER_FAKE_NVML", str(tmp_path / "gpus"))
    bench = Bench(tmp_path, library)
    bench.gpus.path.write_text("count 1\ngpu0.temp_c 40\n")
    signals = bench.read()
    assert [(signal.kind, signal.data) for signal in signals if signal.kind == "gpu_state"] == [("gpu_state", {"temp_c": 40})]
    assert {name for name, *_ in bench.page} == {
        "outrider_gpu_temperature_celsius", "outrider_gpu_processes", "outrider_gpus", "outrider_gpus_expected",
    }  # fmt: skip
    bench.collector.close()


def test_a_node_that_should_have_gpus_and_no_driver_has_none(bench: Bench) -> None:
    bench.gpus.set_init(9)
    bench.start(expected=8)
    (count,) = bench.of(bench.read(), "gpu_count")
    assert (count.value, count.data["expected"]) == (0, 8)
    assert "Driver Not Loaded" in count.data["reason"]
    bench.gpus.set_init(0)
    assert len(bench.of(bench.read(), "gpu_state")) == 8


def test_no_library_and_no_gpus_expected_is_not_supported(tmp_path: Path) -> None:
    section = CollectorsSection(nvml_library=str(tmp_path / "none.so"))
    absent = Nvml(Place(node="n1", boot="b", state_dir=str(tmp_path), section=section), Note()).supported()
    assert isinstance(absent, NotSupported) and "none.so" in absent.reason


@pytest.mark.parametrize("code", [4, 16, 999], ids=["no permission", "reset required", "unknown"])
def test_a_gpu_whose_calls_fail_shows_nothing_and_others_go_on(bench: Bench, code: int) -> None:
    bench.read()
    bench.gpus.set(3, broken=code)
    states = bench.of(bench.read(), "gpu_state")
    assert [signal.gpu for signal in states] == [0, 1, 2, 4, 5, 6, 7]
    assert not any(UUID in key for key in bench.page)
