"""The metrics of workflows."""

from __future__ import annotations

from fencepost.metrics import MetricSet, counter

_KIND = ("kind",)


class WorkflowMetrics(MetricSet):
    """By kind, which is NAME@VERSION: the names of steps may hold keys, and are in the trace."""

    started = counter("fencepost_workflow_started", "Workflows whose first attempt has begun.", labels=_KIND)
    runs = counter(
        "fencepost_workflow_runs",
        "Executions of workflows: finished, parked or failed.",
        labels=("kind", "outcome"),
    )
    steps_recorded = counter("fencepost_workflow_steps_recorded", "Steps that ran.", labels=_KIND)
    steps_failed = counter("fencepost_workflow_steps_failed", "Steps that raised an error.", labels=_KIND)
    steps_repeated = counter(
        "fencepost_workflow_steps_repeated",
        "Steps that ran after an attempt that had not recorded them, and failed or was lost.",
        labels=_KIND,
    )


class WorkflowCounts:
    """The counters of one version of a workflow: looking them up by their labels costs more than counting."""

    def __init__(self, metrics: WorkflowMetrics, kind: str) -> None:
        self.started = metrics.started.labels(kind)
        self.finished = metrics.runs.labels(kind, "finished")
        self.parked = metrics.runs.labels(kind, "parked")
        self.failed = metrics.runs.labels(kind, "failed")
        self.steps_recorded = metrics.steps_recorded.labels(kind)
        self.steps_failed = metrics.steps_failed.labels(kind)
        self.steps_repeated = metrics.steps_repeated.labels(kind)
