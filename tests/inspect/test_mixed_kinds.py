"""Files of several kinds together: the kernel's word and what the ranks printed of it are one incident."""

from detectors.inspect.findings import EvidenceLine, Finding, finding
from detectors.inspect.story import join


def one(fault: str, response: str | None = None, **subject: object) -> Finding:
    line = EvidenceLine(line=1, text=fault, file="f")
    return finding(fault, dict(subject), f"about {fault}.", evidence=[line], response=response)  # type: ignore[arg-type]


def test_a_lost_gpu_explains_the_ranks_that_ended_on_its_machine() -> None:
    lost = one("gpu.fallen_off_bus", node="n7", pci="0000:3b:00", gpu=3)
    ended = one("job.rank_exit", node="n7", rank=59, job="j1")
    (joined,) = join({"kmsg": [lost], "train_log": [ended]})
    assert joined.fault == "gpu.fallen_off_bus" and joined.decisive
    assert joined.subject == {"node": "n7", "pci": "0000:3b:00", "gpu": 3, "rank": 59, "job": "j1"}
    assert set(joined.layers) == {"hardware", "application"} and len(joined.evidence) == 2


def test_a_fault_of_another_machine_explains_nothing() -> None:
    found = join({"kmsg": [one("gpu.fallen_off_bus", node="n8", pci="p")], "train_log": [one("job.rank_exit", node="n7", rank=1)]})
    assert {each.fault for each in found} == {"gpu.fallen_off_bus", "job.rank_exit"}


def test_a_programs_own_error_stays_its_own() -> None:
    for fault in ("job.app_error", "job.loss_nan", "job.oom"):
        found = join({"kmsg": [one("gpu.nvlink", node="n7", pci="p")], "train_log": [one(fault, node="n7", rank=1)]})
        assert len(found) == 2, fault


def test_the_kernels_memory_killer_explains_the_killed_rank() -> None:
    (joined,) = join(
        {"kmsg": [one("job.oom", node="n7", process=4411)], "train_log": [one("job.rank_exit", "page", node="n7", rank=1)]}
    )
    assert joined.fault == "job.oom" and joined.response == "page" and joined.culprit == "app"


def test_kernel_and_metrics_of_one_gpu_are_one_incident_and_of_two_are_two() -> None:
    kernel = one("gpu.ecc_uncontained", node="n7", pci="0000:3b:00", gpu=3)
    same = one("gpu.row_remap_pending", node="n7", pci="0000:3b:00", uuid="GPU-3", gpu=3)
    other = one("gpu.thermal", node="n7", pci="0000:4c:00", gpu=4)
    found = join({"kmsg": [kernel], "metrics": [same, other]})
    assert sorted(each.fault for each in found) == ["gpu.ecc_uncontained", "gpu.thermal"]


def test_a_healed_part_explains_nothing_new() -> None:
    healed = finding("gpu.gsp_hang", {"node": "n7"}, "was", response="watch", state="resolved")
    assert len(join({"kmsg": [healed], "train_log": [one("job.hang", node="n7", rank=1)]})) == 2
