"""Settings of a relay."""

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

    batch_size: Annotated[int, Field(ge=1, le=1000), From("OUTBOX_BATCH", "outbox.batch")] = 32
    parallelism: Annotated[int, Field(ge=1, le=256), From("OUTBOX_BATCHES", "outbox.batches")] = 4
    retry_max: Annotated[int, Field(ge=0, le=100), From("OUTBOX_RETRIES", "outbox.retries")] = 8
    idle_seconds: Annotated[float, Field(ge=0.001, le=600), From("OUTBOX_IDLE_SEC", "outbox.idle_sec")] = 0.2
    lease_seconds: Annotated[
        float, Field(ge=0.06, le=86_400), From("OUTBOX_LEASE_SEC", "outbox.lease_sec")
    ] = 10
    """How long a take lasts without a renewal: a relay that dies is noticed then."""
    stuck_seconds: Annotated[
        float, Field(ge=0.06, le=86_400), From("OUTBOX_STUCK_SEC", "outbox.stuck_sec")
    ] = 600
    """How long a delivery may take in a relay that is alive."""
    backoff_base_seconds: Annotated[
        float, Field(ge=0.001, le=3600), From("OUTBOX_BACKOFF_BASE_SEC", "outbox.backoff_base_sec")
    ] = 2
    webhooks: Annotated[str, From("OUTBOX_WEBHOOKS", "outbox.webhooks", secret=True)] = ""
    webhook_token: Annotated[
        str | None, From("OUTBOX_WEBHOOK_TOKEN", "outbox.webhook_token", secret=True)
    ] = None

    webhook_loopback: Annotated[bool, From("OUTBOX_WEBHOOK_LOOPBACK", "outbox.webhook_loopback")] = False
    """Whether registered webhooks may name addresses of this machine."""

    @property
    def hooks(self) -> Mapping[str, str]:
        """The URL of each channel's messages."""
        return _hooks(self.webhooks)

    @model_validator(mode="after")
    def _webhooks_can_be_read(self) -> Self:
        _hooks(self.webhooks)
        return self

    def pace(self) -> RelayLimits:
        """`parallelism` batches are in progress. A take lasts for its lease and is renewed; a delivery lasts
        until it counts as stuck."""
        return RelayLimits(
            batch=self.batch_size,
            in_flight_max=self.batch_size * self.parallelism,
            lease_seconds=min(self.lease_seconds, self.stuck_seconds),
            delivery_seconds=self.stuck_seconds,
            idle_seconds=self.idle_seconds,
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
