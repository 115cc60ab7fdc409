"""The worked values of published papers and logs that the arithmetic must reproduce."""

import math

import pytest

from outrider import reliability as law

HOUR, MINUTE = 3_600.0, 60.0


def mttf(nodes: float, per_1000_node_days: float) -> float:
    return law.mttf_seconds(law.rate_from_node_days(nodes, per_1000_node_days))


def best_ettr(nodes: float, rate: float, overhead: float, save: float, interval: float | None = None) -> float:
    m = mttf(nodes, rate)
    return law.expected_ettr(law.young_interval(save, m) if interval is None else interval, save, m, overhead)


LLAMA3 = law.LLAMA3_PER_1000_NODE_DAYS
M3 = 11_135.0

VALUES = [
    ("1 Llama 3, unexpected", mttf(2_048, LLAMA3) / HOUR, 3.093),
    ("1 Llama 3, minutes", mttf(2_048, LLAMA3) / MINUTE, 185.6),
    ("1 Llama 3, rate", law.per_1000_node_days(419, 54, 2_048), 3.789),
    ("1 Llama 3, all 466", mttf(2_048, law.per_1000_node_days(466, 54, 2_048)) / HOUR, 2.781),
    ("2 16,384 GPUs", mttf(16_384 / 8, 6.5) / HOUR, 1.803),
    ("3 131,072 GPUs", mttf(131_072 / 8, 6.5) / HOUR, 0.2254),
    ("4 1,024 GPUs", mttf(1_024 / 8, 6.5) / HOUR, 28.85),
    ("5 4,096 servers, a day", law.rate_from_node_days(4_096, 2.3), 9.42),
    ("5 4,096 servers, hours", mttf(4_096, 2.3) / HOUR, 2.55),
    ("5 12,500 servers, minutes", mttf(12_500, 2.3) / MINUTE, 50.1),
    ("6 MTBF 18 min, recovery 10 min", law.expected_ettr(0, 0, 18 * MINUTE, 10 * MINUTE), 0.444),
    ("7 t*", law.young_interval(10, mttf(1_500, 6.5)), 421),
    ("7 ETTR", best_ettr(1_500, 6.5, 300, 10), 0.9205),
    ("8 t*", law.young_interval(300, mttf(1_500, 1.0)), 5_879),
    ("8 ETTR", best_ettr(1_500, 1.0, 300, 300), 0.898),
    ("9 t*, minutes", law.young_interval(300, mttf(2_048, 6.5)) / MINUTE, 32.9),
    ("9 ETTR", best_ettr(2_048, 6.5, 300, 300), 0.696),
    ("9 ETTR at an hour", best_ettr(2_048, 6.5, 300, 300, 3_600), 0.624),
    ("10 100,000 GPUs", best_ettr(12_500, 2.34, 120, 5, 120), 0.9015),
    ("10 without cost of saving", best_ettr(12_500, 2.34, 120, 0, 120), 0.939),
    ("12 Young", law.young_interval(30, 14_400), 929.5),
    ("12 Daly", law.daly_interval(30, 14_400), 909.6),
    ("13 Young", law.young_interval(28, 4.1379 * HOUR), 913.3),
    ("13 Young, minutes", law.young_interval(28, 4.1379 * HOUR) / MINUTE, 15.22),
    ("13 Daly", law.daly_interval(28, 4.1379 * HOUR), 894.8),
    ("14 Young", law.young_interval(300, M3), 2_584.8),
    ("14 Daly", law.daly_interval(300, M3), 2_388.6),
    ("16 a save longer than two failures apart", law.daly_interval(300, 140), 140),
    ("18 BLOOM, hours", 720 * 40 / HOUR, 8),
    ("18 BLOOM, share", law.ratio_of(40, 90 * law.DAY_SECONDS / 720), 0.0037),
    ("19 NCCL time-out only", best_ettr(2_048, LLAMA3, 900, 60, 1_800), 0.811),
    ("AFR 1 %, 10,000 cards, a day", law.rate_from_afr(10_000, 0.01), 0.274),
    ("AFR 1 %, 10,000 cards, days apart", law.mttf_seconds(law.rate_from_afr(10_000, 0.01)) / law.DAY_SECONDS, 3.65),
    ("saves of 30 s each 1,800 s", law.ratio_of(30, 1_800), 0.0167),
    ("overhead", law.ratio_of(0.5, 5) + law.lost_share(5, 100), 0.125),
    ("1,000 cards, 7 days", law.survival(law.mttf_seconds(0.001 * 1_000), 7 * law.DAY_SECONDS), 0.000912),
]


@pytest.mark.parametrize(("name", "got", "want"), VALUES, ids=[value[0] for value in VALUES])
def test_a_published_value_is_reproduced_to_its_last_printed_digit(name: str, got: float, want: float) -> None:
    digits = len(repr(want).split(".")[1]) if isinstance(want, float) else 0
    assert round(got, digits) == pytest.approx(want, abs=10.0**-digits * 0.51)


@pytest.mark.parametrize(
    ("m", "young", "daly_first", "aupy", "best"),
    [
        (3_849_609, 68_567, 68_573, 67_961, 68_240),
        (60_150, 9_096, 9_142, 8_449, 8_701),
        (7_519, 3_604, 3_733, 2_869, 3_218),
    ],
)
def test_11_the_periods_of_aupy_with_ten_minutes_of_saving_and_a_minute_of_downtime(
    m: float, young: float, daly_first: float, aupy: float, best: float
) -> None:
    assert law.young_interval(600, m) + 600 == pytest.approx(young, abs=0.6)
    assert law.period_with_downtime(600, m, 60, 600) == pytest.approx(daly_first, abs=0.6)
    assert law.period_less_downtime(600, m, 60, 600) == pytest.approx(aupy, abs=0.6)
    assert law.exact_interval(600, m) + 600 == pytest.approx(best, rel=0.002)


@pytest.mark.parametrize(
    ("save", "young", "daly", "waste"),
    [(60, 1_155.9, 1_116.3, 0.104), (10, 471.9, 465.3, 0.042), (1, 149.2, 148.6, 0.013)],
)
def test_15_cheap_saves_at_llama3_s_rate(save: float, young: float, daly: float, waste: float) -> None:
    interval = law.young_interval(save, M3)
    assert interval == pytest.approx(young, abs=0.06)
    assert law.daly_interval(save, M3) == pytest.approx(daly, abs=0.06)
    assert law.ratio_of(save, interval) + law.lost_share(interval, M3) == pytest.approx(waste, abs=0.0005)


def test_17_warm_standbys_of_byterobust() -> None:
    assert [law.standby_quantile(n, 0.0012) for n in (128, 256, 512, 1_024)] == [2, 2, 3, 4]
    assert law.standby_quantile(1_024, 0.0015) == 5


@pytest.mark.parametrize("m", [140.0, 7_519.0, 60_150.0])
def test_no_interval_near_the_exact_one_is_better(m: float) -> None:
    best = law.exact_interval(300, m)
    at_best = law.exact_efficiency(best, 300, m)
    assert all(law.exact_efficiency(best * factor, 300, m) <= at_best for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2))


@pytest.mark.parametrize(("nodes", "share"), [(3, 0.2), (50, 0.01), (400, 0.003)])
def test_spares_are_the_smallest_number_that_a_plain_count_allows(nodes: int, share: float) -> None:
    def enough(k: int) -> bool:
        n = nodes + k
        return sum(math.comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(k + 1)) >= 0.999

    assert law.spares_for(nodes, share, 0.999) == next(k for k in range(10 * nodes) if enough(k))
