"""Settings of the flow runtime."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from fencepost.layered_settings import From, LayeredSettings
from fencepost.settings import Positive


class FlowSettings(LayeredSettings):
    """Settings shared by all flows of a process."""

    lease_seconds: Annotated[Positive, From("FLOW_LEASE_SEC", "flows.lease_sec")] = 5
    heartbeat_seconds: Annotated[Positive, From("FLOW_HEARTBEAT_SEC", "flows.heartbeat_sec")] = 1
    interval_seconds: Annotated[
        Positive, From("FLOW_CHECKPOINT_INTERVAL_SEC", "flows.checkpoint_interval_sec")
    ] = 1
    records_max: Annotated[
        int, Field(ge=1, le=10_000_000), From("FLOW_CHECKPOINT_RECORDS", "flows.checkpoint_records")
    ] = 100_000
    batch: Annotated[int, Field(ge=1, le=1_000_000), From("FLOW_BATCH", "flows.batch")] = 5_000
    channel_length: Annotated[
        int, Field(ge=2, le=100_000), From("FLOW_CHANNEL_LENGTH", "flows.channel_length")
    ] = 32
    drain_seconds: Annotated[float, Field(ge=0, le=86_400), From("FLOW_DRAIN_SEC", "flows.drain_sec")] = 10
    balance_seconds: Annotated[Positive, From("FLOW_BALANCE_SEC", "flows.balance_sec")] = 1
    keep_checkpoints: Annotated[
        int, Field(ge=1, le=1000), From("FLOW_KEEP_CHECKPOINTS", "flows.keep_checkpoints")
    ] = 5
    redis_connections: Annotated[
        int, Field(ge=4, le=10_000), From("FLOW_REDIS_CONNECTIONS", "flows.redis_connections")
    ] = 64
    state_dir: Annotated[str | None, From("FLOW_STATE_DIR", "flows.state_dir")] = None
    state_memory_mb: Annotated[
        int, Field(ge=1, le=1_000_000), From("FLOW_STATE_MEMORY_MB", "flows.state_memory_mb")
    ] = 256
    workers_max: Annotated[int, Field(ge=1, le=4096), From("FLOW_WORKERS_MAX", "flows.workers_max")] = 64

    @property
    def adapts_interval(self) -> bool:
        """Whether a task chooses the interval of its commits, up to the default: nothing else was set."""
        return "interval_seconds" not in self.model_fields_set

    @model_validator(mode="after")
    def _heartbeat_fits_the_lease(self) -> Self:
        if self.heartbeat_seconds * 3 > self.lease_seconds:
            raise ValueError(
                f"FLOW_HEARTBEAT_SEC is {self.heartbeat_seconds} and FLOW_LEASE_SEC is {self.lease_seconds}; "
                "allowed: a heartbeat of at most a third of the lease, so that one lost beat loses no task"
            )
        return self
