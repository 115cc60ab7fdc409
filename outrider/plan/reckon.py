"""From what is known of a fleet to the figures of `outrider plan`."""

import math
from dataclasses import dataclass
from typing import Any

from outrider import reliability as law
from outrider.config.plan import PlanSection
from outrider.errors import InputError

#: Assumed where neither the time nor size and bandwidth are told: a save as the public trainings at scale report it.
SAVE_SECONDS_ASSUMED = 60.0
#: Far above any fleet there is; keeps the search for spares short.
MOST_NODES = 100_000_000
RATES = ("afr", "failures_per_1000_node_days", "mtbf_hours", "observed_failures")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The inputs in seconds and what comes out. `nodes` is None where only the job's MTBF is known."""

    section: PlanSection
    nodes: float | None
    per_1000_node_days: float | None
    mttf: float
    save: float
    interval: float
    overhead: float
    checkpoint_bytes: float | None
    rate_source: str


def reckon(section: PlanSection) -> Plan:
    """Checks the inputs and works out rate, save and interval.

    Raises:
        InputError: a value is out of range, two rates or none with too little else are given.
    """
    _check(section)
    nodes = section.gpus / section.gpus_per_node if section.gpus is not None else None
    failures_per_day, source = _rate(section, nodes)
    mttf = law.mttf_seconds(failures_per_day)
    size = None if section.parameters is None else section.parameters * section.bytes_per_parameter
    save = _save_seconds(section, size)
    interval = section.interval_seconds
    if interval is None:
        interval = law.young_interval(save, mttf) if save < 2 * mttf else law.daly_interval(save, mttf)
    elif interval == 0 and save > 0:
        raise InputError("0 leaves no time to train when a save takes time", key="--interval-seconds")
    return Plan(
        section=section,
        nodes=nodes,
        per_1000_node_days=failures_per_day / nodes * 1_000 if nodes else None,
        mttf=mttf,
        save=save,
        interval=interval,
        overhead=section.restart_seconds + section.detect_seconds,
        checkpoint_bytes=size,
        rate_source=source,
    )


def figures(plan: Plan) -> dict[str, Any]:
    """Every figure by its public key; times in seconds, shares between 0 and 1, None where an input is missing."""
    section, mttf, save, interval = plan.section, plan.mttf, plan.save, plan.interval
    save_share, lost_share = law.ratio_of(save, interval), law.lost_share(interval, mttf)
    ettr = law.expected_ettr(interval, save, mttf, plan.overhead)
    return {
        "mtbf_s": mttf,
        "failures_per_day": law.DAY_SECONDS / mttf,
        "failures_per_1000_node_days": plan.per_1000_node_days,
        "survival": law.survival(mttf, section.days * law.DAY_SECONDS),
        "survival_days": section.days,
        "interval_young_s": law.young_interval(save, mttf),
        "interval_daly_s": law.daly_interval(save, mttf),
        "interval_exact_s": law.exact_interval(save, mttf),
        "interval_s": interval,
        "save_s": save,
        "save_overhead": save_share,
        "lost_overhead": lost_share,
        "overhead": save_share + lost_share,
        "availability": law.availability(mttf, plan.overhead),
        "ettr": ettr,
        "ettr_exact": _ettr_exact(plan),
        "ettr_ten_seconds_sooner": _ten_seconds(plan),
        "gpu_hours_per_day_ten_seconds": _gpu_hours(plan),
        "ettr_emergency_snapshot": _emergency(plan),
        **_spares(plan),
        **_checkpoint(plan),
        "rate_source": plan.rate_source,
        "warnings": warnings(plan),
    }


def warnings(plan: Plan) -> list[str]:
    """Where a formula leaves its range, and what no formula here knows."""
    section, told = plan.section, []
    if plan.rate_source == "assumed":
        told.append("no rate given: Llama 3's is assumed, 419 interruptions in 54 days on 2,048 nodes (3.79 per 1000 node-days)")
    if section.save_seconds is None and plan.checkpoint_bytes is None:
        told.append(f"no save time given: {SAVE_SECONDS_ASSUMED:g} s is assumed; measure your own")
    if section.gpus is not None and section.mtbf_hours is None:
        told += _scale_warnings(section.gpus, section.afr is not None)
    if section.afr is not None and section.afr >= 1:
        told.append("--afr is a share, not per cent: 1 % is 0.01")
    if plan.save >= 2 * plan.mttf:
        told.append(
            "a save takes as long as two failures are apart (d >= 2M): Young's formula is out of its range, "
            "Daly's rule is interval = M, and hardly any work survives"
        )
    elif plan.save > plan.mttf / 10:
        told.append("a save is longer than a tenth of the MTBF: first-order figures are off; read ettr_exact")
    if plan.overhead + plan.interval / 2 >= plan.mttf:
        told.append("recovery and lost work outlast the time between failures: E[ETTR] is out of its range and shown as 0")
    elif plan.overhead + plan.interval / 2 > 0.3 * plan.mttf:
        told.append(
            "recovery and lost work take more than 30 % of the MTBF: failures during recovery are not in E[ETTR]; read ettr_exact"
        )
    told.append(
        "real failures are not Poisson: they come in bursts, share causes and stay with lemon nodes; "
        "survival and spares are better than the truth"
    )
    return told


def _scale_warnings(gpus: float, by_card: bool) -> list[str]:
    told = []
    if gpus < 4_096:
        told.append(
            "below 4,096 GPUs the scaling of a fleet's rate is too kind: at 1,024 GPUs and 6.50 per 1000 node-days it says "
            "28.8 h where 7.9 h was measured"
        )
    elif gpus > 32_768:
        told.append(
            "above 32,768 GPUs nothing but the rate is scaled: at 100,000 GPUs and 2.3 per 1000 node-days it says 50 min where "
            "18 min was reported"
        )
    if by_card:
        told.append("an annual rate of cards counts broken cards only: hosts, network and software stop a job as well")
    return told


def _check(section: PlanSection) -> None:
    given = [name for name in RATES if getattr(section, name) is not None]
    options = ", ".join("--" + name.replace("_", "-") for name in RATES)
    if len(given) > 1:
        raise InputError(f"give one rate only, of {options}", key="--" + given[1].replace("_", "-"))
    if section.gpus is None and given != ["mtbf_hours"]:
        raise InputError("is missing; it may be left out only beside --mtbf-hours", key="--gpus")
    if (section.observed_failures is None) != (section.observed_days is None):
        raise InputError("--observed-failures and --observed-days go together", key="--observed-days")
    for name in ("gpus", "gpus_per_node", "mtbf_hours", "observed_days", "parameters", "bytes_per_parameter", "bandwidth_gbytes"):
        _hold(section, name, law.positive)
    if section.gpus is not None and section.gpus / section.gpus_per_node > MOST_NODES:
        raise InputError(f"makes more than {MOST_NODES:,} nodes", key="--gpus")
    for name in (
        "afr", "failures_per_1000_node_days", "observed_failures", "save_seconds", "interval_seconds", "restart_seconds",
        "detect_seconds", "days", "repair_hours", "step_seconds",
    ):  # fmt: skip
        _hold(section, name, law.not_negative)
    if not 0 < section.spare_target < 1:
        raise InputError(f"must lie between 0 and 1 (is {section.spare_target:g})", key="--spare-target")


def _hold(section: PlanSection, name: str, check: Any) -> None:
    value = getattr(section, name)
    if value is not None:
        check("--" + name.replace("_", "-"), value)


def _rate(section: PlanSection, nodes: float | None) -> tuple[float, str]:
    """Failures of the job a day, and where the rate comes from."""
    if section.mtbf_hours is not None:
        return law.DAY_SECONDS / (section.mtbf_hours * law.HOUR_SECONDS), "mtbf"
    assert nodes is not None and section.gpus is not None
    if section.afr is not None:
        rate, source = law.rate_from_afr(section.gpus, section.afr), "afr"
    elif section.observed_failures is not None and section.observed_days is not None:
        rate, source = section.observed_failures / section.observed_days, "observed"
    elif section.failures_per_1000_node_days is not None:
        rate, source = law.rate_from_node_days(nodes, section.failures_per_1000_node_days), "node-days"
    else:
        rate, source = law.rate_from_node_days(nodes, law.LLAMA3_PER_1000_NODE_DAYS), "assumed"
    if rate <= 0:
        raise InputError("must be above 0: a fleet that never fails needs no plan", key="--" + _option(source))
    return rate, source


def _option(source: str) -> str:
    return {"afr": "afr", "observed": "observed-failures"}.get(source, "failures-per-1000-node-days")


def _save_seconds(section: PlanSection, size: float | None) -> float:
    if section.save_seconds is not None:
        return section.save_seconds
    if size is not None and section.bandwidth_gbytes is not None:
        return size / (section.bandwidth_gbytes * 1e9)
    return SAVE_SECONDS_ASSUMED


def _ettr_exact(plan: Plan) -> float:
    return law.exact_efficiency(plan.interval, plan.save, plan.mttf, plan.section.detect_seconds, plan.section.restart_seconds)


def _ten_seconds(plan: Plan) -> float:
    """What ETTR gains if each failure is seen ten seconds sooner (first order, the same interval)."""
    return 10 / plan.mttf / (1 + law.ratio_of(plan.save, plan.interval))


def _gpu_hours(plan: Plan) -> float | None:
    if plan.section.gpus is None:
        return None
    return plan.section.gpus * 10 * (law.DAY_SECONDS / plan.mttf) / law.HOUR_SECONDS


def _emergency(plan: Plan) -> float | None:
    """ETTR if the state of the last finished step is saved at each failure: half a step is lost, not half an interval."""
    if plan.section.step_seconds is None:
        return None
    return law.expected_ettr(plan.interval, plan.save, plan.mttf, plan.overhead, lost=plan.section.step_seconds / 2)


def _spares(plan: Plan) -> dict[str, Any]:
    keys = ("node_down_share", "node_availability", "spares", "standby_p99")
    if plan.nodes is None or plan.per_1000_node_days is None:
        return dict.fromkeys(keys)
    share = law.BYTEROBUST_DOWN_SHARE
    if plan.section.repair_hours is not None:
        share = law.down_share(plan.per_1000_node_days, plan.section.repair_hours)
    nodes = math.ceil(plan.nodes)
    # Beyond one half no number of spares that is worth buying helps.
    spares = law.spares_for(nodes, share, plan.section.spare_target) if share < 0.5 else None
    return dict(zip(keys, (share, 1 - share, spares, law.standby_quantile(nodes, share)), strict=True))


def _checkpoint(plan: Plan) -> dict[str, Any]:
    size, seconds = plan.checkpoint_bytes, plan.save
    return {
        "checkpoint_bytes": size,
        "checkpoint_bytes_per_node": size / plan.nodes if size is not None and plan.nodes else None,
        "bandwidth_bytes_per_s": size / seconds if size is not None and seconds else None,
    }
