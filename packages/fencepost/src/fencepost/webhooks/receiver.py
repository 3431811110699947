"""Webhooks that other services send here: verified, stored once by their delivery id, and passed on.

A delivery is written to an outbox channel in the transaction that claims its id, so a repeated one is
answered and changes nothing. A flow reads the channel (`OutboxChannel`), or a relay delivers it.

    app.add_route("/hooks/github", WebhookReceiver(fp, "github", GitHub(os.environ["GITHUB_SECRET"])))
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from fencepost.database import AsyncDatabase
from fencepost.errors import IndeterminateCommit, InvalidInput, Refusal, ServerUnavailable
from fencepost.kernel import outbox
from fencepost.logs import get_logger
from fencepost.webhooks._signature import HEADER, TOLERANCE_SECONDS, InvalidSignature, verify

__all__ = ["Fencepost", "GitHub", "Scheme", "StandardWebhooks", "Stripe", "WebhookReceiver"]

_log = get_logger(__name__)
BODY_BYTES_MAX = 1 << 20
ID_CHARACTERS_MAX = 255
ORIGINAL_ID = "x-original-message-id"
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class Scheme(Protocol):
    """How a sender signs its requests and names its deliveries."""

    def verified(self, headers: Mapping[str, str], body: bytes) -> str:
        """The id of the delivery. Raises InvalidSignature. Names of headers are in lower case."""
        ...


def _known(secrets: str | Sequence[str]) -> list[str]:
    known = [secrets] if isinstance(secrets, str) else list(secrets)
    if not known or not all(known):
        # An empty secret would accept a signature that everybody can make.
        raise ValueError("A receiver of webhooks needs secrets, none of them empty.")
    return known


def _delivery_id(given: object, where: str) -> str:
    if (
        not isinstance(given, str)
        or not given.strip()
        or len(given) > ID_CHARACTERS_MAX
        or not given.isprintable()
    ):
        raise InvalidSignature(f"The delivery has no id in {where}, or a very long one.")
    return given


def _fits(expected: Sequence[bytes], given: Sequence[bytes]) -> bool:
    # Every pair is compared: the time taken says nothing about which one fits.
    fits = [hmac.compare_digest(mine, one) for mine in expected for one in given]
    return any(fits)


class Fencepost:
    """Webhooks of another Fencepost: `Fencepost-Signature`, and the id in `Idempotency-Key`."""

    def __init__(self, secrets: str | Sequence[str], *, id_header: str = "Idempotency-Key") -> None:
        self._secrets = _known(secrets)
        self._id_header = id_header

    def verified(self, headers: Mapping[str, str], body: bytes) -> str:
        """The id of the delivery."""
        verify(body, headers.get(HEADER.lower()), self._secrets)
        return _delivery_id(headers.get(self._id_header.lower()), self._id_header)


class GitHub:
    """`X-Hub-Signature-256` over the body, and the id in `X-GitHub-Delivery`, which GitHub does not sign."""

    def __init__(self, secrets: str | Sequence[str]) -> None:
        self._secrets = _known(secrets)

    def verified(self, headers: Mapping[str, str], body: bytes) -> str:
        """The id of the delivery."""
        given = headers.get("x-hub-signature-256", "").encode("latin-1", "replace")
        expected = [
            b"sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest().encode()
            for secret in self._secrets
        ]
        if not _fits(expected, [given]):
            raise InvalidSignature("X-Hub-Signature-256 does not fit the body. Check the secret.")
        return _delivery_id(headers.get("x-github-delivery"), "X-GitHub-Delivery")


class _Event(msgspec.Struct):
    id: Any = None


class Stripe:
    """`Stripe-Signature` over time and body, and the id of the event in the body."""

    def __init__(self, secrets: str | Sequence[str], *, tolerance_seconds: float = TOLERANCE_SECONDS) -> None:
        self._secrets = _known(secrets)
        self._tolerance_seconds = tolerance_seconds

    def verified(self, headers: Mapping[str, str], body: bytes) -> str:
        """The id of the event."""
        verify(
            body,
            headers.get("stripe-signature"),
            self._secrets,
            tolerance_seconds=self._tolerance_seconds,
        )
        try:
            event = msgspec.json.decode(body, type=_Event)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            event = _Event(None)
        return _delivery_id(event.id, "the body's id")


class StandardWebhooks:
    """The headers webhook-id, webhook-timestamp and webhook-signature; secrets begin with `whsec_`."""

    def __init__(self, secrets: str | Sequence[str], *, tolerance_seconds: float = TOLERANCE_SECONDS) -> None:
        try:
            self._keys = [
                base64.b64decode(secret.removeprefix("whsec_"), validate=True) for secret in _known(secrets)
            ]
        except binascii.Error:
            raise ValueError("A secret of Standard Webhooks is base64 behind whsec_.") from None
        if not all(self._keys):
            raise ValueError("A receiver of webhooks needs secrets, none of them empty.")
        self._tolerance_seconds = tolerance_seconds

    def verified(self, headers: Mapping[str, str], body: bytes) -> str:
        """The id of the delivery."""
        delivery = _delivery_id(headers.get("webhook-id"), "webhook-id")
        seconds = headers.get("webhook-timestamp", "")
        if not (seconds.isascii() and seconds.isdigit() and len(seconds) <= 12):
            raise InvalidSignature("There is no time in webhook-timestamp.")
        signed = f"{delivery}.{seconds}.".encode() + body
        expected = [base64.b64encode(hmac.digest(key, signed, "sha256")) for key in self._keys]
        given = [
            part.removeprefix("v1,").encode("latin-1", "replace")
            for part in headers.get("webhook-signature", "").split()
            if part.startswith("v1,")
        ]
        if not _fits(expected, given[:16]):
            raise InvalidSignature("webhook-signature does not fit id, time and body. Check the secret.")
        if not abs(time.time() - int(seconds)) <= self._tolerance_seconds:
            raise InvalidSignature("The request is too old, or from the future. Check both clocks.")
        return delivery


class _Answer(NamedTuple):
    status: int
    said: str
    headers: Mapping[str, str] = {}


class WebhookReceiver:
    """An ASGI application for one sender: make it a route of yours, or run it by itself.

    Each delivery becomes one message of the outbox channel: its JSON body, with the delivery's id in the
    header `x-original-message-id`. `key` makes the message's key of the body, by which order is kept; `keep`
    names request headers to store with it. Ids are recognised for as long as idempotency keys are kept.

    It answers 202 for a new delivery and 200 for a repeated one; 401 for a wrong signature, 400 for a body
    that is no JSON, 413 for a large one, 422 for a known id with another body; 409 and 503, with Retry-After,
    when it should come again. Nothing is stored unless the answer is 202.
    """

    def __init__(
        self,
        fp: AsyncDatabase,
        channel: str,
        scheme: Scheme,
        *,
        key: Callable[[Any], str | None] | None = None,
        keep: Sequence[str] = (),
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        self._fp = fp
        self._channel = channel
        self._scheme = scheme
        self._key = key
        self._keep = [name.lower() for name in keep]
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: Mapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"A receiver of webhooks answers http, and not {scope['type']}.")
        answer = await self._answer(scope, receive)
        body = json.dumps({"status": answer.said}).encode()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **answer.headers}
        named = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": named})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, scope: Mapping[str, Any], receive: _Receive) -> _Answer:
        if scope["method"] != "POST":
            return _Answer(405, "send a POST", {"Allow": "POST"})
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        body = await self._body(receive)
        if body is None:
            return _Answer(413, f"a body has at most {self._body_bytes_max} bytes")
        try:
            delivery = self._scheme.verified(headers, body)
            return await self._store(delivery, body, headers)
        except InvalidSignature as error:
            _log.warning("webhook_refused", channel=self._channel, error=str(error))
            return _Answer(401, "the signature does not fit")
        except InvalidInput as error:
            return _Answer(400, str(error))
        except (ServerUnavailable, IndeterminateCommit):
            return _Answer(503, "not stored; send it again", {"Retry-After": "5"})

    async def _body(self, receive: _Receive) -> bytes | None:
        """The whole body; None for one that is too large."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ConnectionResetError("The sender hung up before its request was whole.")
            body += message.get("body", b"")
            if len(body) > self._body_bytes_max:
                return None
            if not message.get("more_body", False):
                return bytes(body)

    async def _store(self, delivery: str, body: bytes, headers: Mapping[str, str]) -> _Answer:
        kept = {name: headers[name] for name in self._keep if name in headers}
        document, key = self._read(body)
        put = outbox.put(self._channel, document, key=key, headers={**kept, ORIGINAL_ID: delivery})
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        try:
            async with self._fp.transaction() as tx:
                await tx.claim(f"webhooks/{self._channel}", delivery, digest=digest)
                await tx.run(put)
        except Refusal as refusal:
            match refusal.reason:
                case "duplicate":
                    return _Answer(200, "was stored before")
                case "in_flight":
                    return _Answer(409, "is being stored", {"Retry-After": "1"})
                case "mismatch":
                    return _Answer(422, "this id was sent with another body")
                case _:
                    raise
        return _Answer(202, "stored")

    def _read(self, body: bytes) -> tuple[Any, str | None]:
        """The document and its key."""
        try:
            document = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise InvalidInput("The body is no JSON.", field="body") from None
        try:
            return document, None if self._key is None else self._key(document)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise InvalidInput(f"The body has no key: {type(error).__name__}.", field="body") from None
