"""Signature Version 4 against the vectors that AWS publishes, and signatures in DER."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_nonces._errors import SigningFailed
from fencepost_nonces.sending._aws_signature import AwsCredentials, signed_headers
from fencepost_nonces.sending._hosted_keys import ORDER, read_der
from tests.acceptance.nonces.key_services import der

CREDENTIALS = AwsCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")


@pytest.mark.parametrize(
    ("method", "url", "headers", "signature"),
    [
        (
            "GET",
            "https://example.amazonaws.com/",
            {},
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        (
            "POST",
            "https://example.amazonaws.com/",
            {},
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        ),
        (
            "GET",
            "https://example.amazonaws.com/?Param2=value2&Param1=value1",
            {},
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            "POST",
            "https://example.amazonaws.com/",
            {"My-Header1": "VALUE1"},
            "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d",
        ),
    ],
    ids=["get-vanilla", "post-vanilla", "get-vanilla-query-order-key-case", "post-header-value-case"],
)  # fmt: skip
def test_the_published_vectors(method: str, url: str, headers: dict[str, str], signature: str) -> None:
    sent = signed_headers(
        method,
        url,
        headers,
        b"",
        credentials=CREDENTIALS,
        region="us-east-1",
        service="service",
        at=datetime(2015, 8, 30, 12, 36, tzinfo=UTC),
    )
    assert sent["Authorization"].endswith(f"Signature={signature}")
    assert sent["X-Amz-Date"] == "20150830T123600Z"


def test_neither_the_secret_nor_the_session_is_shown() -> None:
    assert repr(AwsCredentials("id", "secret", "session")) == "AwsCredentials(access_key_id='id')"


NUMBERS = st.integers(1, ORDER - 1)


@given(NUMBERS, NUMBERS)
def test_der_is_read_as_it_was_written(r: int, s: int) -> None:
    assert read_der(der(r, s)) == (r, s)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    try:
        r, s = read_der(text)
    except SigningFailed:
        return
    assert der(r, s) == text


@pytest.mark.parametrize(
    "wrong", [der(0, 1), der(ORDER, 1), der(1, ORDER), der(5, 7) + b"\0", der(5, 7)[:-1]]
)
def test_what_no_chain_takes_is_refused(wrong: bytes) -> None:
    with pytest.raises(SigningFailed):
        read_der(wrong)
