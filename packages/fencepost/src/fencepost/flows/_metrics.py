"""The metrics of flows. Label values are names from the code: the flow, never a key or a partition."""

from __future__ import annotations

import time

from fencepost.flows._record import END
from fencepost.metrics import MetricSet, counter, gauge, histogram

BYTES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8)


class FlowMetrics(MetricSet):
    """Low-cardinality labels only: the log names the task."""

    records = counter("fencepost_flow_records", "Records taken in.", labels=("flow",))
    durable = counter(
        "fencepost_flow_committed_records", "Records whose effects are committed.", labels=("flow",)
    )
    written = counter("fencepost_flow_sink_values", "Values committed to sinks.", labels=("flow",))
    commits = counter("fencepost_flow_commits", "Commits of tasks.", labels=("flow",))
    commit_seconds = histogram("fencepost_flow_commit_seconds", "Time of one commit.", labels=("flow",))
    state_bytes = histogram(
        "fencepost_flow_checkpoint_bytes", "State written by one commit.", labels=("flow",), buckets=BYTES
    )
    lag = gauge("fencepost_flow_lag_records", "Records waiting in the source.", labels=("flow",))
    lag_seconds = gauge("fencepost_flow_lag_seconds", "Age of the oldest of them.", labels=("flow",))
    watermark_seconds = gauge(
        "fencepost_flow_watermark_seconds", "The watermark, as a moment.", labels=("flow",)
    )
    watermark_lag = gauge(
        "fencepost_flow_watermark_lag_seconds", "Lag of the watermark behind the clock.", labels=("flow",)
    )
    refusals = counter(
        "fencepost_flow_refusals", "Commits that the database refused.", labels=("flow", "reason")
    )
    rewinds = counter("fencepost_flow_rewinds", "Channels that were lost and sent again.", labels=("flow",))
    tasks = gauge("fencepost_flow_tasks", "Tasks that this worker holds.", labels=("flow",))
    loop_errors = counter("fencepost_flow_errors", "Tasks that failed and restarted.", labels=("flow",))
    late = counter(
        "fencepost_flow_late_records",
        "Records that arrived after all their windows had closed.",
        labels=("flow",),
    )

    dead_letters = counter(
        "fencepost_flow_dead_letters",
        "Records and values that were committed as dead letters.",
        labels=("flow", "reason"),
    )
    uncommitted_seconds = gauge(
        "fencepost_flow_uncommitted_seconds",
        "Time since the oldest record that a task of this worker has taken in and not committed.",
        labels=("flow",),
    )

    def saw(self, flow: str, records: int, watermark: float | None) -> None:
        self.records.labels(flow=flow).inc(records)
        if watermark is not None and -END < watermark < END:
            self.watermark_seconds.labels(flow=flow).set(watermark)
            self.watermark_lag.labels(flow=flow).set(time.time() - watermark)

    def committed(self, flow: str, records: int, values: int, seconds: float, size: int) -> None:
        self.commits.labels(flow=flow).inc()
        self.durable.labels(flow=flow).inc(records)
        self.written.labels(flow=flow).inc(values)
        self.commit_seconds.labels(flow=flow).observe(seconds)
        self.state_bytes.labels(flow=flow).observe(size)

    def buried(self, flow: str, *, by_steps: int, by_sinks: int) -> None:
        for reason, count in (("step_failed", by_steps), ("sink_rejected", by_sinks)):
            self.dead_letters.labels(flow=flow, reason=reason).inc(count)
