"""Node and GPU: one machine, every reading."""

from typing import Final

from alerts.rules.recording import grown
from dashboards.grafana.boards.parts import open_incidents
from dashboards.grafana.kit import AMBER, GREEN, RED, SITE, ZERO_IS_WELL, Board, Chart, Number, states
from dashboards.grafana.scope import cluster, node, store

_NODE: Final = f'{SITE},node=~"$node"'
_STEP: Final = "$__rate_interval"


def _of(metric: str) -> str:
    return f"outrider_{metric}{{{_NODE}}}"


def _more(metric: str) -> str:
    return f"increase({_of(metric)}[{_STEP}])"


def _per_gpu(expr: str) -> dict[str, str]:
    return {"gpu {{gpu}}": f"max by (gpu) ({expr})"}


_NUMBERS: Final = (
    Number("GPUs", "GPUs that the driver shows.", f"sum({_of('gpus')})"),
    Number("GPUs missing", "Fewer than the node should have.", f"sum({_of('gpus_expected')} - {_of('gpus')})", ZERO_IS_WELL),
    Number("Hottest GPU", "Hardware slows down above its own limit, about 87 to 90 C.", f"max({_of('gpu_temperature_celsius')})",
           ((None, GREEN), (80, AMBER), (87, RED)), "celsius"),
    Number("Rows not remapped", "Rows that could not be replaced: the card must be.",
           f'sum(outrider_gpu_remapped_rows{{{_NODE},kind="failed"}})', ZERO_IS_WELL),
    Number("Rows to reset", "Rows that the next reset of the GPU remaps.",
           f'sum(outrider_gpu_remapped_rows{{{_NODE},kind="pending"}})', ((None, GREEN), (1, AMBER))),
    Number("NVLinks down", "Links that are not active.", f"sum({_of('gpu_nvlinks_down')})", ZERO_IS_WELL),
    Number("Since boot", "Time since the machine started.", f"max({_of('host_boot_seconds')})", unit="s"),
    Number("Collectors that fail", "What they watch is unknown.", f"count({_of('collector_success')} == 0) or vector(0)",
           ZERO_IS_WELL),
)  # fmt: skip
_ERRORS: Final = (
    Chart("XID errors", "Messages of the driver by code; `outrider explain xid N` says what each means.",
          {"{{pci}} xid {{xid}}": f"sum by (pci, xid) ({grown(_of('gpu_xid_errors_total'), _STEP)})"}, points=True),
    Chart("ECC errors", "Since the driver was loaded. Corrected ones are counted; one uncorrected is a fault.",
          {"gpu {{gpu}} {{kind}} {{where}}": f"sum by (gpu, kind, where) ({_of('gpu_ecc_errors_total')})"}),
    Chart("Remapped rows", "Rows replaced by spare ones; pending needs a reset, failed a new card.",
          {"gpu {{gpu}} {{kind}}": f"sum by (gpu, kind) ({_of('gpu_remapped_rows')})"}),
    Chart("NVLink errors", "Replays are recovered; recoveries and CRC errors that grow are a bad link.",
          {"gpu {{gpu}} {{kind}}": f"sum by (gpu, kind) ({_more('gpu_nvlink_errors_total')})"}),
    Chart("PCIe replays", "Packets sent again; a steady growth is a bad slot, riser or card.",
          {"gpu {{gpu}}": f"sum by (gpu) ({_more('gpu_pcie_replays_total')})"}),
    Chart("PCIe lanes missing",
          "Lanes possible less lanes in use; an idle GPU may run at a lower generation, never at fewer lanes.",
          _per_gpu(f"{_of('gpu_pcie_width_max')} - {_of('gpu_pcie_width')}")),
)  # fmt: skip
_CLOCKS: Final = (
    Chart("SM clock", "Share of the highest clock.", _per_gpu(f"{_of('gpu_sm_clock_hertz')} / {_of('gpu_sm_clock_max_hertz')}"),
          "percentunit", maximum=1.0),
    Chart("Temperature", "Of the GPU.", _per_gpu(_of("gpu_temperature_celsius")), "celsius"),
    Chart("Power", "Drawn by the GPU; the limit in force is often the cause of a low clock.",
          _per_gpu(_of("gpu_power_watts")), "watt"),
    Chart("Utilisation", "Share of time with a kernel on the GPU; a hung collective shows 100 % at low power.",
          _per_gpu(_of("gpu_utilization_ratio")), "percentunit", maximum=1.0),
    Chart("Memory in use", "Share of the GPU's memory.", _per_gpu(f"{_of('gpu_memory_used_bytes')} / {_of('gpu_memory_bytes')}"),
          "percentunit", maximum=1.0),
)  # fmt: skip
_HOST: Final = (
    Chart("Pressure", "Share of time in which tasks waited for processor, memory or disk.",
          {"{{resource}} {{kind}}": f"sum by (resource, kind) (rate({_of('host_pressure_seconds_total')}[{_STEP}]))"},
          "percentunit"),
    Chart("Memory", "Of the host.", {"{{kind}}": f"max by (kind) ({_of('host_memory_bytes')})"}, "bytes"),
    Chart("Memory errors", "Counted by the memory controller.",
          {"controller {{controller}} {{kind}}": f"sum by (controller, kind) ({_more('host_edac_errors_total')})"}),
    Chart("Storage probes", "How long the last good probe of each mount took; a probe that hangs has no new value.",
          {"{{mount}}": f"max by (mount) ({_of('storage_probe_seconds')})"}, "s"),
    Chart("Disk free", "Share of each local file system that is free.",
          {"{{mount}}": f"min by (mount) ({_of('host_disk_free_ratio')})"}, "percentunit"),
    Chart("Rank processes", "Local ranks by the kernel's state; `disk` for long is hung storage or a driver.",
          {"{{state}}": f"sum by (state) ({_of('rank_processes')})"}),
    Chart("Clock error", "Largest error of the wall clock by the kernel's estimate.",
          {"error": f"max({_of('host_clock_error_seconds')})"}, "s"),
    Chart("Load", "Processes that run or wait, over one minute.", {"load": f"max({_of('host_load')})"}),
    Chart("Agent", "How late the agent's loop is.", {"lag": f"max({_of('agent_lag_seconds')})"}, "s"),
)  # fmt: skip


def board() -> Board:
    made = Board(
        uid="outrider-node",
        title="Outrider / Node and GPU",
        description="Errors, memory, links, clocks and throttling of a node's GPUs; its host, storage, processes and agent.",
        variables=(store(), cluster(), node(several=False)),
    )
    made.row("Now")
    made.numbers(3, *_NUMBERS)
    made.add(open_incidents("Open incidents", ',node=~"$node"'), 24, 6)
    made.row("GPU errors")
    made.charts(8, 8, *_ERRORS)
    made.row("Clocks, heat, power")
    made.charts(8, 8, *_CLOCKS)
    reasons = f"max by (gpu, reason) ({_of('gpu_throttled')}) > 0"
    about = "Reasons by GPU. Idle is no fault; heat and a power brake are."
    made.add(states("What holds the clock back", about, "gpu {{gpu}} {{reason}}", reasons, {"1": ("throttled", AMBER)}), 8, 8)
    made.row("Host, storage, processes")
    made.charts(8, 8, *_HOST)
    return made
