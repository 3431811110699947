"""What a webhook's answer means for its message."""

from datetime import UTC, datetime

import pytest

from fencepost.backoff import Backoff, retry_after_seconds
from fencepost.http_client import HttpClient, Reply
from fencepost.kernel.outbox import Message
from fencepost.outbox._webhook import Webhook

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def message(attempts: int = 1, **headers: str) -> Message:
    return Message(7, None, {"n": 1}, headers, attempts, 3, NOW)


@pytest.fixture
def webhook() -> Webhook:
    return Webhook(HttpClient(), "http://receiver/hook", backoff=Backoff(jitter=0), tries_max=3)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "sent"),
        (204, "sent"),
        (400, "dead"),
        (410, "dead"),
        (409, "failed"),
        (429, "failed"),
        (500, "failed"),
        (302, "failed"),
    ],
)
def test_a_status_means(webhook: Webhook, status: int, outcome: str) -> None:
    assert webhook.settlement(message(), Reply(status)).outcome == outcome


def test_every_repeat_has_the_same_key(webhook: Webhook) -> None:
    first, second = webhook.request(message(1)), webhook.request(message(2))
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"] == "fencepost-outbox-7"
    assert webhook.request(message(1, idempotency_key="mine")).headers["Idempotency-Key"] == "mine"


def test_it_gives_up_after_its_tries(webhook: Webhook) -> None:
    waits = [webhook.settlement(message(attempts), Reply(500)) for attempts in (1, 2, 3)]
    assert [(wait.outcome, wait.delay_seconds) for wait in waits] == [
        ("failed", 2),
        ("failed", 4),
        ("dead", None),
    ]


def test_it_waits_as_it_is_told(webhook: Webhook) -> None:
    assert webhook.settlement(message(), Reply(503, {"retry-after": "9"})).delay_seconds == 9


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5", 5),
        (" 5 ", 5),
        ("Tue, 01 Jan 2030 00:00:09 GMT", 9),
        ("Mon, 31 Dec 2029 23:59:00 GMT", 0),
        ("-5", None),
        ("soon", None),
        ("", None),
        (None, None),
        ("999999999", 86_400),
    ],
)
def test_retry_after_is_read_in_both_forms(value: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(value, NOW) == seconds
