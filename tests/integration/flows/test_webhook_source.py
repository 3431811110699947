"""Webhooks that come in: verified, stored once by the delivery's id, and each in the flow once."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from fencepost.errors import ServerUnavailable
from fencepost.flows import Flow
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.outbox import OutboxChannel
from fencepost.webhooks import InvalidSignature, sign
from fencepost.webhooks.receiver import Fencepost, GitHub, Scheme, StandardWebhooks, Stripe, WebhookReceiver
from tests.integration.flows.harness import FlowHarness

SECRET = "a-secret-of-github"


def client(receiver: WebhookReceiver) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(receiver), base_url="http://hooks")


def signed(document: Any, delivery: str, secret: str = SECRET) -> dict[str, Any]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "X-Hub-Signature-256": f"sha256={digest}",
        "X-GitHub-Delivery": delivery,
        "X-GitHub-Event": "push",
    }
    return {"content": body, "headers": headers}


def messages(harness: FlowHarness) -> list[tuple[Any, Any, Any]]:
    return harness.rows("select payload, headers, key from fencepost.outbox order by id")


def lines(harness: FlowHarness) -> list[int]:
    return [row[0] for row in harness.rows("select value from line")]


async def test_deliveries_that_come_again_are_in_the_flow_once(harness: FlowHarness) -> None:
    receiver = WebhookReceiver(harness.fp, "github", GitHub(SECRET))
    source = OutboxChannel("github", with_id=True)
    flow = Flow("hooks").source(source).map(lambda record: int(record.value["n"]))
    async with (
        client(receiver) as sender,
        harness.running(harness.worker(flow.sink(PostgresRows("line", ["value"])))),
    ):

        async def deliver(n: int) -> int:
            return (await sender.post("/", **signed({"n": n}, f"delivery-{n}"))).status_code

        statuses = await asyncio.gather(*(deliver(n % 20) for n in range(60)))
        await harness.until(lambda: len(lines(harness)) >= 20)
        again = await asyncio.gather(*(deliver(n) for n in range(20)))

    assert statuses.count(202) == 20
    assert set(statuses) <= {202, 200, 409}
    assert set(again) == {200}
    assert sorted(lines(harness)) == list(range(20))


async def test_a_delivery_is_stored_with_its_id_its_key_and_chosen_headers(harness: FlowHarness) -> None:
    receiver = WebhookReceiver(
        harness.fp,
        "github",
        GitHub(["another", SECRET]),
        key=lambda body: body["repo"],
        keep=["X-GitHub-Event"],
    )
    async with client(receiver) as sender:
        assert (await sender.post("/", **signed({"repo": "a"}, "one"))).status_code == 202
        assert (await sender.post("/", **signed({"repo": "a", "n": 2}, "one"))).status_code == 422
        assert (await sender.post("/", **signed({"n": 2}, "two"))).status_code == 400

    [(payload, headers, key)] = messages(harness)
    assert payload == {"repo": "a"}
    assert headers == {"x-original-message-id": "one", "x-github-event": "push"}
    assert key == "a"


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        (signed({"n": 1}, "x", "another secret"), 401),
        (signed({"n": 1}, ""), 401),
        (signed({"n": 1}, "x" * 300), 401),
        ({"content": b"{}", "headers": {"X-GitHub-Delivery": "x"}}, 401),
        (signed(b"{", "x"), 400),
        (signed(b'{"n": NaN}', "x"), 400),
        (signed(b'{"n": "\\u0000"}', "x"), 400),
        (signed(b'"' + b"x" * 2000 + b'"', "x"), 413),
    ],
)
async def test_what_is_no_delivery_stores_nothing(
    harness: FlowHarness, request_of: dict[str, Any], status: int
) -> None:
    receiver = WebhookReceiver(harness.fp, "github", GitHub(SECRET), body_bytes_max=1000)
    async with client(receiver) as sender:
        assert (await sender.post("/", **request_of)).status_code == status
        assert (await sender.get("/")).status_code == 405

    assert messages(harness) == []
    async with client(WebhookReceiver(harness.fp, "github", GitHub(SECRET))) as sender:
        assert (await sender.post("/", **signed({"n": 1}, "x"))).status_code == 202


async def test_a_database_that_is_away_asks_the_sender_to_come_again(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise ServerUnavailable("away")

    receiver = WebhookReceiver(harness.fp, "github", GitHub(SECRET))
    async with client(receiver) as sender:
        with monkeypatch.context() as patch:
            patch.setattr(type(harness.fp), "transaction", away)
            answer = await sender.post("/", **signed({"n": 1}, "x"))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert (await sender.post("/", **signed({"n": 1}, "x"))).status_code == 202


BODY = b'{"id": "evt_1", "n": 1}'
STANDARD_KEY = b"a key of 24 bytes, as is"


def standard(at: int, body: bytes = BODY, key: bytes = STANDARD_KEY) -> dict[str, str]:
    mac = base64.b64encode(hmac.digest(key, f"msg_1.{at}.".encode() + body, "sha256")).decode()
    return {"webhook-id": "msg_1", "webhook-timestamp": str(at), "webhook-signature": f"v1a,x v1,{mac}"}


SCHEMES: Sequence[tuple[Scheme, Callable[[int], dict[str, str]], str]] = [
    (Stripe("s"), lambda at: {"stripe-signature": sign(BODY, ["s"], at=at)}, "evt_1"),
    (
        Fencepost(["s"]),
        lambda at: {"fencepost-signature": sign(BODY, ["other", "s"], at=at), "idempotency-key": "key-1"},
        "key-1",
    ),
    (StandardWebhooks("whsec_" + base64.b64encode(STANDARD_KEY).decode()), standard, "msg_1"),
]


@pytest.mark.parametrize(
    ("scheme", "signed_at", "delivery"), SCHEMES, ids=["stripe", "fencepost", "standard"]
)
def test_each_scheme_verifies_body_and_secret(
    scheme: Scheme, signed_at: Callable[[int], dict[str, str]], delivery: str
) -> None:
    headers = signed_at(int(time.time()))
    assert scheme.verified(headers, BODY) == delivery
    with pytest.raises(InvalidSignature):
        scheme.verified(headers, BODY + b" ")
    for name in headers:
        with pytest.raises(InvalidSignature):
            scheme.verified({other: value for other, value in headers.items() if other != name}, BODY)


def test_vectors_that_the_senders_publish() -> None:
    github = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"x-hub-signature-256": github, "x-github-delivery": "d"}
    assert GitHub("It's a Secret to Everybody").verified(headers, b"Hello, World!") == "d"

    standard_headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    scheme = StandardWebhooks("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", tolerance_seconds=1e9)
    assert scheme.verified(standard_headers, b'{"test": 2432232314}') == "msg_p5jXN8AQM9LWM0D4loKWxJek"


def test_a_recorded_request_cannot_be_sent_much_later() -> None:
    scheme = StandardWebhooks("whsec_" + base64.b64encode(STANDARD_KEY).decode())
    too_early = int(time.time()) - 301
    with pytest.raises(InvalidSignature, match="too old"):
        scheme.verified(standard(too_early), BODY)
    with pytest.raises(InvalidSignature):
        Stripe("s").verified({"stripe-signature": sign(BODY, ["s"], at=too_early)}, BODY)


@pytest.mark.parametrize("secrets", ["", [], ["a", ""]])
def test_a_receiver_without_a_secret_is_refused(secrets: Any) -> None:
    for scheme in (GitHub, Stripe, Fencepost, StandardWebhooks):
        with pytest.raises(ValueError, match="none of them empty"):
            scheme(secrets)


def test_a_secret_that_is_no_base64_is_refused() -> None:
    with pytest.raises(ValueError, match="base64"):
        StandardWebhooks("whsec_?")
