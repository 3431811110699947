"""Metrics: what is counted, in a registry that belongs to one object.

Two processes in one test, or two clients in one process, have separate counts. No label may carry an id: one
series for each job, order or resource would outgrow any Prometheus. The allowed label names are declared
here; a metric with any other label is refused when it is made. Without prometheus-client, which the extra
`metrics` brings, nothing is counted and the page says so.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

from fencepost.metrics_server import MetricsPage
from fencepost.uncounted import MISSING

COUNTS = find_spec("prometheus_client") is not None
if TYPE_CHECKING or COUNTS:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from prometheus_client.registry import Collector
else:
    from fencepost.uncounted import (
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
    "Metrics",
    "observe_many",
]

LABELS = frozenset(
    {
        "channel",  # outbox channels are declared in code
        "flow",  # flows are declared in code
        "function",  # of the kernel
        "layer",  # which layer of the mutation pipeline answered
        "loop",
        "method",  # mutations are declared in code
        "mode",  # basic or queue
        "noun",
        "op",  # what a fence refused
        "outcome",
        "pool",
        "queue",  # queues are declared in code
        "reason",
        "result",
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


class Metrics:
    """A registry, and the only way to add to it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._pools = _PoolCollector()
        self.registry.register(self._pools)

    def counter(self, name: str, meaning: str, *, labels: Iterable[str] = ()) -> Counter:
        return Counter(name, meaning, _allowed(name, labels), registry=self.registry)

    def gauge(self, name: str, meaning: str, *, labels: Iterable[str] = ()) -> Gauge:
        return Gauge(name, meaning, _allowed(name, labels), registry=self.registry)

    def histogram(
        self, name: str, meaning: str, *, labels: Iterable[str] = (), buckets: tuple[float, ...] = SECONDS
    ) -> Histogram:
        return Histogram(name, meaning, _allowed(name, labels), registry=self.registry, buckets=buckets)

    def watch_pool(self, pool: str, stats: PoolStats) -> None:
        """Export the statistics of a connection pool; they are read at each scrape, not before."""
        self._pools.watch(pool, stats)

    def page(self) -> MetricsPage:
        if not COUNTS:
            return MetricsPage(MISSING.encode(), status=501)
        return MetricsPage(generate_latest(self.registry), CONTENT_TYPE_LATEST)


@dataclass(frozen=True, slots=True)
class KernelMetrics:
    """What the client counts around the kernel's functions."""

    refusals: Counter
    call_seconds: Histogram
    indeterminate_commits: Counter
    unrecorded_refusals: Counter

    @classmethod
    def on(cls, metrics: Metrics) -> Self:
        return cls(
            refusals=metrics.counter(
                "fencepost_refusals", "Writes that the database refused.", labels=("reason", "noun")
            ),
            call_seconds=metrics.histogram(
                "fencepost_call_seconds", "Time of one kernel call.", labels=("function", "outcome")
            ),
            indeterminate_commits=metrics.counter(
                "fencepost_indeterminate_commits", "Commits whose reply was lost; each was settled by token."
            ),
            unrecorded_refusals=metrics.counter(
                "fencepost_unrecorded_refusals", "Refusals counted but not recorded: the record is sampled."
            ),
        )


def observe_many(histogram: Histogram, amount: float, times: int) -> None:
    """Observe one amount `times` times. The library has no call for it, and each single one takes 2 locks."""
    if not COUNTS:
        return
    within: Any = histogram
    within._sum.inc(amount * times)
    within._buckets[bisect_left(within._upper_bounds, amount)].inc(times)


def _allowed(name: str, labels: Iterable[str]) -> tuple[str, ...]:
    asked = tuple(labels)
    refused = sorted(set(asked) - LABELS)
    if refused:
        raise ValueError(
            f"{name}: {', '.join(refused)} may not be a label: a label has few values, known beforehand. "
            f"Log ids instead. Allowed: {', '.join(sorted(LABELS))}."
        )
    return asked


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
