"""Metrics: what is counted, in a registry that belongs to one object.

Two processes in one test, or two clients in one process, have separate counts. No label may carry an id: one
series for each job, order or resource would outgrow any Prometheus. The allowed label names are declared
here; a metric with any other label is refused when it is made. Without prometheus-client, which the extra
`metrics` brings, nothing is counted and the page says so.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from fencepost._uncounted import MISSING
from fencepost.compatible_names import OldMetric
from fencepost.metrics_server import MetricsPage

COUNTS = find_spec("prometheus_client") is not None
if TYPE_CHECKING or COUNTS:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from prometheus_client import Metric as PrometheusMetric
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.registry import Collector
else:
    from fencepost._uncounted import (
        Collector,
        CollectorRegistry,
        Counter,
        CounterMetricFamily,
        Gauge,
        GaugeMetricFamily,
        Histogram,
    )

__all__ = [
    "LABELS",
    "SECONDS",
    "Collector",
    "Counter",
    "CounterMetricFamily",
    "Gauge",
    "GaugeMetricFamily",
    "Histogram",
    "KernelMetrics",
    "MetricDeclaration",
    "MetricSet",
    "Metrics",
    "counter",
    "gauge",
    "histogram",
    "observe_many",
    "renamed",
]

LABELS = frozenset(
    {
        "chain",  # chains are settings
        "channel",  # outbox channels are declared in code
        "flow",  # flows are declared in code
        "function",  # of the kernel
        "kind",  # kinds of jobs are declared in code; any other is `other`
        "layer",  # which layer of the mutation pipeline answered
        "loop",
        "method",  # mutations are declared in code
        "missing",  # arguments and abilities that no worker has, of at most a hundred rows
        "mode",  # basic or queue
        "noun",
        "op",  # what a fence refused
        "outcome",
        "pool",
        "queue",  # queues are declared in code; any other is `other`
        "reason",
        "result",
        "schedule",  # schedules are declared in code
        "signer",  # accounts whose balance is watched, at most a hundred
        "service",
        "state",
        "status",
        "stream",
        "verdict",
    }
)
"""Each has few values, known when the program is written. Ids, owners, keys and resources are not here."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
PoolStats = Callable[[], Mapping[str, int]]
Metric = Counter | Gauge | Histogram
MetricType = Literal["counter", "gauge", "histogram"]


class Metrics:
    """A registry, and the only way to add to it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.by_name: dict[str, Metric] = {}
        """What was made here, by the name that a scrape shows."""
        self._pools = _PoolCollector()
        self.registry.register(self._pools)

    def counter(self, name: str, meaning: str, *, labels: Iterable[str] = ()) -> Counter:
        """Make a counter. Raises for a label that is not one of `LABELS`."""
        made = Counter(name, meaning, _allowed(name, labels), registry=self.registry)
        self.by_name[f"{name.removesuffix('_total')}_total"] = made
        return made

    def gauge(self, name: str, meaning: str, *, labels: Iterable[str] = ()) -> Gauge:
        """Make a gauge. Raises for a label that is not one of `LABELS`."""
        made = self.by_name[name] = Gauge(name, meaning, _allowed(name, labels), registry=self.registry)
        return made

    def histogram(
        self, name: str, meaning: str, *, labels: Iterable[str] = (), buckets: tuple[float, ...] = SECONDS
    ) -> Histogram:
        """Make a histogram. Raises for a label that is not one of `LABELS`."""
        made = Histogram(name, meaning, _allowed(name, labels), registry=self.registry, buckets=buckets)
        self.by_name[name] = made
        return made

    def export_also(self, old_names: Iterable[OldMetric]) -> None:
        """Export metrics under second names too. Their values are read at each scrape and counted nowhere.

        A metric that is not made yet appears under both names when it is.
        """
        for old in old_names:
            self.registry.register(_SecondName(old, self.by_name))

    def watch_pool(self, pool: str, stats: PoolStats) -> None:
        """Export the statistics of a connection pool; they are read at each scrape, not before."""
        self._pools.watch(pool, stats)

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples with this name and these labels, whatever other labels they have."""
        return sum(
            sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def page(self) -> MetricsPage:
        """The answer of `/metrics`; without prometheus-client it is 501 and names the extra."""
        if not COUNTS:
            return MetricsPage(MISSING.encode(), status=501)
        return MetricsPage(generate_latest(self.registry), CONTENT_TYPE_LATEST)


@dataclass(frozen=True, slots=True)
class MetricDeclaration:
    """One metric: its full name without `_total`, and what it is made of."""

    type: MetricType
    name: str
    meaning: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = SECONDS

    @property
    def exported_name(self) -> str:
        """The name that a scrape shows: counters end in `_total`."""
        return f"{self.name}_total" if self.type == "counter" else self.name

    def make(self, metrics: Metrics) -> Metric:
        """Make the metric in a registry."""
        match self.type:
            case "counter":
                return metrics.counter(self.name, self.meaning, labels=self.labels)
            case "gauge":
                return metrics.gauge(self.name, self.meaning, labels=self.labels)
            case "histogram":
                return metrics.histogram(self.name, self.meaning, labels=self.labels, buckets=self.buckets)


def counter(name: str, meaning: str, *, labels: Iterable[str] = ()) -> Counter:
    """Declares a counter of a `MetricSet`, as `dataclasses.field` declares a field."""
    return cast("Counter", MetricDeclaration("counter", name, meaning, tuple(labels)))


def gauge(name: str, meaning: str, *, labels: Iterable[str] = ()) -> Gauge:
    """Declares a gauge of a `MetricSet`."""
    return cast("Gauge", MetricDeclaration("gauge", name, meaning, tuple(labels)))


def histogram(
    name: str, meaning: str, *, labels: Iterable[str] = (), buckets: tuple[float, ...] = SECONDS
) -> Histogram:
    """Declares a histogram of a `MetricSet`."""
    return cast("Histogram", MetricDeclaration("histogram", name, meaning, tuple(labels), buckets))


class MetricSet:
    """The metrics of one runtime or service, declared as class attributes and made once for a registry.

    class ShopMetrics(MetricSet):
        sales = counter("shop_sales", "Sales.", labels=("outcome",))

    ShopMetrics.on(fp.metrics).sales.labels("paid").inc()
    """

    def __init__(self, metrics: Metrics) -> None:
        for attribute, declaration in self.declarations().items():
            setattr(self, attribute, declaration.make(metrics))

    @classmethod
    def on(cls, metrics: Metrics) -> Self:
        """The set, made in this registry."""
        return cls(metrics)

    @classmethod
    def declarations(cls) -> Mapping[str, MetricDeclaration]:
        """What this class declares, by attribute."""
        return {name: value for name, value in vars(cls).items() if isinstance(value, MetricDeclaration)}


class KernelMetrics(MetricSet):
    """What the client counts around the kernel's functions."""

    refusals = counter("fencepost_refusals", "Writes that the database refused.", labels=("reason", "noun"))
    call_seconds = histogram(
        "fencepost_call_seconds", "Time of one kernel call.", labels=("function", "outcome")
    )
    indeterminate_commits = counter(
        "fencepost_indeterminate_commits", "Commits whose reply was lost; each was settled by token."
    )
    unrecorded_refusals = counter(
        "fencepost_unrecorded_refusals", "Refusals counted but not recorded: the record is sampled."
    )


def observe_many(histogram: Histogram, amount: float, times: int) -> None:
    """Observe one amount `times` times. The library has no call for it, and each single one takes 2 locks."""
    if not COUNTS:
        return
    within: Any = histogram
    within._sum.inc(amount * times)
    within._buckets[bisect_left(within._upper_bounds, amount)].inc(times)


def _bound(bound: float) -> str:
    """A histogram's bound as Prometheus writes it, without the noise of a multiplication."""
    return "+Inf" if math.isinf(bound) else repr(float(f"{bound:.12g}"))


def _allowed(name: str, labels: Iterable[str]) -> tuple[str, ...]:
    asked = tuple(labels)
    refused = sorted(set(asked) - LABELS)
    if refused:
        raise ValueError(
            f"{name}: {', '.join(refused)} may not be a label: a label has few values, known beforehand. "
            f"Log ids instead. Allowed: {', '.join(sorted(LABELS))}."
        )
    return asked


class _SecondName(Collector):
    """One metric under a second name: the same values, with the labels and the unit of that name."""

    def __init__(self, old: OldMetric, made: Mapping[str, Metric]) -> None:
        self._old = old
        self._made = made

    def describe(self) -> Iterable[PrometheusMetric]:
        return ()

    def collect(self) -> Iterator[PrometheusMetric]:
        source = self._made.get(self._old.metric)
        if source is not None:
            for family in source.collect():
                yield renamed(family, self._old)


def renamed(family: PrometheusMetric, old: OldMetric) -> PrometheusMetric:
    """The family under its second name. Samples that differ only in labels which it lacks are added up."""
    sums: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in family.samples:
        ending = sample.name.removeprefix(family.name)
        if ending == "_created" or any(sample.labels[label] not in old.where[label] for label in old.where):
            continue
        kept = {
            label: old.values.get(label, {}).get(sample.labels[label], sample.labels[label])
            for label in (*old.labels, "le")
            if label in sample.labels
        }
        if "le" in kept and old.factor != 1:
            kept["le"] = _bound(float(kept["le"]) * old.factor)
        scales = old.factor if ending in ("", "_sum") else 1
        place = (ending, tuple(kept.items()))
        sums[place] = sums.get(place, 0.0) + sample.value * scales
    if not old.labels and not sums and family.type in ("counter", "gauge"):
        sums[("_total" if family.type == "counter" else "", ())] = 0.0
    name = old.name.removesuffix("_total") if family.type == "counter" else old.name
    result = PrometheusMetric(name, f"{old.metric}, under a name of an earlier system.", family.type)
    for (ending, labels), value in sums.items():
        result.add_sample(f"{name}{ending}", dict(labels), value)
    return result


class _PoolCollector(Collector):
    """psycopg's pools keep their own counts; this collector only translates them."""

    def __init__(self) -> None:
        self._pools: dict[str, PoolStats] = {}
        self._lock = threading.Lock()

    def watch(self, pool: str, stats: PoolStats) -> None:
        with self._lock:
            self._pools[pool] = stats

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        with self._lock:
            pools = {name: stats() for name, stats in self._pools.items()}
        connections = GaugeMetricFamily(
            "fencepost_pool_connections", "Connections of a pool.", labels=("pool", "state")
        )
        waiting = GaugeMetricFamily("fencepost_pool_waiting", "Callers waiting for one.", labels=("pool",))
        requests = CounterMetricFamily("fencepost_pool_requests", "Connections asked for.", labels=("pool",))
        errors = CounterMetricFamily("fencepost_pool_errors", "Requests that got none.", labels=("pool",))
        for name, stats in pools.items():
            idle = stats.get("pool_available", 0)
            connections.add_metric((name, "idle"), idle)
            connections.add_metric((name, "busy"), stats.get("pool_size", 0) - idle)
            waiting.add_metric((name,), stats.get("requests_waiting", 0))
            requests.add_metric((name,), stats.get("requests_num", 0))
            errors.add_metric((name,), stats.get("requests_errors", 0))
        yield from (connections, waiting, requests, errors)
