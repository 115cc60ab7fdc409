"""Node and GPU: one machine, every reading."""

from alerts.rules.recording import grown
from dashboards.grafana.boards.parts import open_incidents
from dashboards.grafana.kit import AMBER, BLUE, GREEN, RED, SITE, ZERO_IS_WELL, Board, Query, Steps, lines, number, states
from dashboards.grafana.scope import cluster, node, store

_NODE = f'{SITE},node=~"$node"'


def board() -> Board:
    made = Board(
        uid="outrider-node",
        title="Outrider / Node and GPU",
        description="Errors, memory, links, clocks and throttling of a node's GPUs; its host, storage, processes and agent.",
        variables=(store(), cluster(), node(several=False)),
    )
    _now(made)
    _errors(made)
    _clocks(made)
    _host(made)
    return made


def _now(made: Board) -> None:
    made.row("Now")
    missing = f"sum(outrider_gpus_expected{{{_NODE}}} - outrider_gpus{{{_NODE}}})"
    numbers: tuple[tuple[str, str, str, str, Steps], ...] = (
        ("GPUs", "GPUs that the driver shows.", f"sum(outrider_gpus{{{_NODE}}})", "short", ((None, BLUE),)),
        ("GPUs missing", "Fewer than the node should have.", missing, "short", ZERO_IS_WELL),
        (
            "Hottest GPU",
            "Hardware slows down above its own limit, about 87 to 90 C.",
            f"max(outrider_gpu_temperature_celsius{{{_NODE}}})",
            "celsius",
            ((None, GREEN), (80, AMBER), (87, RED)),
        ),
        (
            "Rows not remapped",
            "Rows that could not be replaced: the card must be.",
            f'sum(outrider_gpu_remapped_rows{{{_NODE},kind="failed"}})',
            "short",
            ZERO_IS_WELL,
        ),
        (
            "Rows to reset",
            "Rows that the next reset of the GPU remaps.",
            f'sum(outrider_gpu_remapped_rows{{{_NODE},kind="pending"}})',
            "short",
            ((None, GREEN), (1, AMBER)),
        ),
        ("NVLinks down", "Links that are not active.", f"sum(outrider_gpu_nvlinks_down{{{_NODE}}})", "short", ZERO_IS_WELL),
        ("Since boot", "Time since the machine started.", f"max(outrider_host_boot_seconds{{{_NODE}}})", "s", ((None, BLUE),)),
        (
            "Collectors that fail",
            "What they watch is unknown.",
            f"count(outrider_collector_success{{{_NODE}}} == 0) or vector(0)",
            "short",
            ZERO_IS_WELL,
        ),
    )
    for title, about, expr, unit, steps in numbers:
        made.add(number(title, about, expr, unit=unit, steps=steps), 3, 4)
    made.add(open_incidents("Open incidents", ',node=~"$node"'), 24, 6)


def _errors(made: Board) -> None:
    made.row("GPU errors")
    more, lanes = "[$__rate_interval]", "outrider_gpu_pcie_width"
    rows = (
        ("XID errors", "Messages of the driver by code; `outrider explain xid N` says what each means.",
         f"sum by (pci, xid) ({grown(f'outrider_gpu_xid_errors_total{{{_NODE}}}', '$__rate_interval')})", "{{pci}} xid {{xid}}"),
        ("ECC errors", "Since the driver was loaded. Corrected ones are counted; one uncorrected is a fault.",
         f"sum by (gpu, kind, where) (outrider_gpu_ecc_errors_total{{{_NODE}}})", "gpu {{gpu}} {{kind}} {{where}}"),
        ("Remapped rows", "Rows replaced by spare ones; pending needs a reset, failed a new card.",
         f"sum by (gpu, kind) (outrider_gpu_remapped_rows{{{_NODE}}})", "gpu {{gpu}} {{kind}}"),
        ("NVLink errors", "Replays are recovered; recoveries and CRC errors that grow are a bad link.",
         f"sum by (gpu, kind) (increase(outrider_gpu_nvlink_errors_total{{{_NODE}}}{more}))", "gpu {{gpu}} {{kind}}"),
        ("PCIe replays", "Packets sent again; a steady growth is a bad slot, riser or card.",
         f"sum by (gpu) (increase(outrider_gpu_pcie_replays_total{{{_NODE}}}{more}))", "gpu {{gpu}}"),
        ("PCIe lanes missing", "Lanes possible less lanes in use; an idle GPU may run at a lower generation, never at fewer lanes.",
         f"max by (gpu) ({lanes}_max{{{_NODE}}} - {lanes}{{{_NODE}}})", "gpu {{gpu}}"),
    )  # fmt: skip
    for title, about, expr, legend in rows:
        made.add(lines(title, about, Query(expr=expr, legend=legend)), 8, 8)


def _clocks(made: Board) -> None:
    made.row("Clocks, heat, power")
    per_gpu = (
        (
            "SM clock",
            "Share of the highest clock.",
            f"max by (gpu) (outrider_gpu_sm_clock_hertz{{{_NODE}}} / outrider_gpu_sm_clock_max_hertz{{{_NODE}}})",
            "percentunit",
            1.0,
        ),
        ("Temperature", "Of the GPU.", f"max by (gpu) (outrider_gpu_temperature_celsius{{{_NODE}}})", "celsius", None),
        (
            "Power",
            "Drawn by the GPU; the limit in force is often the cause of a low clock.",
            f"max by (gpu) (outrider_gpu_power_watts{{{_NODE}}})",
            "watt",
            None,
        ),
        (
            "Utilisation",
            "Share of time with a kernel on the GPU; a hung collective shows 100 % at low power.",
            f"max by (gpu) (outrider_gpu_utilization_ratio{{{_NODE}}})",
            "percentunit",
            1.0,
        ),
        (
            "Memory in use",
            "Share of the GPU's memory.",
            f"max by (gpu) (outrider_gpu_memory_used_bytes{{{_NODE}}} / outrider_gpu_memory_bytes{{{_NODE}}})",
            "percentunit",
            1.0,
        ),
    )
    for title, about, expr, unit, top in per_gpu:
        made.add(lines(title, about, Query(expr=expr, legend="gpu {{gpu}}"), unit=unit, maximum=top), 8, 8)
    made.add(
        states(
            "What holds the clock back",
            "Reasons by GPU. Idle is no fault; heat and a power brake are.",
            Query(expr=f"max by (gpu, reason) (outrider_gpu_throttled{{{_NODE}}}) > 0", legend="gpu {{gpu}} {{reason}}"),
            {"1": ("throttled", AMBER)},
        ),
        8,
        8,
    )


def _host(made: Board) -> None:
    made.row("Host, storage, processes")
    rows = (
        (
            "Pressure",
            "Share of time in which tasks waited for processor, memory or disk.",
            f"sum by (resource, kind) (rate(outrider_host_pressure_seconds_total{{{_NODE}}}[$__rate_interval]))",
            "{{resource}} {{kind}}",
            "percentunit",
        ),
        ("Memory", "Of the host.", f"max by (kind) (outrider_host_memory_bytes{{{_NODE}}})", "{{kind}}", "bytes"),
        (
            "Memory errors",
            "Counted by the memory controller.",
            f"sum by (controller, kind) (increase(outrider_host_edac_errors_total{{{_NODE}}}[$__rate_interval]))",
            "controller {{controller}} {{kind}}",
            "short",
        ),
        (
            "Storage probes",
            "How long the last good probe of each mount took; a probe that hangs has no new value.",
            f"max by (mount) (outrider_storage_probe_seconds{{{_NODE}}})",
            "{{mount}}",
            "s",
        ),
        (
            "Disk free",
            "Share of each local file system that is free.",
            f"min by (mount) (outrider_host_disk_free_ratio{{{_NODE}}})",
            "{{mount}}",
            "percentunit",
        ),
        (
            "Rank processes",
            "Local ranks by the kernel's state; `disk` for long is hung storage or a driver.",
            f"sum by (state) (outrider_rank_processes{{{_NODE}}})",
            "{{state}}",
            "short",
        ),
        (
            "Clock error",
            "Largest error of the wall clock by the kernel's estimate.",
            f"max(outrider_host_clock_error_seconds{{{_NODE}}})",
            "error",
            "s",
        ),
        ("Load", "Processes that run or wait, over one minute.", f"max(outrider_host_load{{{_NODE}}})", "load", "short"),
        ("Agent", "How late the agent's loop is.", f"max(outrider_agent_lag_seconds{{{_NODE}}})", "lag", "s"),
    )
    for title, about, expr, legend, unit in rows:
        made.add(lines(title, about, Query(expr=expr, legend=legend), unit=unit), 8, 8)
