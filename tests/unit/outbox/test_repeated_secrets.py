"""A receiver that repeats what it was sent: what is kept of its answer has none of our secrets."""

from urllib.parse import quote

import pytest

from fencepost.http_client import EXCERPT_MAX, HttpClient, NotSent, Reply, Request

KEY = "T0pSecretKey"
SPACED = "words apart"
SEGMENT = "XXXXyyyyZZZZ11112222"


def repeated(text: str, url: str = "https://house.example/v2/orders", **headers: str) -> str:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(400, {}, text.encode(), Request("POST", url, named)).excerpt()


@pytest.mark.parametrize(
    "header", ["Authorization", "APCA_API_KEY_ID", "X_Api_Key", "OK_ACCESS_SIGN", "Cookie", "X_Auth_Token"]
)
def test_a_header_that_lets_in_is_hidden_by_its_value(header: str) -> None:
    assert repeated(f"I know no {KEY}, sorry", **{header: f"Bearer {KEY}"}) == "I know no ***, sorry"


def test_what_identifies_a_request_stays() -> None:
    told = "key fencepost-outbox-7 was used for another body of application/json at /v2/orders"
    assert repeated(told, Idempotency_Key="fencepost-outbox-7", Content_Type="application/json") == told


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"https://house.example/services/{SEGMENT}", f"Cannot POST /services/{SEGMENT}"),
        (f"https://house.example/?key={KEY}", f"Cannot POST /?key={KEY}"),
        (f"https://ada:{KEY}@house.example/", f"Who is {KEY}?"),
        (f"https://ada:{quote(SPACED)}@house.example/", f"Who is {SPACED}?"),
        (f"https://ada:{KEY}@house.example/", "Basic YWRhOlQwcFNlY3JldEtleQ=="),
    ],
)
def test_a_key_in_the_address_is_hidden_wherever_it_stood(url: str, said: str) -> None:
    shown = repeated(said, url)

    assert "***" in shown
    assert not [secret for secret in (KEY, SEGMENT, SPACED, "YWRhOlQ") if secret in shown]


def test_no_half_of_a_secret_is_left_at_the_end_of_an_excerpt() -> None:
    shown = repeated("x" * (EXCERPT_MAX - 5) + KEY, Authorization=KEY)

    assert KEY[:3] not in shown
    assert len(shown) <= EXCERPT_MAX


async def test_an_address_that_does_not_answer_is_named_without_its_keys() -> None:
    async with HttpClient() as client:
        with pytest.raises(NotSent) as failure:
            await client.exchange(Request("POST", f"http://ada:{KEY}@127.0.0.1:9/hooks/{SEGMENT}?key={KEY}"))

    assert str(failure.value).startswith("POST http://127.0.0.1:9/hooks/***: ConnectionRefusedError")
