"""Where channels are delivered to, and what is said of wrong addresses."""

import pytest

from fencepost.errors import SettingsError
from fencepost.outbox.settings import OutboxSettings


def test_channels_are_read_with_their_urls() -> None:
    settings = OutboxSettings.load(
        {"OUTBOX_WEBHOOKS": " shop = https://a/hook?x=1 ; audit=http://[::1]:80/;"}
    )

    assert settings.hooks == {"shop": "https://a/hook?x=1", "audit": "http://[::1]:80/"}
    assert OutboxSettings.load({}).hooks == {}


@pytest.mark.parametrize(
    "wrong",
    [
        "shop",
        "shop=",
        "=http://a",
        "shop=ftp://a",
        "shop=http://",
        "shop=http://[a",
        "a=http://a:0",
        "a=http://a:b",
        "orders:acme=http://a",
        "a=http://a;a=http://b",
        "a" * 129 + "=http://a",
    ],
)
def test_webhooks_that_cannot_be_read_are_refused(wrong: str) -> None:
    with pytest.raises(SettingsError, match="OUTBOX_WEBHOOKS"):
        OutboxSettings.load({"OUTBOX_WEBHOOKS": wrong})


def test_secrets_are_not_shown() -> None:
    secret = "hunter2hunter2"
    settings = OutboxSettings.load(
        {"OUTBOX_WEBHOOKS": f"shop=https://u:{secret}@a", "OUTBOX_WEBHOOK_TOKEN": secret}
    )

    assert secret not in repr(settings)


def test_a_take_is_leased_for_seconds_and_a_delivery_may_take_minutes() -> None:
    pace = OutboxSettings.load({}).pace()

    assert (pace.lease_seconds, pace.delivery_seconds) == (10, 600)
    assert OutboxSettings.load({"OUTBOX_STUCK_SEC": "3"}).pace().lease_seconds == 3, "a lease is no longer"
    assert OutboxSettings.load({"OUTBOX_LEASE_SEC": "30"}).pace().lease_seconds == 30
