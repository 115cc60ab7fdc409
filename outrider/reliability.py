"""Reliability arithmetic: how often a job stops, how often to save, and what is left of the time (standard library only).

Symbols, all in seconds unless said otherwise: `mttf` M, mean time between two failures of the job; `save` d (Meta: w), time for
which one save holds the job up; `interval` t, training time between two saves; `overhead` u0 = detection + restart.
Every law here takes failures as a Poisson process; real ones come in bursts and stay with lemon nodes.

Source: J. W. Young 1974; J. T. Daly 2006 (higher order); G. Aupy et al. (exact period under exponential failures);
Meta, "Revisiting reliability in large-scale machine learning research clusters" (E[ETTR]); ByteRobust (warm standby).
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Final

from outrider.errors import InputError

DAY_SECONDS: Final = 86_400.0
HOUR_SECONDS: Final = 3_600.0
#: Annual failure rates are told for a year of 365 days: 1 % of 10,000 cards is 0.274 failures a day.
YEAR_DAYS: Final = 365.0
#: Unexpected interruptions of Llama 3 405B: 419 in 54 days on 2,048 nodes.
LLAMA3_PER_1000_NODE_DAYS: Final = 419 / (54 * 2_048) * 1_000
#: Share of time for which a node is out; fitted to ByteRobust's table of warm standbys (2, 2, 3, 4 for 128 .. 1,024 machines).
BYTEROBUST_DOWN_SHARE: Final = 0.0012
#: No rate, time or count of the real world is larger; within it no formula here overflows.
LARGEST: Final = 1e15
#: From this mean on a binomial is summed as a normal law: they differ by less than 0.4 % there, the sum would take seconds.
NORMAL_FROM: Final = 10_000.0
#: Adam in float32: the parameter and two moments of four bytes each.
ADAM_FLOAT32_BYTES: Final = 12.0


def positive(name: str, value: float) -> float:
    """`value` if it lies between 1 / `LARGEST` and `LARGEST`. Raises InputError, naming the option."""
    if not 1 / LARGEST <= value <= LARGEST:
        raise InputError(f"must be a number above 0 and at most {LARGEST:g} (is {value:g})", key=name)
    return value


def not_negative(name: str, value: float) -> float:
    """`value` if it lies between 0 and `LARGEST`. Raises InputError, naming the option."""
    if not 0 <= value <= LARGEST:
        raise InputError(f"must be a number between 0 and {LARGEST:g} (is {value:g})", key=name)
    return value


def rate_from_afr(gpus: float, afr: float) -> float:
    """Failures a day of `gpus` cards of which the share `afr` (0.01 = 1 %) fails in a year."""
    return gpus * afr / YEAR_DAYS


def rate_from_node_days(nodes: float, per_1000_node_days: float) -> float:
    """Failures a day of `nodes` nodes."""
    return nodes * per_1000_node_days / 1_000


def per_1000_node_days(failures: float, days: float, nodes: float) -> float:
    """The rate that was observed: `failures` in `days` on `nodes` nodes."""
    return failures / (days * nodes) * 1_000


def mttf_seconds(failures_per_day: float) -> float:
    """Mean time between two failures of the job; infinite if there are none."""
    return DAY_SECONDS / failures_per_day if failures_per_day > 0 else math.inf


def survival(mttf: float, seconds: float) -> float:
    """Chance of no failure at all within `seconds`: exp(-t/M)."""
    return math.exp(-seconds / mttf)


def young_interval(save: float, mttf: float) -> float:
    """Young's interval: the minimum of `save_overhead + lost_overhead`."""
    return math.sqrt(2 * save * mttf) if save else 0.0


def daly_interval(save: float, mttf: float) -> float:
    """Daly's interval of higher order, compute time between saves; M where d >= 2M (the series has left its range)."""
    if save >= 2 * mttf:
        return mttf
    ratio = save / (2 * mttf)
    return young_interval(save, mttf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def exact_interval(save: float, mttf: float) -> float:
    """The interval that is best under exponential failures, compute time between saves.

    Maximises `exact_efficiency` over T = t + d. With x = T/M and c = d/M the condition is x - c = 1 - exp(-x); the root
    lies in (c, c + 1] and the difference grows with x, so bisection cannot miss it.
    """
    if not save or math.isinf(mttf):
        return young_interval(save, mttf)
    ratio = save / mttf
    low, high = ratio, ratio + 1
    for _ in range(200):  # far more halvings than a double has bits
        middle = (low + high) / 2
        if middle - ratio + math.expm1(-middle) < 0:
            low = middle
        else:
            high = middle
    return high * mttf - save


def period_with_downtime(save: float, mttf: float, down: float, restore: float) -> float:
    """Daly's first-order period, save included: sqrt(2 (M + D + R) d) + d."""
    return math.sqrt(2 * (mttf + down + restore) * save) + save


def period_less_downtime(save: float, mttf: float, down: float, restore: float) -> float:
    """Aupy's first-order period, save included: sqrt(2 (M - D - R) d); 0 where recovery outlasts M."""
    return math.sqrt(2 * max(0.0, mttf - down - restore) * save)


def exact_efficiency(interval: float, save: float, mttf: float, down: float = 0.0, restore: float = 0.0) -> float:
    """Useful share of the time under exponential failures: (T-d) / ((M+D) e^(R/M) (e^(T/M)-1)) with T = t + d.

    Args:
        down: D, seconds in which nothing runs and nothing can fail.
        restore: R, seconds of restoring, in which failures strike again.
    """
    if math.isinf(mttf):
        return 1 / (1 + ratio_of(save, interval))
    period = interval + save
    if not period:
        return mttf / (mttf + down) * math.exp(-restore / mttf)  # the limit of no saves at all and none needed
    exponent = (restore + period) / mttf
    if exponent > 700:  # e^700 is near the largest double: nothing useful is left
        return 0.0
    return interval / ((mttf + down) * math.exp(restore / mttf) * math.expm1(period / mttf))


def ratio_of(save: float, interval: float) -> float:
    """d/t, the share that saving costs; 0 where saving costs nothing."""
    return save / interval if save else 0.0


def lost_share(interval: float, mttf: float) -> float:
    """t/(2M), the share that is lost because failures strike, on average, in the middle of an interval."""
    return interval / (2 * mttf)


def expected_ettr(interval: float, save: float, mttf: float, overhead: float, lost: float | None = None) -> float:
    """Meta's E[ETTR] = (1 - (u0 + t/2)/M) / (1 + w/t), within about 5 % of Monte Carlo; never below 0.

    Args:
        lost: seconds of work lost at a failure; None: t/2. With emergency snapshots it is half a step.
    """
    loss = interval / 2 if lost is None else lost
    return max(0.0, 1 - (overhead + loss) / mttf) / (1 + ratio_of(save, interval))


def availability(mttf: float, repair: float) -> float:
    """MTBF / (MTBF + MTTR)."""
    return 1.0 if math.isinf(mttf) else mttf / (mttf + repair)


def binomial_at_most(k: int, n: int, p: float) -> float:
    """P[Binomial(n, p) <= k], summed in logarithms so that large n do not underflow."""
    if p <= 0 or k >= n:
        return 1.0
    if p >= 1:
        return 0.0
    if n * p * (1 - p) > NORMAL_FROM:
        return NormalDist(n * p, math.sqrt(n * p * (1 - p))).cdf(k + 0.5)
    log_p, log_q = math.log(p), math.log1p(-p)
    terms = (math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * log_p + (n - i) * log_q for i in range(k + 1))
    return min(1.0, math.fsum(math.exp(term) for term in terms))


def standby_quantile(machines: int, down_share: float, quantile: float = 0.99) -> int:
    """Warm standbys by ByteRobust's rule: the quantile of Binomial(machines, p)."""
    return _smallest(lambda k: binomial_at_most(k, machines, down_share) >= quantile, machines)


def spares_for(nodes: int, down_share: float, target: float) -> int:
    """The smallest number of spares k with which `nodes` nodes are up with chance `target`: P[Bin(n+k, u) <= k] >= target."""
    # The share that is out on average is an upper start for doubling; 2n + 64 spares serve any share below one half.
    return _smallest(lambda k: binomial_at_most(k, nodes + k, down_share) >= target, 2 * nodes + 64)


def down_share(per_1000_node_days: float, repair_hours: float) -> float:
    """Share of time for which a node is out when each failure keeps it away for `repair_hours`."""
    days_up = 1_000 / per_1000_node_days if per_1000_node_days > 0 else math.inf
    return 1 - availability(days_up * DAY_SECONDS, repair_hours * HOUR_SECONDS)


def _smallest(enough: Callable[[int], bool], most: int) -> int:
    """The smallest k in 0..most for which `enough(k)`, `most` if there is none; once true, `enough` stays true."""
    if enough(0):
        return 0
    low, high = 0, 1
    while high < most and not enough(high):
        low, high = high, min(most, high * 2)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
