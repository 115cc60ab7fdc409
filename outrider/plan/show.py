"""The plan as tables for people."""

from typing import Any

from rich.console import Console
from rich.table import Table

from outrider import reliability as law
from outrider.plan.reckon import Plan

#: Over which times survival is shown beside the one asked for, in days.
SURVIVAL_DAYS = (1 / 24, 1.0, 7.0, 30.0)


def show(plan: Plan, result: dict[str, Any]) -> None:
    """Prints what was reckoned and every warning."""
    console = Console()
    table = Table(title=_title(plan), show_header=False, title_justify="left", min_width=72)
    for section in (_failures(plan, result), _saving(result), _time(plan, result), _parts(result)):
        for name, value in section:
            table.add_row(name, value)
        table.add_section()
    console.print(table)
    for line in result["warnings"]:
        console.print(f"[yellow]note[/] {line}", soft_wrap=True, highlight=False)


def duration(seconds: float) -> str:
    """Seconds in the unit that people would use."""
    for unit, size in (("d", law.DAY_SECONDS), ("h", law.HOUR_SECONDS), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds:.1f} s"


def percent(share: float) -> str:
    """A share as per cent."""
    return f"{share * 100:.2f} %"


def size(count: float) -> str:
    """Bytes with a decimal prefix."""
    for prefix, unit in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if count >= unit:
            return f"{count / unit:.2f} {prefix}B"
    return f"{count:.0f} B"


def _title(plan: Plan) -> str:
    if plan.section.gpus is None or plan.nodes is None:
        return f"A job that fails every {duration(plan.mttf)}"
    return f"{plan.section.gpus:,.0f} GPUs in {plan.nodes:,.0f} nodes"


def _failures(plan: Plan, result: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("Mean time between failures", duration(result["mtbf_s"])),
        ("Failures a day", f"{result['failures_per_day']:.3f}"),
    ]
    if (rate := result["failures_per_1000_node_days"]) is not None:
        rows.append(("Failures for 1000 node-days", f"{rate:.3f}"))
    days = sorted({*SURVIVAL_DAYS, plan.section.days})
    rows += [
        (f"No failure within {duration(day * law.DAY_SECONDS)}", f"{law.survival(plan.mttf, day * law.DAY_SECONDS):.3g}")
        for day in days
    ]
    return rows


def _saving(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("One save takes", duration(result["save_s"])),
        ("Best interval: Young / Daly / exact", " / ".join(
            duration(result[f"interval_{name}_s"]) for name in ("young", "daly", "exact"))),
        ("Interval used here", duration(result["interval_s"])),
        ("Overhead = saving + lost work", f"{percent(result['overhead'])} = {percent(result['save_overhead'])} + "
                                          f"{percent(result['lost_overhead'])}"),
    ]  # fmt: skip


def _time(plan: Plan, result: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("Detection + restart", duration(plan.overhead)),
        ("Availability, MTBF / (MTBF + recovery)", percent(result["availability"])),
        ("ETTR (Meta's estimate)", percent(result["ettr"])),
        ("ETTR (exponential failures, exact)", percent(result["ettr_exact"])),
    ]
    if (ettr := result["ettr_emergency_snapshot"]) is not None:
        rows.append(("ETTR with a snapshot at each failure", percent(ettr)))
    worth = f"+{result['ettr_ten_seconds_sooner'] * 100:.3g} % ETTR"
    if (hours := result["gpu_hours_per_day_ten_seconds"]) is not None:
        worth += f", {hours:,.1f} GPU-hours a day"
    return [*rows, ("Ten seconds sooner to detect", worth)]


def _parts(result: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    if result["standby_p99"] is not None:
        spares = "no number helps" if result["spares"] is None else str(result["spares"])
        rows += [
            ("A node is out", f"{percent(result['node_down_share'])} of the time"),
            ("Spare nodes for the target", spares),
            ("Warm standbys, P99", str(result["standby_p99"])),
        ]
    if (count := result["checkpoint_bytes"]) is not None:
        rows.append(("State to save", size(count)))
        if (share := result["checkpoint_bytes_per_node"]) is not None:
            rows.append(("State for each node", size(share)))
        if (rate := result["bandwidth_bytes_per_s"]) is not None:
            rows.append(("Bandwidth while saving", f"{size(rate)}/s"))
    return rows
