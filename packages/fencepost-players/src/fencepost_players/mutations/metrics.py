"""The metrics of the pipeline. The log and the audit name the player and the request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self, TypeVar, cast

from prometheus_client import Counter, Histogram

from fencepost.metrics import Metrics

M = TypeVar("M", Counter, Histogram)


@dataclass(frozen=True, slots=True)
class MutationMetrics:
    """Made once for a registry; services differ by a label."""

    requests: Counter
    seconds: Histogram
    answers: Counter
    conflicts: Counter
    replans: Counter
    unkeyed: Counter
    cache_errors: Counter
    evictions: Counter
    loop_errors: Counter

    # The children by their labels: looking one up costs more than incrementing it.
    _children: dict[tuple[str, ...], Any] = field(default_factory=dict[tuple[str, ...], Any])

    def of_request(self, service: str, method: str, outcome: str) -> Counter:
        return self._child(self.requests, "requests", service, method, outcome)

    def of_seconds(self, service: str, method: str) -> Histogram:
        return self._child(self.seconds, "seconds", service, method)

    def of_answer(self, service: str, layer: str, outcome: str) -> Counter:
        return self._child(self.answers, "answers", service, layer, outcome)

    def _child(self, family: M, *names: str) -> M:
        child = self._children.get(names)
        if child is None:
            child = self._children[names] = family.labels(*names[1:])
        return cast("M", child)

    @classmethod
    def on(cls, metrics: Metrics) -> Self:
        return cls(
            requests=metrics.counter(
                "mutation_requests",
                "Requests by what they answered.",
                labels=("service", "method", "outcome"),
            ),
            seconds=metrics.histogram(
                "mutation_seconds", "Time of one request.", labels=("service", "method")
            ),
            answers=metrics.counter(
                "mutation_answers", "Which layer answered.", labels=("service", "layer", "outcome")
            ),
            conflicts=metrics.counter(
                "mutation_conflicts", "Tries that met another version.", labels=("service", "method")
            ),
            replans=metrics.counter(
                "mutation_replans",
                "Plans that were made again on the locked row.",
                labels=("service", "method"),
            ),
            unkeyed=metrics.counter(
                "mutation_unkeyed", "Requests without an id.", labels=("service", "method", "outcome")
            ),
            cache_errors=metrics.counter(
                "mutation_cache_errors", "Times that Redis could not be asked.", labels=("service", "reason")
            ),
            evictions=metrics.counter(
                "mutation_evictions",
                "Transactions that were ended because others waited too long for what they held.",
                labels=("service",),
            ),
            loop_errors=metrics.counter("mutation_loop_errors", "What a loop caught.", labels=("loop",)),
        )
