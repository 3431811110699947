"""Settings of the job runtime."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from fencepost.layered_settings import From, LayeredSettings
from fencepost.redis_streams._keys import JOBS_GROUP, JOBS_STREAM
from fencepost.redis_streams.stream_names import DEFAULT_QUEUE, stream_of
from fencepost.settings import Positive


class JobSettings(LayeredSettings):
    """The settings of the job loops of one process."""

    stream_key: Annotated[
        str, Field(min_length=1, max_length=128), From("JOBS_STREAM_KEY", "jobs.stream_key")
    ] = JOBS_STREAM
    main_queue: Annotated[
        str, Field(min_length=1, max_length=128), From("JOBS_MAIN_QUEUE", "jobs.main_queue")
    ] = DEFAULT_QUEUE
    stream_group: Annotated[
        str, Field(min_length=1, max_length=128), From("JOBS_STREAM_GROUP", "jobs.stream_group")
    ] = JOBS_GROUP
    stream_consumer: Annotated[str | None, From("JOBS_STREAM_CONSUMER", "jobs.stream_consumer")] = None
    worker_id: Annotated[str | None, From("JOBS_WORKER_ID", "jobs.worker_id")] = None
    stream_maxlen: Annotated[
        int, Field(ge=100, le=100_000_000), From("JOBS_STREAM_MAXLEN", "jobs.stream_maxlen")
    ] = 200_000
    lease_seconds: Annotated[Positive, From("JOBS_LEASE_SEC", "jobs.lease_sec")] = 60
    heartbeat_seconds: Annotated[Positive, From("JOBS_HEARTBEAT_SEC", "jobs.heartbeat_sec")] = 20
    reclaim_interval_seconds: Annotated[
        Positive, From("JOBS_RECLAIM_INTERVAL_SEC", "jobs.reclaim_interval_sec")
    ] = 5
    reclaim_count: Annotated[
        int, Field(ge=1, le=10_000), From("JOBS_RECLAIM_COUNT", "jobs.reclaim_count")
    ] = 16
    reclaim_grace_seconds: Annotated[
        float, Field(ge=0, le=86_400), From("JOBS_RECLAIM_GRACE_SEC", "jobs.reclaim_grace_sec")
    ] = 15
    concurrency: Annotated[int, Field(ge=1, le=10_000), From("JOBS_CONCURRENCY", "jobs.concurrency")] = 100
    batch: Annotated[int, Field(ge=1, le=10_000), From("JOBS_BATCH", "jobs.batch")] = 500
    notice_claims: Annotated[int, Field(ge=0, le=1000), From("JOBS_NOTICE_CLAIMS", "jobs.notice_claims")] = 16
    poll_seconds: Annotated[Positive, From("JOBS_POLL_SEC", "jobs.poll_sec")] = 1
    sweep_interval_seconds: Annotated[
        Positive, From("JOBS_SWEEP_INTERVAL_SEC", "jobs.sweep_interval_sec")
    ] = 10
    drain_seconds: Annotated[float, Field(ge=0, le=86_400), From("JOBS_DRAIN_SEC", "jobs.drain_sec")] = 30
    keep_finished_seconds: Annotated[
        Positive | None, From("JOBS_KEEP_FINISHED_SEC", "jobs.keep_finished_sec")
    ] = 86_400
    keep_finished_count: Annotated[
        int | None, Field(ge=0), From("JOBS_KEEP_FINISHED_COUNT", "jobs.keep_finished_count")
    ] = None
    prune_interval_seconds: Annotated[
        Positive, From("JOBS_PRUNE_INTERVAL_SEC", "jobs.prune_interval_sec")
    ] = 60
    slow_seconds: Annotated[Positive, From("JOBS_SLOW_SEC", "jobs.slow_sec")] = 60
    processes: Annotated[
        int | None, Field(ge=1, le=1000), From("JOBS_HANDLER_PROCESSES", "jobs.handler_processes")
    ] = None
    max_jobs_per_process: Annotated[
        int | None, Field(ge=1), From("JOBS_MAX_JOBS_PER_PROCESS", "jobs.max_jobs_per_process")
    ] = None
    scale_seconds: Annotated[Positive, From("JOBS_SCALE_SEC", "jobs.scale_sec")] = 60

    def stream(self, queue: str, priority: int) -> str:
        """The stream of a queue and priority."""
        return stream_of(self.stream_key, queue, priority, self.main_queue)

    @model_validator(mode="after")
    def _heartbeat_fits_the_lease(self) -> Self:
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            raise ValueError(
                f"JOBS_HEARTBEAT_SEC is {self.heartbeat_seconds} and JOBS_LEASE_SEC is {self.lease_seconds}; "
                "allowed: a heartbeat of at most half the lease, so that one lost beat loses no job"
            )
        return self
