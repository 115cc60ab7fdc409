"""What the GPU series of dcgm-exporter and of Outrider's agent mean: one word for one measure, whoever exposes it.

Sources: dcgm-exporter's counters files and DCGM's field identifiers; NVML's clocks event reasons; `outrider.agent_metrics`.
`DCGM_FI_DEV_XID_ERRORS` is the last code that was seen and stays for ever: a state of the exporter, not an event.
"""

from dataclasses import dataclass
from typing import Final

#: dcgm-exporter name -> measure. Counters but for those in `GAUGES`.
_DCGM: Final[dict[str, str]] = {
    "DCGM_FI_DEV_XID_ERRORS": "xid_last",
    "DCGM_EXP_XID_ERRORS_COUNT": "xid_count",
    "DCGM_EXP_XID_ERRORS_TOTAL": "xid_count",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "ecc_corrected",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc_uncorrected",
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": "ecc_corrected_life",
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": "ecc_uncorrected_life",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "remap_corrected",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "remap_uncorrected",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "remap_pending",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "remap_failed",
    "DCGM_FI_DEV_RETIRED_PENDING": "remap_pending",
    "DCGM_FI_DEV_RETIRED_DBE": "remap_uncorrected",
    "DCGM_FI_DEV_RETIRED_SBE": "remap_corrected",
    "DCGM_FI_DEV_GPU_TEMP": "temp_c",
    "DCGM_FI_DEV_MEMORY_TEMP": "memory_temp_c",
    "DCGM_FI_DEV_POWER_USAGE": "power_w",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": "power_limit_w",
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": "power_limit_w",
    "DCGM_FI_DEV_GPU_UTIL": "util",
    "DCGM_FI_DEV_SM_CLOCK": "sm_mhz",
    "DCGM_FI_DEV_MAX_SM_CLOCK": "sm_mhz_max",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "throttle",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "throttle",
    "DCGM_FI_DEV_THERMAL_VIOLATION": "thermal_ns",
    "DCGM_FI_DEV_POWER_VIOLATION": "power_ns",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "nvlink_crc",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "nvlink_crc",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "nvlink_replay",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "nvlink_recovery",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "pcie_replay",
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": "pcie_width",
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": "pcie_width_max",
    "DCGM_FI_DEV_MAX_PCIE_LINK_WIDTH": "pcie_width_max",
}
_PER_LINK: Final[tuple[tuple[str, str], ...]] = (
    ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L", "nvlink_crc"),
    ("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L", "nvlink_crc"),
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L", "nvlink_replay"),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L", "nvlink_recovery"),
)
#: Outrider's agent: name -> measure by the value of a label (None: whatever it is), and the factor to the measure's unit.
_OUTRIDER: Final[dict[str, tuple[str, str | None, float]]] = {
    "outrider_gpu_xid_errors_total": ("xid_count", None, 1.0),
    "outrider_gpu_ecc_errors_total": ("ecc_", "kind", 1.0),
    "outrider_gpu_ecc_errors_lifetime_total": ("ecc_life_", "kind", 1.0),
    "outrider_gpu_remapped_rows": ("remap_", "kind", 1.0),
    "outrider_gpu_temperature_celsius": ("temp_c", None, 1.0),
    "outrider_gpu_power_watts": ("power_w", None, 1.0),
    "outrider_gpu_power_limit_watts": ("power_limit_w", None, 1.0),
    "outrider_gpu_utilization_ratio": ("util", None, 100.0),
    "outrider_gpu_sm_clock_hertz": ("sm_mhz", None, 1e-6),
    "outrider_gpu_sm_clock_max_hertz": ("sm_mhz_max", None, 1e-6),
    "outrider_gpu_throttled": ("throttled_", "reason", 1.0),
    "outrider_gpu_nvlink_errors_total": ("nvlink_", "kind", 1.0),
    "outrider_gpu_nvlinks_down": ("nvlinks_down", None, 1.0),
    "outrider_gpu_pcie_replays_total": ("pcie_replay", None, 1.0),
    "outrider_gpu_pcie_width": ("pcie_width", None, 1.0),
    "outrider_gpu_pcie_width_max": ("pcie_width_max", None, 1.0),
    "outrider_gpu_recovery_action": ("recovery_action", None, 1.0),
}
_RENAMED: Final = {"ecc_life_corrected": "ecc_corrected_life", "ecc_life_uncorrected": "ecc_uncorrected_life"}

#: NVML clocks event reasons that mean trouble (nvml.h, nvmlClocksEventReason*): heat, and power taken away from outside.
THERMAL_BITS: Final = 0x20 | 0x40
HARDWARE_THERMAL_BIT: Final = 0x40
POWER_BRAKE_BIT: Final = 0x80
SLOWDOWN_BIT: Final = 0x08


@dataclass(frozen=True, slots=True)
class GpuLabels:
    """Who a GPU series is about. `host` is what the exporter calls its machine: inside a pod it may be the pod's name."""

    host: str | None
    instance: str | None
    gpu: int | None
    uuid: str | None
    pci: str | None
    workload: str | None


def gpu_measure(name: str, labels: dict[str, str]) -> tuple[str, str, float] | None:
    """(measure, part, factor) of a GPU series, or None. `part` tells series of one measure apart: an Xid's code, a link."""
    if measure := _DCGM.get(name):
        part = labels.get("xid", "") if measure == "xid_count" else name + labels.get("GPU_I_ID", "")
        return measure, part, 1.0
    if name.startswith("outrider_gpu_"):
        if not (entry := _OUTRIDER.get(name)):
            return None
        measure, by, factor = entry
        if by:
            measure += labels.get(by, "")
            measure = _RENAMED.get(measure, measure)
        return measure, labels.get("xid") or labels.get("where") or labels.get("link") or name, factor
    for prefix, measure in _PER_LINK:
        if name.startswith(prefix):
            return measure, name.removeprefix(prefix), 1.0
    return None


def gpu_labels(labels: dict[str, str]) -> GpuLabels:
    """The identity in a GPU series' labels (names differ between versions of the exporter)."""
    index = labels.get("gpu", "")
    pod = labels.get("exported_pod") or labels.get("pod")
    return GpuLabels(
        host=labels.get("node") or labels.get("Hostname") or labels.get("hostname") or None,
        instance=labels.get("instance"),
        gpu=int(index) if index.isdecimal() else None,
        uuid=labels.get("UUID") or labels.get("uuid") or labels.get("gpu_uuid") or None,
        pci=labels.get("pci_bus_id") or labels.get("pci") or None,
        workload=pod or labels.get("exported_container") or labels.get("container") or None,
    )
