from __future__ import annotations

import pytest

from fencepost.redaction import redact_named, redact_text, redact_url


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://app:s3cret@db:5432/shop", "postgresql://app:***@db:5432/shop"),
        ("redis://:s3cret@cache/0", "redis://:***@cache/0"),
        ("cannot reach postgresql://a:s3@cret/x@h/db today", "cannot reach postgresql://a:***@h/db today"),
        ("host=db password=s3cret user=app", "host=db password=*** user=app"),
        ("token=s3cret", "token=***"),
        ('{"api_key": "s3cret"}', '{"api_key": ***"}'),
        ("http://127.0.0.1:8080/metrics", "http://127.0.0.1:8080/metrics"),
        ("token=17 was refused: token: 18 is newer", "token=17 was refused: token: 18 is newer"),
    ],
)
def test_a_text_keeps_everything_but_its_secrets(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://app:s3cret@db:5432/shop", "postgresql://app:***@db:5432/shop"),
        ("postgresql://app@db/shop?sslmode=require", "postgresql://app@db/shop?sslmode=require"),
        ("postgresql://db/shop?password=s3cret", "postgresql://db/shop?password=***"),
        ("postgresql://app:s3cret@[::1]:5432/shop", "postgresql://app:***@[::1]:5432/shop"),
        (
            "postgresql://app:s3cret@a:5432,[::1]:5433,c/shop?target_session_attrs=read-write",
            "postgresql://app:***@a:5432,[::1]:5433,c/shop?target_session_attrs=read-write",
        ),
        ("unix:///run/valkey.sock", "unix:///run/valkey.sock"),
        ("postgresql:///shop?host=/run/pg", "postgresql:///shop?host=/run/pg"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redact_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:s3/cret@db",
        "postgresql://app:s3cret",
        "postgresql://a,app:s3cret",
        "app:s3cret",
        "s3cret",
    ],
)
def test_a_url_that_cannot_be_read_is_hidden_whole(url: str) -> None:
    assert redact_url(url) == "***"


def test_a_fencing_token_is_shown_and_a_secret_token_is_not() -> None:
    assert redact_named("token", 17) == 17
    assert redact_named("token", "17") == "17"
    assert redact_named("token", "s3cret") == "***"
    assert redact_named("access_token", b"s3cret") == "***"


@pytest.mark.parametrize("name", ["password", "DB_PASSWORD", "client_secret", "apiKey", "Authorization"])
def test_a_name_that_speaks_of_a_secret_hides_its_value(name: str) -> None:
    assert redact_named(name, "12345") == "***"


def test_secrets_inside_dictionaries_and_lists_are_found() -> None:
    given = {"broker": {"api_secret": "s3cret", "tokens": ["s3cret"]}, "urls": ("redis://:s3cret@h",), "n": 1}
    assert redact_named("event", given) == {
        "broker": {"api_secret": "***", "tokens": ["***"]},
        "urls": ["redis://:***@h"],
        "n": 1,
    }
