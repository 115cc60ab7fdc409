"""dcgm-exporter's page: sticky codes are no events, a gone or stuck exporter is its own state, junk costs what is junk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors import dcgm as module
from collectors.dcgm import Dcgm, parse_page
from collectors.emulated.dcgm import FakeExporter
from collectors.frame.identity import Gpu, Identities
from collectors.frame.types import CollectorError, Note, NotSupported, Place, Readings
from outrider.config.collectors import CollectorsSection
from outrider.parsers.exposition import ExpositionReader
from outrider.signals import Signal


class Bench:
    def __init__(self, folder: Path, exporter: FakeExporter) -> None:
        self.folder, self.exporter, self.now = folder, exporter, 0.0
        section = CollectorsSection(dcgm_url=exporter.url)
        self.collector = Dcgm(Place(node="n1", boot="b1", state_dir=str(folder), section=section), Note())

    def read(self) -> list[Signal]:
        self.now += 10.0
        outcome = self.collector.read(self.now)
        assert isinstance(outcome, Readings)
        return outcome.signals


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(module, "FETCH_SECONDS", 0.6)
    exporter = FakeExporter()
    made = Bench(tmp_path, exporter)
    yield made
    made.collector.close()
    exporter.close()


def test_a_code_that_stood_before_is_no_event_and_a_new_one_is(bench: Bench) -> None:
    bench.exporter.values["DCGM_FI_DEV_XID_ERRORS", 2] = 31
    assert [s for s in bench.read() if s.kind == "xid"] == []
    assert [s for s in bench.read() if s.kind == "xid"] == []
    bench.exporter.values["DCGM_FI_DEV_XID_ERRORS", 3] = 79
    (event,) = [s for s in bench.read() if s.kind == "xid"]
    assert (event.value, event.gpu, event.pci) == (79, 3, "0000:4b:00")
    assert str(event.uuid).endswith("000000000003")
    assert [s for s in bench.read() if s.kind == "xid"] == []


def test_without_nvml_the_page_gives_state_and_counters(bench: Bench) -> None:
    first = bench.read()
    states = [s for s in first if s.kind == "gpu_state"]
    assert len(states) == 8 and states[0].data["temp_c"] == 55.0
    bench.exporter.values["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 5] = 1
    changed = [s for s in bench.read() if s.kind != "gpu_state"]
    assert [(s.kind, s.gpu, s.data["uncorrected"], s.data["scope"]) for s in changed] == [("ecc", 5, 1, "volatile")]


def test_with_nvml_only_its_events_are_told(bench: Bench) -> None:
    Identities(str(bench.folder)).learn([Gpu(gpu=0, uuid="GPU-x", pci="0000:1b:00")])
    assert bench.read() == []
    bench.exporter.values["DCGM_FI_DEV_XID_ERRORS", 0] = 79
    assert [s.kind for s in bench.read()] == ["xid"]


@pytest.mark.parametrize(
    ("mood", "told"),
    [
        ("stuck", "no answer within"),
        ("trickle", "did not end within"),
        ("endless", "longer than|did not end"),
        ("cut", "IncompleteRead|Broken"),
        ("junk", "make no sense"),
        ("error", "status 500"),
    ],
)
def test_an_exporter_that_misbehaves_is_told_as_that(bench: Bench, mood: str, told: str) -> None:
    bench.read()
    bench.exporter.mood = mood  # type: ignore[assignment]
    with pytest.raises(CollectorError, match=told):
        bench.read()
    bench.exporter.mood = "well"
    assert any(s.kind == "gpu_state" for s in bench.read())


def test_an_exporter_that_is_gone_is_told_as_that(bench: Bench) -> None:
    bench.read()
    bench.exporter.close()
    bench.collector.close()
    with pytest.raises(CollectorError, match="refused"):
        bench.read()


def test_a_page_cut_in_half_is_read_up_to_the_cut(bench: Bench) -> None:
    text = bench.exporter.page()
    gpus, series, bad = parse_page(text[: len(text) // 2 + 7], ExpositionReader())
    whole = text[: len(text) // 2 + 7].count("\n")
    assert (series, bad) == (whole, 0)
    assert gpus


def test_a_line_of_junk_costs_that_line(bench: Bench) -> None:
    text = bench.exporter.page()
    _, series, bad = parse_page("{{{ junk\n" + text + 'broken{a="b} 1\n', ExpositionReader())
    assert (series, bad) == (text.count("\n"), 2)


def test_no_address_is_not_supported(tmp_path: Path) -> None:
    absent = Dcgm(Place(node="n1", boot="b", state_dir=str(tmp_path), section=CollectorsSection()), Note()).supported()
    assert isinstance(absent, NotSupported)
