"""Settings of a relay, under the names that operators of order outboxes know."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fencepost.layered_settings import From, LayeredSettings
from fencepost.outbox.relay import Pace


class OutboxSettings(LayeredSettings):
    """One value for the relays of a process."""

    batch_size: Annotated[int, Field(ge=1, le=1000), From("OUTBOX_BATCH_SIZE", "outbox.batch_size")] = 32
    parallelism: Annotated[int, Field(ge=1, le=256), From("OUTBOX_PARALLELISM", "outbox.parallelism")] = 4
    retry_max: Annotated[int, Field(ge=0, le=100), From("OUTBOX_RETRY_MAX", "outbox.retry_max")] = 8
    idle_sleep_ms: Annotated[
        float, Field(ge=1, le=600_000), From("OUTBOX_IDLE_SLEEP_MS", "outbox.idle_sleep_ms")
    ] = 200
    stuck_threshold_min: Annotated[
        float, Field(ge=0.001, le=1440), From("OUTBOX_STUCK_THRESHOLD_MIN", "outbox.stuck_threshold_min")
    ] = 10
    backoff_base_seconds: Annotated[
        float, Field(ge=0.001, le=3600), From("OUTBOX_BACKOFF_BASE_SEC", "outbox.backoff_base_sec")
    ] = 2

    def pace(self) -> Pace:
        """`parallelism` batches are under way at once; a take lasts until it counts as stuck."""
        return Pace(
            batch=self.batch_size,
            in_flight_max=self.batch_size * self.parallelism,
            lease_seconds=self.stuck_threshold_min * 60,
            idle_seconds=self.idle_sleep_ms / 1000,
        )
