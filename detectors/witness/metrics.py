"""The witness's `/metrics`: one collector over numbers that are at hand; it does no I/O of its own."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family

from outrider import __version__
from outrider.metrics import METRICS

#: One reading: metric, label values, value.
Reading = tuple[str, tuple[str, ...], float]


class Histograms:
    """Counts values into the buckets that the common table gives each histogram."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, tuple[str, ...]], list[float]] = {}
        self._sums: dict[tuple[str, tuple[str, ...]], float] = {}

    def add(self, name: str, labels: tuple[str, ...], value: float) -> None:
        """Counts one value."""
        bounds = METRICS[name].buckets
        counts = self._counts.setdefault((name, labels), [0.0] * (len(bounds) + 1))
        counts[bisect_left(bounds, value)] += 1
        self._sums[name, labels] = self._sums.get((name, labels), 0.0) + value

    def families(self) -> Iterable[Family]:
        """All of them, as the exposition wants them."""
        made: dict[str, HistogramMetricFamily] = {}
        for (name, labels), counts in self._counts.items():
            metric = METRICS[name]
            family = made.setdefault(name, HistogramMetricFamily(name, metric.help, labels=metric.labels))
            bounds = [*(str(bound) for bound in metric.buckets), "+Inf"]
            family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), self._sums[name, labels])
        return made.values()


class Metrics:
    """Asks `read` for all readings and renders those that the common table names; another name is a bug and is an assert."""

    def __init__(self, read: Callable[[], Iterable[Reading]], histograms: Histograms) -> None:
        self._read, self._histograms = read, histograms
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def describe(self) -> list[Family]:
        return []

    def collect(self) -> Iterable[Family]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for name, labels, value in [("outrider_build_info", (__version__, "witness"), 1.0), *self._read()]:
            metric = METRICS[name]
            if name not in families:
                kind = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
                families[name] = kind(
                    name.removesuffix("_total") if kind is CounterMetricFamily else name, metric.help, labels=metric.labels
                )
            families[name].add_metric(labels, value)
        return [*families.values(), *self._histograms.families()]

    def page(self) -> tuple[bytes, str]:
        """The page and its content type."""
        encoder, kind = choose_encoder("")
        return encoder(self._registry), kind
