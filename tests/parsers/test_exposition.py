"""Prometheus text, line by line: what is known, what is unknown, and what is no sample."""

import math

import pytest

from outrider.parsers import dcgm, ports
from outrider.parsers.exposition import BadSampleError, ExpositionReader


def test_labels_with_braces_quotes_and_commas_are_read() -> None:
    sample = ExpositionReader().feed('m{a="x,y",b="{z}",c="q\\"r"} 1.5 1700000000')
    assert sample is not None
    assert (sample.name, sample.labels, sample.value) == ("m", {"a": "x,y", "b": "{z}", "c": 'q"r'}, 1.5)


def test_marks_of_scrapes_move_the_time() -> None:
    reader = ExpositionReader()
    times = []
    for line in ("# t=0", "m 1", "# HELP m text", "# t=7200", "m 2"):
        if reader.feed(line):
            times.append(reader.t)
    assert times == [0, 7200] and reader.scrapes == 2


@pytest.mark.parametrize("text", ["N/A", "NaN", "2147483632", "9223372036854775794", "140737488355328", "unknown"])
def test_what_the_exporter_does_not_know_is_unknown(text: str) -> None:
    sample = ExpositionReader().feed(f"m {text}")
    assert sample is not None and sample.value is None


def test_infinity_is_a_value() -> None:
    sample = ExpositionReader().feed("m +Inf")
    assert sample is not None and sample.value == math.inf


@pytest.mark.parametrize("line", ["{a} 1", "m", 'm{a="b" 1', 'm{a="b} 1', "m x", "9m 1", "m 1 2 3", "hello world again"])
def test_a_line_that_is_no_sample_says_so(line: str) -> None:
    with pytest.raises(BadSampleError):
        ExpositionReader().feed(line)


def test_both_spellings_of_a_gpus_identity_are_read() -> None:
    old = dcgm.gpu_labels({"gpu": "5", "UUID": "GPU-1", "Hostname": "n1", "pci_bus_id": "00000000:BB:00.0", "pod": "job-a-3"})
    new = dcgm.gpu_labels({"gpu": "5", "uuid": "GPU-1", "hostname": "n1", "pci_bus_id": "00000000:BB:00.0", "pod": "job-a-3"})
    assert old == new and (old.gpu, old.workload) == (5, "job-a-3")


def test_one_measure_has_one_word_whoever_exposes_it() -> None:
    agent = dcgm.gpu_measure("outrider_gpu_ecc_errors_total", {"kind": "uncorrected", "where": "dram"})
    exporter = dcgm.gpu_measure("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", {})
    assert agent and exporter and agent[0] == exporter[0] == "ecc_uncorrected"
    assert ports.port_measure("node_infiniband_symbol_error_total", {}) == "symbol"
    assert ports.port_measure("outrider_port_events_total", {"counter": "symbol_error"}) == "symbol"
    assert ports.port_measure("node_ethtool_transmitted_prio3_pause", {"device": "ens3"}) == "pause_sent"
    assert ports.port_measure("node_network_carrier", {"device": "docker0"}) is None


def test_every_gpu_series_of_the_agent_has_a_measure_or_needs_none() -> None:
    from outrider.agent_metrics import AGENT_METRICS

    unread = {
        name for name, _, _, _ in AGENT_METRICS if name.startswith("outrider_gpu_") and not dcgm.gpu_measure(name, {"kind": "x"})
    }
    assert unread <= {
        "outrider_gpu_memory_used_bytes", "outrider_gpu_memory_bytes", "outrider_gpu_retired_pages", "outrider_gpu_pcie_generation",
        "outrider_gpu_pcie_generation_max", "outrider_gpu_fabric_state", "outrider_gpu_processes",
    }  # fmt: skip
