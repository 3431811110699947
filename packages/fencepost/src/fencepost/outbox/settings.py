"""Settings of a relay, under the names that operators of order outboxes know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from fencepost.layered_settings import From, LayeredSettings
from fencepost.outbox.relay import RelayLimits
from fencepost.settings import is_http_url, pairs_of

CHANNEL_MAX = 128
"""The maximum length of an outbox channel's name."""


class OutboxSettings(LayeredSettings):
    """One instance for the relays of a process."""

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
    webhooks: Annotated[str, From("OUTBOX_WEBHOOKS", "outbox.webhooks", secret=True)] = ""
    webhook_token: Annotated[
        str | None, From("OUTBOX_WEBHOOK_TOKEN", "outbox.webhook_token", secret=True)
    ] = None

    @property
    def hooks(self) -> Mapping[str, str]:
        """The URL of each channel's messages."""
        return _hooks(self.webhooks)

    @model_validator(mode="after")
    def _webhooks_can_be_read(self) -> Self:
        _hooks(self.webhooks)
        return self

    def pace(self) -> RelayLimits:
        """`parallelism` batches are in progress; takes and deliveries last until they count as stuck."""
        return RelayLimits(
            batch=self.batch_size,
            in_flight_max=self.batch_size * self.parallelism,
            lease_seconds=self.stuck_threshold_min * 60,
            delivery_seconds=self.stuck_threshold_min * 60,
            idle_seconds=self.idle_sleep_ms / 1000,
        )


def _hooks(given: str) -> Mapping[str, str]:
    """`shop=https://a/hook; audit=https://b` by channel."""
    found: dict[str, str] = {}
    for channel, url in pairs_of(given):
        if not _is_channel(channel) or channel in found or not is_http_url(url):
            raise ValueError(
                "OUTBOX_WEBHOOKS cannot be read; allowed: a channel, =, and a URL; several with ; between"
            )
        found[channel] = url
    return found


def _is_channel(name: str) -> bool:
    """Names with a colon belong to a service, which delivers those messages itself."""
    return 0 < len(name) <= CHANNEL_MAX and ":" not in name
