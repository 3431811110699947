"""Settings of the job runtime."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from fencepost.layered_settings import From, LayeredSettings
from fencepost.settings import Positive


class JobSettings(LayeredSettings):
    """The settings of the job loops of one process."""

    outbox_enabled: Annotated[bool, From("OUTBOX_ENABLED", "api.outbox.enabled")] = True
    stream_key: Annotated[
        str, Field(min_length=1, max_length=128), From("JOB_STREAM_KEY", "api.stream.stream_key")
    ] = "deepoj:jobs"
    stream_group: Annotated[
        str, Field(min_length=1, max_length=128), From("JOB_STREAM_GROUP", "worker.stream.group")
    ] = "deepoj:workers"
    stream_consumer: Annotated[str | None, From("JOB_STREAM_CONSUMER", "worker.stream.consumer")] = None
    worker_id: Annotated[str | None, From("WORKER_ID", "worker.id")] = None
    stream_maxlen: Annotated[
        int, Field(ge=100, le=100_000_000), From("JOB_STREAM_MAXLEN", "api.stream.stream_maxlen")
    ] = 200_000
    payload_ttl_seconds: Annotated[
        int, Field(ge=1), From("JOB_PAYLOAD_TTL_SEC", "api.stream.payload_ttl_sec")
    ] = 86_400
    lease_seconds: Annotated[Positive, From("JOB_LEASE_SEC", "worker.stream.lease_sec")] = 60
    heartbeat_seconds: Annotated[Positive, From("JOB_HEARTBEAT_SEC", "worker.stream.heartbeat_sec")] = 20
    reclaim_interval_seconds: Annotated[
        Positive, From("JOB_RECLAIM_INTERVAL_SEC", "worker.stream.reclaim_interval_sec")
    ] = 5
    reclaim_count: Annotated[
        int, Field(ge=1, le=10_000), From("JOB_RECLAIM_COUNT", "worker.stream.reclaim_count")
    ] = 16
    reclaim_grace_seconds: Annotated[
        float, Field(ge=0, le=86_400), From("JOB_RECLAIM_GRACE_SEC", "worker.stream.reclaim_grace_sec")
    ] = 15
    concurrency: Annotated[int, Field(ge=1, le=10_000), From("JOB_CONCURRENCY", "worker.concurrency")] = 100
    batch: Annotated[int, Field(ge=1, le=10_000), From("JOB_BATCH", "worker.batch")] = 500
    poll_seconds: Annotated[Positive, From("JOB_POLL_SEC", "worker.poll_sec")] = 1
    sweep_interval_seconds: Annotated[
        Positive, From("JOB_SWEEP_INTERVAL_SEC", "worker.sweep_interval_sec")
    ] = 10
    drain_seconds: Annotated[float, Field(ge=0, le=86_400), From("JOB_DRAIN_SEC", "worker.drain_sec")] = 30
    keep_finished_seconds: Annotated[
        Positive | None, From("JOB_KEEP_FINISHED_SEC", "worker.keep_finished_sec")
    ] = 86_400
    keep_finished_count: Annotated[
        int | None, Field(ge=0), From("JOB_KEEP_FINISHED_COUNT", "worker.keep_finished_count")
    ] = None
    prune_interval_seconds: Annotated[
        Positive, From("JOB_PRUNE_INTERVAL_SEC", "worker.prune_interval_sec")
    ] = 60
    processes: Annotated[
        int | None, Field(ge=1, le=1000), From("JOB_HANDLER_PROCESSES", "worker.handler_processes")
    ] = None

    @model_validator(mode="after")
    def _heartbeat_fits_the_lease(self) -> Self:
        if self.heartbeat_seconds * 2 > self.lease_seconds:
            raise ValueError(
                f"JOB_HEARTBEAT_SEC is {self.heartbeat_seconds} and JOB_LEASE_SEC is {self.lease_seconds}; "
                "allowed: a heartbeat of at most half the lease, so that one lost beat loses no job"
            )
        return self
