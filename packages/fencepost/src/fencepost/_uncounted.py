"""What stands in for prometheus-client where it is not installed: every call is accepted, nothing is counted.

The names and the calls are those that the library uses. `pip install "fencepost[metrics]"` brings the counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

MISSING = (
    'Metrics are not counted: prometheus-client is not installed. Run: pip install "fencepost[metrics]"\n'
)


class Counter:
    """Also a gauge and a histogram: none of them keeps a value."""

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str] = (), *, registry: object, **options: Any
    ) -> None:
        """Nothing is kept."""

    def labels(self, *values: object, **named: object) -> Self:
        return self

    def inc(self, amount: float = 1) -> None:
        """Nothing is counted."""

    dec = set = observe = inc


Gauge = Histogram = Counter


class MetricFamily:
    """The figures of one scrape, of which there is none."""

    def __init__(self, name: str, meaning: str, *, labels: Sequence[str] = ()) -> None:
        """Nothing is kept."""

    def add_metric(self, labels: Sequence[str], value: float) -> None:
        """Nothing is kept."""


CounterMetricFamily = GaugeMetricFamily = MetricFamily


class Collector:
    """Is never asked."""


class CollectorRegistry:
    """Takes collectors, and never asks them."""

    def register(self, collector: object) -> None:
        """Nothing is kept."""

    def collect(self) -> Sequence[Any]:
        return ()
