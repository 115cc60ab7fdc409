"""The whole agent on an emulated node: what breaks is heard by the witness, a hung driver holds up nobody else."""

import contextlib
import itertools
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from collector_site import Site

from collectors.emulated.node import EmulatedNode

pytestmark = [pytest.mark.real, pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")]


@pytest.fixture
def site(make_site: Callable[..., Site], tmp_path: Path) -> Site:
    made = make_site(1, node=EmulatedNode(tmp_path / "node", gpus=4, ports=2, exporter=True))
    made.start()
    made.witnesses[0].first("gpu_state", gpu=3)
    made.witnesses[0].first("link", nic="mlx5_1")
    return made


def page(site: Site) -> str:
    return urllib.request.urlopen(f"http://127.0.0.1:{site.metrics_port}/metrics").read().decode()


def test_what_breaks_is_heard_by_the_witness(site: Site) -> None:
    assert site.node is not None
    witness = site.witnesses[0]
    site.node.xid(3, 79)
    heard = witness.first("xid", source="kmsg")
    assert (heard.value, heard.gpu, heard.pci, heard.node) == (79, 3, "0000:4b:00", "n1")
    assert str(heard.uuid).endswith("03")
    assert witness.first("xid", source="nvml").gpu == 3
    site.node.link("mlx5_1", up=False)
    witness.wait(lambda w: any(s.kind == "link" and s.data["state"] == "down" for s in w.signals))
    site.node.count("mlx5_0", symbol_error=500)
    witness.wait(lambda w: any(s.kind == "port_counters" and s.data.get("symbol_error") == 500 for s in w.signals))
    text = page(site)
    assert 'outrider_gpu_xid_errors_total{node="n1",pci="0000:4b:00",xid="79"} 1.0' in text
    assert 'outrider_collector_success{collector="nvml",node="n1"} 1.0' in text
    assert 'outrider_port_up{nic="mlx5_1",node="n1",port="1"} 0.0' in text
    assert 'outrider_collector_supported{collector="provider",node="n1"} 0.0' in text


def test_a_hung_driver_call_is_told_within_ten_seconds_and_heartbeats_go_on(site: Site) -> None:
    assert site.node is not None
    witness = site.witnesses[0]
    site.node.gpus.set(2, hang=1)
    began = time.monotonic()
    call = witness.first("driver_call")
    assert time.monotonic() - began < 11.0
    assert (call.gpu, call.data["returned"]) == (2, False)
    beats = witness.beats
    assert max(after.sent_s - before.sent_s for before, after in itertools.pairwise(beats)) < 1.0
    text = page(site)
    assert 'outrider_collector_success{collector="nvml",node="n1"} 0.0' in text
    assert "outrider_gpu_temperature_celsius{" not in text
    assert "outrider_port_up{" in text
    site.node.gpus.set(2, hang=0)
    witness.wait(lambda w: any(s.kind == "driver_call" and s.data["returned"] for s in w.signals))


def test_the_whole_agent_stays_small(make_site: Callable[..., Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proportional memory of all its processes, with everything compiled, as it is installed; the promise is 60 MiB."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "cache"))
    site = make_site(1, node=EmulatedNode(tmp_path / "node"))
    warm = site.start()
    site.witnesses[0].first("gpu_state", gpu=7)
    warm.terminate()
    warm.wait(10)
    site.start()
    site.witnesses[0].wait(lambda w: len({s.id.split("/")[2] for s in w.signals if s.kind == "gpu_state" and s.id}) == 2)
    group = [site.processes[-1].pid]
    for folder in sorted(Path("/proc").iterdir(), key=lambda one: (len(one.name), one.name)):
        if folder.name.isdecimal():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            if parent in group:
                group.append(int(folder.name))
    total = 0
    for pid in group:
        with contextlib.suppress(OSError):  # a probe of storage or disks may come and go
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    assert len(group) >= 5
    assert total < 60 * 1024, f"{total} kB in {len(group)} processes"


def test_a_broken_exporter_and_junk_in_a_port_are_told_and_the_others_go_on(site: Site) -> None:
    assert site.node is not None and site.node.exporter is not None
    site.node.exporter.mood = "junk"
    state = site.folder / "node/sys/class/infiniband/mlx5_0/ports/1/state"
    state.write_bytes(os.urandom(100))
    site.node.xid(1, 48)
    site.witnesses[0].first("xid", value=48)
    until = time.monotonic() + 20
    while 'outrider_collector_success{collector="dcgm",node="n1"} 0.0' not in page(site):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert 'outrider_collector_success{collector="ports",node="n1"} 1.0' in page(site)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
def test_prometheus_finds_nothing_wrong_with_the_page(site: Site) -> None:
    assert site.node is not None
    site.node.xid(2, 79)
    site.witnesses[0].first("xid", value=79)
    done = subprocess.run(["promtool", "check", "metrics"], input=page(site), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
