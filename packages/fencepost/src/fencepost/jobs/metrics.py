"""The metrics of the job runtime, under the names that operators of online judges know."""

from __future__ import annotations

import time
from collections import Counter as Counted
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from fencepost.metrics import Counter, Gauge, Histogram, Metrics, observe_many

if TYPE_CHECKING:
    from fencepost.jobs.executor import HeldJob

MILLISECONDS = (1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 5000.0, 30_000.0)


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """Low-cardinality labels only: the job's id is in the log."""

    claims: Counter
    heartbeats: Counter
    stale_attempts: Counter
    finalized: Counter
    finalize_rejected: Counter
    finalize_errors: Counter
    finalize_ms: Histogram
    reclaims: Counter
    reclaim_ms: Histogram
    reclaim_inflight: Gauge
    dispatches: Counter
    dispatch_seconds: Histogram
    pending: Gauge
    stream_length: Gauge
    stream_pending: Gauge
    retention_seconds: Gauge
    acknowledge_errors: Counter
    swept: Counter
    active: Gauge
    drive_up: Gauge
    loop_errors: Counter

    @classmethod
    def on(cls, metrics: Metrics) -> Self:
        return cls(
            claims=metrics.counter("worker_claim", "Claims.", labels=("status", "reason")),
            heartbeats=metrics.counter(
                "worker_lease_heartbeat", "Renewals of single jobs.", labels=("status", "reason")
            ),
            stale_attempts=metrics.counter("worker_stale_attempt", "Finishes of an attempt that is over."),
            finalized=metrics.counter("worker_finalize", "Outcomes written.", labels=("status",)),
            finalize_rejected=metrics.counter(
                "worker_finalize_rejected", "Outcomes that the database refused.", labels=("reason",)
            ),
            finalize_errors=metrics.counter(
                "worker_finalize_errors", "Outcomes that could not be written for now."
            ),
            finalize_ms=metrics.histogram(
                "worker_finalize_latency_ms", "From the claim to the written outcome.", buckets=MILLISECONDS
            ),
            reclaims=metrics.counter("worker_reclaim", "Jobs of lost owners.", labels=("status", "reason")),
            reclaim_ms=metrics.histogram(
                "worker_reclaim_latency_ms", "Time of one reclaim.", buckets=MILLISECONDS
            ),
            reclaim_inflight=metrics.gauge("worker_reclaim_inflight", "Reclaims under way."),
            dispatches=metrics.counter(
                "api_outbox_dispatch", "Jobs driven into streams.", labels=("status", "reason")
            ),
            dispatch_seconds=metrics.histogram(
                "api_outbox_dispatch_latency_seconds", "Time of one dispatch."
            ),
            pending=metrics.gauge("api_outbox_pending", "Jobs that wait to be driven.", labels=("queue",)),
            stream_length=metrics.gauge(
                "job_stream_length", "Entries undelivered or pending (XLEN).", labels=("stream",)
            ),
            stream_pending=metrics.gauge(
                "job_stream_pending", "Entries pending (XPENDING).", labels=("stream",)
            ),
            retention_seconds=metrics.gauge(
                "job_stream_retention_window_seconds",
                "How long the bound lasts at the present rate.",
                labels=("stream",),
            ),
            acknowledge_errors=metrics.counter(
                "worker_acknowledge_errors", "Entries that could not be removed.", labels=("reason",)
            ),
            swept=metrics.counter("job_swept", "Jobs driven again, by why.", labels=("reason",)),
            active=metrics.gauge("worker_active_jobs", "Jobs that this worker holds."),
            drive_up=metrics.gauge("worker_drive_up", "1 while Redis drives, 0 while PostgreSQL does alone."),
            loop_errors=metrics.counter("loop_errors", "What a loop caught.", labels=("loop",)),
        )

    def finished(self, status: str, actives: Sequence[HeldJob]) -> None:
        """Counts by the batch: looking a counter up by its labels costs more than counting."""
        if actives:
            now = time.monotonic()
            self.finalized.labels(status=status).inc(len(actives))
            # Jobs that were claimed together have the same start.
            for started_at, many in Counted(active.started_at for active in actives).items():
                observe_many(self.finalize_ms, (now - started_at) * 1000, many)

    def rejected(self, reason: str) -> None:
        self.finalized.labels(status="rejected").inc()
        self.finalize_rejected.labels(reason=reason).inc()
        if reason == "stale_attempt":
            self.stale_attempts.inc()
