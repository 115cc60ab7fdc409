"""The witness's `/metrics`: one collector over numbers that are at hand; it does no I/O."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family

from outrider import __version__
from outrider.metrics import METRICS

#: One reading: metric, label values, value.
Reading = tuple[str, tuple[str, ...], float]


class Metrics:
    """Asks `read` for all readings and renders those that the common table names; another name is a bug and is an assert."""

    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self._read = read
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
        return families.values()

    def page(self) -> tuple[bytes, str]:
        """The page and its content type."""
        encoder, kind = choose_encoder("")
        return encoder(self._registry), kind
