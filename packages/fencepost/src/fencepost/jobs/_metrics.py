"""The metrics of the job runtime."""

from __future__ import annotations

import copy
import time
from collections import Counter as Counted
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Self

from fencepost.metrics import Metrics, MetricSet, counter, gauge, histogram, observe_many

if TYPE_CHECKING:
    from fencepost.jobs._executor import HeldJob
    from fencepost.jobs._handler import Handlers
    from fencepost.kernel.job import ClaimAnswer, Reclaimed, Running

OTHER = "other"
"""The label of a queue or kind that this process declares no handler for, or that is not known."""
RUN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
_JOB = ("queue", "kind")


class JobMetrics(MetricSet):
    """Low-cardinality labels only: the job's id is in the log, and kinds are those of declared handlers."""

    claims = counter("fencepost_jobs_claims", "Claims of jobs.", labels=(*_JOB, "status", "reason"))
    renewals = counter(
        "fencepost_jobs_renewals", "Renewals of the leases of jobs.", labels=(*_JOB, "status", "reason")
    )
    outcomes = counter("fencepost_jobs_outcomes", "Outcomes of attempts.", labels=(*_JOB, "status"))
    outcomes_refused = counter(
        "fencepost_jobs_outcomes_refused", "Outcomes that the database refused.", labels=(*_JOB, "reason")
    )
    outcome_errors = counter("fencepost_jobs_outcome_errors", "Outcomes that could not be written yet.")
    run_seconds = histogram(
        "fencepost_jobs_run_seconds", "From the claim to the outcome.", labels=_JOB, buckets=RUN_SECONDS
    )
    reclaims = counter(
        "fencepost_jobs_reclaims", "Jobs and entries of lost workers.", labels=("status", "reason")
    )
    reclaim_seconds = histogram("fencepost_jobs_reclaim_seconds", "Time of one reclaim.", buckets=RUN_SECONDS)
    reclaims_in_progress = gauge("fencepost_jobs_reclaims_in_progress", "Reclaims in progress.")
    dispatches = counter(
        "fencepost_jobs_dispatches", "Jobs written to streams.", labels=("queue", "status", "reason")
    )
    dispatch_seconds = histogram(
        "fencepost_jobs_dispatch_seconds", "Time of one dispatch.", labels=("queue",)
    )
    pending = gauge("fencepost_jobs_pending", "Jobs that wait to be dispatched.", labels=("queue",))
    wanted_workers = gauge(
        "fencepost_jobs_wanted_workers",
        "Workers like this one that would work off what is due within JOBS_SCALE_SEC.",
        labels=("queue",),
    )
    stream_length = gauge(
        "fencepost_jobs_stream_length", "Entries undelivered or pending (XLEN).", labels=("stream",)
    )
    stream_pending = gauge("fencepost_jobs_stream_pending", "Entries pending (XPENDING).", labels=("stream",))
    stream_retention_seconds = gauge(
        "fencepost_jobs_stream_retention_seconds",
        "Seconds until the stream is full at the present rate.",
        labels=("stream",),
    )
    acknowledge_errors = counter(
        "fencepost_jobs_acknowledge_errors", "Entries that could not be removed.", labels=("reason",)
    )
    redispatches = counter(
        "fencepost_jobs_redispatches",
        "Jobs dispatched again because their entry was lost.",
        labels=("queue", "reason"),
    )
    held = gauge("fencepost_jobs_held", "Jobs that this worker holds.")
    redis_up = gauge("fencepost_jobs_redis_up", "1 while jobs are delivered through Redis, else 0.")
    loop_errors = counter(
        "fencepost_jobs_loop_errors", "Ticks of the worker's loops that failed.", labels=("loop",)
    )

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics)
        self._queues: frozenset[str] = frozenset()
        self._kinds: frozenset[str] = frozenset()
        self._ran: dict[str, tuple[int, float]] = {}

    def of(self, handlers: Handlers) -> Self:
        """The same metrics for a worker of these handlers, whose queues and kinds become labels."""
        worker = copy.copy(self)
        worker._queues = frozenset(handlers.queues)
        worker._kinds = frozenset(handler.kind for handler in handlers)
        worker._ran = {}
        return worker

    def claimed(self, answers: Iterable[ClaimAnswer]) -> None:
        """Counts by the batch: looking a counter up by its labels costs more than counting."""
        counts = Counted((*self._job(one.running), one.outcome, one.refusal or "") for one in answers)
        for labels, many in counts.items():
            self.claims.labels(*labels).inc(many)

    def claim_failed(self, status: str, reason: str, running: Running | None = None, many: int = 1) -> None:
        self.claims.labels(*self._job(running), status, reason).inc(many)

    def renewed(self, held: Iterable[HeldJob], status: str, reason: str) -> None:
        for (queue, kind), many in Counted(self._jobs(held)).items():
            self.renewals.labels(queue, kind, status, reason).inc(many)

    def finished(self, status: str, held: Sequence[HeldJob]) -> None:
        if held:
            now = time.monotonic()
            for job, many in Counted(self._jobs(held)).items():
                self.outcomes.labels(*job, status).inc(many)
            # Jobs that were claimed together have the same start.
            together = Counted((*self._job(one.running), one.started_at) for one in held)
            for (queue, kind, started_at), many in together.items():
                observe_many(self.run_seconds.labels(queue, kind), now - started_at, many)
                count, seconds = self._ran.get(queue, (0, 0.0))
                self._ran[queue] = count + many, seconds + many * (now - started_at)

    def mean_run_seconds(self, queue: str) -> float | None:
        """How long this worker held a job of the queue, on average; recent jobs count most. None before the
        first."""
        count, seconds = self._ran.get(queue, (0, 0.0))
        if not count:
            return None
        # Half of the past counts beside what comes next.
        self._ran[queue] = (max(1, count // 2), seconds * max(1, count // 2) / count)
        return seconds / count

    def rejected(self, running: Running, reason: str) -> None:
        job = self._job(running)
        self.outcomes.labels(*job, "rejected").inc()
        self.outcomes_refused.labels(*job, reason).inc()

    def reclaimed(self, job: Reclaimed) -> None:
        """Counts a job of a lost worker: one whose try was not charged is a suspect."""
        self.reclaims.labels(status=job.state if job.charged else "suspect", reason="worker_lost").inc()

    def _jobs(self, held: Iterable[HeldJob]) -> Iterator[tuple[str, str]]:
        return (self._job(one.running) for one in held)

    def _job(self, running: Running | None) -> tuple[str, str]:
        """The labels of a job."""
        if running is None:
            return OTHER, OTHER
        return (
            running.queue if running.queue in self._queues else OTHER,
            running.kind if running.kind in self._kinds else OTHER,
        )
