"""The metrics of the pipeline. The log and the audit name the player and the request."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from prometheus_client import Counter, Histogram

from fencepost.metrics import Metrics, MetricSet, counter, histogram

M = TypeVar("M", Counter, Histogram)


class MutationMetrics(MetricSet):
    """Services differ by a label."""

    requests = counter(
        "fencepost_mutations_requests",
        "Requests, by result.",
        labels=("service", "method", "outcome"),
    )
    seconds = histogram("fencepost_mutations_seconds", "Time of one request.", labels=("service", "method"))
    answers = counter(
        "fencepost_mutations_answers", "Which layer answered.", labels=("service", "layer", "outcome")
    )
    conflicts = counter(
        "fencepost_mutations_conflicts", "Tries that found a newer version.", labels=("service", "method")
    )
    replans = counter(
        "fencepost_mutations_replans",
        "Plans that were made again on a locked row.",
        labels=("service", "method"),
    )
    unkeyed = counter(
        "fencepost_mutations_unkeyed", "Requests without an id.", labels=("service", "method", "outcome")
    )
    cache_errors = counter(
        "fencepost_mutations_cache_errors",
        "Requests during which Redis could not be reached.",
        labels=("service", "reason"),
    )
    evictions = counter(
        "fencepost_mutations_evictions",
        "Transactions that were terminated because they blocked others for too long.",
        labels=("service",),
    )
    loop_errors = counter("fencepost_mutations_loop_errors", "Loop ticks that failed.", labels=("loop",))

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics)
        # The children by their labels: looking one up costs more than incrementing it.
        self._children: dict[tuple[str, ...], Any] = {}

    def of_request(self, service: str, method: str, outcome: str) -> Counter:
        """The counter of requests with this outcome."""
        return self._child(self.requests, "requests", service, method, outcome)

    def of_seconds(self, service: str, method: str) -> Histogram:
        """The histogram of the method's durations."""
        return self._child(self.seconds, "seconds", service, method)

    def of_answer(self, service: str, layer: str, outcome: str) -> Counter:
        """The counter of answers by layer."""
        return self._child(self.answers, "answers", service, layer, outcome)

    def _child(self, family: M, *names: str) -> M:
        child = self._children.get(names)
        if child is None:
            child = self._children[names] = family.labels(*names[1:])
        return cast("M", child)
